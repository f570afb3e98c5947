"""A row and a reason for every model of the file, even if there is nothing to do; the progress of updates in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.documents.base import clock_text
from fleetctl.documents.inventory import Replica, was_restarted_recently
from fleetctl.documents.plan import Blocked, ModelRow
from fleetctl.documents.quantity import some
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.cooling import COOLING_DOWN
from fleetctl.planner.live import ModelState, is_outdated


def model_row(
    model: ResolvedModel, state: ModelState, *, create: int, blocked: Blocked | None, left_out: str | None,
    reload: int = 0, in_place: str = "",
) -> ModelRow:
    """Return the row of one model; `left_out` = why flags exclude it, `in_place` = the summary of its reloads."""
    row = ModelRow(
        key=model.key, wanted=model.replicas, live=len(state.live), starting=state.starting,
        restarting=sum(replica.state == "RESTARTING" for replica in state.live),
        restarted=sum(was_restarted_recently(replica, state.observed_at) for replica in state.live),
        current=sum(model.has_spec(replica.spec_hash) for replica in state.live),
        outdated=state.outdated(model), create=create, reload=reload, blocked=blocked.replicas if blocked else 0,
        surplus=max(0, len(state.live) - model.replicas), startup_timeout=model.startup_timeout_s, reason="-",
        labels=dict(model.labels), source=model.source,
    )
    return row.model_copy(update={"reason": "; ".join(
        filter(None, (in_place, *_reason(row, model, state, blocked, left_out))))})


def _reason(
    row: ModelRow, model: ResolvedModel, state: ModelState, blocked: Blocked | None, left_out: str | None
) -> Iterator[str]:
    """Yield what is done and why, and the state of the live replicas; some texts may be empty."""
    updates = bool(model.surge and row.outdated and row.wanted and not left_out)
    notes = list(_notes(row, state, outdated=not updates))
    live = ", ".join([f"{row.live} of {row.wanted} live", *notes])
    obstacle = f"{blocked.replicas} blocked: {blocked.message}" if blocked else ""
    if updates:
        yield _update_reason(row, model, state) if row.create or not blocked else ""
        yield obstacle
        yield ", ".join(notes)
    elif left_out or row.surplus or not row.wanted:
        held = f"held: {row.surplus} beyond the target of {row.wanted}, kept" if row.surplus else ""
        yield left_out or held or "no target (replicas: 0)"
        yield ", ".join(notes)
    elif row.create or blocked:
        yield f"create {row.create}: {live}" if row.create else ""
        yield obstacle
        yield live if notes and not row.create else ""
    else:
        yield live if row.starting or row.restarted or row.outdated else f"nothing to do: {live}"


def _notes(row: ModelRow, state: ModelState, *, outdated: bool) -> Iterator[str]:
    if row.starting > row.restarting:
        yield f"{row.starting - row.restarting} starting"
    yield from _restart_notes(state.live, state.observed_at)
    if row.outdated and outdated:
        yield f"{row.outdated} outdated"
    if state.lost:
        unbuilt = sum(not replica.constructed for replica in state.lost)
        if lost := len(state.lost) - unbuilt:
            yield f"{lost} lost with a dead node"
        if unbuilt:
            yield f"{unbuilt} never constructed"


def _restart_notes(live: Sequence[Replica], observed_at: str) -> Iterator[str]:
    """Yield the numbers of restarting and recently restarted replicas: since when, the restarts used, and why."""
    for word, at, found in (("restarting", "since", [one for one in live if one.state == "RESTARTING"]),
                            ("restarted", "at", [one for one in live if was_restarted_recently(one, observed_at)])):
        if found:
            times = [one.since for one in found if one.since]
            when = f" {at} {clock_text(min(times), observed_at)}" if times else ""
            yield f"{len(found)} {word}{when} ({_worst(found)})"


def _worst(found: Sequence[Replica]) -> str:
    """Return the restarts of the replica that has used most of them, and why it ended."""
    worst = max(found, key=lambda one: one.restarts)
    restarts = max(1, worst.restarts)
    most = worst.restart_max
    used = f"restart {restarts}" if most is None else f"{restarts} of {most} restart{'s' if most > 1 else ''} used"
    return f"{'up to ' if len(found) > 1 else ''}{used}{f': {worst.error}' if worst.error else ''}"


def _update_reason(row: ModelRow, model: ResolvedModel, state: ModelState) -> str:
    """Return the progress of an update with mode surge, and the next step; none of it is blocked."""
    progress = f"{row.current} current of {row.wanted}"
    if row.create:
        return f"create {row.create} beside {row.outdated} outdated, which stay until they are evicted: {progress}"
    removable = min(row.outdated, max(0, row.live - row.starting - row.wanted))
    if not removable:
        return f"{progress}; {row.outdated} outdated, one may be ended when another is ready: {_outdated(model, state)}"
    step = "may be ended now" if removable == row.outdated else f"end {removable} to continue"
    return f"{progress}; outdated, {step}: {_outdated(model, state)}"


def needs_room(blocked: Blocked, model: ResolvedModel, state: ModelState, created: int) -> Blocked:
    """Return the entry with the code UPDATE_NEEDS_ROOM if the target is reached and only an update lacks room.

    This does not check whether the new spec would fit in the place of an outdated replica.
    """
    outdated, live = state.outdated(model), len(state.live)
    if not outdated or live + created < model.replicas or blocked.code == COOLING_DOWN:
        return blocked
    serving = max(0, live - state.starting - 1)
    return blocked.model_copy(update={"code": "UPDATE_NEEDS_ROOM", "message": (
        f"no room beside the {outdated} outdated, which keep serving ({_outdated(model, state)}): {blocked.message}; "
        f"without one of them {serving} of {model.replicas} would serve (fleetctl replace --in-place)")})


def _outdated(model: ResolvedModel, state: ModelState) -> str:
    return some([f"{model.key}/{one.replica_id}" for one in state.live if is_outdated(one, model)])
