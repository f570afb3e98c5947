"""From files to a draft: each document goes to the importer of its kind, and everything left unread is reported.

The kind of a document follows from its content, unless it is forced. In a RayService it is that of the Serve config.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.documents.fleet import API_VERSION
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.quantity import some
from fleetctl.fleetfile.compose import Composed, compose_bytes
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.draft import Draft
from fleetctl.importers.hardware import read_inventory
from fleetctl.importers.lws import read_disaggregated_set, read_leader_worker_set
from fleetctl.importers.modelplane import read_deployment
from fleetctl.importers.ndif import read_models
from fleetctl.importers.objects import model_keys, read_metadata
from fleetctl.importers.reading import Reading, Record, is_duplicate
from fleetctl.importers.serve import read_applications
from fleetctl.importers.variants import would_be_variants
from fleetctl.problem import Problem

KINDS = ("ndif", "modelplane", "lws", "serve")
"""The kinds that can be imported from files; `live` is the cluster itself."""

WORDS = {"ndif": "NDIF's models", "modelplane": "Modelplane", "lws": "LeaderWorkerSets", "serve": "a Ray Serve config"}
_GROUPS = {"modelplane.ai": "modelplane", "leaderworkerset.x-k8s.io": "lws",
           "disaggregatedset.x-k8s.io": "lws"}
_NOT_IMPORTED = {
    "ModelCache": "a fleet file has no caches: the weights must be on the nodes",
    "ModelService": "requests are routed by the callers of the engines",
    "ModelEndpoint": "requests are routed by the callers of the engines",
    "InferenceGateway": "requests are routed by the callers of the engines",
    "ModelReplica": "made by Modelplane from a ModelDeployment: import that",
}
EXPECTED = "expected ModelDeployments, LeaderWorkerSets, RayServices, Serve applications or NDIF models"
_CONFIG = "serveConfigV2"


@dataclass(frozen=True, slots=True)
class Source:
    """One object of the input, a document or an item of a List. `kind` = one of KINDS, `type` = its Kubernetes kind."""

    reading: Reading
    kind: str
    type: str


def sort_out(
    documents: Sequence[Document], forced: str | None, runtime: str | None = None
) -> tuple[list[Source], list[Record]]:
    """Return the objects that can be imported, and the record of every document, with all other objects reported.

    `forced` = the kind to read every document as; `runtime` = the one that starts their images.
    """
    records: list[Record] = []
    found: list[Source | None] = []
    for document in documents:
        records.append(record := Record(document, runtime=runtime))
        whole = Reading(record, record.document.root)
        listed = whole.peek("kind") == "List" and isinstance(whole.peek("items"), list)
        if listed:
            whole.skip("apiVersion", "kind", "metadata")
        for reading in whole.entries("items") if listed else [whole]:
            if reading.peek("kind") != "RayService" or not str(reading.peek("apiVersion")).startswith("ray.io/"):
                found.append(_source(reading, forced))
            elif config := serve_config(reading):
                records.append(config.record)
                found.append(_source(config, "serve"))
    return [source for source in found if source is not None], records


def _source(reading: Reading, forced: str | None) -> Source | None:
    if not reading.is_mapping:
        reading.lose(None, f"not a mapping: {EXPECTED}")
        return None
    version, own = (str(reading.peek(key) or "") for key in ("apiVersion", "kind"))
    by_lists = next((kind for key, kind in (("applications", "serve"), ("models", "ndif"))
                     if isinstance(reading.peek(key), list)), None)
    kind = forced or (_GROUPS.get(version.partition("/")[0]) if version else by_lists)
    if kind is None or own in _NOT_IMPORTED:
        reading.lose(None, f"{_refusal(version, own)}{would_be_variants(reading)}")
        return None
    return Source(reading, kind, own)


def _refusal(version: str, own: str) -> str:
    if own in _NOT_IMPORTED:
        return f"{own}: {_NOT_IMPORTED[own]}"
    if version == API_VERSION:
        return "this is already a fleet file: give it to plan with -f"
    what = f"{own or 'a document'} of {version}" if version else "a document without apiVersion"
    return f"{what} is not imported: {EXPECTED}"


def serve_config(reading: Reading) -> Reading | None:
    """Return the Serve config of a RayService, with its places in the file; None, reported, if there is none."""
    read_metadata(reading)
    reading.child("metadata").lose("name", "models are named by the config")
    spec = reading.child("spec")
    image = image_of(spec.peek("rayClusterConfig"))
    spec.lose("rayClusterConfig", "fleetctl starts no nodes: the Ray cluster must exist")
    text = spec.text(_CONFIG)
    spec.lose_rest("options of the service have no counterpart in a fleet file")
    config = _config(spec, text or "")
    if config.problems or len(config.documents) != 1:
        why = "".join(f": line {problem.line}: {problem.message}" for problem in config.problems[:1])
        reading.lose(None, f"no valid Serve config in spec.{_CONFIG}{why}")
        return None
    document = config.documents[0]
    record = Record(document, within=(*spec.path, _CONFIG), runtime=reading.record.runtime, image=image)
    return Reading(record, document.root)


def image_of(cluster: Any) -> str | None:  # noqa: ANN401 (any YAML value)
    """Return the image of a RayCluster's worker groups, or else of its head; None if there is none, or several."""
    groups = (cluster.get("workerGroupSpecs") or [cluster.get("headGroupSpec")]) if isinstance(cluster, dict) else ()
    found = set()
    for group in groups if isinstance(groups, (list, tuple)) else ():
        try:
            found.add(group["template"]["spec"]["containers"][0]["image"])
        except (TypeError, KeyError, IndexError):  # no image, or unhashable
            continue
    image = found.pop() if len(found) == 1 else None
    return image if isinstance(image, str) else None


