"""Why a gang finds no place: too few nodes for its ranks, or too few inside one value of a label."""

from __future__ import annotations

import numpy as np

from fleetctl.documents.plan import Counted, Reason
from fleetctl.planner.placement.arrays import Ints
from fleetctl.planner.placement.reasons.mismatch import meant
from fleetctl.planner.placement.reasons.shortfall import Shortfall
from fleetctl.planner.placement.reasons.words import node_kind, nodes, spread_text, with_claim

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
