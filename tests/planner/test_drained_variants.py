"""A drain with variants: what leaves is replaced by its own variant if that has room, and each minimum is kept."""

from __future__ import annotations

import random
from typing import Any

from applied import apply_plan
from checker import check_plan
from random_cases import cases
from short_forms import short_fleet, short_inventory
from test_replaced_variants import KINDS, nodes, of_kind, old

from fleetctl.cli.drain import Draining
from fleetctl.documents.inventory import Cordon, Inventory
from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.planner.plan import make_plan
from fleetctl.planner.questions.changes import without_replica
from fleetctl.workflow.replace import serving_of


def draining(cards: list[dict[str, Any]], running: list[dict[str, Any]], node: str, replicas: int,
             *variants: dict[str, Any]) -> Draining:
    fleet = short_fleet({"models": [{"key": "m", "replicas": replicas, "variants": list(variants)}]})
    seen = short_inventory({"nodes": cards, "replicas": running})
    return of(LoadedFleet(fleet, ()), seen, node)


def of(loaded: LoadedFleet, seen: Inventory, node: str) -> Draining:
    named = [one.model_copy(update={"actor_id": f"m/{one.replica_id}"}) for one in seen.replicas]
    return Draining(loaded, seen.model_copy(update={"replicas": named}),
                    next(one for one in seen.nodes if one.name == node))


def planned(made: Draining) -> tuple[Plan, Inventory]:
    """The plan of the replacements as the command makes it, and what runs once they are ready."""
    cordoned = made.cordoned(made.before, Cordon(by="ana"))
    for model in made.replacements()["m"]:
        fleet = made.with_replacements([model]).sound()
        plan = make_plan(fleet, cordoned, PlanOptions(("m",)), PlanFacts(tool_version=""))
        check_plan(plan, fleet, cordoned)
        if not plan.blocked:
            break
    return plan, apply_plan(plan, fleet, cordoned)


TWO_EACH = [{"name": f"{kind}-{number}", "gpus": 2, "labels": {"kind": kind}} for kind in KINDS for number in (1, 2)]


def test_what_leaves_is_replaced_by_its_own_variant_even_at_its_maximum() -> None:
    made = draining(TWO_EACH, [old("a100", 0, hash="a100-new"), old("h100", 1, hash="h100-new")], "a100-1", 2,
                    of_kind("h100"), of_kind("a100", max=1))
    plan, _ = planned(made)
    assert [(one.variant, one.members[0].node) for one in plan.actions] == [("a100", "a100-2")]
    assert list(made.other_variants(plan.starts, {})) == []
    assert [one.replica_id for one in made.foreseen(plan.starts)[0]] == [0]


def test_without_room_elsewhere_another_variant_takes_its_place_and_that_is_said() -> None:
    made = draining(nodes(h100=2, a100=2), [old("a100", 0, hash="a100-new")], "a100-1", 1, of_kind("h100"),
                    of_kind("a100"))
    plan, _ = planned(made)
    assert list(made.other_variants(plan.starts, {"m": "CORDONED"})) == [
        "m/0 (a100) is replaced by m/1 as h100: there is no room for another a100"]
    assert [one.replica_id for one in made.foreseen(plan.starts)[0]] == [0]


def test_the_last_one_of_a_minimum_stays_without_another_of_its_variant() -> None:
    made = draining(nodes(h100=2, a100=2), [old("a100", 0, hash="a100-new")], "a100-1", 1, of_kind("h100"),
                    of_kind("a100", min=1))
    plan, after = planned(made)
    end, stay = made.foreseen(plan.starts)
    assert ([one.replica_id for one in end], [one.replica_id for one in stay]) == ([], [0])
    assert [row.code for row in plan.blocked] == ["CORDONED"]
    assert plan.actions == [], "one of another variant would let none go"
    [kept] = made.kept_of_each(after)
    assert (kept.variant, kept.least, list(kept.actors)) == ("a100", 1, ["m/0"])


def test_random_drains_keep_what_was_ready() -> None:
    draw = random.Random(37)
    ended = 0
    for number in range(cases(300)):
        kinds = draw.sample(sorted(KINDS), draw.randint(1, 3))
        limits = {kind: {"min": draw.choice([0, 0, 1, 2]), **draw.choice([{}, {}, {"max": 4}])} for kind in kinds}
        fleet = short_fleet({"models": [{"key": "m", "replicas": draw.randint(1, 5), "variants": [
            of_kind(kind, **limits[kind]) for kind in kinds]}]})
        cards = [{"name": f"{kind}-{n}", "gpus": draw.choice([0, 2, 4]), "labels": {"kind": kind}}
                 for kind in KINDS for n in (1, 2)]
        empty = short_inventory({"nodes": cards})
        first = make_plan(fleet, empty, PlanOptions(), PlanFacts(tool_version=""))
        made = of(LoadedFleet(fleet, ()), apply_plan(first, fleet, empty), draw.choice(cards)["name"])
        if not made.leaving():
            continue
        plan, after = planned(made)
        end, stay = made.may_end(after)
        foreseen_end, foreseen_stay = made.foreseen(plan.starts)
        assert ([one.replica_id for one in end], [one.replica_id for one in stay]) == (
            [one.replica_id for one in foreseen_end], [one.replica_id for one in foreseen_stay]), number
        for replica in end:
            after = without_replica(after, next(one for one in after.replicas if one.replica_id == replica.replica_id))
        [model] = fleet.models
        before, now = serving_of(model, made.before.replicas), serving_of(model, after.replicas)
        assert now.total >= min(model.replicas, before.total), number
        for one, was, count in zip(model.variants, before.of_each, now.of_each, strict=True):
            assert count >= min(one.least, was), (number, one.variant)
            assert one.most is None or count <= max(one.most, was) or stay, (number, one.variant)
        ended += bool(end)
    assert ended
