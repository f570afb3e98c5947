"""The rounds of `replace` and `rollout` with variants: like is replaced by like, and each minimum is kept."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from applied import apply_plan
from checker import check_plan
from random_cases import cases
from short_forms import short_fleet, short_inventory

from fleetctl.documents.inventory import Inventory, Replica
from fleetctl.documents.plan import Plan
from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.inventory.jobs import Job
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.planner.plan import make_plan
from fleetctl.planner.questions.changes import without_replica
from fleetctl.workflow.replace import Round, ended_before, rounds_of, with_models

KINDS = {"h100": 1, "a100": 2, "l4": 1}


def of_kind(name: str, spec: str = "new", **more: Any) -> dict[str, Any]:
    return {"name": name, "gpus": KINDS[name], "selector": {"kind": name}, "hash": f"{name}-{spec}", **more}


def nodes(**cards: int) -> list[dict[str, Any]]:
    return [{"name": f"{kind}-1", "gpus": count, "labels": {"kind": kind}} for kind, count in cards.items()]


def old(kind: str, number: int, **more: Any) -> dict[str, Any]:
    return {"model": "m", "id": number, "node": f"{kind}-1", "gpus": KINDS[kind], "hash": f"{kind}-old",
            "variant": kind, **more}


@dataclass
class Update:
    """An update of one model, as the command goes through it; `steps` = what it did, `said` = what it said before."""

    fleet: ResolvedFleet
    seen: Inventory
    key: str = "m"
    steps: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    why: str = ""

    def round(self, **more: Any) -> Round:
        return rounds_of(self.fleet, [self.key], self.seen, **more)[self.key]

    def run(self, again: Callable[[], bool] = lambda: False) -> Iterator[Round]:
        """Yield the round before each step, and the last one; `why` = why it stopped.

        Where `again` returns true it is killed, and the same command is given once more.
        """
        first = self.round()
        agreed, ended = {replica.actor_id for replica in first.outdated}, list[Replica]()
        for _ in range(200):
            if again():
                first, ended = self.round(), []
                agreed = {replica.actor_id for replica in first.outdated}
            now = self.round(before={self.key: first.before})
            yield now
            if now.creates:
                plan, code = self._plan(now, ended)
                if plan.blocked:
                    self.why = plan.blocked[0].message
                    return
                assert plan.actions, "it must make progress"
                self.said += now.other_variants(plan.starts, ended, code=code)
                self.steps += [f"+{one.replica_id} {one.variant}" for one in plan.starts]
                for action in plan.starts:
                    assert action.variant == self._variant_of_hash(action.spec_hash)
                self.seen, ended = apply_plan(plan, self.fleet, self.seen), []
                self._name_actors()
                continue
            try:
                replica = now.next_to_end(agreed, now.least(), PlanOptions((self.key,)))
            except FleetctlError as error:
                self.why = error.message
                return
            if replica is None:
                return
            self.steps.append(f"-{replica.replica_id} {replica.variant}")
            self.seen = without_replica(self.seen, replica)
            ended.append(replica)
        raise AssertionError(f"it does not end: {self.steps}")

    def _plan(self, now: Round, ended: list[Replica]) -> tuple[Plan, str]:
        code = ""
        for model in now.to_plan(ended):
            fleet = with_models(self.fleet, [model])
            plan = make_plan(fleet, self.seen, PlanOptions((self.key,)), PlanFacts(tool_version=""))
            check_plan(plan, fleet, self.seen)
            if not plan.blocked:
                break
            code = plan.blocked[0].code
        return plan, code

    def _variant_of_hash(self, spec_hash: str) -> str:
        [model] = [model for model in self.fleet.models if model.key == self.key]
        return next(one.variant for one in model.variants if one.spec_hash == spec_hash)

    def _name_actors(self) -> None:
        named = [one if one.actor_id else one.model_copy(update={"actor_id": f"{one.model}/{one.replica_id}"})
                 for one in self.seen.replicas]
        self.seen = self.seen.model_copy(update={"replicas": named})


def update(cards: dict[str, int], running: list[dict[str, Any]], replicas: int, *variants: dict[str, Any],
           surge: int = 1) -> Update:
    fleet = short_fleet({"models": [{"key": "m", "replicas": replicas, "surge": surge, "variants": list(variants)}]})
    made = Update(fleet, short_inventory({"nodes": nodes(**cards), "replicas": running}))
    made._name_actors()
    return made


def run(made: Update) -> list[str]:
    for _ in made.run():
        pass
    return made.steps


def test_each_is_replaced_by_one_of_its_own_variant_even_beside_a_preferred_one() -> None:
    made = update({"h100": 8, "a100": 8}, [old("a100", 0), old("h100", 1), old("a100", 2)], 3, of_kind("h100"),
                  of_kind("a100"))
    assert run(made) == ["+3 h100", "-1 h100", "+4 a100", "-0 a100", "+5 a100", "-2 a100"]
    assert (made.why, made.said) == ("", [])


def test_several_at_a_time_are_replaced_by_as_many_of_each_variant() -> None:
    running = [old("a100", number) for number in range(3)] + [old("h100", 3)]
    made = update({"h100": 8, "a100": 12}, running, 4, of_kind("h100"), of_kind("a100"), surge=2)
    assert run(made)[:2] == ["+4 h100", "+5 a100"]
    assert Counter(one.variant for one in made.round().state.live) == {"a100": 3, "h100": 1}


def test_without_room_for_its_own_variant_another_takes_its_place_and_that_is_said_first() -> None:
    made = update({"h100": 2, "a100": 2}, [old("h100", 0), old("h100", 1)], 2, of_kind("h100"), of_kind("a100"))
    assert run(made) == ["+2 a100", "-0 h100", "+3 h100", "-1 h100"]
    assert made.said == ["m/0 (h100) is replaced by m/2 as a100: there is no room for another h100"]


def test_one_of_a_variant_that_left_the_file_is_replaced_by_any_that_is_left() -> None:
    made = update({"h100": 1, "a100": 2, "l4": 2}, [old("l4", 0), old("h100", 1)], 2, of_kind("h100"), of_kind("a100"))
    assert run(made)[:2] == ["+2 a100", "-0 l4"]
    assert made.said[0] == "m/0 (l4, which has left the file) is replaced by m/2 as a100"


def test_the_maximum_of_another_variant_is_kept() -> None:
    made = update({"h100": 2, "a100": 4}, [old("h100", 0), old("h100", 1), old("a100", 2, hash="a100-new")], 3,
                  of_kind("h100"), of_kind("a100", max=1))
    assert run(made) == []
    assert "its maximum of 1 replica is reached" in made.why


def test_the_minimum_of_a_variant_is_not_undercut_by_a_new_one_of_another() -> None:
    """The a100 has no room beside itself, and the only h100 that could take its place does not count for its `min`."""
    made = update({"h100": 2, "a100": 2}, [old("a100", 0)], 1, of_kind("h100"), of_kind("a100", min=1))
    assert run(made) == []
    assert made.why.startswith("a100: needs 2 free GPUs"), made.why


def test_a_minimum_that_was_not_met_before_stops_no_update() -> None:
    made = update({"h100": 3, "a100": 2}, [old("h100", 0), old("a100", 1)], 2, of_kind("h100"), of_kind("a100", min=2))
    assert run(made)[:2] == ["+2 h100", "-0 h100"]


def test_one_whose_target_is_reached_by_another_variant_gets_a_new_one_for_its_minimum() -> None:
    made = update({"h100": 2, "a100": 4}, [old("a100", 0), {**old("h100", 1), "hash": "h100-new"}], 1, of_kind("h100"),
                  of_kind("a100", min=1))
    assert run(made) == ["+2 a100", "-0 a100"]
    assert made.why == ""


def test_in_place_the_new_one_is_of_the_variant_that_has_just_ended() -> None:
    made = update({"h100": 4, "a100": 4}, [old("a100", 0), old("a100", 1)], 2, of_kind("h100"), of_kind("a100"),
                  surge=0)
    assert run(made) == ["-0 a100", "+2 a100", "-1 a100", "+3 a100"]


def test_in_place_a_model_that_minimums_alone_want_keeps_one_serving() -> None:
    for replicas in (0, 1):
        made = update({"h100": 1, "a100": 2}, [old("a100", 0)], replicas, of_kind("h100", max=0),
                      of_kind("a100", min=1), surge=0)
        assert run(made) == []
        assert made.why == "m: no replica would serve while the new one starts"
    made = update({"h100": 1, "a100": 4}, [old("a100", 0), old("a100", 1)], 0, of_kind("h100"),
                  of_kind("a100", min=2), surge=0)
    assert run(made) == ["-0 a100", "+2 a100", "-1 a100", "+3 a100"]


@pytest.mark.parametrize("surge", [0, 1, 2, 3])
def test_random_updates_keep_what_served_and_end(surge: int) -> None:
    draw = random.Random(f"replaced variants {surge}")
    done = 0
    for number in range(cases(100)):
        made = _random_update(draw, surge)
        if made is None:
            continue
        first = made.round()
        least = first.least()
        for now in made.run(lambda: surge > 0 and draw.random() < 0.1):
            assert now.serving.total >= least.total, (number, made.steps)
            for kept, serving in zip(least.of_each, now.serving.of_each, strict=True):
                assert serving >= kept, (number, made.steps)
            _check_maximum(now.model, first, now, surge)
        done += not made.why
        if not made.why:
            assert made.round().outdated == []
            assert made.round().serving.total >= min(first.model.replicas, first.before.total)
    assert done > cases(100) // 10, "many of them must end, not stop"


def _check_maximum(model: ResolvedModel, first: Round, now: Round, surge: int) -> None:
    was, live = first.state.live_of_each(model), now.state.live_of_each(model)
    for one, before, count in zip(model.variants, was, live, strict=True):
        assert one.most is None or count <= max(before, one.most) + surge, one.variant


def _random_update(draw: random.Random, surge: int) -> Update | None:
    """An update of a fleet that an earlier file has started, of which some variants then changed, left or came."""
    cards = {kind: draw.choice([0, 2, 4, 6]) for kind in KINDS}
    kinds = draw.sample(sorted(KINDS), draw.randint(1, 3))
    changed = {kind for kind in kinds if draw.random() < 0.8}
    least = {kind: draw.choice([0, 0, 1, 2]) for kind in kinds}
    most = {kind: draw.choice([None, None, 3]) for kind in kinds}
    limits = {kind: {"min": least[kind], **({"max": most[kind]} if most[kind] else {})} for kind in kinds}
    earlier = [of_kind(kind, "old" if kind in changed else "new", **limits[kind]) for kind in kinds]
    target = draw.randint(1, 6)
    before = update(cards, [], target, *earlier)
    plan = make_plan(before.fleet, before.seen, PlanOptions(), PlanFacts(tool_version=""))
    seen = apply_plan(plan, before.fleet, before.seen)
    left = [kind for kind in kinds if draw.random() < 0.9] or kinds
    come = [kind for kind in KINDS if kind not in kinds and draw.random() < 0.5]
    now = [of_kind(kind, **(limits.get(kind) or {})) for kind in (*left, *come)]
    made = update(cards, [], max(1, target - draw.choice([0, 0, 0, 1])), *now, surge=surge)
    made.seen = seen
    made._name_actors()
    silent = [one.model_copy(update={"not_ready_since": "2026-01-01T00:00:00Z"}) if draw.random() < 0.1 else one
              for one in made.seen.replicas]
    made.seen = made.seen.model_copy(update={"replicas": silent})
    return made if made.round().outdated else None


def test_a_model_without_variants_is_replaced_as_before() -> None:
    fleet = short_fleet({"models": [{"key": "m", "replicas": 1, "surge": 1, "gpus": 1}]})
    one = Update(fleet, short_inventory({"nodes": nodes(h100=2), "replicas": [old("h100", 0)]}))
    now = one.round()
    assert (now.to_plan(), now.kept_of_each(now.least())) == ([now.model], [])
    assert replace(now.model) == fleet.models[0]


def run_of(start_ms: int = 1_000_000, **metadata: str) -> Job:
    return Job("fleetctl-evict-1", "STOPPED", {"verb": "evict", "fleet": "lab", "namespace": "fleet", **metadata},
               start_time_ms=start_ms)


@pytest.mark.parametrize("variants", [
    "", "[]", "{", "null", '{"m/0": null}', '{"m/0": ["a100"]}', '{"m/0": "gone"}', '{"n/0": "a100"}', '{"m": "a100"}',
    '{"m/1": "a100"}', "[" * 100_000])
def test_what_a_record_of_an_end_may_not_say_is_ignored(variants: str) -> None:
    made = update({"h100": 4, "a100": 4}, [old("a100", 1)], 2, of_kind("h100"), of_kind("a100"), surge=0)
    assert ended_before(made.round(), [run_of(variants=variants)], "fleet") == []


def test_the_newest_end_of_the_model_in_this_fleet_and_namespace_counts() -> None:
    made = update({"h100": 4, "a100": 4}, [old("a100", 1)], 2, of_kind("h100"), of_kind("a100"), surge=0)
    ended = run_of(variants='{"m/0": "a100"}')
    others = [run_of(variants='{"n/0": "h100"}'), run_of(variants='{"m/0": "h100"}', fleet="other"),
              run_of(variants='{"m/0": "h100"}', namespace="other"), run_of(variants='{"m/0": "h100"}', verb="apply")]
    [found] = ended_before(made.round(), [run_of(variants='{"m/0": "h100"}'), ended, *others], "fleet")
    assert (found.replica_id, found.variant) == (0, "a100")
    long = run_of(variants=json.dumps({f"m/{'9' * 5000}": "a100"}))
    assert [one.variant for one in ended_before(made.round(), [long], "fleet")] == ["a100"]
    assert [one.variants[1].most for one in made.round().to_plan([found])][:1] == [2]
