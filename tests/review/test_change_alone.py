"""The effect of a change alone: two real plans on one inventory, with counts, side effects and messages."""

from __future__ import annotations

from typing import Any

import pytest
from fleet_texts import engine, fleet, group, member, model
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases

from fleetctl.documents.canonical import plan_id
from fleetctl.documents.difference import PlanChange, Revision
from fleetctl.documents.inventory import ColdWeights, Inventory
from fleetctl.documents.loading import load_plan
from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.planner.placement.prices import added_beyond
from fleetctl.planner.plan import make_plan
from fleetctl.render.plan_json import saved_plan_json
from fleetctl.render.report.of_diff import change_sentence
from fleetctl.review.compare import differences, written
from fleetctl.review.inputs import Side
from fleetctl.workflow.base_plan import change_caused, with_change

BASE = Revision(name="main", commit="c" * 40)


def side(text: str) -> Side:
    loaded = inspect_bytes([SourceBytes("fleet.yaml", text.encode())])
    assert loaded.errors == ()
    return Side(Revision(name="side"), loaded.fleet, loaded.documents)


def inventory_of(nodes: int = 2, live: dict[str, int] | None = None) -> Inventory:
    """An inventory of nodes with 8 GPUs; `live` replicas of 1 GPU by model, all on the first node."""
    total = {"GPU": 8, "CPU": 64, "memory": 1 << 40}
    replicas = [
        {"model": key, "replicaId": number, "fleet": "lab", "specHash": "x",
         "members": [{"group": "main", "nodeId": "0", "gpus": 10_000, "slot": number}]}
        for key, count in (live or {}).items() for number in range(count)]
    return Inventory.model_validate({
        "observedAt": "2026-03-04T12:00:00Z", "source": "a test", "complete": True, "cluster": {"sessionId": "s"},
        "nodes": [{"id": str(number), "name": f"node-{number}", "resources": {"total": total}}
                  for number in range(nodes)],
        "replicas": replicas})


def planned(one: Side, inventory: Inventory) -> Plan:
    assert one.fleet is not None
    return make_plan(one.fleet, inventory, PlanOptions(), PlanFacts(tool_version="test"))


def change(base: str | None, head: str, inventory: Inventory) -> PlanChange:
    old, new = side(base) if base else None, side(head)
    found = list(differences(written(old) if old else None, written(new)))
    return change_caused(planned(old, inventory) if old else None, planned(new, inventory), found, BASE)


def small(key: str, **more: Any) -> str:
    return model(key, workers=[group()], **more)


def big(key: str, **more: Any) -> str:
    return model(key, workers=[group("main", member(resources={"gpus": 8}))], **more)


def effects(found: PlanChange) -> dict[str, tuple[str, str]]:
    return {one.key: (one.kind, one.message) for one in found.models}


def test_replicas_due_anyway_are_not_attributed_to_the_change() -> None:
    found = change(fleet(small("a", replicas=2), small("b", replicas=3)),
                   fleet(small("a", replicas=2), small("b", replicas=4)), inventory_of(live={"b": 1}))
    assert (found.create, found.also_without, found.no_longer, found.blocked) == (1, 4, 0, 0)
    assert effects(found) == {"b": ("changed", "1 more to create")}
    assert found.base == BASE


def test_a_model_blocked_because_another_takes_its_place_is_a_side_effect() -> None:
    base, head = fleet(big("a", replicas=2)), fleet(big("a", replicas=2), big("b", replicas=1, priority=9))
    found = change(base, head, inventory_of())
    assert effects(found) == {
        "a": ("sideEffect", "affected by another change: 1 fewer to create, 1 more blocked"),
        "b": ("added", "new in the file: 1 to create")}
    assert (found.create, found.also_without, found.no_longer, found.blocked) == (1, 1, 1, 1)


