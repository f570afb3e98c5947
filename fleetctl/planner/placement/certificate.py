"""The certificate: how many of the missing replicas a plan places, how many any plan could, and by which argument."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.documents.plan import Certificate
from fleetctl.planner.placement.demand import Demand, Placed


def certify(
    demands: Sequence[Demand], placed: Sequence[Placed], most: int, method: str, repacked: int | None = None
) -> Certificate:
    """Write the certificate for all `demands`, those included that were not given to the packer.

    `most` = the bound on new replicas; equal to their number only where the plan is proven best. `repacked` = the bound
    if what runs could be moved; left out where that is no more.
    """
    count, wanted = len(placed), sum(demand.missing for demand in demands)
    if not wanted or count == wanted:
        most, method = count, "all that is missing is placed" if wanted else "nothing is missing"
    upper = min(most, wanted)
    return Certificate(
        placed=count, wanted=wanted, upper_bound=upper, status="optimal" if upper == count else "feasible",
        method=method, repacked_bound=repacked if repacked is not None and upper < repacked <= wanted else None,
    )
