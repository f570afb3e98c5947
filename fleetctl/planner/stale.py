"""Checks whether a saved plan still holds: whether anything it relies on has changed, and nothing else.

It relies on the cluster session. For each model it acts on: the live count, the highest id, no other fleet running the
model, and free names for its new replicas. For each of its nodes: being alive and not cordoned by a note, the labels
that its members select, and free capacity for all of its members there. For each replica that it promotes: being WARM
with the same weights on the same nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Action, ActionMember, Plan
from fleetctl.documents.quantity import plural
from fleetctl.documents.selector import matches
from fleetctl.planner.live import LiveState, ModelState, sort_out
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.ledger import Ledger, open_ledger
from fleetctl.planner.placement.reasons.check import refusal
from fleetctl.planner.promote import is_still_warm
from fleetctl.planner.reloads import moved_reloads


def moved_since(plan: Plan, inventory: Inventory) -> list[str]:
    """Return one sentence for each fact `plan` relies on that is different in `inventory`; empty = still valid."""
    state = sort_out(inventory, plan.fleet.name, set(plan.observed), plan.options.adopt_from)
    ledger = open_ledger(inventory, (), state)
    then, now = plan.inventory.session_id, inventory.cluster.session_id
    moved = [f"the cluster has a new session: {then} when planned, {now} now"] if then and now and then != now else []
    return [*moved, *_models(plan, state), *moved_reloads(plan, inventory), *_nodes(plan, ledger)]


def _models(plan: Plan, state: LiveState) -> Iterator[str]:
    planned = {(action.model, action.replica_id) for action in plan.starts}
    for key, then in plan.observed.items():
        live, highest = len(state.models[key].live), state.models[key].highest_id
        if live != then.get("live", live):
            yield f"{key}: {then['live']} live when planned, {live} now"
        if highest != then.get("highestId", highest):
            yield f"{key}: highest id {_number(then['highestId'])} when planned, {_number(highest)} now"
        yield from _held_by_others(key, state.models[key], planned)
    for action in plan.actions:
        if action.op == "promote" and not is_still_warm(action, state.models[action.model]):
            yield f"{action.id} is not WARM now, or not with the same weights on the same nodes"


def _held_by_others(key: str, model: ModelState, planned: Collection[tuple[str, int]]) -> Iterator[str]:
    """Yield what other fleets have taken since: the whole model, or single names of it."""
    if model.claimed_by:
        noun = plural(len(model.claimed_by), "fleet")
        yield f"{key}: live under {noun} {', '.join(sorted(model.claimed_by))} now"
        return
    # an id of ours would have raised the highest id, which is reported already
    for number in sorted(model.taken_ids - model.own_ids):
        if (key, number) in planned:
            yield f"{key}: the name ModelActor:{key}:{number} is taken now"


def _number(replica_id: int) -> str:
    return "none" if replica_id < 0 else str(replica_id)


def _nodes(plan: Plan, ledger: Ledger) -> Iterator[str]:
    """Take the plan's claims from the current ledger, and yield a problem for each node at most once."""
    index_of = {node.id: index for index, node in enumerate(ledger.nodes)}
    named: set[str] = set()
    for action in plan.starts:
        for member in action.members:
            if member.node_id in named:
                continue
            problem = _member(plan, action, member, index_of.get(member.node_id), ledger)
            if problem is not None:
                named.add(member.node_id)
                yield f"node {member.node}: {problem}"


def _member(plan: Plan, action: Action, member: ActionMember, index: int | None, ledger: Ledger) -> str | None:
    if index is None:
        return "was alive when planned, is not listed now"
    if ledger.nodes[index].state == "DEAD":
        return "was alive when planned, is dead now"
    node = ledger.nodes[index]
    if not node.open:
        return ("is draining now, so it offers nothing" if node.state != "ALIVE"
                else f"is cordoned now ({node.policy.cordoned_by})")
    selector = _selector(plan.specs.get(action.spec_hash, {}), member)
    if not matches(selector, node.labels):
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
        return f"was relabeled; {action.id} needs {wanted}"
    memory_known = all(card.memory is not None for card in ledger.offer(index).cards)
    claim = Claim(member.gpus, member.vram if memory_known else 0, member.cpus, member.memory)
    refused = refusal(ledger.offer(index), claim)
    if refused is not None:
        return f"less is free than {action.id} claims: needs {refused[0]}, has {refused[1]}"
    ledger.take(index, claim)
    return None


def _selector(spec: dict[str, Any], member: ActionMember) -> dict[str, str]:
    """Return the node selector of a member's rank, from the resolved model in the plan."""
    groups: list[dict[str, Any]] = [group for group in spec.get("workers", []) if group["name"] == member.group]
    rank = 0
    members = [written for group in groups for written in group["members"]]
    for written in sorted(members, key=lambda written: bool(written.get("role") == "Worker")):
        rank += written.get("count") or 1
        if member.rank < rank:
            return dict(written.get("nodeSelector") or {})
    return {}
