"""Why a model got fewer replicas than it asked for: a code, a sentence with the arithmetic, and the nodes behind it.

Reads the ledger as it stands after packing, so it speaks of what is really left. `docs/placement.md` lists the codes.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.documents.plan import Reason
from fleetctl.planner.placement.claims import GroupShape, ReplicaShape
from fleetctl.planner.placement.gang_reasons import explain_gang
from fleetctl.planner.placement.ledger import Ledger
from fleetctl.planner.placement.mismatch import explain_mismatch
from fleetctl.planner.placement.replica import Placer
from fleetctl.planner.placement.shortfall import MAX_EXAMPLES, Explanation, Shortfall, hardest_member, nodes, with_claim

NOT_FOR_GANGS = ("NODE_SELECTOR_MISMATCH", "CARD_MEMORY_UNKNOWN", "CORDONED", "NODE_DRAINING")
"""Codes that say more than a count of nodes when no node at all can take a member of a gang."""

IN_WORDS = {
    "INSUFFICIENT_MEMORY": "short of memory", "INSUFFICIENT_CPU": "short of CPUs", "INSUFFICIENT_GPU": "short of GPUs",
    "INSUFFICIENT_VRAM": "short of VRAM", "CARD_MEMORY_UNKNOWN": "with cards of unknown memory",
    "CARD_IN_USE": "with cards in use", "SLOTS_FULL": "without a free slot", "CORDONED": "cordoned",
    "NODE_DRAINING": "draining", "NODE_SELECTOR_MISMATCH": "not selected",
}


def explain(shape: ReplicaShape, placer: Placer) -> Explanation:
    """Say why one more replica of `shape` does not fit; whatever is tried on the ledger is thrown away again."""
    ledger = placer.ledger
    if all(node.state == "DEAD" for node in ledger.nodes):
        return _no_nodes(ledger)
    mark = ledger.mark()
    try:
        touched: frozenset[int] = frozenset()
        for group in shape.groups:
            for copy in range(group.copies):
                stands_on = placer.place_gang(shape, list(group.seats(copy)), touched)
                if stands_on is None:
                    return _after(shape, group, copy, _explain_group(hardest_member(shape, group, ledger), placer))
                touched |= frozenset(stands_on.values())
        return _explain_jointly(shape)
    finally:
        ledger.undo(mark)


def _explain_group(missing: Shortfall, placer: Placer) -> Explanation:
    reasons = missing.reasons()
    if not reasons:
        return _explain_jointly(missing.shape) if missing.group.size == 1 else explain_gang(missing, placer)
    if missing.group.size == 1 or (not missing.fitting and reasons[0].code in NOT_FOR_GANGS):
        return _explain_member(missing, reasons)
    return explain_gang(missing, placer)


def _explain_member(missing: Shortfall, reasons: Sequence[Reason]) -> Explanation:
    first = reasons[0]
    if first.code == "NODE_SELECTOR_MISMATCH":
        return first.code, explain_mismatch(missing.seat.selector, missing.ledger.nodes), list(reasons)
    return first.code, f"needs {first.need}; {_best(first)} ({_tally(reasons)})", list(reasons)


def _tally(reasons: Sequence[Reason]) -> str:
    """Say what is wrong with how many nodes: `2 nodes short of GPUs, 1 not selected`."""
    head, *rest = reasons
    return ", ".join([f"{nodes(head.node_count)} {IN_WORDS[head.code]}",
                      *(f"{reason.node_count} {IN_WORDS[reason.code]}" for reason in rest)])


def _best(reason: Reason) -> str:
    if not reason.short:
        return "there is none"
    if reason.code == "INSUFFICIENT_VRAM":
        value, _, name = reason.best.partition(" on ")
        return f"best is {value} of {reason.need.partition(' ')[0]} on {name}, short {reason.short}"
    return f"best is {reason.best}, short {reason.short}"


def _after(shape: ReplicaShape, group: GroupShape, copy: int, found: Explanation) -> Explanation:
    """Say which part of the replica it is about, where the parts before it did find a place."""
    code, message, reasons = found
    if group is shape.groups[0] and copy == 0:
        return found
    part = f"group {group.name}" + (f", copy {copy + 1} of {group.copies}," if group.copies > 1 else "")
    return code, f"{part} {message}", reasons


def _explain_jointly(shape: ReplicaShape) -> Explanation:
    """Every part finds a place when asked in turn, so the order of creation on shared cards is in the way."""
    need = with_claim(shape.seats[0].claim).removeprefix(" with ") or "a place"
    reason = Reason(code="INSUFFICIENT_GPU", node_count=0, need=need, best="each member alone", short="all together")
    return reason.code, "its members fit one by one but not together on the cards Ray would hand out", [reason]


def _no_nodes(ledger: Ledger) -> Explanation:
    dead = len(ledger.nodes)
    message = f"no node is alive ({dead} dead)" if dead else "the cluster has no nodes"
    examples = [node.name for node in ledger.nodes[:MAX_EXAMPLES]]
    reason = Reason(code="NO_NODES", node_count=dead, need="1 node", best="0", short="1", examples=examples)
    return reason.code, message, [reason]
