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
from fleetctl.documents.quantity import some
from fleetctl.documents.selector import parse_requirement
from fleetctl.planner.placement.arrays import Ints
from fleetctl.planner.placement.claims import GroupShape, ReplicaShape, without_left_out
from fleetctl.planner.placement.ledger.domains import Domain
from fleetctl.planner.placement.ledger.replica import Placer, SeatNodes
from fleetctl.planner.placement.reasons.check import IN_WORDS
from fleetctl.planner.placement.reasons.node_table import NodeTable
from fleetctl.planner.placement.reasons.shortfall import MAX_EXAMPLES, Shortfall, hardest_member
from fleetctl.planner.placement.reasons.words import node_kind, nodes, parts_text, spread_text, with_claim

NOT_FOR_GANGS = ("NODE_SELECTOR_MISMATCH", "CARD_MEMORY_UNKNOWN", "NODE_COOLING", "CORDONED", "NODE_DRAINING")
"""Codes that say more than a count of nodes when no node at all can take a member of a gang."""
VALUES_TRIED = 64
"""Values of the label of a whole replica that are looked at, those with most GPUs free."""


class Explanation(NamedTuple):
    """Why one more replica does not fit; `missing` = the member it is about, None where no single one is to blame."""

    code: str
    message: str
    reasons: list[Reason]
    counted: Counted | None = None
    missing: Shortfall | None = None
    misspelt: bool = False
    """A label of it looks misspelt: to add nodes with it would not help."""


class _Part(NamedTuple):
    """One gang of a replica, a copy of a group, that finds no place for `missing`; `before` = members placed before."""

    group: GroupShape
    copy: int
    before: int
    missing: Shortfall


def explain(shape: ReplicaShape, placer: Placer, table: NodeTable | None = None) -> Explanation:
    """Say why one more replica of `shape` does not fit; whatever is tried on the ledger is thrown away again.

    `table` = the same ledger as a table, where there is one already, of its present state.
    """
    table = table or NodeTable(placer.ledger)
    if not table.alive.any():
        return _no_nodes(table, hardest_member(shape, shape.groups[0], table))
    part, nearest = _without_place(shape, placer, table), _nearest(shape, placer, table) if shape.as_one else None
    if part is None:
        return _explain_together(shape, nearest, table) if shape.as_one else _explain_jointly(shape)
    found = _named(part, _explain_group(part)) if part.before else _explain_group(part)
    if found.missing is None or nearest is None or nearest.part is None:
        return found
    return found._replace(missing=nearest.part.missing)  # what would help is sought where most of it fits already


def _without_place(shape: ReplicaShape, placer: Placer, table: NodeTable, domain: Domain | None = None) -> _Part | None:
    """Place the parts of a replica one after another, and return the first that finds no place; None = all do.

    `domain` = that of the whole replica. The ledger is left as it was.
    """
    mark, placed = placer.ledger.mark(), SeatNodes()
    try:
        for group in shape.groups:
            for copy in range(group.copies):
                touched = frozenset(placed.values())
                missing = hardest_member(shape, group, table, touched, domain.value if domain else None)
                stands_on = (placer.place_gang(shape, list(group.seats(copy)), touched, domain)
                             if len(missing.fitting) >= missing.nodes_needed else None)
                if stands_on is None:
                    return _Part(group, copy, len(placed), missing)
                placed |= stands_on
        return None
    finally:
        placer.ledger.undo(mark)


class _Nearest(NamedTuple):
    """The value of the label of a whole replica in which most of its members find a place."""

    domain: Domain
    part: _Part | None
    """The first that finds none there; None = each part for itself does."""


def _nearest(shape: ReplicaShape, placer: Placer, table: NodeTable) -> _Nearest | None:
    """Return where a replica misses least, of equal ones with most GPUs free; None where no node has the label."""
    domains = [domain for domain in placer.domains(shape.same_label or "").with_room(0, 1)
               if table.alive[list(domain.nodes)].any()]
    tried = [_Nearest(domain, _without_place(shape, placer, table, domain))
             for domain in domains[:-VALUES_TRIED - 1:-1]]
    return max(tried, key=lambda one: shape.size if one.part is None else one.part.before, default=None)


def _explain_together(shape: ReplicaShape, nearest: _Nearest | None, table: NodeTable) -> Explanation:
    """Every part of a replica finds a place, but not all of them inside one value of the label that binds them."""
    label = shape.same_label or ""
    need, best, count = f"{parts_text(shape)} inside one value of {label}", "none", 0
    if nearest is None:
        near = _meant(label, table.label_keys)
        found = Explanation("", f"no node has the label {label}{near}; it needs {need}", [],
                            missing=hardest_member(shape, shape.groups[0], table), misspelt=bool(near))
    elif nearest.part is None:
        return _explain_jointly(shape)
    else:
        best, count = nearest.domain.value, len(nearest.domain.nodes)
        found = _named(nearest.part, _explain_group(nearest.part))
        found = found._replace(message=f"no room for {need}; nearest is {best}, where {found.message}")
    short = found.reasons[0].short if found.reasons else ""
    reason = Reason(code="SAME_LABEL_DOMAIN", node_count=count, need=need, best=best, short=short)
    return found._replace(code=reason.code, reasons=[reason, *found.reasons])


def _explain_group(part: _Part) -> Explanation:
    missing = part.missing
    counted, reasons = missing.counted(), missing.reasons()
    alone = part.group.size == 1
    if alone and not reasons:
        return _explain_jointly(part.missing.shape)
    if alone or (reasons and not len(missing.fitting) and reasons[0].code in NOT_FOR_GANGS):
        message, misspelt = (_explain_mismatch(missing) if reasons[0].code == "NODE_SELECTOR_MISMATCH" else
                             (_member_message(missing, reasons, counted, said_before=part.before > 0), False))
        return Explanation(reasons[0].code, message, reasons, counted, missing, misspelt)
    found = _explain_gang(missing, counted)
    return found._replace(message=found.message + _users(found.reasons))


