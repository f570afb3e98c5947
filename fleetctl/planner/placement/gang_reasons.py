"""Why a gang finds no place: too few nodes for its ranks, or too few inside one value of a label."""

from __future__ import annotations

from fleetctl.documents.plan import Reason
from fleetctl.planner.placement.mismatch import label_keys, nearest
from fleetctl.planner.placement.replica import Placer
from fleetctl.planner.placement.shortfall import Explanation, Shortfall, nodes, with_claim


def explain_gang(missing: Shortfall, placer: Placer) -> Explanation:
    """Explain a gang by the kind of member that is hardest to place."""
    fitting, needed = missing.fitting, missing.nodes_needed
    if len(fitting) >= needed and missing.shape.same_label is not None:
        return _explain_domain(missing, missing.shape.same_label, placer)
    need = nodes(needed) + with_claim(missing.seat.claim)
    message = f"needs {need}, {len(fitting)} found"
    if len(fitting) >= needed:
        ranks = missing.group.size
        need = nodes(-(-ranks // missing.shape.ranks_per_node))
        message = f"needs {need} at once for {ranks} ranks, but its members want the same {nodes(len(fitting))}"
    reason = Reason(
        code="GANG_NEEDS_NODES", node_count=len(fitting), need=need, best=nodes(len(fitting)),
        short=nodes(max(0, needed - len(fitting))), examples=missing.examples(fitting),
    )
    return reason.code, message, [reason, *missing.reasons()]


def _explain_domain(missing: Shortfall, label: str, placer: Placer) -> Explanation:
    fitting = missing.fitting
    counts = {value: sum(place in domain.nodes for place in fitting)
              for value, domain in placer.domains(label).by_value.items()}
    need = nodes(missing.nodes_needed) + with_claim(missing.seat.claim)
    best, most = "none", 0
    if counts:
        value = max(counts, key=lambda name: (counts[name], name))
        most = counts[value]
        best = f"{most} in {value}"
        message = f"needs {need} inside one value of {label}; best is {best}, {len(fitting)} over all"
    else:
        near = nearest(label, label_keys(missing.ledger.nodes))
        message = f"needs {need} inside one value of {label}, and no node has that label{near}"
    reason = Reason(
        code="SAME_LABEL_DOMAIN", node_count=len(fitting), need=need, best=best,
        short=nodes(max(0, missing.nodes_needed - most)), examples=missing.examples(fitting),
    )
    return reason.code, message, [reason, *missing.reasons()]
