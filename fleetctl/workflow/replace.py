"""The rounds of `replace` and `rollout`: the next step follows from what runs. An apply never imports this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType

from fleetctl.apply.explicit import KeptVariant
from fleetctl.documents.base import as_datetime
from fleetctl.documents.inventory import STARTING_STATES, Inventory, Replica
from fleetctl.documents.plan import Action
from fleetctl.documents.quantity import grouped, number_in
from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel, in_variants
from fleetctl.inventory.jobs import VARIANTS, Job, noted_object
from fleetctl.planner.live import ModelState, is_outdated, sort_out, variant_name, variant_of
from fleetctl.planner.options import PlanFacts, PlanOptions, require_complete
from fleetctl.planner.variants import room_of
from fleetctl.workflow.proposal import require_allowed

WHY_NONE_ALIKE = {"COOLING_DOWN": "{} cools down", "QUOTA": "a quota allows no other {} now"}
NO_ROOM = "there is no room for another {}"
TRIED = 5
"""In place: how many outdated replicas to check at most for one whose end makes room for a current one."""


@dataclass(frozen=True, slots=True)
class Serving:
    """How many replicas of a model serve, or must keep serving: in all, and of each variant, preferred first."""

    total: int
    of_each: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """The running replicas of one model, and its spec in the file; `model.surge` 0 = in place.

    `before` = what served when the update began. Of a variant that was below its `min` then, `model` has that as `min`.
    """

    fleet: ResolvedFleet
    model: ResolvedModel
    seen: Inventory
    state: ModelState
    before: Serving

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
        return self.missing > 0 or any(starting) or self._needs_own_variant

    @property
    def missing(self) -> int:
        """How many replicas are to be created before the next one is ended."""
        return self.state.to_create(self.model)

    @property
    def leaving(self) -> list[Replica]:
        """Return the live replicas that a running eviction is about to end."""
        return [replica for replica in self.state.live if replica.draining]

    @property
    def progress(self) -> str:
        """Return the progress of the update, in words."""
        live, outdated = len(self.state.live), len(self.outdated)
        return f"{live - outdated} current of {self.model.asked_for}, {outdated} outdated"

    @property
    def shrinks(self) -> str:
        """Return how many replicas are left of a model with more than its update needs, in words; else empty."""
        live, wanted = len(self.state.live), self.state.floor(self.model)
        outdated = self.state.outdated_of_each(self.model)
        own = sum(max(0, one.least - (count - old)) for one, count, old in zip(
            self.model.variants, self.state.live_of_each(self.model), outdated, strict=True)) if outdated else 0
        left = max(wanted, live - len(self.outdated) + own)
        if live <= wanted + self.model.surge or left == live:
            return ""
        return f"{self.model.key}: {live} replicas run and the file wants {wanted}: {left} are left after the update"

    def serving_without(self, replica: Replica) -> int:
        """Return the number of replicas that would keep serving without this one."""
        return sum(_serves(other) for other in self.state.live if other is not replica)

    @property
    def serving(self) -> Serving:
        """Return the number of serving replicas."""
        return serving_of(self.model, self.state.live)

    def least(self, *, allow_outage: bool = False) -> Serving:
        """Return how many replicas must keep serving: min(target, before), and of each variant min(its `min`, before).

        In place that is one fewer.
        """
        least = min(self.model.asked_for, self.before.total)
        of_each = [one.least for one in self.model.variants]  # no more than before
        if self.model.surge:
            return Serving(least, tuple(of_each))
        return Serving(max(least - 1, 0 if allow_outage else 1) if least else 0,
                       tuple([max(0, count - 1) for count in of_each]))

    def to_plan(self, ended: Iterable[Replica] = ()) -> list[ResolvedModel]:
        """Return the model for the plan of what is missing, in the ways to try: the first of which nothing is blocked.

        First the new replicas are of the variants of the outdated ones that they replace, in place of those just
        `ended`; then of any variant with room, first of those below their `min` in the file. If only a new one of their
        own variant lets an outdated one end, as its `min` would not be kept, the plan is for one of that variant alone.
        """
        if not self.model.variants:
            return [self.model]
        if self._needs_own_variant:
            own = (self._variant(replica) for replica in self.outdated)
            return [self._one_more(number) for number in dict.fromkeys(own) if number is not None]
        alike = self._alike(Counter(self._variant(replica) for replica in ended))
        in_file = next(model for model in self.fleet.models if model.key == self.model.key)
        lacks = bool(self.missing) and in_file.variants != self.model.variants
        return [*([alike] if alike else ()), *([in_file] if lacks else ()), self.model]

    def replaced_by(self, actions: Iterable[Action], ended: Sequence[Replica] = ()) -> list[tuple[Replica, Action]]:
        """Return which outdated replica would end for each of these new ones of the model, if one would.

        In place, `ended` ones are those that have just ended for them.
        """
        new = [action for action in actions if action.model == self.model.key]
        if not self.model.surge:
            return list(zip(ended, new, strict=False))
        left, pairs, least = self.outdated, list[tuple[Replica, Action]](), self.least()
        for action in new[max(0, self.model.asked_for - len(self.state.live)):]:
            gone = Counter(self._variant(replica) for replica, _ in pairs)
            come = Counter(self._number_of(one.variant) for one in new)
            come.subtract(gone)
            order = self._in_order(left, [self._number_of(action.variant)])
            if replica := next((one for one in order if self._may_end(one, least, come)), None):
                pairs.append((replica, action))
                left.remove(replica)
        return pairs

    def other_variants(self, actions: Iterable[Action], ended: Sequence[Replica] = (), *, code: str = "") -> list[str]:
        """Return which outdated replica is replaced by one of another variant, in words; `code` as there."""
        return other_variants(self.model, self.replaced_by(actions, ended), code)

    def name_of(self, replica: Replica) -> str:
        """Return the name of a replica's variant in the file, else the one it was started with; empty = none."""
        return variant_name(self.model, replica)

    def kept_of_each(self, least: Serving) -> list[KeptVariant]:
        """Return how many replicas of each variant must keep serving, and which there are, for the agent."""
        return kept_of_each(self.model, self.state.live, least.of_each)

    def _variant(self, replica: Replica) -> int | None:
        return variant_of(self.model, replica)

    def _number_of(self, name: str | None) -> int | None:
        return next((number for number, one in enumerate(self.model.variants) if one.variant == name), None)

    def _may_end(self, replica: Replica, least: Serving, more: Mapping[int | None, int] = MappingProxyType({})) -> bool:
        """Return whether enough of its variant would serve without a replica; `more` = beyond those that serve now."""
        number = self._variant(replica)
        if not self.model.variants or number is None or not _serves(replica):
            return True
        return self.serving.of_each[number] + more.get(number, 0) > least.of_each[number]

    @property
    def _needs_own_variant(self) -> bool:
        """Whether no outdated replica may end before there is another one of its own variant."""
        if not self.model.variants:
            return False
        least, outdated = self.least(), self.outdated
        return bool(outdated) and not any(self._may_end(replica, least) for replica in outdated)

    def _alike(self, ended: Counter[int | None]) -> ResolvedModel | None:
        """Return the model with new replicas of the variants of the outdated ones only, or of those `ended` in place.

        None = these are too few, or it makes no difference. A `max` says how many of each.
        """
        model, live, missing = self.model, self.state.live_of_each(self.model), self.state.to_create(self.model)
        outdated = Counter(self._variant(replica) for replica in self.outdated)
        room, lacking = room_of(model, self.state), self.state.below_minimum(model)
        wanted = outdated - Counter(self._unpaired) if model.surge else ended
        limits = [missing if one.most is None else min(missing, room[number])
                  for number, one in enumerate(model.variants)]
        asked = [min(limit, max(wanted[number], lacking[number])) for number, limit in enumerate(limits)]
        if sum(asked) < missing or asked == limits:
            return None
        most = [count + live[number] - min(model.surge, outdated[number]) for number, count in enumerate(asked)]
        return in_variants([replace(one, most=count) for one, count in zip(model.variants, most, strict=True)],
                           model.source)

    def _one_more(self, number: int) -> ResolvedModel:
        """Return the model for a plan of one more replica of this variant, beside the outdated ones."""
        model, live = self.model, self.state.live_of_each(self.model)
        own = model.variants[number]
        full = own.most is not None and not room_of(model, self.state)[number]
        changed = [replace(one, replicas=0, surge=0, least=live[number] + 1 if one is own else 0,
                           most=one.most if one is not own or full else None) for one in model.variants]
        return in_variants(changed, model.source)

    @property
    def _unpaired(self) -> list[int | None]:
        """The variants of the newest current replicas, as many as are live beyond the target: each replaces one."""
        current = [replica for replica in self.state.live if not is_outdated(replica, self.model)]
        newest = sorted(current, key=lambda replica: -1 if replica.replica_id is None else replica.replica_id)
        beyond = max(0, len(self.state.live) - self.model.asked_for)
        return [self._variant(replica) for replica in newest[max(0, len(newest) - beyond):]]

    def _in_order(self, outdated: Iterable[Replica], new: Sequence[int | None]) -> list[Replica]:
        """Return outdated replicas in the order to end them beside `new` ones of these variants, the oldest first.

        First those that do not serve, then those of the variant of the first new one, then those of no variant in the
        file, then those that no other new one replaces.
        """
        def rank(replica: Replica) -> tuple[bool, bool, bool, bool]:
            number = self._variant(replica)
            return _serves(replica), number not in new[:1], number is not None, number in new

        return sorted(outdated, key=rank)

    def next_to_end(self, agreed: Set[str | None], least: Serving, options: PlanOptions) -> Replica | None:
        """Return the outdated replica to end next, of those agreed to (by actor id); None = there is none.

        In place, its end must make room for a replica that a plan with `options` may create. Raises FleetctlError if
        no end does or a policy forbids it, if fewer than `least` would serve, if replicas with yet another spec were
        started meanwhile, and while a running eviction is about to end another replica.
        """
        if self.leaving:
            names = ", ".join(f"{self.model.key}/{replica.replica_id}" for replica in self.leaving)
            raise FleetctlError(f"{names}: a running eviction is about to end it",
                                hint="run this again when it is gone; `fleetctl status` shows it")
        candidates = self._in_order((replica for replica in self.outdated if replica.actor_id in agreed),
                                    self._unpaired)
        if not candidates:
            if later := [f"{self.model.key}/{replica.replica_id}" for replica in self.outdated]:
                raise FleetctlError(f"{', '.join(later)}: started meanwhile, with a spec that differs from the file's",
                                    hint="is an older file applied elsewhere? Run this again to replace it, too")
            return None
        free = [replica for replica in candidates if self._may_end(replica, least)]
        if not free:
            name, number = f"{self.model.key}/{candidates[0].replica_id}", self._variant(candidates[0])
            left, kept = self.serving.of_each[number or 0] - 1, least.of_each[number or 0]
            raise FleetctlError(f"{name} stays: {left} of variant {self.name_of(candidates[0])} would serve without "
                                f"it, and {kept} must", hint="run this again when more of it are ready")
        has_room = self.model.surge or len(self.state.live) > self.model.asked_for
        replica = free[0] if has_room else self._making_room(free[:TRIED], options)
        left = self.serving_without(replica)
        if _serves(replica) and left < least.total:
            if not left and not self.model.surge:
                raise FleetctlError(f"{self.model.key}: no replica would serve while the new one starts",
                                    hint="--allow-outage accepts that; without --in-place the new one is ready first")
            raise FleetctlError(f"{self.model.key}/{replica.replica_id} stays: {left} would serve without it, and "
                                f"{least.total} must", hint="run this again when more are ready, see `fleetctl status`")
        return replica

    def _making_room(self, candidates: Sequence[Replica], options: PlanOptions) -> Replica:
        from fleetctl.planner.plan import make_plan  # NumPy
        from fleetctl.planner.questions.changes import without_replica

        why = ""
        for replica in candidates:
            without = without_replica(self.seen, replica)
            then = round_of(self.fleet, self.model.key, without, before=self.before)
            for model in then.to_plan([replica]):
                plan = make_plan(with_models(self.fleet, [model]), without, options, PlanFacts(tool_version=""))
                if not plan.blocked:
                    require_allowed(plan, force=options.force)
                    return replica
                why = why or plan.blocked[0].message
        raise FleetctlError(f"{self.model.key}: a replica of the new spec would not fit in place of an outdated one: "
                            f"{why}", hint="nothing was ended")


