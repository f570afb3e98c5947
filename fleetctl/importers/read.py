"""From files to a draft: each document goes to the importer of its kind, and everything left unread is reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleetctl.documents.inventory import Inventory
from fleetctl.documents.quantity import some
from fleetctl.fleetfile.compose import compose_bytes
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.draft import Draft
from fleetctl.importers.kubernetes.objects import model_keys
from fleetctl.importers.lws import read_leader_worker_set
from fleetctl.importers.modelplane.deployment import read_deployment
from fleetctl.importers.modelplane.hardware import read_inventory
from fleetctl.importers.ndif import read_models
from fleetctl.importers.reading import Reading, is_duplicate
from fleetctl.importers.serve import read_applications
from fleetctl.importers.sources import WORDS, Source, sort_out
from fleetctl.problem import Problem

_OBJECTS: dict[tuple[str, str], Callable[[Reading, str, Draft], None]] = {
    ("modelplane", "ModelDeployment"): read_deployment,
    ("lws", "LeaderWorkerSet"): read_leader_worker_set,
}
_LISTS: dict[str, Callable[[Reading, Draft], None]] = {"ndif": read_models, "serve": read_applications}
_HARDWARE = ("InferenceClass", "InferenceCluster")


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of a run: the draft, and the inventory if one was asked for and InferenceClusters were given."""

    draft: Draft
    inventory: Inventory | None = None


def documents_of(read: Sequence[SourceBytes]) -> tuple[list[Document], list[Problem]]:
    """Return the documents of all files, and the problems of their YAML."""
    composed = [compose_bytes(source) for source in read]
    documents = [document for one in composed for document in one.documents]
    return documents, [problem for one in composed for problem in one.problems]


def import_documents(documents: Sequence[Document], *, fleet: str, forced: str | None = None,
                     observed_at: str | None = None) -> Imported:
    """Return a draft of the fleet `fleet` with every model in the documents.

    `forced` = the kind to read every document as. With `observed_at` (RFC 3339) the declared clusters become an
    inventory of that moment; without it they are reported as lost.
    """
    sources, records = sort_out(documents, forced)
    files = some(list(dict.fromkeys(document.source.file for document in documents)), 3)
    kinds = ", ".join(dict.fromkeys(WORDS[one.kind] for one in sources))
    draft = Draft(fleet, f"{files} ({kinds})" if kinds else files)
    _read_objects([one for one in sources if (one.kind, one.type) in _OBJECTS], draft)
    for one in sources:
        if one.kind in _LISTS:
            _LISTS[one.kind](one.reading, draft)
        elif (one.kind, one.type) not in _OBJECTS and one.type not in _HARDWARE:
            one.reading.lose(None, f"{one.type or 'a document'} is not imported from {WORDS[one.kind]}")
    inventory = _inventory(sources, observed_at, draft)
    draft.losses += [loss for record in records for loss in record.close()]
    return Imported(draft, inventory)


def _read_objects(sources: Sequence[Source], draft: Draft) -> None:
    keys = model_keys([one.reading for one in sources])
    for one, key in zip(sources, keys, strict=True):
        if not key:
            one.reading.lose(None, f"{one.type} without metadata.name: it has no model key")
        elif not is_duplicate(one.reading, key, draft):
            _OBJECTS[one.kind, one.type](one.reading, key, draft)


def _inventory(sources: Sequence[Source], observed_at: str | None, draft: Draft) -> Inventory | None:
    classes, clusters = ([one.reading for one in sources if one.type == kind] for kind in _HARDWARE)
    if observed_at is None:
        for one in (*classes, *clusters):
            one.lose(None, "not part of a fleet file: --inventory-out FILE makes an inventory of it")
        return None
    found = read_inventory(classes, clusters, observed_at=observed_at, source=draft.made_from)
    return found if clusters else None
