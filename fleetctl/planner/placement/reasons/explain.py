"""Why a model got fewer replicas than it asked for: a code, a sentence with the arithmetic, and the nodes behind it.

Reads the ledger as packing left it, so it speaks of what is really left. `docs/placement.md` lists the codes.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fleetctl.documents.nearest import nearest
from fleetctl.documents.plan import Counted, Reason
from fleetctl.documents.selector import parse_requirement
from fleetctl.planner.placement.arrays import Ints
from fleetctl.planner.placement.claims import GroupShape, ReplicaShape, Selector
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.reasons.check import IN_WORDS
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

    `table` = the same ledger as a table, where there is one already, of its present state.
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
    return Explanation(code, message + _users(reasons), reasons, counted, missing)


def _member_message(missing: Shortfall, reasons: Sequence[Reason], counted: Counted, *, said_before: bool) -> str:
    first, where, spread = reasons[0], "", ""
    if first.code == "NODE_SELECTOR_MISMATCH":
        return explain_mismatch(missing.selector, missing.table)
    if first.code == "INSUFFICIENT_GPU" and missing.claim.whole_cards > 1:
        where = f" on one {node_kind(missing.selector)} node".replace("  ", " ")
    if first.code == "INSUFFICIENT_GPU" and not said_before:  # a part placed before took some of what was counted
        spread = spread_text(counted, missing.claim.gpus)
    return f"needs {first.need}{where}; {_best(first)} ({_tally(reasons)}){spread}{_users([first])}"


def _users(reasons: Iterable[Reason]) -> str:
    """Say who uses cards that would be free otherwise."""
    return "".join(f"; {one}" for reason in reasons for one in reason.in_use)


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


MAX_VALUES = 5
DID_YOU_MEAN = "did you mean"
UNKNOWN_LABEL = "no node has the label"
MAX_COMPARED = 100
"""Of more words than this, only those beside it in the alphabet are compared: node names may be 10,000."""


def explain_mismatch(selector: Selector, table: NodeTable) -> str:
    """Say which part of a selector no node satisfies, or how many nodes satisfy each part where none has all."""
    counts: list[tuple[str, int]] = []
    for key, expression in selector:
        allowed = int((table.allowed_by(key, expression) & table.alive).sum())
        if not allowed:
            return _nobody(key, expression, table)
        counts.append((f"{key}={expression}", allowed))
    each = ", ".join(f"{nodes(allowed)} with {part}" for part, allowed in counts)
    return f"no single node has all of {', '.join(part for part, _ in counts)} ({each})"


def _nobody(key: str, expression: str, table: NodeTable) -> str:
    column = table.column(key)
    values = [column.values[code] for code in np.unique(column.codes[table.alive]) if code >= 0]
    if not values:
        return f"{UNKNOWN_LABEL} {key}{meant(key, table.label_keys)}"
    asked = " ".join(sorted(parse_requirement(expression).values))
    return f"no node has {key}={expression}{meant(asked, values)}; found: {_some(values)}"


def meant(word: str, words: Sequence[str]) -> str:
    """Return ` (did you mean ...?)` with the nearest of `words` (in order of the alphabet), or nothing."""
    if len(words) > MAX_COMPARED:
        start = max(0, bisect(words, word) - MAX_COMPARED // 2)
        words = words[start: start + MAX_COMPARED]
    near = nearest(word, words)
    return f" ({DID_YOU_MEAN} {near}?)" if near else ""


def _some(values: Sequence[str]) -> str:
    more = f" and {len(values) - MAX_VALUES} more" if len(values) > MAX_VALUES else ""
    return ", ".join(values[:MAX_VALUES]) + more


Message = tuple[str, str, list[Reason]]
"""Code, message, reasons."""


def explain_gang(missing: Shortfall, counted: Counted) -> Message:
    """Explain a gang by the kind of member that is hardest to place."""
    found, needed = len(missing.fitting), missing.nodes_needed
    kind = node_kind(missing.selector)
    need = nodes(needed, kind) + with_claim(missing.claim)
    if found >= needed:
        if missing.shape.same_label is not None:
            return _explain_domain(missing, missing.shape.same_label, need)
        ranks = missing.group.size
        need = nodes(-(-ranks // missing.shape.ranks_per_node))
        message = f"needs {need} at once for {ranks} ranks, but its members want the same {nodes(found)}"
    else:
        message = f"needs {need}, {found} found{spread_text(counted, missing.count * missing.claim.gpus)}"
    reason = Reason(
        code="GANG_NEEDS_NODES", node_count=found, need=need, best=nodes(found),
        short=nodes(max(0, needed - found)), examples=missing.examples(missing.fitting),
    )
    return reason.code, message, [reason, *missing.reasons()]


def fitting_by_value(missing: Shortfall, label: str) -> tuple[tuple[str, ...], Ints]:
    """Return the values of a label, and on how many nodes of each one more member fits."""
    column = missing.table.column(label)
    codes = column.codes[missing.fitting]
    return column.values, np.bincount(codes[codes >= 0], minlength=len(column.values))


def _explain_domain(missing: Shortfall, label: str, need: str) -> Message:
    values, counts = fitting_by_value(missing, label)
    best, most = "none", 0
    if values:
        most = int(counts.max())
        best = f"{most} in {max(value for value, fits in zip(values, counts, strict=True) if fits == most)}"
        message = f"needs {need} inside one value of {label}; best is {best}, {len(missing.fitting)} over all"
    else:
        near = meant(label, missing.table.label_keys)
        message = f"needs {need} inside one value of {label}, and no node has that label{near}"
    reason = Reason(
        code="SAME_LABEL_DOMAIN", node_count=len(missing.fitting), need=need, best=best,
        short=nodes(max(0, missing.nodes_needed - most)), examples=missing.examples(missing.fitting),
    )
    return reason.code, message, [reason, *missing.reasons()]
