"""The actions of a plan: one for each placed replica, and the form of those for reloads and prefetches.

All first become plain documents with sorted keys, from which their canonical JSON (for the plan's id) and the
models are derived in bulk: one by one, the 50,000 actions of a large fleet would take longer than placing them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, TypeAdapter

from fleetctl.documents.canonical import in_order
from fleetctl.documents.engine import Stop
from fleetctl.documents.plan import Action
from fleetctl.fleetfile.resolved import ResolvedModel

if TYPE_CHECKING:
    from fleetctl.planner.live import ModelState
    from fleetctl.planner.placement.demand import Option, Placed
    from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
    from fleetctl.planner.placement.ledger.replica import Assigned

ActionDocument = dict[str, Any]
"""An action as in the plan's JSON, with sorted keys."""
ACTIONS = TypeAdapter(list[Action], config=ConfigDict(defer_build=True))
"""Makes models of such documents."""


def action_of(
    model: ResolvedModel, op: str, members: Sequence[Mapping[str, Any]], *, lifecycle: Mapping[str, float],
    replica_id: int | None = None, wanted: int = 0, reload: Mapping[str, Any] | None = None,
) -> ActionDocument:
    """Return an action of a model, or of a variant; see `Action` for what its operations leave out."""
    return {
        **({"engineHash": model.engine_hash} if model.engine_hash else {}),
        "id": f"{model.key}/{op if replica_id is None else replica_id}", "lifecycle": lifecycle, "members": members,
        "model": model.key, "op": op, "priority": model.priority, **({"reload": reload} if reload else {}),
        **({} if replica_id is None else {"replicaId": replica_id}), "specHash": model.spec_hash,
        **({"variant": model.variant} if model.variant else {}), **({"wanted": wanted} if wanted else {}),
    }


def unclaimed(group: str, copy: int, rank: int, role: str, node_id: str, node: str) -> dict[str, Any]:
    """Return a member that claims nothing on its node, with sorted keys."""
    return {"copy": copy, "cpus": 0, "gpus": 0, "group": group, "memory": 0, "node": node, "nodeId": node_id,
            "rank": rank, "role": role, "slot": 0, "vram": 0}


def actions_for(
    placed: Sequence[tuple[Placed, int]], models: Sequence[ResolvedModel], states: Mapping[str, ModelState],
    ledger: Ledger,
) -> list[ActionDocument]:
    """Return one action per placed replica and id, in order of creation."""
    places = {replica.demand.place for replica, _ in placed}
    chosen = {replica.demand.option: replica.demand.model_in(models) for replica, _ in placed}
    lifecycles = {option: lifecycle_of(model) for option, model in chosen.items()}
    limits = {place: states[models[place].key].max_live(models[place]) for place in places}
    warm = {place: state.not_hot_ids for place in places if (state := states[models[place].key]).not_hot}
    stops: dict[tuple[Option, str], list[Stop | None]] = {}  # not from the spec: models may have equal hashes
    for option, model in chosen.items():
        for group in model.workers:
            for member in group.members:
                if member.engine.stop:
                    stops[option, group.name] = [ranked.engine.stop for ranked in group.by_rank]
    cached = {(option, group.name) for option, model in chosen.items() for group in model.workers
              if any(member.engine.caches for member in group.members)}
    documents = []
    for replica, replica_id in placed:
        place, option = replica.demand.place, replica.demand.option
        members = [_member(assigned, ledger.nodes[assigned.node], stops.get((option, assigned.seat.group)),
                           serves_caches=(option, assigned.seat.group) in cached)
                   for assigned in replica.assignments]
        documents.append(action_of(
            chosen[option], "promote" if replica_id in warm.get(place, ()) else "create", members,
            lifecycle=lifecycles[option], replica_id=replica_id, wanted=limits[place]))
    return documents


def lifecycle_of(model: ResolvedModel) -> dict[str, float]:
    """Return how replicas of a model are started and restarted, in the form of a plan."""
    return {
        "restartBackoff": float(model.restart.backoff), "restartMax": model.restart.max,
        "schedulingTimeout": float(model.scheduling_timeout_s), "startupTimeout": float(model.startup_timeout_s),
    }


def _member(
    assigned: Assigned, node: LedgerNode, stops: Sequence[Stop | None] | None, *, serves_caches: bool
) -> dict[str, Any]:
    seat = assigned.seat
    claim, stop = seat.claim, stops[seat.rank] if stops else None
    cooling = [card.uuid for card in node.policy.cooling_cards if card.uuid and not card.tries] if assigned.gpus else []
    residents = [resident.model_dump() for resident in node.policy.residents] if assigned.gpus else []
    ports = node.policy.weights_ports if serves_caches else None
    return {
        **({"cachePorts": ports} if ports else {}), **({"coolingCards": cooling} if cooling else {}),
        "copy": seat.copy, "cpus": claim.cpus, "gpus": assigned.gpus, "group": seat.group, "memory": claim.memory,
        "node": node.name, "nodeId": node.id, "rank": seat.rank,
        **({"residents": residents} if residents else {}),
        "role": seat.role, "slot": assigned.slot, **({"stop": in_order(stop.as_json())} if stop else {}),
        "vram": claim.vram,
    }
