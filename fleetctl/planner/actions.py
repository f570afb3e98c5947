"""The actions of a plan: one for each placed replica.

All first become plain documents with sorted keys, from which their canonical JSON (for the plan's id) and the
models are derived in bulk: one by one, the 50,000 actions of a large fleet would take longer than placing them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from fleetctl.documents.fleet import Stop
from fleetctl.documents.plan import Action
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.live import ModelState
from fleetctl.planner.placement.demand import Placed
from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
from fleetctl.planner.placement.ledger.replica import Assigned
from fleetctl.planner.weights import by_rank

ActionDocument = dict[str, Any]
"""An action as in the plan's JSON, with sorted keys."""


def actions_for(
    placed: Sequence[tuple[Placed, int]], models: Sequence[ResolvedModel], states: Mapping[str, ModelState],
    ledger: Ledger,
) -> list[ActionDocument]:
    """Return one action per placed replica and id, in order of creation."""
    places = {replica.demand.place for replica, _ in placed}
    lifecycles = {place: lifecycle_of(models[place]) for place in places}
    limits = {place: states[models[place].key].max_live(models[place]) for place in places}
    warm = {place: states[models[place].key].not_hot_ids for place in places}
    stops: dict[tuple[int, str], list[Stop | None]] = {}  # not from the spec, which models with equal hashes share
    for place in places:
        for group in models[place].workers:
            for member in group.members:
                if member.engine.stop:
                    stops[place, group.name] = [ranked.engine.stop for ranked in by_rank(group)]
    documents = []
    for replica, replica_id in placed:
        place = replica.demand.place
        model = models[place]
        documents.append({
            **({"engineHash": model.engine_hash} if model.engine_hash else {}), "id": f"{model.key}/{replica_id}",
            "lifecycle": lifecycles[place],
            "members": [_member(assigned, ledger.nodes[assigned.node], stops.get((place, assigned.seat.group)))
                        for assigned in replica.assignments],
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
    cooling = [card.uuid for card in node.policy.cooling_cards if card.uuid and not card.tries] if assigned.gpus else []
    residents = [resident.model_dump() for resident in node.policy.residents] if assigned.gpus else []
    return {
        **({"coolingCards": cooling} if cooling else {}),
        "copy": seat.copy, "cpus": claim.cpus, "gpus": assigned.gpus, "group": seat.group, "memory": claim.memory,
        "node": node.name, "nodeId": node.id, "rank": seat.rank,
        **({"residents": residents} if residents else {}),
        "role": seat.role, "slot": assigned.slot, **({"stop": stop.as_json()} if stop else {}), "vram": claim.vram,
    }