def test_a_removed_model_keeps_its_replicas_running_and_creates_no_more() -> None:
    found = change(fleet(small("a", replicas=3), small("b")), fleet(small("b")), inventory_of(live={"a": 2}))
    runs_on = "removed from the file: 2 live replicas become unmanaged and keep running"
    assert effects(found) == {"a": ("removed", f"{runs_on}; 1 replica would have been created")}
    [removed] = found.models
    assert (removed.before is not None, removed.after) == (True, None)
    assert (found.create, found.no_longer) == (0, 1)


def test_a_lowered_target_keeps_running_replicas() -> None:
    found = change(fleet(small("a", replicas=3)), fleet(small("a", replicas=1)), inventory_of(live={"a": 3}))
    assert effects(found) == {"a": ("changed", "2 more held")}


def test_only_new_drift_is_counted() -> None:
    old, new = (fleet(small("a", placement={"spread": label}), small("b")) for label in ("zone", "rack"))
    spec_hash = next(model.spec_hash for model in side(old).fleet.models if model.key == "a")  # type: ignore[union-attr]
    inventory = inventory_of(live={"a": 2, "b": 1})
    running = [one.model_copy(update={"spec_hash": spec_hash}) for one in inventory.replicas]
    found = change(old, new, inventory.model_copy(update={"replicas": running}))
    assert found.drift == 2  # the replica of b had another spec before the change
    assert effects(found) == {"a": ("changed", "2 more reported as drift")}


def test_nodes_that_fetch_weights_because_of_the_change_are_counted() -> None:
    weights = {"from": [{"path": "/m"}], "index": "a" * 64}
    at_zero = {"replicas": 0, "workers": [group("main", member(weights=weights))]}
    keeps = fleet(model("a", **at_zero, cold={"nodes": {}}))
    known = inventory_of()
    known = known.model_copy(update={"nodes": [node.model_copy(update={"cold": []}) for node in known.nodes]})
    assert effects(change(fleet(model("a", **at_zero)), keeps, known)) == {
        "a": ("changed", "2 more nodes to fetch weights")}
    there = [known.nodes[0].model_copy(update={"cold": [ColdWeights(artifact="a" * 64, view=None, bytes=1)]})]
    one_left = known.model_copy(update={"nodes": there + known.nodes[1:]})
    assert effects(change(keeps, fleet(model("a", **at_zero)), one_left)) == {
        "a": ("changed", "1 fewer node to fetch weights")}
    assert effects(change(None, keeps, known)) == {"a": ("added", "new in the file: 2 nodes to fetch weights")}
    assert effects(change(fleet(small("b")), fleet(small("b")), known)) == {}


def test_every_changed_model_is_named_even_if_its_counts_are_the_same() -> None:
    old, new = (fleet(*(small(key, replicas=count, placement={"spread": label}) for key, count in
                        (("a", 0), ("b", 2))), small("c")) for label in ("zone", "rack"))
    found = change(old, new, inventory_of())
    assert effects(found) == {"a": ("changed", "changed; no replica is affected now"),
                              "b": ("changed", "changed; still 2 to create")}
    assert all(one.before == one.after for one in found.models)


def test_a_policy_that_stops_a_model_is_a_side_effect_of_the_fleet() -> None:
    text = fleet(small("a", replicas=2))
    found = change(text, text.replace("spec:\n", "spec:\n  nodes: [{cordon: true}]\n"), inventory_of())
    assert effects(found) == {
        "a": ("sideEffect", "affected by another change: 2 fewer to create, 2 more blocked")}


def test_without_a_base_fleet_everything_is_attributed_to_the_change() -> None:
    found = change(None, fleet(small("a", replicas=2)), inventory_of(live={"a": 1}))
    assert (found.create, found.also_without) == (1, 0)
    assert effects(found) == {"a": ("added", "new in the file: 1 to create, 1 live already")}


def test_a_change_of_only_comments_has_no_effect() -> None:
    text = fleet(small("a", replicas=2))
    found = change(text, f"# more\n{text}", inventory_of())
    assert (found.create, found.also_without, found.models, found.differences) == (0, 2, [], [])


