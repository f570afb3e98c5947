"""Why missing replicas are not created: one entry for a model, with the reason, or the reasons of all its variants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fleetctl.documents.inventory import serves
from fleetctl.documents.plan import Blocked
from fleetctl.documents.quantity import grouped
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.planner.cooling import COOLING_DOWN, Limits, Tries
from fleetctl.planner.live import LiveState, ModelState, resume_command
from fleetctl.planner.placement.demand import Demand, Option, Placed
from fleetctl.planner.quotas import Quotas, Totals
from fleetctl.planner.variants import VARIANT_FULL, folded, full_entry, is_full, still_missing, would_help

if TYPE_CHECKING:
    from fleetctl.planner.placement.reasons.remedies import Inquiry


@dataclass(frozen=True)
class Unplaced:
    """What a plan was asked for, what it `placed`, and what stood in the way: limits, quotas, or no room.

    `no_room` = the places of the models without room; `inquiry` = None if there are none.
    """

    fleet: ResolvedFleet
    state: LiveState
    wanted: Sequence[Demand]
    placed: Sequence[Placed]
    limits: Limits
    tries: Tries
    quotas: Quotas
    no_room: Set[int]
    inquiry: Inquiry | None

    def entries(self) -> list[Blocked]:
        """Return an entry for each model with missing replicas, in file order."""
        result = list[Blocked]()
        for place, demands in grouped((demand.place, demand) for demand in self.wanted).items():
            model = self.fleet.models[place]
            state = self.state.models[model.key]
            new = sum(self._created[demand.option] for demand in demands)
            short = (still_missing(demands, model, state, self._created) if model.variants
                     else demands[0].missing - new)
            if short <= 0:
                continue
            if state.barred:
                code, message = state.barred
                resume = f"`{resume_command(state.pause)}` ends the pause" if state.pause else ""
                result.append(Blocked(model=model.key, replicas=short, code=code, message=message,
                                      no_remedy="" if state.claimed_by else resume))
                continue
            found = folded(model, [(demand.variant, self._why(demand, short))
                                   for demand in would_help(demands, model, state, self._created)]
                           ) if model.variants else self._why(demands[0], short)
            result.append(found if found.code in ("QUOTA", VARIANT_FULL) else needs_room(found, model, state, new))
        return result

    def _why(self, demand: Demand, short: int) -> Blocked:
        """Return why there are no more replicas of one demand."""
        key, option, new = demand.shape.key, demand.option, self._created[demand.option]
        model, state, limits = self.fleet.models[demand.place], self.state.models[key], self.limits
        if model.variants and is_full(model, state, demand.variant, new):
            return full_entry(model, demand.variant, state.live_of_each(model)[demand.variant], new, short)
        if len(model.variants) > 1:
            if new >= limits.most.get(option, short + new):
                return limits.waiting(key, short, option)
            if not self._totals.leave(demand):
                return Blocked(model=key, replicas=short, code="QUOTA", message=self._totals.why(demand))
        if self.inquiry is not None and demand.place in self.no_room:
            no_room = self.tries.no_room.get(option, ())
            shape = limits.narrowed(demand, no_room).shape if limits.avoided else demand.shape
            left = short if self.quotas.limit_nothing else self._outranked(demand.priority).leave(demand)
            blocked = self.inquiry.blocked(shape, short, demand.priority)
            if left < short:
                message = f"{blocked.message}; a quota leaves {left} of these {short}"
                blocked = blocked.model_copy(update={"message": message})
            return limits.explained(blocked, option, no_room) if limits.avoided else blocked
        if option in limits.most:
            return limits.waiting(key, short, option)
        return Blocked(model=key, replicas=short, code="QUOTA", message=self._totals.why(demand))

    @cached_property
    def _created(self) -> Counter[Option]:
        return Counter(replica.demand.option for replica in self.placed)

    @cached_property
    def _totals(self) -> Totals:
        return self.quotas.after(self.placed)

    @cached_property
    def _by_priority(self) -> dict[int, Totals]:
        return {}

    def _outranked(self, priority: int) -> Totals:
        """Return the quotas after the new replicas of this and of higher priorities."""
        if priority not in self._by_priority:
            self._by_priority[priority] = self.quotas.after(
                replica for replica in self.placed if replica.demand.priority >= priority)
        return self._by_priority[priority]


def needs_room(blocked: Blocked, model: ResolvedModel, state: ModelState, created: int) -> Blocked:
    """Return the entry with the code UPDATE_NEEDS_ROOM if the target is reached and only an update lacks room.

    This does not check whether the new spec would fit in the place of an outdated replica.
    """
    outdated, live, floor = state.outdated(model), len(state.live), state.floor(model)
    if (not outdated or live + created < floor or blocked.code == COOLING_DOWN
            or state.below_target(model) <= created):  # only the minimum of a variant is not reached
        return blocked
    serving = max(0, sum(map(serves, state.live)) - 1)
    return blocked.model_copy(update={"code": "UPDATE_NEEDS_ROOM", "message": (
        f"no room beside the {outdated} outdated, which keep serving ({state.outdated_names(model)}): "
        f"{blocked.message}; without one of them {serving} of {floor} would serve "
        "(fleetctl replace --in-place)")})
