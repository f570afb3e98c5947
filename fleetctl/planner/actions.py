"""Turns placed replicas into the actions of a plan: ids, lifecycle, members with their nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fleetctl.documents.plan import Action, ActionMember, Lifecycle
from fleetctl.planner.live import ModelState
from fleetctl.planner.placement.demand import Placed
from fleetctl.planner.placement.ledger import Ledger
from fleetctl.planner.placement.replica import Stand
from fleetctl.spec.resolved import ResolvedModel


def actions_for(
    placed: Sequence[Placed], models: Sequence[ResolvedModel], states: Mapping[str, ModelState], ledger: Ledger
) -> list[Action]:
    """Return one create per placed replica, in order of creation; ids count on per model."""
    counts = Counter(one.demand.place for one in placed)
    ids = {place: iter(states[models[place].key].new_ids(count)) for place, count in counts.items()}
    return [_action(models[one.demand.place], next(ids[one.demand.place]), one.stands, ledger) for one in placed]


def _action(model: ResolvedModel, replica_id: int, stands: Sequence[Stand], ledger: Ledger) -> Action:
    return Action(
        id=f"{model.key}/{replica_id}", model=model.key, replica_id=replica_id, spec_hash=model.spec_hash,
        wanted=model.replicas, priority=model.priority, lifecycle=_lifecycle(model),
        members=[_member(stand, ledger) for stand in stands],
    )


def _lifecycle(model: ResolvedModel) -> Lifecycle:
    return Lifecycle(
        startup_timeout=model.startup_timeout_s, scheduling_timeout=model.scheduling_timeout_s,
        restart_max=model.restart.max, restart_backoff=model.restart.backoff,
    )


def _member(stand: Stand, ledger: Ledger) -> ActionMember:
    seat, node = stand.seat, ledger.nodes[stand.node]
    return ActionMember(
        group=seat.group, copy_index=seat.copy, role=seat.role, rank=seat.rank, node_id=node.id, node=node.name,
        slot=stand.slot, gpus=stand.gpus, vram=seat.claim.vram, cpus=seat.claim.cpus, memory=seat.claim.memory,
    )