def ended_before(now: Round, runs: Sequence[Job], namespace: str) -> list[Replica]:
    """Return the replica that an earlier `replace` in place has ended, if no new one has come since: it was killed.

    `runs`, oldest first, have recorded its variant before its end. Nothing is returned if that run did not end it, if
    a current replica became ready later, or if the file no longer has the variant.
    """
    model, live = now.model, {f"{now.model.key}/{replica.replica_id}" for replica in now.state.live}
    in_file = [one.variant for one in model.variants]
    ready_at = [as_datetime(replica.ready_at).timestamp() for replica in now.state.live
                if replica.ready_at and not is_outdated(replica, model)]
    for run in reversed(runs):
        of_fleet = (run.metadata.get("verb"), run.metadata.get("fleet")) == ("evict", now.fleet.name)
        if not of_fleet or run.metadata.get("namespace", namespace) != namespace:
            continue
        for name, variant in noted_object(run.metadata, VARIANTS).items():
            key, _, number = name.rpartition("/")
            if key == model.key and variant in in_file:
                answered = name in live or any(moment > run.start_time_ms / 1000 for moment in ready_at)
                return [] if answered else [Replica(model=key, replica_id=number_in(number), variant=variant)]
    return []


def with_models(fleet: ResolvedFleet, models: Iterable[ResolvedModel]) -> ResolvedFleet:
    """Return the fleet with these in place of its models of the same key."""
    changed = {model.key: model for model in models}
    return replace(fleet, models=tuple(changed.get(model.key, model) for model in fleet.models))


