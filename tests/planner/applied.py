"""The inventory after a plan is applied: Ray hands out cards, and engines use what they claim."""

from __future__ import annotations

from checker import check_plan
from short_forms import plan_for
from simulated import WHOLE, SimNode, live_replicas, simulate

from fleetctl.documents.inventory import Inventory, Node, Replica, ReplicaMember
from fleetctl.documents.plan import Action, Plan
from fleetctl.fleetfile.resolved import ResolvedFleet


def apply_plan(plan: Plan, fleet: ResolvedFleet, inventory: Inventory) -> Inventory:
    """Return the inventory after `plan`; the old one is not changed."""
    nodes = simulate(inventory, fleet.policies, fleet.name, plan.options.adopt_from)
    created = [_created(action, plan, nodes) for action in plan.actions]
    members = [member for replica in created for member in replica.members]
    return inventory.model_copy(update={
        "replicas": [*inventory.replicas, *created],
        "nodes": [_after(node, [member for member in members if member.node_id == node.id])
                  for node in inventory.nodes],
    })


def check_that_one_apply_is_enough(fleet: ResolvedFleet, inventory: Inventory) -> None:
    """Check a plan, and that after it nothing more is created, and what is blocked stays so."""
    plan = plan_for(fleet, inventory)
    check_plan(plan, fleet, inventory)
    after = apply_plan(plan, fleet, inventory)
    again = plan_for(fleet, after)
    assert again.actions == []
    assert len(live_replicas(after)) == len(live_replicas(inventory)) + len(plan.actions)
    assert [(one.model, one.replicas) for one in again.blocked] == [(one.model, one.replicas) for one in plan.blocked]


def _created(action: Action, plan: Plan, nodes: dict[str, SimNode]) -> Replica:
    members = []
    for member in action.members:
        cards = nodes[member.node_id].take(member.gpus, member.vram, member.cpus, member.memory)
        members.append(ReplicaMember(
            group=member.group, copy_index=member.copy_index, role=member.role, rank=member.rank, slot=member.slot,
            node_id=member.node_id, gpus=member.gpus, vram=member.vram, cpus=member.cpus, memory=member.memory,
            gpu_indices=cards or [],
        ))
    return Replica(model=action.model, replica_id=action.replica_id, fleet=plan.fleet.name,
                   spec_hash=action.spec_hash, variant=action.variant, members=members)


def _after(node: Node, members: list[ReplicaMember]) -> Node:
    gpus = []
    for gpu in node.gpus:
        here = [member for member in members if gpu.index in member.gpu_indices]
        granted = sum(min(member.gpus, WHOLE) for member in here) / WHOLE
        share = None if gpu.share is None else min(1, gpu.share + granted)
        used = None if gpu.memory_used is None else gpu.memory_used + sum(member.vram for member in here)
        gpus.append(gpu.model_copy(update={"share": share, "memory_used": used}))
    used = node.resources.used
    if used is not None:
        used = used.model_copy(update={
            "gpu": used.gpu + sum(member.gpus for member in members) / WHOLE,
            "cpu": used.cpu + sum(member.cpus for member in members) / WHOLE,
            "memory": used.memory + sum(member.memory for member in members),
        })
    return node.model_copy(update={"gpus": gpus, "resources": node.resources.model_copy(update={"used": used})})
