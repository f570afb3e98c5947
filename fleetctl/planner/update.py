"""An update in words: what is created beside outdated replicas, which of those may go, and lack of room."""

from __future__ import annotations

from fleetctl.documents.plan import Blocked, ModelRow
from fleetctl.documents.quantity import some
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.live import ModelState, is_outdated

COOLING_DOWN = "COOLING_DOWN"


def update_reason(row: ModelRow, model: ResolvedModel, state: ModelState) -> str:
    """Return how far an update with mode surge is, and what comes next; nothing of it is blocked."""
    progress = f"{row.current} current of {row.wanted}"
    if row.create:
        return f"create {row.create} beside {row.outdated} outdated, which stay until they are evicted: {progress}"
    may_go = min(row.outdated, max(0, row.live - row.starting - row.wanted))
    if not may_go:
        return f"{progress}; {row.outdated} outdated, one may go when another is ready: {_outdated(model, state)}"
    way = "end them when you like" if may_go == row.outdated else f"end {may_go} to go on"
    return f"{progress}; outdated, {way}: {_outdated(model, state)}"


def needs_room(blocked: Blocked, model: ResolvedModel, state: ModelState, created: int) -> Blocked:
    """Return what is blocked as lack of room for an update, where the target itself is reached.

    Whether the new spec fits in the place of an outdated replica is not part of the answer.
    """
    outdated, live = state.outdated(model), len(state.live)
    if not outdated or live + created < model.replicas or blocked.code == COOLING_DOWN:
        return blocked
    serving = max(0, live - state.starting - 1)
    return blocked.model_copy(update={"code": "UPDATE_NEEDS_ROOM", "message": (
        f"no room beside the {outdated} outdated, which go on serving ({_outdated(model, state)}): {blocked.message}; "
        f"without one of them {serving} of {model.replicas} would serve (fleetctl replace --in-place)")})


def _outdated(model: ResolvedModel, state: ModelState) -> str:
    return some([f"{model.key}/{one.replica_id}" for one in state.live if is_outdated(one, model)])