def test_the_plan_id_covers_the_effect_of_the_change() -> None:
    base, head = fleet(small("a")), fleet(small("a", replicas=2))
    plan = planned(side(head), inventory_of())
    whole = with_change(plan, change(base, head, inventory_of()))
    assert whole.plan_id != plan.plan_id
    assert load_plan(saved_plan_json(whole), "the saved plan") == whole  # refuses an id that does not match
    alone = with_change(plan.model_copy(update={"change": None}), PlanChange(base=BASE, create=0, blocked=0,
                                                                             also_without=0))
    assert alone.plan_id == plan_id(alone.model_dump(mode="json", by_alias=True))


TARGETS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 6), min_size=1)


@settings(max_examples=cases(12))
@given(TARGETS, TARGETS, st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3)), st.integers(1, 2))
def test_the_counts_add_up_to_both_plans(
    before: dict[str, int], after: dict[str, int], live: dict[str, int], nodes: int
) -> None:
    texts = [fleet(*(small(key, replicas=count) for key, count in targets.items())) for targets in (before, after)]
    inventory = inventory_of(nodes, live)
    old, new = (planned(side(text), inventory).summary for text in texts)
    found = change(*texts, inventory)
    assert found.create + found.also_without == new.create
    assert found.no_longer + found.also_without == old.create
    assert found.blocked == new.blocked - old.blocked
    assert {one.key for one in found.models if one.kind == "added"} == after.keys() - before.keys()
    assert {one.key for one in found.models if one.kind == "removed"} == before.keys() - after.keys()
    for one in found.models:
        if one.kind == "sideEffect":
            assert before[one.key] == after[one.key]


@pytest.mark.parametrize("nodes", [1, 2])
def test_equal_input_gives_equal_bytes(nodes: int) -> None:
    texts = fleet(small("a", replicas=9), small("b")), fleet(small("b", replicas=9), small("c"))
    one, other = (change(*texts, inventory_of(nodes)).model_dump_json() for _ in range(2))
    assert one == other


def added(base: str | None, head: str, inventory: Inventory) -> int:
    new, old = side(head), side(base) if base else None
    assert new.fleet is not None
    return added_beyond(planned(old, inventory) if old else None, planned(new, inventory), new.fleet, inventory)


def priced(price: float, *models: str) -> str:
    return fleet(*models, spec=f"nodes:\n- {{price: {price}}}\n")


def test_what_a_change_adds_is_counted_at_its_own_prices() -> None:
    two, three, other = (model(key, replicas=count, workers=[group()]) for key, count in (("m", 2), ("m", 3), ("n", 1)))
    live = inventory_of(live={"m": 1})
    assert added(priced(8, two), priced(8, three), live) == 1_000_000
    assert added(priced(80, two), priced(8, three), live) == 1_000_000, "the base had other prices"
    assert added(fleet(two), priced(8, three), live) == 1_000_000, "the base had no prices"
    assert added(priced(8, three), priced(8, two), live) == -1_000_000
    assert added(priced(8, other), priced(8, two), live) == 0, "one more here, one less there"
    assert added(None, priced(8, two), live) == 1_000_000
    assert added(priced(8, two), priced(8, two), live) == 0


def two_ways(*, args: tuple[str, ...] = (), only: str = "", **more: Any) -> str:
    ways = [{"name": "wide", "workers": [group("main", member(resources={"gpus": 8}))]},
            {"name": "slim", "workers": [group("main", member(engine=engine(args=list(args))))]}]
    return model("m", variants=[way for way in ways if way["name"] != only], **more)


def test_replicas_that_only_a_new_variant_has_room_for_are_said_to_be_of_it() -> None:
    found = change(fleet(two_ways(only="slim", replicas=4)), fleet(two_ways(replicas=4)), inventory_of(nodes=3))
    assert (found.create, found.blocked) == (1, -1)
    assert effects(found) == {
        "m": ("changed", "1 more to create (now 4 as slim instead of 3 as wide), 1 fewer blocked")}
    assert [one.path for one in found.differences] == ["variants.slim"]