def other_variants(model: ResolvedModel, replaced: Iterable[tuple[Replica, Action]], code: str) -> list[str]:
    """Return which replicas of a model are replaced by one of another variant, in words.

    `code` = why the plan for one of the same variant was blocked; empty = there was none.
    """
    lines = list[str]()
    for old, new in replaced:
        name, left = variant_name(model, old), variant_of(model, old) is None
        if new.variant and name != new.variant:
            of = f" ({name}{', which has left the file' if left else ''})" if name else ""
            why = f": {WHY_NONE_ALIKE.get(code, NO_ROOM).format(name)}" if code and name and not left else ""
            lines.append(f"{model.key}/{old.replica_id}{of} is replaced by {model.key}/{new.replica_id} as "
                         f"{new.variant}{why}")
    return lines


def kept_of_each(model: ResolvedModel, live: Sequence[Replica], least: Sequence[int]) -> list[KeptVariant]:
    """Return what an eviction has to keep of each variant of a model, `least` of its `live` replicas."""
    actors = grouped((variant_of(model, replica), replica.actor_id or "") for replica in live)
    return [KeptVariant(model.key, one.variant, count, actors.get(number, []))
            for number, (one, count) in enumerate(zip(model.variants, least, strict=True)) if count]


def serving_of(model: ResolvedModel, live: Iterable[Replica]) -> Serving:
    """Return how many of these replicas of a model serve."""
    serving = [replica for replica in live if _serves(replica)]
    counts = Counter(variant_of(model, replica) for replica in serving)
    return Serving(len(serving), tuple([counts[number] for number in range(len(model.variants))]))


