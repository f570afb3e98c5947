"""The certificate: how many of the missing replicas a plan places, how many any plan could, and by which argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.documents.plan import Certificate
from fleetctl.planner.placement.bound import count_bound
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.exact import Examined, bound_replicas, examine
from fleetctl.planner.placement.objective import placed_levels, priorities
from fleetctl.planner.placement.problem import Problem


@dataclass(frozen=True, slots=True)
class Proof:
    """No plan that keeps the order of priorities places more than `most` new replicas; `optimal` = nor a better mix."""

    most: int
    optimal: bool
    method: str


def prove(problem: Problem, placed: Sequence[Placed], examined: Examined | None = None) -> Proof:
    """Bound what could be placed, on the problem as it was before packing; `examined` = what the exact tier found."""
    demands = [demand for one in problem.demands for demand in one.demands]
    if len(placed) == sum(demand.missing for demand in demands):
        return Proof(len(placed), optimal=True, method="all that is missing is placed")
    reached = placed_levels(placed, priorities(demands))
    examined = examined or examine(problem, reached)
    counted = count_bound(examined.relaxation.tally)
    if reached == examined.levels:
        if counted.replicas == len(placed):
            return Proof(len(placed), optimal=True, method=f"slot count: {counted.method}")
        return Proof(len(placed), optimal=True, method=_relaxed(examined))
    most = bound_replicas(examined, reached)
    if counted.replicas <= most:
        return Proof(counted.replicas, optimal=False, method=f"slot count: {counted.method}")
    return Proof(most, optimal=False, method=_relaxed(examined))


def _relaxed(examined: Examined) -> str:
    count = len(examined.relaxation.pools)
    return f"relaxation over {count} {'group' if count == 1 else 'groups'} of nodes"


def certify(
    demands: Sequence[Demand], placed: Sequence[Placed], proof: Proof, repacked: int | None = None
) -> Certificate:
    """Write the certificate for all `demands`, those included that were not given to the packer.

    A plan that is not proven best never names its own count as the bound, as another mix of models might be better:
    the bound is then one more. `repacked` = the bound if what runs could be moved; it is left out when that is no more.
    """
    count, wanted = len(placed), sum(demand.missing for demand in demands)
    upper = count if proof.optimal else min(wanted, max(proof.most, count + 1))
    better = None if repacked is None or repacked <= upper else min(repacked, wanted)
    return Certificate(
        placed=count, wanted=wanted, upper_bound=upper, status="optimal" if upper == count else "feasible",
        method=proof.method if wanted else "nothing is missing", repacked_bound=better,
    )
