"""The rounds of `replace` and `rollout`: the next step follows from what runs. An apply never imports this."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from fleetctl.documents.inventory import STARTING_STATES, Inventory, Replica
from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.planner.live import ModelState, is_outdated, sort_out
from fleetctl.planner.options import PlanFacts, PlanOptions, require_complete
from fleetctl.workflow.proposal import require_allowed

TRIED = 5
"""In place: how many outdated replicas to check at most for one whose end makes room for a current one."""


@dataclass(frozen=True, slots=True)
class Round:
    """The running replicas of one model, and its spec in the file; `model.surge` 0 = in place."""

    fleet: ResolvedFleet
    model: ResolvedModel
    seen: Inventory
    state: ModelState

    @property
    def outdated(self) -> list[Replica]:
        """Return the live outdated replicas; those that do not serve come first."""
        outdated = (replica for replica in self.state.live if is_outdated(replica, self.model))
        return sorted(outdated, key=_serves)

    @property
    def creates(self) -> bool:
        """Whether a current replica must be created or awaited before an outdated one is ended."""
        starting = (replica.state in STARTING_STATES and not is_outdated(replica, self.model)
                    for replica in self.state.live)
        return self.state.to_create(self.model) > 0 or any(starting)

    @property
    def leaving(self) -> list[Replica]:
        """Return the live replicas that a running eviction is about to end."""
        return [replica for replica in self.state.live if replica.draining]

    @property
    def progress(self) -> str:
        """Return the progress of the update, in words."""
        live, outdated = len(self.state.live), len(self.outdated)
        return f"{live - outdated} current of {self.model.replicas}, {outdated} outdated"

    @property
    def shrinks(self) -> str:
        """Return how many replicas are left of a model with more than its update needs, in words; else empty."""
        live, wanted = len(self.state.live), self.model.replicas
        left = max(wanted, live - len(self.outdated))
        if live <= wanted + self.model.surge or left == live:
            return ""
        return f"{self.model.key}: {live} replicas run and the file wants {wanted}: {left} are left after the update"

    def serving_without(self, replica: Replica) -> int:
        """Return the number of replicas that would keep serving without this one."""
        return sum(_serves(other) for other in self.state.live if other is not replica)

    @property
    def serving(self) -> int:
        """Return the number of serving replicas."""
        return sum(map(_serves, self.state.live))

    def least(self, before: int, *, allow_outage: bool) -> int:
        """Return how many replicas must keep serving, if `before` served when the update began; in place one fewer."""
        least = min(self.model.replicas, before)
        return least if self.model.surge or not least else max(least - 1, 0 if allow_outage else 1)

    def next_to_end(self, agreed: Set[str | None], least: int, options: PlanOptions) -> Replica | None:
        """Return the outdated replica to end next, of those agreed to (by actor id); None = there is none.

        In place, its end must make room for a replica that a plan with `options` may create. Raises FleetctlError if
        no end does or a policy forbids it, if fewer than `least` would serve, if replicas with yet another spec were
        started meanwhile, and while a running eviction is about to end another replica.
        """
        if self.leaving:
            names = ", ".join(f"{self.model.key}/{replica.replica_id}" for replica in self.leaving)
            raise FleetctlError(f"{names}: a running eviction is about to end it",
                                hint="run this again when it is gone; `fleetctl status` shows it")
        candidates = [replica for replica in self.outdated if replica.actor_id in agreed]
        if not candidates:
            if later := [f"{self.model.key}/{replica.replica_id}" for replica in self.outdated]:
                raise FleetctlError(f"{', '.join(later)}: started meanwhile, with a spec that differs from the file's",
                                    hint="is an older file applied elsewhere? Run this again to replace it, too")
            return None
        has_room = self.model.surge or len(self.state.live) > self.model.replicas
        replica = candidates[0] if has_room else self._making_room(candidates[:TRIED], options)
        left = self.serving_without(replica)
        if _serves(replica) and left < least:
            if not left and not self.model.surge:
                raise FleetctlError(f"{self.model.key}: no replica would serve while the new one starts",
                                    hint="--allow-outage accepts that; without --in-place the new one is ready first")
            raise FleetctlError(f"{self.model.key}/{replica.replica_id} stays: {left} would serve without it, and "
                                f"{least} must", hint="run this again when more are ready, see `fleetctl status`")
        return replica

    def _making_room(self, candidates: Sequence[Replica], options: PlanOptions) -> Replica:
        from fleetctl.planner.plan import make_plan  # NumPy
        from fleetctl.planner.questions.changes import without_replica

        why = ""
        for replica in candidates:
            plan = make_plan(self.fleet, without_replica(self.seen, replica), options, PlanFacts(tool_version=""))
            if not plan.blocked:
                require_allowed(plan, force=options.force)
                return replica
            why = why or plan.blocked[0].message
        raise FleetctlError(f"{self.model.key}: a replica of the new spec would not fit in place of an outdated one: "
                            f"{why}", hint="nothing was ended")


def round_of(fleet: ResolvedFleet, key: str, seen: Inventory, ended: Set[str | None] = frozenset()) -> Round:
    """Return the round for one model, as `rounds_of` does for several."""
    return rounds_of(fleet, [key], seen, ended)[key]


def rounds_of(
    fleet: ResolvedFleet, keys: Sequence[str], seen: Inventory, ended: Set[str | None] = frozenset()
) -> dict[str, Round]:
    """Return the round of each of these models of the fleet; `ended` = actor ids to ignore, even if still listed.

    Raises InventoryError when the inventory is not complete.
    """
    require_complete(seen)
    left = seen.model_copy(update={"replicas": [replica for replica in seen.replicas if replica.actor_id not in ended]})
    states, models = sort_out(left, fleet.name, keys).models, {model.key: model for model in fleet.models}
    return {key: Round(fleet, models[key], left, states[key]) for key in keys}


def _serves(replica: Replica) -> bool:
    return replica.state not in STARTING_STATES and replica.not_ready_since is None
