"""Notes about nodes, models and fleets, kept in the cluster as records. The newest note about each counts.

A note about a node applies to the node with its id and to a node with its name: a restarted machine has a new id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from fleetctl.documents.base import as_datetime
from fleetctl.documents.inventory import Cordon, Node, Pause, Replica, Slots
from fleetctl.documents.quantity import number_in
from fleetctl.inventory.jobs import Job, named_replicas, noted_list
from fleetctl.inventory.records import CORDON, PAUSE, RESUME, SLOTS, UNCORDON, Record, Records

ENDING = "ending"
"""The field under which the run of an eviction to WARM names the replicas that it ends now; see agent/warm.py."""

WITHIN = "within"
"""The key of a run's metadata with the whole seconds that all of it may take."""

Note = Mapping[str, Any]
NO_NOTE = Record("", "", "", {})


def with_notes(nodes: Sequence[Node], records: Records, observed_at: str) -> list[Node]:
    """Return the nodes with the notes in force at `observed_at`."""
    cordons, slots = _newest(records.of(CORDON)), _newest(records.of(SLOTS))
    if not (cordons or slots):
        return list(nodes)
    return [_noted(node, _note_of(node, cordons), _note_of(node, slots), observed_at) for node in nodes]


def _noted(node: Node, cordoning: Record, slots: Record, observed_at: str) -> Node:
    cordon = _cordon(cordoning.payload)
    undone = cordoning.payload.get("verb") == UNCORDON
    return node.model_copy(update={
        "cordon": None if cordon is None or has_ended(cordon, observed_at) else cordon,
        "uncordoned_at": f"{cordoning.at[:-5]}Z" if undone else None, "slots": _slots(slots.payload)})


def with_draining(replicas: Sequence[Replica], runs: Sequence[Job], namespace: str) -> list[Replica]:
    """Return the replicas; those that a running eviction names are marked as draining.

    A replica that becomes WARM serves until its weights are loaded: only then does the agent name it.
    """
    ending = {name: _seconds(job.metadata.get(WITHIN)) for job in runs
              if job.metadata.get("verb") == "evict" and not job.ended
              and job.metadata.get("namespace") in (namespace, None) for name in _ending(job.metadata)}
    return [replica.model_copy(update={"draining": True, "gone_within_s": ending[name]})
            if replica.fleet and replica.level == "HOT" and (name := f"{replica.model}/{replica.replica_id}") in ending
            else replica for replica in replicas]


def _seconds(text: str | None) -> float | None:
    found = number_in(text)
    return float(found) if found is not None else None


def _ending(metadata: Mapping[str, str]) -> list[str]:
    return [str(name) for name in noted_list(metadata, ENDING)] if metadata.get("level") == "WARM" \
        else named_replicas(metadata)


def cordon_note(node: Node, records: Records) -> Cordon | None:
    """Return the cordon of the newest note about a node, even if it has expired."""
    return _cordon(_note_of(node, _newest(records.of(CORDON))).payload)


def pauses_in(records: Records, namespace: str) -> list[Pause]:
    """Return the newest pause of each model and fleet in a Ray namespace, even if it has expired."""
    notes = [record for record in records.of(PAUSE)
             if record.payload.get("verb") == PAUSE and record.payload.get("namespace") == namespace]
    found = [_pause(record.payload, f"{record.at[:-5]}Z") for record in notes]
    return sorted(found, key=lambda one: (one.fleet, one.model or ""))


def _pause(note: Note, since: str) -> Pause:
    """Return the pause; if its end cannot be read it has none, so that nothing is created by mistake."""
    model = note.get("model")
    pause = {"fleet": str(note.get("fleet", "")), "model": None if model is None else str(model), "since": since,
             "by": str(note.get("who", "")), "reason": str(note.get("reason", ""))}
    try:
        return Pause.model_validate({**pause, "until": note.get("until") or None})
    except ValidationError:
        return Pause.model_validate(pause)


def note_text(note: Note) -> str:
    """Return in words what a note did."""
    node, verb = note.get("nodeName", ""), note.get("verb")
    if verb == SLOTS:
        return f"{node}: {note['slots']} slots" if note.get("slots") else f"{node}: slots as without a note"
    until = f" until {note['until']}" if note.get("until") else ""
    reason = f": {note['reason']}" if note.get("reason") else ""
    fleet = f"fleet {note.get('fleet', '')}"
    paused = f"{note['model']} of {fleet}" if note.get("model") else fleet
    return {CORDON: f"cordoned {node}{until}{reason}", PAUSE: f"paused {paused}{until}{reason}",
            RESUME: f"resumed {paused}"}.get(str(verb), f"uncordoned {node}")


def _newest(notes: Sequence[Record]) -> dict[str, tuple[int, Record]]:
    """Return the newest note by node id and by node name, with its index in `notes`."""
    found: dict[str, tuple[int, Record]] = {}
    for index, note in enumerate(notes):
        for key in ("node", "nodeName"):
            found[str(note.payload.get(key, ""))] = index, note
    return found


def _note_of(node: Node, newest: Mapping[str, tuple[int, Record]]) -> Record:
    found = [newest[key] for key in (node.id, node.name) if key in newest]
    return max(found, key=lambda entry: entry[0])[1] if found else NO_NOTE


def _cordon(note: Note) -> Cordon | None:
    """Return the cordon; if its end cannot be read it has none, so that nothing is placed by mistake."""
    if note.get("verb") != CORDON:
        return None
    cordon = {"reason": str(note.get("reason", "")), "by": str(note.get("who", ""))}
    try:
        return Cordon.model_validate({**cordon, "until": note.get("until") or None})
    except ValidationError:
        return Cordon.model_validate(cordon)


def has_ended(note: Cordon | Pause, now: str) -> bool:
    """Return whether a cordon or a pause has expired."""
    return note.until is not None and as_datetime(note.until) <= as_datetime(now)


def _slots(note: Note) -> Slots | None:
    """Return the slots; None for a note without a number, such as one that withdraws an earlier note."""
    try:
        return Slots.model_validate({"value": note.get("slots"), "source": f"note of {note.get('who', '')}"})
    except ValidationError:
        return None
