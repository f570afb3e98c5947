"""What a plan does: the actions for placed replicas, and which outdated replicas reload their weights in place.

All actions first become plain documents with sorted keys, from which their canonical JSON (for the plan's id) and the
models are derived in bulk: one by one, the 50,000 actions of a large fleet would take longer than placing them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from fleetctl.documents.canonical import in_order
from fleetctl.documents.fleet import Stop
from fleetctl.documents.inventory import RELOAD_ENDED, UNKNOWN_SPEC, Failure, Inventory, Replica, serves
from fleetctl.documents.plan import Action
from fleetctl.documents.quantity import some
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.planner.cooling import AVOIDED, Limits, find_limits
from fleetctl.planner.live import ModelState, is_outdated
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
from fleetctl.planner.placement.ledger.replica import Assigned
from fleetctl.planner.policy import protecting
from fleetctl.planner.weights import by_rank

ActionDocument = dict[str, Any]
"""An action as in the plan's JSON, with sorted keys."""
MORE_CHANGED = "more than index or view of its weights has changed (fleetctl replace)"
NOT_READY = "not ready"


def actions_for(
    placed: Sequence[tuple[Placed, int]], models: Sequence[ResolvedModel], states: Mapping[str, ModelState],
    ledger: Ledger,
) -> list[ActionDocument]:
    """Return one action per placed replica and id, in order of creation."""
    places = {one.demand.place for one, _ in placed}
    lifecycles = {place: lifecycle_of(models[place]) for place in places}
    limits = {place: states[models[place].key].max_live(models[place]) for place in places}
    warm = {place: states[models[place].key].not_hot_ids for place in places}
    stops: dict[tuple[int, str], list[Stop | None]] = {}  # not from the spec, which models with equal hashes share
    for place in places:
        for group in models[place].workers:
            for member in group.members:
                if member.engine.stop:
                    stops[place, group.name] = [one.engine.stop for one in by_rank(group)]
    documents = []
    for one, replica_id in placed:
        place = one.demand.place
        model = models[place]
        documents.append({
            **({"engineHash": model.engine_hash} if model.engine_hash else {}), "id": f"{model.key}/{replica_id}",
            "lifecycle": lifecycles[place],
            "members": [_member(assigned, ledger.nodes[assigned.node], stops.get((place, assigned.seat.group)))
                        for assigned in one.assignments],
            "model": model.key, "op": "promote" if replica_id in warm[place] else "create", "priority": model.priority,
            "replicaId": replica_id, "specHash": model.spec_hash, "wanted": limits[place],
        })
    return documents


def read_actions(documents: Sequence[ActionDocument]) -> list[Action]:
    """Return the actions as models."""
    return _adapter().validate_python(documents)


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[list[Action]]:
    return TypeAdapter(list[Action])


def lifecycle_of(model: ResolvedModel) -> dict[str, float]:
    """Return how replicas of a model are started and restarted, in the form of a plan."""
    return {
        "restartBackoff": float(model.restart.backoff), "restartMax": model.restart.max,
        "schedulingTimeout": float(model.scheduling_timeout_s), "startupTimeout": float(model.startup_timeout_s),
    }


def _member(assigned: Assigned, node: LedgerNode, stops: Sequence[Stop | None] | None) -> dict[str, Any]:
    seat = assigned.seat
    claim, stop = seat.claim, stops[seat.rank] if stops else None
    cooling = [one.uuid for one in node.policy.cooling_cards if one.uuid and not one.tries] if assigned.gpus else []
    residents = [one.model_dump() for one in node.policy.residents] if assigned.gpus else []
    return {
        **({"coolingCards": cooling} if cooling else {}),
        "copy": seat.copy, "cpus": claim.cpus, "gpus": assigned.gpus, "group": seat.group, "memory": claim.memory,
        "node": node.name, "nodeId": node.id, "rank": seat.rank,
        **({"residents": residents} if residents else {}),
        "role": seat.role, "slot": assigned.slot, **({"stop": stop.as_json()} if stop else {}), "vram": claim.vram,
    }