def _member_message(missing: Shortfall, reasons: Sequence[Reason], counted: Counted, *, said_before: bool) -> str:
    first, where, spread = reasons[0], "", ""
    if first.code == "INSUFFICIENT_GPU" and missing.claim.whole_cards > 1:
        where = f" on one {node_kind(missing.selector)} node".replace("  ", " ")
    if first.code == "INSUFFICIENT_GPU" and not said_before:  # a part placed before took some of what was counted
        spread = spread_text(counted, missing.claim.gpus)
    return f"needs {first.need}{where}; {_best(first)} ({_tally(reasons)}){spread}{_users([first])}"


def _users(reasons: Iterable[Reason]) -> str:
    """Say who uses cards that would be free otherwise."""
    return "".join(f"; {one}" for reason in reasons for one in reason.in_use)


def _tally(reasons: Iterable[Reason]) -> str:
    """Say what is wrong with how many nodes: `2 nodes short of GPUs, 1 without the labels`."""
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
    """Say which part of the replica it is about."""
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
CASE_MATTERS = " upper and lower case matter"
MAX_COMPARED = 100
"""Of more words than this, only those beside it in the alphabet are compared: node names may be 10,000."""


def _explain_mismatch(missing: Shortfall) -> tuple[str, bool]:
    """Say which part of a selector no node satisfies, or how many nodes satisfy each part where none has all.

    Also returns whether that part looks misspelt.
    """
    selector, table, counts = without_left_out(missing.selector), missing.table, list[tuple[str, int]]()
    if missing.within is not None:
        return f"needs a node with {', '.join(f'{key}={value}' for key, value in selector)}; there is none", False
    for key, expression in selector:
        allowed = int((table.allowed_by(key, expression) & table.alive).sum())
        if not allowed:
            return _nobody(key, expression, table)
        counts.append((f"{key}={expression}", allowed))
    each = ", ".join(f"{nodes(allowed)} with {part}" for part, allowed in counts)
    return f"no single node has all of {', '.join(part for part, _ in counts)} ({each})", False


def _nobody(key: str, expression: str, table: NodeTable) -> tuple[str, bool]:
    column = table.column(key)
    values = [column.values[code] for code in sorted(set(column.codes[table.alive].tolist())) if code >= 0]
    if not values:
        near = _meant(key, table.label_keys)
        return f"no node has the label {key}{near}", bool(near)
    asked = " ".join(sorted(parse_requirement(expression).values))
    near = _meant(asked, values)
    return f"no node has {key}={expression}{near}; found: {some(values, MAX_VALUES)}", CASE_MATTERS in near


def _meant(word: str, words: Sequence[str]) -> str:
    """Return ` (did you mean ...?)` with the nearest of `words` (in order of the alphabet), or nothing."""
    if len(words) > MAX_COMPARED:
        start = max(0, bisect(words, word) - MAX_COMPARED // 2)
        words = words[start: start + MAX_COMPARED]
    near = nearest(word, words)
    return f" (did you mean {near}?{CASE_MATTERS if near.casefold() == word.casefold() else ''})" if near else ""


def _explain_gang(missing: Shortfall, counted: Counted) -> Explanation:
    """Explain a gang by the kind of member that is hardest to place."""
    found, needed = len(missing.fitting), missing.nodes_needed
    code, best, lacking, misspelt = "GANG_NEEDS_NODES", nodes(found), needed - found, False
    need = nodes(needed, node_kind(missing.selector)) + with_claim(missing.claim)
    if found < needed:
        message = f"needs {need}, {found} found{spread_text(counted, missing.count * missing.claim.gpus)}"
    elif missing.shape.same_label is not None and not missing.shape.as_one:
        message, best, most, misspelt = _in_one_value(missing, missing.shape.same_label, need)
        code, lacking = "SAME_LABEL_DOMAIN", needed - most
    else:
        need = nodes(-(-missing.group.size // missing.shape.ranks_per_node))
        message = (f"needs {need} at once for {missing.group.size} ranks; one by one they fit on {best}, but not "
                   "together")
    reason = Reason(code=code, node_count=found, need=need, best=best, short=nodes(max(0, lacking)),
                    examples=missing.examples(missing.fitting))
    return Explanation(code, message, [reason, *missing.reasons()], counted, missing, misspelt)


def fitting_by_value(missing: Shortfall, label: str) -> tuple[tuple[str, ...], Ints]:
    """Return the values of a label, and on how many nodes of each one more member fits."""
    column = missing.table.column(label)
    codes = column.codes[missing.fitting]
    return column.values, np.bincount(codes[codes >= 0], minlength=len(column.values))


def _in_one_value(missing: Shortfall, label: str, need: str) -> tuple[str, str, int, bool]:
    """Return a message, which value has most nodes, how many that are, and whether the label looks misspelt."""
    values, counts = fitting_by_value(missing, label)
    if not values:
        near = _meant(label, missing.table.label_keys)
        return f"needs {need} inside one value of {label}, and no node has that label{near}", "none", 0, bool(near)
    most = int(counts.max())
    best = f"{most} in {max(value for value, fits in zip(values, counts, strict=True) if fits == most)}"
    message = f"needs {need} inside one value of {label}; best is {best}, {len(missing.fitting)} over all"
    return message, best, most, False
