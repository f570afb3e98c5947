"""Why a model got fewer replicas than it asked for: a code, a sentence with the arithmetic, and the nodes behind it.

Reads the ledger as packing left it, so the amounts are those that are really left. `docs/placement.md` lists the codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fleetctl.documents.names import nearest
from fleetctl.documents.plan import Counted, Reason
from fleetctl.documents.quantity import SHARE, amount_of, count_of, format_bytes, format_share, some
from fleetctl.documents.selector import ACCELERATOR_LABEL, parse_requirement
from fleetctl.planner.placement.claims import Claim, ReplicaShape, Selector
from fleetctl.planner.placement.ledger.replica import Domain, Placer, SeatNodes
from fleetctl.planner.placement.reasons.check import Code
from fleetctl.planner.placement.reasons.node_table import NodeTable, Shortfall, hardest_member
from fleetctl.planner.placement.tally import Ints

OVER_HALF = "gpus: 0.51"
MAX_DOMAINS = 64
"""Domains tried for a replica inside one domain, those with most GPUs free."""
MAX_VALUES = 5
CASE_MATTERS = " upper and lower case matter"


class Explanation(NamedTuple):
    """Why one more replica does not fit; `missing` = the member that finds no place, None if it is no single one."""

    code: str
    message: str
    reasons: list[Reason]
    counted: Counted | None = None
    missing: Shortfall | None = None
    misspelled: bool = False
    """A label of the model looks misspelled, so adding nodes with it would not help."""


def explain(shape: ReplicaShape, placer: Placer, table: NodeTable | None = None) -> Explanation:
    """Say why one more replica of `shape` does not fit; the ledger is left as it was.

    `table` = the ledger in its present state as a table, if there is one already.
    """
    table = table or NodeTable(placer.ledger)
    if not table.alive.any():
        return _no_nodes(shape, table)
    missing = _without_place(shape, placer, table)
    if not shape.as_one:
        return _explain_jointly(shape) if missing is None else _explain_part(missing)
    domain, missing_there = _nearest_domain(shape, placer, table)
    if missing is None:
        return _explain_together(shape, domain, missing_there, table)
    found = _explain_part(missing)
    if found.missing is None or missing_there is None:
        return found
    return found._replace(missing=missing_there)  # a remedy is sought where most of the replica fits already


def _without_place(
    shape: ReplicaShape, placer: Placer, table: NodeTable, domain: Domain | None = None
) -> Shortfall | None:
    """Place the gangs of a replica one after another and return the first that finds no place; None = all do.

    `domain` = the only nodes to use. The ledger is left as it was.
    """
    mark, placed = placer.ledger.mark(), SeatNodes()
    try:
        for group in shape.groups:
            for copy in range(group.copies):
                touched = frozenset(placed.values())
                missing = hardest_member(shape, group, table, touched, domain.value if domain else None)
                found = (placer.place_gang(shape, list(group.seats(copy)), touched, domain)
                         if len(missing.fitting) >= missing.nodes_needed else None)
                if found is None:
                    return replace(missing, copy=copy, before=len(placed))
                placed |= found
        return None
    finally:
        placer.ledger.undo(mark)


def _nearest_domain(
    shape: ReplicaShape, placer: Placer, table: NodeTable
) -> tuple[Domain | None, Shortfall | None]:
    """Return the domain where most of a replica fits, among equals with most GPUs free, and what finds no place there.

    None, None if no node has the label; None for the second if each gang finds a place there by itself.
    """
    domains = [domain for domain in placer.domains(shape.same_label or "").with_room(0, 1)
               if table.alive[list(domain.nodes)].any()]
    tried = [(domain, _without_place(shape, placer, table, domain)) for domain in domains[:-MAX_DOMAINS - 1:-1]]
    return max(tried, key=lambda one: shape.size if one[1] is None else one[1].before, default=(None, None))


def _no_nodes(shape: ReplicaShape, table: NodeTable) -> Explanation:
    dead, missing = len(table), hardest_member(shape, shape.groups[0], table)
    message = f"no node is alive ({dead} dead)" if dead else "the cluster has no nodes"
    reason = Reason(code="NO_NODES", node_count=dead, need="1 node", best="0", short="1",
                    examples=missing.examples(range(dead)))
    return Explanation(reason.code, message, [reason], missing.counted(), missing)


def _explain_together(
    shape: ReplicaShape, domain: Domain | None, missing: Shortfall | None, table: NodeTable
) -> Explanation:
    """Each gang of a replica finds a place, but not all of them inside one value of the label that binds them."""
    label = shape.same_label or ""
    need, best, count = f"{parts_text(shape)} inside one value of {label}", "none", 0
    if domain is None:
        near = _did_you_mean(label, table.label_keys())
        found = Explanation("", f"no node has the label {label}{near}; it needs {need}", [],
                            missing=hardest_member(shape, shape.groups[0], table), misspelled=bool(near))
    elif missing is None:
        return _explain_jointly(shape)
    else:
        best, count = domain.value, len(domain.nodes)
        found = _explain_part(missing, named=True)
        found = found._replace(message=f"no room for {need}; nearest is {best}, where {found.message}")
    short = found.reasons[0].short if found.reasons else ""
    reason = Reason(code="SAME_LABEL_DOMAIN", node_count=count, need=need, best=best, short=short)
    return found._replace(code=reason.code, reasons=[reason, *found.reasons])


def _explain_jointly(shape: ReplicaShape) -> Explanation:
    """Each gang finds a place when tried in turn, so the order of creation on shared cards is in the way."""
    need = with_claim(shape.seats[0].claim).removeprefix(" with ") or "a place"
    reason = Reason(code="INSUFFICIENT_GPU", node_count=0, need=need, best="each member alone", short="all together")
    return Explanation(reason.code, "its members fit one by one but not together on the cards Ray would hand out",
                       [reason])


def _explain_part(missing: Shortfall, *, named: bool = False) -> Explanation:
    """Explain one gang; its name is in the message if it is `named` or other gangs come before it."""
    found, group = _explain_member(missing), missing.group
    if not named and not missing.before:
        return found
    copies = f", copy {missing.copy + 1} of {group.copies}," if group.copies > 1 else ""
    return found._replace(message=f"group {group.name}{copies} {found.message}")


def _explain_member(missing: Shortfall) -> Explanation:
    alone, counted, reasons = missing.group.size == 1, missing.counted(), missing.reasons()
    if alone and not reasons:
        return _explain_jointly(missing.shape)
    if not alone and (len(missing.fitting) or not reasons or not Code[reasons[0].code].says_more):
        found = _explain_gang(missing, counted)
        return found._replace(message=found.message + _users(found.reasons))
    if reasons[0].code == "NODE_SELECTOR_MISMATCH":
        message, misspelled = _explain_mismatch(missing)
    else:
        message, misspelled = _member_message(missing, reasons, counted), False
    return Explanation(reasons[0].code, message, reasons, counted, missing, misspelled)


def _member_message(missing: Shortfall, reasons: Sequence[Reason], counted: Counted) -> str:
    first, where, spread = reasons[0], "", ""
    if first.code == "INSUFFICIENT_GPU" and missing.claim.whole_cards > 1:
        where = f" on one {node_kind(missing.selector)} node".replace("  ", " ")
    if first.code == "INSUFFICIENT_GPU" and not missing.before:  # a gang placed before took some of what was counted
        spread = spread_text(counted, missing.claim.gpus)
    tally = ", ".join([f"{nodes(first.node_count)} {Code[first.code].words}",
                       *(f"{reason.node_count} {Code[reason.code].words}" for reason in reasons[1:])])
    return f"needs {first.need}{where}; {_best(first)} ({tally}){spread}{_users([first])}"


def _users(reasons: Iterable[Reason]) -> str:
    """Say what uses the cards that would otherwise be free."""
    return "".join(f"; {one}" for reason in reasons for one in reason.in_use)


def _best(reason: Reason) -> str:
    if not reason.short:
        return "there is none"
    if reason.code == "INSUFFICIENT_VRAM":
        value, _, name = reason.best.partition(" on ")
        return f"best is {value} of {reason.need.partition(' ')[0]} on {name}, short {reason.short}"
    return f"best is {reason.best}, short {reason.short}"


def _explain_mismatch(missing: Shortfall) -> tuple[str, bool]:
    """Say which part of a selector no node satisfies, or how many nodes satisfy each part if no node satisfies all.

    Also returns whether that part looks misspelled.
    """
    selector, table, counts = missing.selector.labels, missing.table, list[tuple[str, int]]()
    if missing.within is not None:
        return f"needs a node with {', '.join(f'{key}={value}' for key, value in selector)}; there is none", False
    for key, expression in selector:
        allowed = int((table.selected(Selector(((key, expression),))) & table.alive).sum())
        if not allowed:
            return _no_node_with(key, expression, table)
        counts.append((f"{key}={expression}", allowed))
    each = ", ".join(f"{nodes(allowed)} with {part}" for part, allowed in counts)
    return f"no single node has all of {', '.join(part for part, _ in counts)} ({each})", False


def _no_node_with(key: str, expression: str, table: NodeTable) -> tuple[str, bool]:
    column = table.column(key)
    values = [column.values[code] for code in np.unique(column.codes[table.alive]).tolist() if code >= 0]
    if not values:
        near = _did_you_mean(key, table.label_keys())
        return f"no node has the label {key}{near}", bool(near)
    near = _did_you_mean(" ".join(sorted(parse_requirement(expression).values)), values)
    return f"no node has {key}={expression}{near}; found: {some(values, MAX_VALUES)}", CASE_MATTERS in near


def _did_you_mean(word: str, words: Sequence[str]) -> str:
    """Return ` (did you mean ...?)` with the nearest of `words`, or an empty text."""
    near = nearest(word, words)
    return f" (did you mean {near}?{CASE_MATTERS if near.casefold() == word.casefold() else ''})" if near else ""


def _explain_gang(missing: Shortfall, counted: Counted) -> Explanation:
    """Explain a gang by the kind of member that is hardest to place."""
    found, needed = len(missing.fitting), missing.nodes_needed
    code, best, lacking, misspelled = "GANG_NEEDS_NODES", nodes(found), needed - found, False
    need = nodes(needed, node_kind(missing.selector)) + with_claim(missing.claim)
    fit = found
    if found < needed:
        message = f"needs {need}, {found} found{spread_text(counted, missing.count * missing.claim.gpus)}"
    elif missing.shape.same_label is not None and not missing.shape.as_one:
        code, need_inside = "SAME_LABEL_DOMAIN", f"needs {need} inside one value of {missing.shape.same_label}"
        values, counts = fitting_by_value(missing, missing.shape.same_label)
        if values:
            most = int(counts.max())
            lacking, fit = needed - most, most
            best = f"{most} in {max(value for value, fits in zip(values, counts, strict=True) if fits == most)}"
            message = f"{need_inside}; best is {best}, {found} overall"
        else:
            near = _did_you_mean(missing.shape.same_label, missing.table.label_keys())
            best, lacking, misspelled = "none", needed, bool(near)
            message = f"{need_inside}, and no node has that label{near}"
    else:
        need = nodes(-(-missing.group.size // missing.group.most_ranks))
        message = (f"needs {need} at once for {missing.group.size} ranks; one by one they fit on {best}, but not "
                   "together")
    if missing.group.most_ranks < missing.shape.ranks_per_node and fit * missing.shape.ranks_per_node >= missing.count:
        code = "RANKS_SHARE_A_CARD"
        message += (": Ray would put two ranks of a node on one card; with a share over one half, such as "
                    f"{OVER_HALF}, each has its own, and a node takes up to {missing.shape.ranks_per_node}")
    reason = Reason(code=code, node_count=found, need=need, best=best, short=nodes(max(0, lacking)),
                    examples=missing.examples(missing.fitting))
    return Explanation(code, message, [reason, *missing.reasons()], counted, missing, misspelled)


def fitting_by_value(missing: Shortfall, label: str) -> tuple[tuple[str, ...], Ints]:
    """Return the values of a label, and for each the number of nodes with it on which one more member fits."""
    column = missing.table.column(label)
    codes = column.codes[missing.fitting]
    return column.values, np.bincount(codes[codes >= 0], minlength=len(column.values))


def nodes(count: int, kind: str = "") -> str:
    """Return a number of nodes in words: `1 node`, `3 H200 nodes`."""
    return count_of(count, f"{kind} node" if kind else "node")


def gpus(units: int) -> str:
    """Return an amount of 1/10000 GPU in words."""
    return f"{format_share(units)} GPU" + ("" if 0 < units <= SHARE else "s")


def parts_text(shape: ReplicaShape) -> str:
    """Return the groups of a replica in words: `prefill and 2 copies of decode`."""
    *most, last = [f"{group.copies} copies of {group.name}" if group.copies > 1 else group.name
                   for group in shape.groups]
    return f"{', '.join(most)} and {last}" if most else last


def spread_text(counted: Counted, wanted: int) -> str:
    """Say on how many nodes the free GPUs are, for a need of `wanted` 1/10000 GPU; empty if that adds nothing."""
    free, on = counted.free_gpus, counted.on_nodes
    if not wanted or on <= max(1, counted.fitting):
        return ""
    verb = "is" if free <= SHARE else "are"
    where = f"but spread over {nodes(on)}" if free >= wanted else f"in all, on {nodes(on)}"
    return f"; {gpus(free)} {verb} free {where}"


def node_kind(selector: Selector) -> str:
    """Return the card that a selector requires by Ray's label: `H200`, `L4 or A10G`; empty if it requires none."""
    wanted = dict(selector.labels).get(ACCELERATOR_LABEL)
    requirement = None if wanted is None else parse_requirement(wanted)
    return "" if requirement is None or requirement.negated else " or ".join(sorted(requirement.values))


