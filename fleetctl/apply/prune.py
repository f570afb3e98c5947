"""Have nodes say which weights they have on disk, and remove those that are named. Apply never imports this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.apply.examine import Asker, reading_answers
from fleetctl.apply.follow import Wording
from fleetctl.documents.cold import NodeCache
from fleetctl.inventory.jobs import CACHES

PRUNE = "prune"
WORDING = Wording("job", *["`fleetctl prune --dry-run` shows what is left"] * 2)


def list_caches(asker: Asker, job: str, nodes: Sequence[str], keep: Sequence[str]) -> list[NodeCache]:
    """Return what each node has, but for the artifacts to keep; raises ApplyError and WaitTimeout."""
    return _ask(asker, CACHES, job, {node_id: list(keep) for node_id in nodes})


def prune(asker: Asker, job: str, artifacts: Mapping[str, Sequence[str]]) -> list[NodeCache]:
    """Remove artifacts, given by node id, as far as nothing uses them; raises ApplyError and WaitTimeout."""
    return _ask(asker, PRUNE, job, artifacts)


def _ask(asker: Asker, verb: str, job: str, about: Mapping[str, Sequence[str]]) -> list[NodeCache]:
    events = asker.run(verb, job, {"nodes": about})
    with reading_answers():
        answers = [NodeCache.model_validate(one.model_extra) for one in events if one.type == "weightsCached"]
    found = {one.node_id: one for one in answers}
    return [found.get(node_id) or NodeCache(node_id=node_id, trouble="no answer") for node_id in about]
