"""Each rule of the breaker by itself: what is a row of failures, of what, how long it cools, and what clears it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from short_forms import before, plan_for, short_fleet, short_inventory

from fleetctl.planner.breaker import Cooled, Cooling, find_cooled, usable_nodes
from fleetctl.planner.failures import what_cools

FLEET = short_fleet({"models": [{"key": key, "replicas": 2, "gpus": 1, "hash": "h"} for key in "mnop"]})
THREE = [{"model": "m", "hash": "h", "node": node, "ago": ago} for node, ago in (("a", "4m"), ("b", "3m"), ("a", "2m"))]
NOW = 1_767_225_600.0
CARDS = {"name": "a", "gpus": 3, "vram": "80Gi"}


def cools(failures: list[dict[str, Any]], *, nodes: Any = ("a", "b"), reloads: bool = False, policy: Any = None,
          **more: Any) -> Cooled:
    """Return what cools for a fleet of m, with failures of m on node a unless they say otherwise."""
    found = [{"gpus": 8, **({"name": node} if isinstance(node, str) else node)} for node in nodes]
    inventory = short_inventory({"nodes": found, **more, "failures": [
        {"model": "m", "hash": "h", "node": "a", **one} for one in failures]})
    fleet = short_fleet({"models": [{"key": "m", "replicas": 2, "gpus": 1, "hash": "h"}], "policy": policy or {}})
    return find_cooled(fleet, inventory, reloads=reloads)


def ago(*times: str, **more: Any) -> list[dict[str, Any]]:
    return [{"ago": one, **more} for one in times]


def test_the_next_try_is_when_the_first_running_cooldown_ends() -> None:
    running = {until: Cooling((), float(until), False) for until in (20, 30, 40, 50)}
    over = Cooling((), 10.0, True)
    for models, node, left_out, card in ((20, 30, 40, 50), (50, 20, 30, 40), (40, 50, 20, 30), (30, 40, 50, 20)):
        everything = Cooled({"m": over, "n": running[models]}, {"a": running[node]}, {"m": {"b": running[left_out]}},
                            {"u": running[card]})
        assert everything.next_try == 20
    assert Cooled({"m": over}).next_try is Cooled().next_try is None
    parts: list[Any] = [{"m": over}, {"a": over}, {"m": {"b": over}}, {"u": over}]
    assert [bool(Cooled(*({} for _ in range(place)), part)) for place, part in enumerate(parts)] == [True] * 4
    assert not Cooled()


def test_a_cooldown_doubles_with_each_further_failure_up_to_the_longest() -> None:
    for count, seconds in ((3, 300), (4, 600), (5, 1200), (6, 2400), (7, 3600), (60, 3600), (1_200, 3600)):
        found = cools(ago(*[f"{minute}m" for minute in range(count, 0, -1)])).avoided["m", ""]["a"]
        assert (found.until, found.over, len(found.failures)) == (NOW - 60 + seconds, False, count)
    many = cools(ago(*[f"{minute}m" for minute in range(1_200, 0, -1)]), policy={"cooldown": {"first": "1.5s"}})
    assert many.avoided["m", ""]["a"].until == NOW - 60 + 3600
    [ended] = cools(ago("7m", "6m", "5m")).avoided["m", ""].values()
    assert (ended.until, ended.over) == (NOW, True)


def test_failures_are_listed_from_oldest_to_newest_and_the_last_one_counts() -> None:
    found = cools([*ago("2m", model="x"), *ago("1m", "4m", model="y"), *ago("3m", model="z")]).nodes["a"]
    assert [one.model for one in found.failures] == ["y", "z", "x", "y"]
    assert found.until == NOW - 60 + 300
    assert [one.at for one in cools(ago("1m", "3m", "2m")).avoided["m", ""]["a"].failures] == [
        before("3m"), before("2m"), before("1m")]


@pytest.mark.parametrize(("times", "is_row"), [
    (("26h", "25h", "0s"), True), (("26h", "90001s", "0s"), False), (("25h", "25h", "25h"), True),
    (("90001s", "90001s", "90001s"), False),
], ids=["25 hours apart", "a second more", "25 hours ago", "a second longer ago"])
def test_failures_are_in_a_row_if_none_is_more_than_a_day_and_the_longest_cooldown_from_the_next(
    times: tuple[str, ...], is_row: bool
) -> None:
    assert ("a" in cools(ago(*times)).avoided.get(("m", ""), {})) == is_row


def test_failures_before_a_long_gap_no_longer_count() -> None:
    assert len(cools(ago("60h", "59h", "3m", "2m", "1m")).avoided["m", ""]["a"].failures) == 3


def test_failures_after_a_success_are_in_a_row_whatever_was_before_it() -> None:
    success = {"model": "m", "hash": "h", "node": "a", "ago": "9m"}
    found = cools(ago("30m", "20m", "4m", "3m", "2m"), successes=[success])
    assert len(found.avoided["m", ""]["a"].failures) == 3


def test_each_model_of_a_fleet_cools_for_its_own_failures() -> None:
    failures = [{**one, "model": model} for model, count in (("m", 1), ("n", 3), ("p", 3)) for one in THREE[:count]]
    inventory = short_inventory({"nodes": [{"name": "a", "gpus": 8}, {"name": "b", "gpus": 8}], "failures": failures})
    assert list(find_cooled(FLEET, inventory).models) == [("n", ""), ("p", "")]


def test_a_success_clears_its_spec_everywhere_for_the_model_and_only_its_own_node_for_the_pair() -> None:
    failures = [*ago("6m", "5m", "4m"), *ago("6m", "5m", "4m", node="b")]
    assert sorted(cools(failures).avoided["m", ""]) == ["a", "b"]
    for successes, models, left_out in (
            ([{"model": "m", "hash": "h", "node": "a", "ago": "1m"}], [], ["b"]),
            ([{"model": "m", "hash": "h", "node": "a", "ago": one} for one in ("1m", "9m")], [], ["b"]),
            ([{"model": "m", "hash": "h", "node": "a", "ago": "4m"}], [], ["b"]),
            ([{"model": "m", "hash": "h", "node": "c", "ago": "1m"}], [], ["a", "b"]),
            ([{"model": "m", "hash": "h", "node": "a", "ago": "7m"}], [("m", "")], ["a", "b"]),
            ([{"model": "m", "hash": "k", "node": "a", "ago": "1m"}], [("m", "")], ["a", "b"])):
        found = cools(failures, successes=successes)
        assert (list(found.models), sorted(found.avoided.get(("m", ""), {}))) == (models, left_out), successes


def test_successes_at_one_time_may_be_of_known_and_unknown_specs() -> None:
    found = cools(ago("6m", "5m", "4m"), successes=[
        {"model": "m", "hash": spec, "node": "b", "ago": "7m"} for spec in ("h", None)])
    assert list(found.avoided["m", ""]) == ["a"]


def test_a_running_replica_is_a_success_if_it_was_never_restarted() -> None:
    ready = {"model": "m", "id": 0, "node": "a", "hash": "h", "ready": "1m"}
    assert not cools(ago("6m", "5m", "4m"), replicas=[ready])
    for other in ({"restarts": 1}, {"ready": None}, {"state": "RESTARTING"}, {"hash": "k"}, {"model": "n"}):
        assert list(cools(ago("6m", "5m", "4m"), replicas=[{**ready, **other}]).avoided["m", ""]) == ["a"], other


BROKEN = [one for model in "xyz" for one in ago("3m", model=model)]
"""Three specs failed once each on node a."""


@pytest.mark.parametrize("change", [
    {"nodes": [{"name": "a", "joined": "3m"}]},
    {"nodes": [{"name": "a", "uncordoned": "3m"}]},
    {"nodes": [{"name": "a", "state": "DEAD"}]},
    {"nodes": ["b"]},
    {"successes": [{"model": "n", "hash": "n", "node": "a", "ago": ago} for ago in ("1m", "9m")]},
    {"policy": {"cooldown": {"failures": 4}}},
], ids=["joined since", "uncordoned since", "dead", "not listed", "a success on it", "policy"])
def test_a_node_does_not_cool_after_what_makes_its_failures_irrelevant(change: dict[str, Any]) -> None:
    assert list(cools(BROKEN, **{"nodes": ["a"], **change}).nodes) == []


@pytest.mark.parametrize("change", [
    {"nodes": [{"name": "a", "joined": "4m", "uncordoned": "4m"}]},
    {"successes": [{"model": "n", "hash": "n", "node": "b", "ago": "1m"}]},
    {"successes": [{"model": "n", "hash": "n", "node": "a", "ago": "4m"}]},
    {"policy": {"cooldown": {"failures": 3}}},
], ids=["joined before", "a success elsewhere", "a success before", "policy"])
def test_a_node_cools_after_failures_of_several_specs_whatever_else_happened(change: dict[str, Any]) -> None:
    found = cools(BROKEN, **{"nodes": ["a"], **change})
    assert (list(found.nodes), found.models, found.avoided) == (["a"], {}, {})


def test_a_spec_that_failed_elsewhere_too_or_on_several_nodes_at_once_says_nothing_about_a_node() -> None:
    assert not cools([*BROKEN, *ago("2m", model="x", node="b")]).nodes
    assert not cools([*BROKEN[:2], *ago("3m", model="z", nodes=["a", "b"])]).nodes
    assert list(cools([*BROKEN, *ago("2m", model="w", node="b")]).nodes) == ["a"]


def test_each_node_cools_for_its_own_failures() -> None:
    elsewhere = [{**one, "node": "b", "model": f"{one['model']}b"} for one in BROKEN]
    assert list(cools([*ago("1m", model="n"), *elsewhere], nodes=["a", "b"]).nodes) == ["b"]
    earlier = [{**one, "ago": "4m"} for one in elsewhere]
    assert list(cools([*earlier, *BROKEN], nodes=["a", "b"]).nodes) == ["a", "b"], "in a fixed order"


def test_failures_at_one_time_have_an_order_whatever_rays_is() -> None:
    inventory = short_inventory({"nodes": [{"name": "a", "gpus": 8}], "failures": [
        {"model": "m", "hash": "h", "node": "a", "ago": "1m"}] * 4})
    by_actor = [one.model_copy(update={"actor_id": actor}) for one, actor in zip(
        inventory.failures, ("z", None, "b", "a"), strict=True)]
    for failures in (by_actor, by_actor[::-1]):
        found = find_cooled(FLEET, inventory.model_copy(update={"failures": failures})).avoided["m", ""]["a"]
        assert [one.actor_id for one in found.failures] == [None, "a", "b", "z"]


def test_what_only_one_spec_did_says_nothing_about_a_node() -> None:
    found = cools(ago("4m", "3m", "2m"))
    assert (list(found.nodes), list(found.avoided), list(found.avoided["m", ""])) == ([], [("m", "")], ["a"])


def test_cards_cool_alone_if_all_failures_were_on_them_and_their_node_has_others() -> None:
    on_one = [{**one, "uuids": ["GPU-a-1"]} for one in BROKEN]
    found = cools(on_one, nodes=[CARDS])
    assert (list(found.cards), list(found.nodes)) == (["GPU-a-1"], [])
    assert found.cards["GPU-a-1"].gpu_uuids == {"GPU-a-1"}
    mixed = cools([*on_one[:2], {**on_one[2], "uuids": ["GPU-a-0"]}], nodes=[CARDS])
    assert (list(mixed.cards), list(mixed.nodes)) == ([], ["a"])
    alone = cools([{**one, "uuids": ["GPU-a-0"]} for one in BROKEN], nodes=[{**CARDS, "gpus": 1}])
    assert (list(alone.cards), list(alone.nodes)) == ([], ["a"])
    two = cools([{**one, "uuids": ["GPU-a-0", "GPU-a-1"]} for one in BROKEN], nodes=[CARDS])
    assert (sorted(two.cards), list(two.nodes)) == (["GPU-a-0", "GPU-a-1"], [])
    others = [{**one, "model": one["model"] * 2, "uuids": ["GPU-a-0"]} for one in BROKEN]
    unknown = short_inventory({"nodes": [CARDS]}).nodes[0]
    unknown = unknown.model_copy(update={"gpus": [one.model_copy(update={"uuid": None}) for one in unknown.gpus]})
    inventory = short_inventory({"nodes": [CARDS], "failures": [{"hash": "h", "node": "a", **one} for one in BROKEN]})
    blind = find_cooled(FLEET, inventory.model_copy(update={"nodes": [unknown]}))
    assert (blind.cards, list(blind.nodes)) == ({}, ["a"])
    both = cools([*on_one, *others], nodes=[CARDS])
    assert (sorted(both.cards), list(both.nodes)) == (["GPU-a-0", "GPU-a-1"], ["a"])


def test_only_a_success_on_a_card_itself_clears_it() -> None:
    on_one = [{**one, "uuids": ["GPU-a-1"]} for one in BROKEN]
    ready = {"model": "n", "id": 0, "node": "a", "hash": "n", "ready": "1m"}
    for uuids, cards in ((["GPU-a-0"], ["GPU-a-1"]), (["GPU-a-1"], []), (["GPU-a-0", "GPU-a-1"], [])):
        assert list(cools(on_one, nodes=[CARDS], replicas=[{**ready, "uuids": uuids}]).cards) == cards


def test_a_success_of_a_replica_that_is_gone_clears_its_card_too() -> None:
    inventory = short_inventory({"nodes": [CARDS], "failures": [
        {"hash": "h", "node": "a", **one, "uuids": ["GPU-a-1"]} for one in BROKEN],
        "successes": [{"model": "n", "hash": "n", "node": "a", "ago": "1m"}]})
    [success] = inventory.successes
    for uuids, cards in ((["GPU-a-1"], []), (["GPU-a-0"], ["GPU-a-1"])):
        gone = success.model_copy(update={"gpu_uuids": uuids})
        assert list(find_cooled(FLEET, inventory.model_copy(update={"successes": [gone]})).cards) == cards


def test_a_spec_has_the_failures_of_its_former_hash() -> None:
    inventory = short_inventory({"nodes": [{"name": "a", "gpus": 8}, {"name": "b", "gpus": 8}], "failures": [
        {**one, "hash": name} for one, name in zip(THREE, ("former", "h", "former"), strict=True)]})
    fleet = replace(FLEET, models=(replace(FLEET.models[0], former_hash="former"),))
    assert list(find_cooled(fleet, inventory).models) == [("m", "")]
    assert list(find_cooled(FLEET, inventory).models) == []


def test_failed_reloads_and_failed_starts_are_counted_apart() -> None:
    inventory = short_inventory({"nodes": [{"name": "a", "gpus": 8}], "failures": [
        {"model": "m", "hash": "h", "node": "a", "ago": one} for one in ("4m", "3m", "2m")]})
    reloads = inventory.model_copy(update={"failures": [
        one.model_copy(update={"reload": True}) for one in inventory.failures]})
    for found, starts, counted in ((inventory, True, False), (reloads, False, True)):
        assert [bool(find_cooled(FLEET, found, reloads=which)) for which in (False, True)] == [starts, counted]
    two_each = inventory.model_copy(update={"failures": [*inventory.failures[:2], *reloads.failures[:2]]})
    assert not any(find_cooled(FLEET, two_each, reloads=which) for which in (False, True))
    three_each = inventory.model_copy(update={"failures": [*inventory.failures, *reloads.failures]})
    for which in (False, True):
        [found] = find_cooled(FLEET, three_each, reloads=which).avoided["m", ""].values()
        assert [one.reload for one in found.failures] == [which] * 3


def test_a_model_cools_for_failures_on_several_or_unknown_nodes_and_not_for_those_on_one() -> None:
    several = cools([*ago("4m", "3m"), *ago("2m", node="b")])
    assert (list(several.models), several.avoided) == ([("m", "")], {})
    assert list(cools([{**one, "nodes": []} for one in ago("4m", "3m", "2m")]).models) == [("m", "")]
    assert list(cools(ago("4m", "3m", "2m")).models) == []
    assert list(cools([*ago("4m", "3m"), *ago("2m", nodes=["a", "b"])]).models) == [("m", "")]


def test_a_pair_of_a_model_and_a_node_needs_its_own_failures() -> None:
    gang = ago("4m", "3m", "2m", nodes=["b", "a"])
    assert list(cools(gang).avoided["m", ""]) == ["a", "b"]
    assert list(cools(gang, nodes=["a", {"name": "b", "joined": "1m"}]).avoided["m", ""]) == ["a"]
    assert list(cools(gang, nodes=["a", {"name": "b", "state": "DEAD"}]).avoided["m", ""]) == ["a"]
    assert cools(gang, nodes=["c"]).avoided == {}
    many = list("hgfedcba")
    assert list(cools(ago("4m", "3m", "2m", nodes=many), nodes=many).avoided["m", ""]) == many[::-1], "in a fixed order"


@pytest.mark.parametrize(("joined", "cooling"), [
    ("2m", False), ("1m", False), ("4m", False), ("5m", True), ("301m", True),
], ids=["with the last failure", "since", "with the first", "before", "long before"])
def test_a_usable_node_that_joined_since_gives_a_model_another_chance(joined: str, cooling: bool) -> None:
    failures = [*ago("4m", "3m"), *ago("2m", node="b")]
    assert (("m", "") in cools(failures, nodes=["a", "b", {"name": "c", "joined": joined}]).models) == cooling
    closed = {"name": "c", "joined": joined, "gpus": 0}
    assert ("m", "") in cools(failures, nodes=["a", "b", closed]).models


def test_a_node_that_joins_later_than_the_longest_cooldown_after_the_first_row_is_no_chance() -> None:
    row = [*ago("100m", "99m"), *ago("98m", node="b")]
    later = [*ago("30m", "29m"), *ago("28m", node="b")]
    for joined, count in (("38m", 3), ("37m", 6)):
        [found] = cools([*row, *later], nodes=["a", "b", {"name": "c", "joined": joined}]).models.values()
        assert (len(found.failures), found.until) == (count, NOW - 28 * 60 + 2400), "all six count for the duration"


@pytest.mark.parametrize(("wants", "node", "may"), [
    ({"gpus": 1}, {"gpus": 1}, True), ({"gpus": 2}, {"gpus": 1}, False), ({"gpus": 0.5}, {"gpus": 1}, True),
    ({"gpus": 0.5}, {"gpus": 0}, False), ({"vram": "1Gi"}, {"gpus": 1, "vram": "8Gi"}, True),
    ({"vram": "1Gi"}, {"gpus": 0}, False), ({"cpus": 1}, {"gpus": 0}, True),
    ({"gpus": 1}, {"gpus": 1, "state": "DRAINING"}, False), ({"selector": {"pool": "x"}}, {}, False),
    ({"selector": {"pool": "x"}}, {"labels": {"pool": "x"}}, True),
    ({"workers": [{"name": "main", "members": [
        {"role": "Leader", "resources": {"gpus": 1}}, {"role": "Worker", "count": 1, "resources": {"gpus": 4}}]}]},
     {"gpus": 1}, True),
])
def test_a_node_is_usable_if_it_is_alive_and_has_the_labels_and_cards_of_a_member(
    wants: dict[str, Any], node: dict[str, Any], may: bool
) -> None:
    [model] = short_fleet({"models": [{"key": "m", "replicas": 1, **wants}]}).models
    inventory = short_inventory({"nodes": [{"name": "a", **node}]})
    assert [one.name for one in usable_nodes(model, inventory.nodes)] == (["a"] if may else [])


# LocalAI's acceptance cases for its placement, with its ids; a tick there is a failure here, a rule a model. The others
# are in cases/.


ELSEWHERE = "; new replicas may be created elsewhere, but not on a"


@pytest.mark.parametrize(("nodes", "selector", "elsewhere"), [
    (("a", "b"), None, True),
    (("a",), None, False),
    (("a", {"name": "b", "labels": {"pool": "x"}}), "pool: '!x'", False),
    (("a", {"name": "b", "gpus": 0}), None, False),
    (("a", {"name": "b", "cordon": {"by": "me", "since": before("1h")}}), None, False),
], ids=["another node", "no other node", "not selected", "no card there", "cordoned"])
def test_a_model_that_cools_on_a_node_is_said_to_be_possible_elsewhere_only_where_it_is(
    nodes: Any, selector: str | None, elsewhere: bool
) -> None:
    fleet = short_fleet({"models": [{"key": "m", "replicas": 1, "gpus": 1, "hash": "h",
                                     **({"selector": {"pool": "!x"}} if selector else {})},
                                    {"key": "n", "replicas": 1, "gpus": 1, "hash": "h"}]})
    found = [{"gpus": 8, **({"name": node} if isinstance(node, str) else node)} for node in nodes]
    inventory = short_inventory({"nodes": found, "failures": [
        {"model": "m", "hash": "h", "node": "a", **one} for one in ago("3m", "2m", "1m")]})
    [one] = what_cools(fleet, inventory)
    assert (one.name, one.node, one.why.endswith(ELSEWHERE)) == ("m", "", elsewhere)
    assert "(a)" in one.why


def test_a_plan_names_the_node_that_a_model_avoids_though_its_replica_is_placed_elsewhere() -> None:
    fleet = short_fleet({"models": [{"key": key, "replicas": 1, "gpus": 1, "hash": "h"} for key in "mn"]})
    nodes = [{"name": name, "gpus": 2} for name in "ab"]
    failures = [{"model": "m", "hash": "h", "node": "a", "ago": one} for one in ("4m", "3m", "2m")]
    rows = {row.key: row for row in plan_for(fleet, short_inventory({"nodes": nodes, "failures": failures})).models}
    assert (rows["m"].create, rows["n"].create) == (1, 1)
    assert "; a avoided: cooling until 00:03 UTC, 3 x ENGINE_EXITED: " in rows["m"].reason
    assert "avoided" not in rows["n"].reason
    pinned = short_fleet({"models": [{"key": "m", "replicas": 1, "gpus": 1, "hash": "h", "selector": {"pool": "x"}}]})
    nodes = [{"name": "a", "gpus": 2}, {"name": "b", "gpus": 2, "labels": {"pool": "x"}}]
    [row] = plan_for(pinned, short_inventory({"nodes": nodes, "failures": failures})).models
    assert (row.create, "avoided" in row.reason) == (1, False), "it could not have run there anyway"