def claims_text(shape: ReplicaShape) -> str:
    """Return the claims of one replica by group: `2 x 8 GPUs of 120Gi`."""
    groups = []
    for group in shape.groups:
        members = []
        for (claim, selector), count in group.classes().items():
            where = ", ".join(f"{key}={value}" for key, value in selector.labels)
            text = claim_text(claim) + (f" on {where}" if where else "")
            times = count * group.copies
            members.append(text if times == 1 else f"{times} x ({text})" if "," in text else f"{times} x {text}")
        groups.append(" + ".join(members))
    return ", ".join(groups)


def claim_text(claim: Claim) -> str:
    """Return all that one member claims: `8 GPUs of 120Gi, 4 CPUs, 64Gi memory`."""
    parts = []
    if claim.gpus:
        parts.append(amount_of(claim.gpus, "GPU") + (f" of {format_bytes(claim.vram)}" if claim.vram else ""))
    elif claim.vram:
        parts.append(f"{format_bytes(claim.vram)} VRAM")
    if claim.cpus:
        parts.append(amount_of(claim.cpus, "CPU"))
    if claim.memory:
        parts.append(f"{format_bytes(claim.memory)} memory")
    return ", ".join(parts) or "nothing"


def with_claim(claim: Claim) -> str:
    """Say what one member needs on its node, GPUs first; empty if it needs nothing countable."""
    each = " each" if claim.whole_cards > 1 else ""
    vram = f" of {format_bytes(claim.vram)} free VRAM{each}" if claim.vram else ""
    if claim.whole_cards:
        return f" with {count_of(claim.whole_cards, 'free GPU')}{vram}"
    if claim.wants_card:
        return (f" with {format_share(claim.gpus)} of a card free" if claim.gpus else " with a card") + vram
    return f" with {format_share(claim.cpus)} free CPUs" if claim.cpus else ""