def test_new_replicas_that_would_be_of_another_variant_are_counted_and_nothing_that_runs_is() -> None:
    live = inventory_of(nodes=1, live={"m": 3})
    base, head = fleet(two_ways(only="slim", replicas=4)), fleet(two_ways(replicas=4))
    small = inventory_of(nodes=1)
    found = change(fleet(two_ways(only="slim")), fleet(two_ways()), small)
    assert effects(found) == {"m": ("changed", "the new replica as slim, instead of wide")}
    assert (found.create, found.also_without, found.other_variant) == (0, 1, 1)
    assert change_sentence(found) == ("0 more to create; the 1 to create is due anyway, as another variant than "
                                      "without the change")
    [effect] = found.models
    assert effect.before is not None
    assert effect.after is not None
    assert (effect.before.variants, effect.after.variants) == ({"wide": 1}, {"slim": 1})
    assert change(base, head, live).other_variant == 0, "what runs keeps its place"


def three_of(*names: str, only_one: str = "", replicas: int = 5) -> str:
    """A model whose variants claim one GPU each: they differ in their arguments, and in nothing that a plan counts."""
    own = {"max": 1} if only_one else {}
    return fleet(model("m", replicas=replicas, variants=[
        {"name": name, "workers": [group("main", member(engine=engine(args=[name])))],
         **(own if name == only_one else {})} for name in names]))


def test_another_order_or_maximum_says_which_new_replicas_are_of_another_variant() -> None:
    world = inventory_of(nodes=1)
    assert effects(change(three_of("a", "b"), three_of("b", "a"), world)) == {
        "m": ("changed", "all 5 new replicas as b, instead of a")}
    limited = change(three_of("a", "b"), three_of("a", "b", only_one="a"), world)
    assert effects(limited) == {"m": ("changed", "4 of 5 new replicas as b, instead of a")}
    assert change_sentence(limited) == ("0 more to create; the 5 to create are due anyway, 4 of them as another "
                                        "variant than without the change")
    several = change(three_of("c"), three_of("a", "b", only_one="a"), world)
    assert effects(several) == {"m": ("changed", "all 5 new replicas: 1 as a and 4 as b, instead of c")}
    more = change(three_of("a", "b", replicas=4), three_of("a", "b", only_one="a"), world)
    assert effects(more) == {"m": ("changed", "1 more to create (now 1 as a and 4 as b instead of 4 as a)")}


def test_a_new_name_or_former_workers_are_told_apart_by_the_spec() -> None:
    world, of_a = inventory_of(nodes=1), [group("main", member(engine=engine(args=["a"])))]
    renamed = change(three_of("a"), three_of("a").replace('"name": "a"', '"name": "x"'), world)
    assert (renamed.other_variant, effects(renamed)) == (0, {"m": ("changed", "changed; still 5 to create")})
    plain = fleet(model("m", replicas=5, workers=of_a))
    assert effects(change(plain, three_of("a", "b"), world)) == {"m": ("changed", "changed; still 5 to create")}
    assert effects(change(plain, three_of("b"), world)) == {
        "m": ("changed", "all 5 new replicas as b, instead of the former workers")}
    assert effects(change(three_of("b"), plain, world)) == {
        "m": ("changed", "all 5 new replicas without a variant, instead of b")}
    assert effects(change(None, three_of("a", "b", only_one="a"), world)) == {
        "m": ("added", "new in the file: 5 to create (1 as a and 4 as b)")}


def test_a_model_whose_variant_another_model_displaces_is_a_side_effect() -> None:
    world = inventory_of(nodes=1)
    ways = model("m", replicas=1, variants=[
        {"name": "slim", "workers": [group("main", member(resources={"gpus": 1, "cpus": 60}))]},
        {"name": "wide", "workers": [group("main", member(resources={"gpus": 4}))]}])
    found = change(fleet(ways), fleet(ways, model("n", priority=9, workers=[
        group("main", member(resources={"gpus": 1, "cpus": 10}))])), world)
    assert effects(found)["m"] == ("sideEffect", "affected by another change: the new replica as wide, instead of slim")


