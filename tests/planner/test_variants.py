"""Properties of plans of models with variants, over random fleets and inventories."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from applied import check_that_one_apply_is_enough
from checker import check_plan
from hypothesis import HealthCheck, given, settings
from planning_inputs import PlanningInputs, planning_inputs
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory
from test_promote import OTHER, WANTED, warm, with_weights

from fleetctl.documents.fleet import HttpReload
from fleetctl.documents.inventory import Inventory, Replica
from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel, in_variants
from fleetctl.planner.failures import what_cools
from fleetctl.planner.live import sort_out
from fleetctl.planner.placement.occupants import look_around
from fleetctl.planner.reloads import MORE_CHANGED, OTHER_VARIANT
from fleetctl.planner.stale import moved_since
from fleetctl.render.report.markdown import render_markdown
from fleetctl.render.report.of_plan import plan_report

pytestmark = pytest.mark.usefixtures("few_trials")
many = settings(max_examples=cases(40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@many
@given(planning_inputs(variants=True))
def test_every_plan_keeps_all_rules_and_only_creates(inputs: PlanningInputs) -> None:
    fleet, inventory = inputs
    plan = plan_for(fleet, inventory)
    check_plan(plan, fleet, inventory)
    assert {action.op for action in plan.actions} <= {"create"}
    assert moved_since(plan, inventory) == []


@many
@given(planning_inputs(exact=True, variants=True))
def test_a_plan_after_apply_is_empty(inputs: PlanningInputs) -> None:
    """What one variant lacks to its minimum never makes others grow with every apply."""
    check_that_one_apply_is_enough(*inputs)


def in_one_variant(model: ResolvedModel) -> ResolvedModel:
    return replace(model, variants=(replace(model, variant="only"),))


def without_names(plan: Plan) -> dict[str, Any]:
    document = plan.model_dump(by_alias=True, mode="json", exclude={"plan_id"})
    for part in (*document["actions"], *document["models"]):
        part.pop("variant", None)
        part.pop("variants", None)
    for drift in document["drift"]:
        drift["message"] = drift["message"].replace(" of variant only", "")
        drift.pop("variant", None)
    return document


@many
@given(planning_inputs())
def test_a_model_with_one_variant_is_planned_like_one_without(inputs: PlanningInputs) -> None:
    fleet, inventory = inputs
    named = [one.model_copy(update={"variant": "only"}) for one in inventory.replicas]
    one_each = replace(fleet, models=tuple(map(in_one_variant, fleet.models)))
    plan = plan_for(one_each, inventory.model_copy(update={"replicas": named}))
    assert {action.variant for action in plan.actions} <= {"only"}
    assert without_names(plan) == without_names(plan_for(fleet, inventory))


H100, A100 = {"name": "h100", "gpus": 1, "hash": "hh"}, {"name": "a100", "gpus": 2, "hash": "ha"}
VARIANTS = [{**H100, "selector": {"pool": "h"}}, {**A100, "selector": {"pool": "a"}}]
TWO = {"key": "m", "replicas": 1, "variants": VARIANTS}
NODES = [{"name": "h", "gpus": 4, "labels": {"pool": "h"}}, {"name": "a", "gpus": 4, "labels": {"pool": "a"}}]


def with_weights_each() -> ResolvedFleet:
    [model] = short_fleet({"models": [TWO]}).models
    return replace(short_fleet({}), models=(in_variants([with_weights(one) for one in model.variants], model.source),))


def with_index(model: ResolvedModel, index: str) -> ResolvedModel:
    workers = tuple(group.model_copy(update={"members": [
        member.model_copy(update={"weights": member.weights and member.weights.model_copy(update={"index": index})})
        for member in group.members]}) for group in model.workers)
    return replace(model, workers=workers)


def warm_as(fleet: ResolvedFleet, number: int, node: str) -> Replica:
    """A WARM replica of the first variant or the second one."""
    variant = fleet.models[0].variants[number]
    return warm(variant, 7, [node]).model_copy(update={"variant": variant.variant})


@pytest.mark.parametrize(("number", "node", "op", "name"), [
    (0, "h", "promote", "m/7"), (1, "h", "create", "m/8"), (1, "a", "create", "m/8")],
    ids=["its own variant", "another's on its node", "another's on its own node"])
def test_a_warm_replica_is_promoted_only_to_its_own_variant(number: int, node: str, op: str, name: str) -> None:
    fleet, inventory = with_weights_each(), short_inventory({"nodes": NODES})
    warmed = inventory.model_copy(update={"replicas": [warm_as(fleet, number, node)]})
    [action] = plan_for(fleet, warmed).actions
    assert (action.op, action.id, action.variant) == (op, name, "h100")


def test_a_warm_replica_of_a_variant_that_left_the_file_is_not_promoted() -> None:
    fleet = with_weights_each()
    gone = warm_as(fleet, 0, "h").model_copy(update={"spec_hash": "old", "variant": "l4"})
    [action] = plan_for(fleet, short_inventory({"nodes": NODES}).model_copy(update={"replicas": [gone]})).actions
    assert (action.op, action.id) == ("create", "m/8")


def test_each_variant_has_the_weights_the_hashes_and_the_spec_of_its_own() -> None:
    fleet = with_weights_each()
    first, second = fleet.models[0].variants
    changed = [first, with_index(second, OTHER)]
    fleet = replace(fleet, models=(in_variants(changed, first.source).with_changes(replicas=6),))
    plan = plan_for(fleet, short_inventory({"nodes": NODES}))
    assert {(action.variant, action.spec_hash, action.members[0].weights and action.members[0].weights.artifact)
            for action in plan.actions} == {("h100", "hh", WANTED), ("a100", "ha", OTHER)}
    assert {key: spec["workers"][0]["members"][0]["nodeSelector"] for key, spec in plan.specs.items()} == {
        "hh": {"pool": "h"}, "ha": {"pool": "a"}}


def test_a_variant_reloads_in_place_only_within_itself() -> None:
    fleet = with_weights_each()
    requests = (HttpReload(path="/reload"),)
    fleet = replace(fleet, models=(fleet.models[0].with_changes(reload=requests, replicas=3),))
    first, second = fleet.models[0].variants
    live = [{"model": "m", "id": number, "node": "h", "hash": "old", "variant": variant, "cards": [number]}
            for number, variant in enumerate(("h100", "a100", "l4"))]
    inventory = short_inventory({"nodes": NODES, "replicas": live})
    inventory = inventory.model_copy(update={"replicas": [
        one.model_copy(update={"actor_id": f"actor-{one.replica_id}", "engine_hash": first.engine_hash})
        for one in inventory.replicas]})
    plan = plan_for(fleet, inventory)
    assert first.engine_hash != second.engine_hash
    [reload] = plan.reloads
    assert (reload.id, reload.variant, reload.spec_hash, reload.engine_hash) == ("m/0", "h100", "hh", first.engine_hash)
    assert f"m/1 not in place: {MORE_CHANGED}" in plan.models[0].reason
    assert f"m/2 not in place: {OTHER_VARIANT}" in plan.models[0].reason


def test_the_starts_of_a_variant_tell_when_its_own_replicas_are_ready() -> None:
    starts = [{"model": "m", "hash": one, "node": node, "seconds": seconds, "ago": "5h"}
              for one, node, seconds in (("hh", "h", 60), ("ha", "a", 600)) for _ in range(3)]
    fleet = short_fleet({"models": [{**TWO, "replicas": 6}]})
    plan = plan_for(fleet, short_inventory({"nodes": NODES, "starts": starts}))
    assert {(action.variant, action.ready_in and action.ready_in.about) for action in plan.actions} == {
        ("h100", 60), ("a100", 600)}


def test_a_variant_that_cools_on_one_node_is_tried_again_there_while_the_other_one_goes_on() -> None:
    failed = [{"model": "m", "hash": "hh", "node": "h", "ago": ago} for ago in ("9m", "8m", "7m")]
    fleet = short_fleet({"models": [{**TWO, "replicas": 4}]})
    plan = plan_for(fleet, short_inventory({"nodes": NODES, "failures": failed}))
    assert Counter(action.variant for action in plan.actions) == {"a100": 2, "h100": 1}
    [row] = plan.blocked
    assert row.replicas == 1


def test_the_breaker_names_the_variant_that_cools() -> None:
    failed = [{"model": "m", "hash": "hh", "node": node, "ago": ago} for node, ago in (
        ("h", "4m"), ("x", "3m"), ("h", "1m"))]
    fleet, inventory = short_fleet({"models": [TWO]}), short_inventory({"nodes": NODES, "failures": failed})
    [found] = what_cools(fleet, inventory)
    assert (found.name, found.why.partition(" until")[0]) == ("m", "variant h100: cooling")
    [action] = plan_for(fleet, inventory).actions
    assert action.variant == "a100"


def test_a_plan_names_the_variant_of_each_new_replica() -> None:
    plan = plan_for(short_fleet({"models": [{**TWO, "replicas": 5}]}), short_inventory({"nodes": NODES}))
    text = render_markdown(plan_report(plan))
    assert "| `m/0-3` | `h100`, 1 GPU on h (each) |" in text
    assert "| `m/4` | `a100`, 2 GPUs on a |" in text
    assert plan.models[0].reason == "create 5: 0 of 5 live; h100: +4; a100: +1"


def in_surge(least: int, *running: tuple[int, str, str]) -> Plan:
    """The plan of an update of one wanted replica; `least` = the `min` of the second variant. Running: id, node, hash.
    """
    h100, a100 = ({**one, "hash": f"{one['name']}-new"} for one in VARIANTS)
    model = {"key": "m", "replicas": len(running), "surge": 1, "variants": [h100, {**a100, "min": least}]}
    return plan_for(short_fleet({"models": [model]}), short_inventory({"nodes": NODES, "replicas": [
        {"model": "m", "id": number, "node": node, "gpus": 1 if node == "h" else 2, "hash": spec,
         "variant": "h100" if node == "h" else "a100"} for number, node, spec in running]}))


def test_a_surge_creates_first_what_lets_one_of_a_minimum_end() -> None:
    """With one more h100, which takes fewer GPUs, no a100 could end without a gap below its minimum."""
    assert [one.variant for one in in_surge(0, (0, "a", "old")).actions] == ["h100"]
    assert [one.variant for one in in_surge(1, (0, "a", "old")).actions] == ["a100"]


def test_an_update_never_advises_to_end_what_a_minimum_needs() -> None:
    fleet = short_fleet({"models": [{"key": "m", "replicas": 1, "surge": 1, "variants": [
        {**VARIANTS[0], "hash": "h100-new"}, {**VARIANTS[1], "hash": "a100-new", "min": 1}]}]})
    running = [{"model": "m", "id": 0, "node": "a", "gpus": 2, "hash": "old", "variant": "a100"},
               {"model": "m", "id": 1, "node": "h", "gpus": 1, "hash": "h100-new", "variant": "h100"}]
    [row] = plan_for(fleet, short_inventory({"nodes": NODES, "replicas": running})).models
    assert row.reason.startswith("1 current of 1; 1 outdated, kept for the minimum of a100: m/0 (fleetctl replace)")
    running.append({"model": "m", "id": 2, "node": "h", "gpus": 1, "hash": "old", "variant": "h100"})
    [row] = plan_for(fleet, short_inventory({"nodes": NODES, "replicas": running})).models
    assert row.reason.startswith("1 current of 1; outdated, end 1 to continue: m/2")


def test_a_single_variant_at_its_maximum_is_blocked_for_that() -> None:
    """As after `scale` or `what-if --scale`, which ask for more than the file."""
    fleet = short_fleet({"models": [{**TWO, "replicas": 3, "variants": [{**TWO["variants"][0], "max": 2}]}]})
    plan = plan_for(fleet, short_inventory({"nodes": NODES}))
    [blocked] = plan.blocked
    assert (len(plan.actions), blocked.code, blocked.replicas) == (2, "VARIANT_FULL", 1)
    assert blocked.message == "its maximum of 2 replicas is reached: 0 live and 2 new"


def test_a_variant_that_has_just_failed_is_held_back_whatever_its_number_of_failures() -> None:
    fleet, inventory = short_fleet({"models": [{**TWO, "replicas": 3}]}), short_inventory({"nodes": NODES})
    plan = plan_for(fleet, inventory, held_back=frozenset({("m", "h100")}))
    assert [action.variant for action in plan.actions] == ["a100", "a100"]
    assert plan.blocked[0].message.startswith("neither h100 (has just failed in this apply) nor a100 (needs 2 free")
    none = plan_for(fleet, inventory, held_back=frozenset({("m", "h100"), ("m", "a100")}))
    assert (none.actions, none.blocked[0].code) == ([], "COOLING_DOWN")


@pytest.mark.parametrize(("replicas", "live", "least", "reason"), [
    (0, {}, 2, "create 2 for variants below their min: 0 of 2 live"),
    (1, {"a100": 3}, 1, "create 1 for variants below their min: 3 of 1 live"),
    (2, {"a100": 1}, 2, "create 2 for variants below their min: 1 of 2 live"),
    (2, {"h100": 1}, 2, "create 1: 1 of 2 live"),
    (1, {"h100": 2}, 2, "nothing to do: 2 of 2 live"),
    (0, {"h100": 2}, 2, "nothing to do: 2 of 2 live"),
    (1, {"h100": 3}, 2, "held: 1 beyond the 2 that minimums ask for, kept"),
    (2, {"h100": 3}, 2, "held: 1 beyond the target of 2, kept"),
    (1, {"a100": 3}, 0, "held: 2 beyond the target of 1, kept"),
    (0, {}, 0, "no target (replicas: 0)"),
    (0, {}, 9, "create 8 for variants below their min: 0 of 9 live; 1 blocked: h100: needs 1 free GPU"),
    (0, {"a100": 8}, 1, "1 blocked: h100: needs 1 free GPU"),
])
def test_the_row_of_a_model_says_what_minimums_ask_for(
    replicas: int, live: dict[str, int], least: int, reason: str
) -> None:
    variants = [{"name": "h100", "gpus": 1, "min": least, "hash": "hh"}, {"name": "a100", "gpus": 2, "hash": "ha"}]
    fleet = short_fleet({"models": [{"key": "m", "replicas": replicas, "variants": variants}]})
    running = [{"model": "m", "id": number, "node": "n", "gpus": 1, "variant": name, "hash": f"h{name[0]}"}
               for name, count in live.items() for number in range(count)]
    [row] = plan_for(fleet, short_inventory({"nodes": [{"name": "n", "gpus": 8}], "replicas": running})).models
    assert row.reason.startswith(reason)


@pytest.mark.parametrize(("replicas", "live", "least", "wanted", "surplus"), [
    (1, {"h100": 2}, 2, 2, 0), (1, {"h100": 2, "a100": 1}, 2, 2, 1), (2, {"h100": 2, "a100": 1}, 2, 2, 1),
    (2, {"a100": 3}, 9, 9, 1), (0, {"h100": 3}, 9, 9, 0), (0, {"a100": 2}, 1, 1, 2)])
def test_live_replicas_that_minimums_ask_for_are_wanted(
    replicas: int, live: dict[str, int], least: int, wanted: int, surplus: int
) -> None:
    """With 9 of h100 that find no room, one a100 beyond the target is surplus although 9 are wanted in all."""
    plan = plan_for(*with_minimum(replicas, live, least))
    [row] = plan.models
    count = sum(live.values())
    assert (row.wanted, row.surplus, plan.summary.wanted, plan.summary.hold) == (wanted, surplus, wanted, surplus)
    assert [(one.wanted, one.surplus) for one in plan.holds] == ([(count - surplus, surplus)] if surplus else [])


def with_minimum(replicas: int, live: dict[str, int], least: int) -> tuple[ResolvedFleet, Inventory]:
    """A model on one node with three GPUs, `least` = the `min` of its first variant; `live` = what runs of each."""
    variants = [{"name": "h100", "gpus": 1, "min": least, "hash": "hh"}, {"name": "a100", "gpus": 1, "hash": "ha"}]
    running = [{"model": "m", "id": number, "node": "n", "gpus": 1, "variant": name, "hash": f"h{name[0]}"}
               for number, name in enumerate(name for name, count in live.items() for _ in range(count))]
    return (short_fleet({"models": [{"key": "m", "replicas": replicas, "variants": variants}]}),
            short_inventory({"nodes": [{"name": "n", "gpus": 3}], "replicas": running}))


def test_an_update_goes_on_in_a_model_that_minimums_alone_want() -> None:
    h100 = {**VARIANTS[0], "hash": "h100-new", "min": 2}
    model = {"key": "m", "replicas": 0, "surge": 1, "variants": [h100, {**VARIANTS[1], "hash": "a100-new"}]}
    running = [{"model": "m", "id": number, "node": "h", "gpus": 1, "hash": "old", "variant": "h100"}
               for number in (0, 1)]
    plan = plan_for(short_fleet({"models": [model]}), short_inventory({"nodes": NODES, "replicas": running}))
    assert [(one.variant, one.wanted) for one in plan.actions] == [("h100", 3)]
    assert plan.models[0].reason.startswith(
        "create 1 beside 2 outdated, which stay until they are evicted: 0 current of 2")


@pytest.mark.parametrize(("replicas", "least", "named"), [
    (1, 0, "m/1"), (1, 1, "m/0"), (1, 2, None), (0, 1, "m/0"), (0, 0, "m/0")])
def test_what_is_in_the_way_is_never_one_that_the_minimum_of_its_variant_needs(
    replicas: int, least: int, named: str | None
) -> None:
    """An a100 and then an h100 run, and `new` waits: the newest is surplus, unless a minimum keeps it."""
    variants = [{"name": "h100", "gpus": 1, "min": min(least, 1), "hash": "hh"},
                {"name": "a100", "gpus": 1, "min": max(0, least - 1), "hash": "ha"}]
    fleet = short_fleet({"models": [{"key": "m", "replicas": replicas, "priority": 9, "variants": variants},
                                    {"key": "new", "replicas": 1, "gpus": 1, "priority": 5}]})
    running = [{"model": "m", "id": number, "node": "n", "gpus": 1, "variant": name, "hash": spec, "cards": [number]}
               for number, (name, spec) in enumerate((("a100", "ha"), ("h100", "hh")))]
    plan = plan_for(fleet, short_inventory({"nodes": [{"name": "n", "gpus": 2}], "replicas": running}))
    [blocked] = plan.blocked
    surplus = [one.replica for one in blocked.make_room if one.surplus]
    assert surplus == ([named] if named else [])


POOLS = [{"name": "h", "gpus": 1, "labels": {"pool": "h"}}, {"name": "a", "gpus": 8, "labels": {"pool": "a"}}]


def with_minimums(h100: int, a100: int, replicas: int) -> dict[str, Any]:
    return {"models": [{"key": "m", "replicas": replicas, "variants": [
        {**VARIANTS[0], "min": h100}, {**VARIANTS[1], "min": a100}]},
        {"key": "later", "replicas": 4, "gpus": 2, "priority": -1}]}


@pytest.mark.parametrize(("h100", "a100", "replicas", "created"), [
    (2, 1, 2, (1, 1)), (3, 1, 2, (1, 1)), (2, 2, 1, (1, 2)), (3, 1, 3, (1, 2)), (2, 0, 1, (1, 0)), (5, 2, 4, (1, 3)),
])
def test_no_other_variant_has_more_than_asked_for_if_a_minimum_has_no_room(
    h100: int, a100: int, replicas: int, created: tuple[int, int]
) -> None:
    """The H100s take one replica; what is lacking there is reported, and other models use the room of the rest."""
    plan = plan_for(short_fleet(with_minimums(h100, a100, replicas)), short_inventory({"nodes": POOLS}))
    counts = Counter((action.model, action.variant) for action in plan.actions)
    assert (counts["m", "h100"], counts["m", "a100"]) == created
    assert counts["later", None] == 4 - created[1]
    blocked = {row.model: row.replicas for row in plan.blocked}
    assert blocked["m"] == h100 - 1
    assert plan.certificate.placed == plan.certificate.upper_bound == len(plan.actions)


@pytest.mark.parametrize(("running", "after"), [
    ([], (1, 1)), (["h100"], (1, 1)), (["a100"], (1, 1)), (["a100", "h100"], (1, 1)), (["h100", "h100"], (2, 1))])
def test_what_one_apply_creates_does_not_depend_on_what_ran_before(running: list[str], after: tuple[int, int]) -> None:
    """`replicas: 2` and a minimum of 3 a100, one of which has room: one of each, or what ran if that is more."""
    nodes = [{"name": "h", "gpus": 8, "labels": {"pool": "h"}}, {"name": "a", "gpus": 3, "labels": {"pool": "a"}}]
    model = {"key": "m", "replicas": 2, "variants": [VARIANTS[0], {**VARIANTS[1], "min": 3}]}
    live = [{"model": "m", "id": number, "node": name[0], "gpus": 1 if name == "h100" else 2, "hash": f"h{name[0]}",
             "variant": name} for number, name in enumerate(running)]
    plan = plan_for(short_fleet({"models": [model]}), short_inventory({"nodes": nodes, "replicas": live}))
    counts = Counter([*running, *(one.variant or "" for one in plan.actions)])
    assert (counts["h100"], counts["a100"]) == after


def test_a_surplus_replica_of_the_model_itself_is_in_the_way_of_the_minimum_of_another_variant() -> None:
    fleet, inventory = with_minimum(1, {"a100": 3}, 1)
    [blocked] = plan_for(fleet, inventory).blocked
    assert [(one.replica, one.surplus) for one in blocked.make_room] == [("m/1", True)]
    without = inventory.model_copy(update={"replicas": [one for one in inventory.replicas if one.replica_id != 1]})
    again = plan_for(fleet, without)
    assert [one.variant for one in again.actions] == ["h100"]
    assert again.blocked == []
    [none] = plan_for(*with_minimum(3, {"a100": 3}, 1)).blocked
    assert none.make_room == [], "one that the target needs would come back"


def test_without_surplus_replicas_a_model_misses_no_more_and_has_no_surplus() -> None:
    draw, seen = random.Random("surplus"), Counter[bool]()
    for _ in range(cases(300)):
        names = ["h100", "a100", "l4"][:draw.randint(1, 3)]
        [model] = short_fleet({"models": [{"key": "m", "replicas": draw.randint(0, 4), "variants": [
            {"name": name, "gpus": 1 + place, "hash": name, "min": draw.randint(0, 2)}
            for place, name in enumerate(names)]}]}).models
        live = [{"model": "m", "id": number, "node": "n", "hash": draw.choice([*names, "gone"])}
                for number in range(draw.randint(0, 8))]
        inventory = short_inventory({"nodes": [{"name": "n", "gpus": 8}], "replicas": live})
        running = sort_out(inventory, "lab", ["m"]).running
        spare = [one.replica_id for one in look_around((), (), running, {"m": model}).replicas if not one.wanted]
        left = [one for one in inventory.replicas if one.replica_id not in spare]
        before, after = (sort_out(inventory.model_copy(update={"replicas": replicas}), "lab", ["m"]).models["m"]
                         for replicas in (inventory.replicas, left))
        assert len(spare) == max(0, len(before.live) - before.floor(model))
        assert after.to_create(model) == before.to_create(model)
        assert after.floor(model) == before.floor(model) >= len(after.live)
        seen[bool(spare) and before.kept_by_minimum(model) > model.replicas] += 1
    assert seen[True]