def _config(spec: Reading, text: str) -> Composed:
    """Compose the text of the config, which may be any text, so that offsets match the lines of the file."""
    source, offset = spec.record.document.locate((*spec.path, _CONFIG))
    first, column = source.position(offset)
    lines = text.splitlines()
    written = source.text.splitlines()[first:first + len(lines)]
    if len(lines) == 1:
        text = "\n" * (first - 1) + " " * column + text
    elif len(written) == len(lines) and all(map(str.endswith, written, lines)):
        text = "\n".join(["\n" * (first - 1), *written, ""])
    return compose_bytes(SourceBytes(source.file, text.encode()))


_OBJECTS: dict[tuple[str, str], Callable[[Reading, str, Draft], None]] = {
    ("modelplane", "ModelDeployment"): read_deployment,
    ("lws", "LeaderWorkerSet"): read_leader_worker_set,
    ("lws", "DisaggregatedSet"): read_disaggregated_set,
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
    documents = [document for file in composed for document in file.documents]
    return documents, [problem for file in composed for problem in file.problems]


def import_documents(documents: Sequence[Document], *, fleet: str, forced: str | None = None,
                     observed_at: str | None = None, runtime: str | None = None) -> Imported:
    """Return a draft of the fleet `fleet` with every model in the documents.

    `forced` = the kind to read every document as. With `observed_at` (RFC 3339) the declared clusters become an
    inventory of that moment; without it they are reported as lost. `runtime` = `podman`: it starts the images.
    """
    sources, records = sort_out(documents, forced, runtime)
    files = some(list(dict.fromkeys(document.source.file for document in documents)), 3)
    kinds = ", ".join(dict.fromkeys(WORDS[source.kind] for source in sources))
    draft = Draft(fleet, f"{files} ({kinds})" if kinds else files)
    objects = [source for source in sources if (source.kind, source.type) in _OBJECTS]
    for source, key in zip(objects, model_keys([source.reading for source in objects]), strict=True):
        if not key:
            source.reading.lose(None, f"{source.type} without metadata.name: it has no model key")
        elif not is_duplicate(source.reading, key, draft):
            _OBJECTS[source.kind, source.type](source.reading, key, draft)
    for source in sources:
        if source.kind in _LISTS:
            _LISTS[source.kind](source.reading, draft)
        elif (source.kind, source.type) not in _OBJECTS and source.type not in _HARDWARE:
            source.reading.lose(None, f"{source.type or 'a document'} is not imported from {WORDS[source.kind]}")
    inventory = _inventory(sources, observed_at, draft)
    draft.losses += [loss for record in records for loss in record.close()]
    return Imported(draft, inventory)


def _inventory(sources: Sequence[Source], observed_at: str | None, draft: Draft) -> Inventory | None:
    classes, clusters = ([source.reading for source in sources if source.type == kind] for kind in _HARDWARE)
    if observed_at is None:
        for reading in (*classes, *clusters):
            reading.lose(None, "not part of a fleet file: --inventory-out FILE makes an inventory of it")
        return None
    found = read_inventory(classes, clusters, observed_at=observed_at, source=draft.made_from)
    return found if clusters else None