def round_of(
    fleet: ResolvedFleet, key: str, seen: Inventory, ended: Set[str | None] = frozenset(),
    before: Serving | None = None,
) -> Round:
    """Return the round for one model, as `rounds_of` does for several."""
    return rounds_of(fleet, [key], seen, ended, {key: before} if before else {})[key]


def rounds_of(
    fleet: ResolvedFleet, keys: Sequence[str], seen: Inventory, ended: Set[str | None] = frozenset(),
    before: Mapping[str, Serving] = MappingProxyType({}),
) -> dict[str, Round]:
    """Return the round of each of these models of the fleet; `ended` = actor ids to ignore, even if still listed.

    `before` = what served when the update began, by model; it begins now if that is not given. Raises InventoryError
    when the inventory is not complete.
    """
    require_complete(seen)
    left = seen.model_copy(update={"replicas": [replica for replica in seen.replicas if replica.actor_id not in ended]})
    states, models = sort_out(left, fleet.name, keys).models, {model.key: model for model in fleet.models}
    rounds = {}
    for key in keys:
        model, was = models[key], before.get(key) or serving_of(models[key], states[key].live)
        if model.variants:
            met = [replace(one, least=min(one.least, count))
                   for one, count in zip(model.variants, was.of_each, strict=True)]
            model = in_variants(met, model.source)
        rounds[key] = Round(fleet, model, left, states[key], was)
    return rounds


def _serves(replica: Replica) -> bool:
    return replica.state not in STARTING_STATES and replica.not_ready_since is None