def test_replicas_of_a_changed_variant_become_outdated_and_others_do_not() -> None:
    base = side(fleet(two_ways(replicas=3)))
    assert base.fleet is not None
    hashes = [way.spec_hash for way in base.fleet.models[0].variants]
    seen = inventory_of(live={"m": 3}).model_dump(by_alias=True)
    for replica, place in zip(seen["replicas"], (0, 1, 1), strict=True):
        replica |= {"specHash": hashes[place], "variant": ("wide", "slim")[place]}
    live = Inventory.model_validate(seen)
    found = change(fleet(two_ways(replicas=3)), fleet(two_ways(replicas=3, args=("--fast",))), live)
    assert found.drift == 2
    assert effects(found) == {"m": ("changed", "2 running replicas of variant slim become outdated")}
    removed = change(fleet(two_ways(replicas=3)), fleet(two_ways(replicas=3, only="wide")), live)
    assert effects(removed) == {"m": ("changed", "1 running replica of variant wide becomes outdated")}
    # a model whose only way to run becomes the first of two
    plain = fleet(model("m", replicas=3, workers=[group("main", member(engine=engine(args=["--fast"])))]))
    slim = side(plain)
    assert slim.fleet is not None
    for replica in seen["replicas"]:
        replica |= {"specHash": slim.fleet.models[0].spec_hash, "variant": None}
    kept = change(plain, fleet(two_ways(replicas=3, args=("--fast",))), Inventory.model_validate(seen))
    assert (kept.drift, effects(kept)["m"]) == (0, ("changed", "changed; no replica is affected now"))


def in_two(least: int, replicas: int) -> str:
    return fleet(model("m", replicas=replicas, variants=[
        {"name": name, "workers": [group("main", member(engine=engine(args=[name])))],
         **({"min": least} if name == "b" and least else {})} for name in "ab"]))


@pytest.mark.parametrize(("replicas", "live", "was", "now", "created", "message"), [
    (3, "aaa", 0, 2, "bb", "2 more to create (now 2 as b)"),
    (3, "", 0, 2, "abb", "2 of 3 new replicas as b, instead of a"),
    (3, "a", 0, 3, "bbb", "1 more to create (now 3 as b instead of 2 as a)"),
    (3, "aaa", 0, 9, "bbbbb", "5 more to create (now 5 as b), 4 more blocked"),
    (3, "aab", 1, 0, "", "changed; no replica is affected now"),
    (1, "bb", 2, 1, "", "1 more held"),
    (1, "bb", 1, 2, "", "1 fewer held"),
    (2, "bb", 9, 0, "", "6 fewer to create, 1 fewer blocked"),
])
def test_a_change_of_a_minimum_alone_moves_nothing_and_creates_what_it_lacks(
    replicas: int, live: str, was: int, now: int, created: str, message: str
) -> None:
    seen, head = inventory_of(nodes=1, live={"m": len(live)}).model_dump(by_alias=True), side(in_two(now, replicas))
    assert head.fleet is not None
    for replica, name in zip(seen["replicas"], live, strict=True):
        replica |= {"specHash": head.fleet.models[0].variants["ab".index(name)].spec_hash, "variant": name}
    world = Inventory.model_validate(seen)
    plan = planned(head, world)
    assert sorted(one.variant or "" for one in plan.actions) == list(created)
    assert {one.op for one in plan.actions} <= {"create"}
    found = change(in_two(was, replicas), in_two(now, replicas), world)
    assert effects(found) == {"m": ("changed", message)}
    assert [(one.path, one.effect) for one in found.differences] == [
        ("variants.b.min", "additive" if now > was else "held")]
