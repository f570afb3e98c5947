"""Why a model got fewer replicas than it asked for: a code, a sentence with the arithmetic, and the nodes behind it.

Reads the ledger as it stands after packing, so it speaks of what is really left. `docs/placement.md` lists the codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fleetctl.documents.plan import Counted, Reason
from fleetctl.planner.placement.claims import GroupShape, ReplicaShape
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.reasons.codes import IN_WORDS
from fleetctl.planner.placement.reasons.gang import explain_gang
from fleetctl.planner.placement.reasons.mismatch import explain_mismatch
from fleetctl.planner.placement.reasons.node_table import NodeTable
from fleetctl.planner.placement.reasons.shortfall import MAX_EXAMPLES, Shortfall, hardest_member
from fleetctl.planner.placement.reasons.words import node_kind, nodes, spread_text, with_claim

NOT_FOR_GANGS = ("NODE_SELECTOR_MISMATCH", "CARD_MEMORY_UNKNOWN", "CORDONED", "NODE_DRAINING")
"""Codes that say more than a count of nodes when no node at all can take a member of a gang."""


class Explanation(NamedTuple):
    """Why one more replica does not fit; `missing` = the member it is about, None where no single one is to blame."""

    code: str
    message: str
    reasons: list[Reason]
    counted: Counted | None = None
    missing: Shortfall | None = None


class _Part(NamedTuple):
    """One gang of a replica: a copy of a group, after the nodes in `touched` took the parts before it."""

    shape: ReplicaShape
    group: GroupShape
    copy: int
    touched: frozenset[int]


def explain(shape: ReplicaShape, placer: Placer, table: NodeTable | None = None) -> Explanation:
    """Say why one more replica of `shape` does not fit; whatever is tried on the ledger is thrown away again.

    `table` = the same ledger as a table, where there is one already; it must have been made on the ledger as it stands.
    """
    table = table or NodeTable(placer.ledger)
    if not table.alive.any():
        return _no_nodes(table, hardest_member(shape, shape.groups[0], table))
    mark = placer.ledger.mark()
    try:
        touched: frozenset[int] = frozenset()
        for group in shape.groups:
            for copy in range(group.copies):
                part = _Part(shape, group, copy, touched)
                missing = hardest_member(shape, group, table, touched)
                stands_on = (placer.place_gang(shape, list(group.seats(copy)), touched)
                             if len(missing.fitting) >= missing.nodes_needed else None)
                if stands_on is None:
                    return _named(part, _explain_group(missing, part))
                touched |= frozenset(stands_on.values())
        return _explain_jointly(shape)
    finally:
        placer.ledger.undo(mark)


def _explain_group(missing: Shortfall, part: _Part) -> Explanation:
    counted, reasons = missing.counted(), missing.reasons()
    alone = part.group.size == 1
    if alone and not reasons:
        return _explain_jointly(part.shape)
    if alone or (reasons and not len(missing.fitting) and reasons[0].code in NOT_FOR_GANGS):
        message = _member_message(missing, reasons, counted, said_before=bool(part.touched))
        return Explanation(reasons[0].code, message, reasons, counted, missing)
    code, message, reasons = explain_gang(missing, counted)
    return Explanation(code, message, reasons, counted, missing)


def _member_message(missing: Shortfall, reasons: Sequence[Reason], counted: Counted, *, said_before: bool) -> str:
    first, where, spread = reasons[0], "", ""
    if first.code == "NODE_SELECTOR_MISMATCH":
        return explain_mismatch(missing.selector, missing.table)
    if first.code == "INSUFFICIENT_GPU" and missing.claim.whole_cards > 1:
        where = f" on one {node_kind(missing.selector)} node".replace("  ", " ")
    if first.code == "INSUFFICIENT_GPU" and not said_before:  # a part placed before took some of what was counted
        spread = spread_text(counted, missing.claim.gpus)
    return f"needs {first.need}{where}; {_best(first)} ({_tally(reasons)}){spread}"


def _tally(reasons: Iterable[Reason]) -> str:
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


def _named(part: _Part, found: Explanation) -> Explanation:
    """Say which part of the replica it is about, where the parts before it did find a place."""
    if part.group is part.shape.groups[0] and part.copy == 0:
        return found
    copies = f", copy {part.copy + 1} of {part.group.copies}," if part.group.copies > 1 else ""
    return found._replace(message=f"group {part.group.name}{copies} {found.message}")


def _explain_jointly(shape: ReplicaShape) -> Explanation:
    """Every part finds a place when asked in turn, so the order of creation on shared cards is in the way."""
    need = with_claim(shape.seats[0].claim).removeprefix(" with ") or "a place"
    reason = Reason(code="INSUFFICIENT_GPU", node_count=0, need=need, best="each member alone", short="all together")
    return Explanation(reason.code, "its members fit one by one but not together on the cards Ray would hand out",
                       [reason])


def _no_nodes(table: NodeTable, missing: Shortfall) -> Explanation:
    dead = len(table)
    message = f"no node is alive ({dead} dead)" if dead else "the cluster has no nodes"
    examples = [node.name for node in table.ledger.nodes[:MAX_EXAMPLES]]
    reason = Reason(code="NO_NODES", node_count=dead, need="1 node", best="0", short="1", examples=examples)
    return Explanation(reason.code, message, [reason], missing.counted(), missing)