@dataclass(slots=True)
class Reloads:
    """The reloads of a plan as plain documents, and a summary of them by model key."""

    documents: list[dict[str, Any]] = field(default_factory=list)
    summaries: dict[str, str] = field(default_factory=dict)


def find_reloads(
    fleet: ResolvedFleet, demands: Sequence[Demand], states: Mapping[str, ModelState], inventory: Inventory, *,
    ignore_cooldown: bool,
) -> Reloads:
    """Return the reloads of those demands' models that are updated in place.

    Replicas with an unknown spec come first, since they may be reloading already.
    """
    found, places = Reloads(), [one.place for one in demands if fleet.models[one.place].reload]
    if not places:
        return found
    names = {node.id: node.name for node in inventory.nodes}
    failures = [] if ignore_cooldown else inventory.failures
    limits = Limits() if ignore_cooldown else find_limits(fleet, inventory, demands, states, reloads=True)
    for place in places:
        model = fleet.models[place]
        state = states[model.key]
        outdated = [one for one in state.live if is_outdated(one, model)]
        outdated.sort(key=lambda one: one.spec_hash != UNKNOWN_SPEC)
        ended, by_objection = _ended(model, failures), dict[str, list[str]]()
        left = limits.most.get(place, len(outdated))
        for replica in outdated:
            name = f"{model.key}/{replica.replica_id}"
            objection = ((state.pause and state.paused) or _objection(fleet, model, replica) or ended
                         or _cooling(limits, place, replica, left))
            by_objection.setdefault(objection, []).append(name)
            if not objection:
                left -= 1
                found.documents.append(_document(model, replica, name, names))
        found.summaries[model.key] = "; ".join(
            f"{some(which)} not in place: {text}" if text else f"reload {some(which)} in place, one at a time"
            for text, which in sorted(by_objection.items()))
    return found


def _objection(fleet: ResolvedFleet, model: ResolvedModel, replica: Replica) -> str:
    """Return why a replica does not reload; empty = it may."""
    seats = sum((member.count or 1) * group.copies for group in model.workers for member in group.members)
    if model.engine_hash is None or replica.engine_hash != model.engine_hash or len(replica.members) != seats:
        return MORE_CHANGED
    if protecting(fleet.policy.protected_models, model.key):
        return "the model is protected (spec.policy.protectedModels)"
    if replica.in_a_row and replica.restart_max is not None and replica.in_a_row >= replica.restart_max:
        return "no restart is left, should its engine end during the reload"
    return "" if serves(replica) and replica.actor_id else NOT_READY


def _ended(model: ResolvedModel, failures: Sequence[Failure]) -> str:
    """Return why no replica of a model reloads this spec automatically: it has ended an engine before."""
    found = next((one for one in reversed(failures) if one.code == RELOAD_ENDED and one.model == model.key
                  and model.has_spec(one.spec_hash)), None)
    return "" if found is None else (
        f"the engine of {found.model}/{found.replica_id} ended when it was asked to reload this, {found.at}: not tried "
        "again until the spec changes, or with --ignore-cooldown")


def _cooling(limits: Limits, place: int, replica: Replica, left: int) -> str:
    """Return why the breaker leaves a replica alone: its spec cools, everywhere or on one of its nodes."""
    if left <= 0:
        return limits.why[place]
    values = limits.left_out.get(place, {})
    return next((limits.because[place][node] for member in replica.members
                 if values.get(node := member.node_id or "") == AVOIDED), "")


def _document(model: ResolvedModel, replica: Replica, name: str, nodes: Mapping[str, str]) -> dict[str, Any]:
    requests = [in_order(one.model_dump(exclude_none=True)) for one in model.reload]
    members = [{"copy": member.copy_index, "group": member.group, "node": nodes.get(member.node_id or "", ""),
                "nodeId": member.node_id, "rank": member.rank} for member in replica.members]
    return {
        "actorId": replica.actor_id, "http": requests[0] if len(requests) == 1 else None, "id": name,
        "lifecycle": lifecycle_of(model), "members": members, "model": model.key,
        "priority": model.priority, "replicaId": replica.replica_id, "requests": requests if len(requests) > 1 else [],
        "runs": replica.spec_hash, "specHash": model.spec_hash,
    }
