"""Notes of the cluster: what no file holds, as the metadata of finished jobs. The newest about a node counts.

A note holds for the node with its id, and for one with its name: a machine that was restarted has a new id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pydantic import ValidationError

from fleetctl.documents.base import as_datetime
from fleetctl.documents.inventory import Cordon, Node, Replica, Slots
from fleetctl.inventory.jobs import Job, listed, named_replicas
from fleetctl.inventory.json_values import moment_of_ms

CORDON, UNCORDON, SLOTS = "cordon", "uncordon", "slots"
"""The verbs of notes. Their metadata, see apply/jobs.py:write_note, is the whole note."""
NOTES = frozenset({CORDON, UNCORDON, SLOTS})

ENDING = "ending"
"""The key of a job's metadata under which an eviction to WARM names what ends now; see agent/levels.py."""

Note = Mapping[str, str]
NONE = Job("", "")


def with_notes(nodes: Sequence[Node], jobs: Sequence[Job], observed_at: str) -> list[Node]:
    """Return the nodes with the notes that are in force at `observed_at`; `jobs` are in order, the oldest first."""
    cordons, slots = _newest(jobs, (CORDON, UNCORDON)), _newest(jobs, (SLOTS,))
    if not (cordons or slots):
        return list(nodes)
    return [_noted(node, _of(node, cordons), _of(node, slots), observed_at) for node in nodes]


def _noted(node: Node, cordoning: Job, slots: Job, observed_at: str) -> Node:
    cordon = _cordon(cordoning.metadata)
    undone = cordoning.metadata.get("verb") == UNCORDON
    return node.model_copy(update={
        "cordon": None if cordon is None or has_ended(cordon, observed_at) else cordon,
        "uncordoned_at": moment_of_ms(cordoning.start_time_ms) if undone else None, "slots": _slots(slots.metadata)})


def with_draining(replicas: Sequence[Replica], jobs: Sequence[Job], namespace: str) -> list[Replica]:
    """Return the replicas, marked where an eviction of ours that has not ended names them.

    What becomes WARM serves until its weights are loaded: the agent names it then.
    """
    ending = {name for job in jobs if job.metadata.get("verb") == "evict" and not job.ended
              and job.metadata.get("namespace") in (namespace, None) for name in _ending(job.metadata)}
    return [one.model_copy(update={"draining": True})
            if ending and one.fleet and one.level == "HOT" and f"{one.model}/{one.replica_id}" in ending else one
            for one in replicas]


def _ending(metadata: Mapping[str, str]) -> list[str]:
    return [str(name) for name in listed(metadata, ENDING)] if metadata.get("level") == "WARM" \
        else named_replicas(metadata)


def cordon_note(node: Node, jobs: Sequence[Job]) -> Cordon | None:
    """Return the cordon that the newest note about a node sets, also one that has ended by now."""
    return _cordon(_of(node, _newest(jobs, (CORDON, UNCORDON))).metadata)


def note_text(note: Note) -> str:
    """Return in words what a note did."""
    node, verb = note.get("nodeName", ""), note.get("verb")
    if verb == SLOTS:
        return f"{node}: {note['slots']} slots" if note.get("slots") else f"{node}: slots as without a note"
    until = f" until {note['until']}" if note.get("until") else ""
    reason = f": {note['reason']}" if note.get("reason") else ""
    return f"cordoned {node}{until}{reason}" if verb == CORDON else f"uncordoned {node}"


def _newest(jobs: Sequence[Job], verbs: Collection[str]) -> dict[str, tuple[int, Job]]:
    """Return the newest note by the id and by the name of a node, with its place in time."""
    found: dict[str, tuple[int, Job]] = {}
    for place, job in enumerate(jobs):
        if job.metadata.get("verb") in verbs:
            for key in ("node", "nodeName"):
                found[job.metadata.get(key, "")] = place, job
    return found


def _of(node: Node, newest: Mapping[str, tuple[int, Job]]) -> Job:
    found = [newest[key] for key in (node.id, node.name) if key in newest]
    return max(found, key=lambda one: one[0])[1] if found else NONE


def _cordon(note: Note) -> Cordon | None:
    """Return the cordon; one whose end cannot be read has none, so that nothing is placed by mistake."""
    if note.get("verb") != CORDON:
        return None
    said = {"reason": note.get("reason", ""), "by": note.get("who", "")}
    try:
        return Cordon.model_validate({**said, "until": note.get("until") or None})
    except ValidationError:
        return Cordon.model_validate(said)


def has_ended(cordon: Cordon, now: str) -> bool:
    """Return whether a cordon has ended by itself."""
    return cordon.until is not None and as_datetime(cordon.until) <= as_datetime(now)


def _slots(note: Note) -> Slots | None:
    """Return the slots; None for a note that takes an earlier one back, or says no number."""
    try:
        return Slots.model_validate({"value": note.get("slots"), "source": f"note of {note.get('who', '')}"})
    except ValidationError:
        return None
