"""Pilots: of a spec that never ran, a few replicas start first; the others keep their room until one of these is ready.

A spec ran if a replica of it is up, or the cluster remembers one that became ready. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fleetctl.documents.fleet import Pilot
from fleetctl.documents.inventory import STARTING_STATES, Inventory
from fleetctl.documents.quantity import grouped
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.live import ModelState, is_outdated, variant_of
from fleetctl.planner.placement.demand import Option, Placed

WithId = tuple[Placed, int | None]
"""A new replica, and its id if it has one already."""


def pilots_first(
    placed: Sequence[WithId], pilot: Pilot, models: Sequence[ResolvedModel], states: Mapping[str, ModelState],
    inventory: Inventory,
) -> tuple[list[WithId], int]:
    """Return the new replicas, those that wait for a pilot last, and how many these are.

    A replica that is still starting is a pilot, too, so no plan of the same fleet adds another. Several pilots are on
    nodes of their own if they can be: one of these may be at fault.
    """
    of_each = grouped((one[0].demand.option, one) for one in placed)
    limits = _limits({option: len(new) for option, new in of_each.items()}, pilot, models, states, inventory)
    pilots = {id(one) for option, most in limits.items() for one in _apart(of_each[option])[:most]}
    now = [one for one in placed if one[0].demand.option not in limits or id(one) in pilots]
    later = [one for one in placed if one[0].demand.option in limits and id(one) not in pilots]
    return [*now, *later], len(later)


def _apart(new: Sequence[WithId]) -> list[WithId]:
    """Return the replicas, first those of which no earlier one is on the same node."""
    first, others, taken = list[WithId](), list[WithId](), set[int]()
    for one in new:
        (first if taken.isdisjoint(one[0].nodes) else others).append(one)
        taken |= one[0].nodes
    return [*first, *others]


def may_start_now(
    waiting: Mapping[Option, int], placed: Sequence[Placed], later: int, pilot: Pilot,
    models: Sequence[ResolvedModel], states: Mapping[str, ModelState], inventory: Inventory,
) -> dict[Option, int]:
    """Return for how many of the replicas that need new nodes these are requested now, if not for all that wait.

    The last `later` of those `placed` on the existing nodes wait for a pilot themselves.
    """
    new = Counter(one.demand.option for one in placed)
    first = Counter(one.demand.option for one in placed[:len(placed) - later])
    limits = _limits({option: new[option] + count for option, count in waiting.items()}, pilot, models, states,
                     inventory)
    return {option: max(0, most - first[option]) for option, most in limits.items()}


def _limits(
    new: Mapping[Option, int], pilot: Pilot, models: Sequence[ResolvedModel], states: Mapping[str, ModelState],
    inventory: Inventory,
) -> dict[Option, int]:
    """Return how many new replicas may start now, of each model or variant that needs a pilot."""
    ran = {(one.model, one.spec_hash) for one in inventory.starts}
    ran |= {(one.model, one.spec_hash) for one in inventory.successes}
    ran |= {(one.model, one.spec_hash) for one in inventory.replicas if one.state == "ALIVE" and one.constructed}
    limits = dict[Option, int]()
    for (place, number), count in new.items():
        model = models[place]
        own = model.alternatives[number]
        if not ran.isdisjoint((model.key, one) for one in (own.spec_hash, own.former_hash) if one):
            continue
        starting = sum(one.state in STARTING_STATES and not is_outdated(one, model)
                       and variant_of(model, one) in (None, number) for one in states[model.key].live)
        if count + starting > pilot.over:
            limits[place, number] = max(0, pilot.replicas - starting)
    return limits
