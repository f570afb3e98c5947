"""A row and a reason for every model of the file, also when there is nothing to do."""

from __future__ import annotations

from fleetctl.documents.plan import Blocked, ModelRow
from fleetctl.planner.live import ModelState
from fleetctl.spec.resolved import ResolvedModel


def model_row(
    model: ResolvedModel, state: ModelState, *, create: int, blocked: Blocked | None, left_out: str | None
) -> ModelRow:
    """Return the row of one model; `left_out` = why flags keep it out of this plan."""
    starting = state.starting
    return ModelRow(
        key=model.key, wanted=model.replicas, live=len(state.live), starting=starting, create=create,
        blocked=blocked.replicas if blocked else 0, surplus=max(0, len(state.live) - model.replicas),
        startup_timeout=model.startup_timeout_s,
        reason=left_out or _reason(model, state, starting, create, blocked), source=model.source,
    )


def _reason(model: ResolvedModel, state: ModelState, starting: int, create: int, blocked: Blocked | None) -> str:
    live, wanted = len(state.live), model.replicas
    notes = _notes(state, starting)
    if create or blocked:
        parts = [f"create {create}: {live} of {wanted} live"] if create else []
        if blocked:
            parts.append(f"{blocked.replicas} blocked: {blocked.message}")
        return "; ".join(parts) + notes
    if live > wanted:
        return f"held: {live - wanted} beyond the target of {wanted}, kept{notes}"
    if wanted == 0:
        return f"no target (replicas: 0){notes}"
    return f"nothing to do: {live} of {wanted} live{notes}"


def _notes(state: ModelState, starting: int) -> str:
    notes = [f"{starting} starting"] if starting else []
    if state.lost:
        unbuilt = sum(not replica.constructed for replica in state.lost)
        if lost := len(state.lost) - unbuilt:
            notes.append(f"{lost} lost with a dead node")
        if unbuilt:
            notes.append(f"{unbuilt} never constructed")
    return f" ({', '.join(notes)})" if notes else ""
