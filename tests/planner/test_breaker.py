"""The breaker: random histories, what ends a cooldown, and LocalAI's acceptance cases for its own breaker."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from short_forms import before, plan_for, short_fleet, short_inventory

from fleetctl.documents.base import moment_at
from fleetctl.documents.fleet import Policy
from fleetctl.documents.inventory import Failure, Inventory, ReplicaMember
from fleetctl.documents.plan import Plan
from fleetctl.planner.breaker import NO_FAILURES, Cooled, Cooling, find_cooled, usable_nodes
from fleetctl.planner.failures import failed_lately

NODES = ("a", "b", "c")
MODELS = ("m", "n", "o", "p")


BASE = short_inventory({"nodes": [{"name": name, "gpus": 3, "vram": "80Gi"} for name in NODES]})
READY = short_inventory({"replicas": [{"model": "m", "id": 0, "node": name} for name in NODES]}).replicas
FAILED = Failure(model="m", replica_id=0, code="ENGINE_EXITED", message="out of memory")
AGO = [before(f"{minutes}m") for minutes in range(3_001)]


def on_a_card(chance: random.Random) -> list[ReplicaMember]:
    [member] = chance.choice(READY).members
    return [member.model_copy(update={"gpu_uuids": [f"GPU-{member.node_id}-{chance.randint(0, 2)}"]})]


def histories(seed: int, count: int) -> Iterator[Inventory]:
    """Yield random clusters with failures and ready replicas."""
    chance = random.Random(seed)

    def sometimes(often: float) -> str | None:
        return AGO[chance.randint(0, 120)] if chance.random() < often else None

    for _ in range(count):
        nodes = [node.model_copy(update={"started_at": sometimes(0.1), "uncordoned_at": sometimes(0.1)})
                 for node in BASE.nodes]
        replicas = [chance.choice(READY).model_copy(update={
            "model": model, "spec_hash": chance.choice("hk"), "ready_at": sometimes(1),
            "restarts": chance.choice([0, 2]), "members": on_a_card(chance),
        }) for model in MODELS if chance.random() < 0.2]
        failures = [FAILED.model_copy(update={
            "model": chance.choice(MODELS), "spec_hash": chance.choice("hhhk"), "replica_id": number,
            "actor_id": f"{number}", "node_ids": chance.choice([["a"], ["a"], ["b"], ["c"], ["a", "b"], []]),
            "code": chance.choice(["ENGINE_EXITED", "STARTUP_TIMEOUT", "NODE_TAKEN"]),
            "gpu_uuids": chance.choice([[], ["GPU-a-0"], ["GPU-a-0"], ["GPU-a-0", "GPU-a-1"]]),
            "at": None if chance.random() < 0.05 else AGO[chance.randint(0, 90 if number % 7 else 3_000)],
        }) for number in range(chance.randint(0, 12))]
        yield BASE.model_copy(update={"nodes": nodes, "replicas": replicas, "failures": failures})


FLEET = short_fleet({"models": [{"key": key, "replicas": 2, "gpus": 1, "hash": "h"} for key in MODELS]})


def crash_loop(joins: list[int], minutes: int = 10 * 60) -> list[int]:
    """Simulate a model that fails two minutes after each start; return the minutes at which it was tried."""
    start, tries, fleet = 1_767_225_600 - minutes * 60, list[int](), short_fleet(
        {"models": [{"key": "m", "replicas": 1, "gpus": 1, "hash": "h"}]})
    for minute in range(0, minutes, 3):
        latest = [max([at for at in joins[place::3] if at <= minute], default=0) for place in range(3)]
        nodes = [node.model_copy(update={"started_at": moment_at(start + 60 * at)})
                 for node, at in zip(BASE.nodes, latest, strict=True)]
        failures = [FAILED.model_copy(update={
            "spec_hash": "h", "actor_id": f"{number}", "node_ids": [BASE.nodes[number % 2].id],
            "at": moment_at(start + 60 * (at + 2))}) for number, at in enumerate(tries)]
        now = BASE.model_copy(update={"observed_at": moment_at(start + 60 * minute), "nodes": nodes,
                                      "failures": failures})
        found = find_cooled(fleet, now).models.get("m")
        tries += [minute] if found is None or found.over else []
    return tries


@pytest.mark.parametrize("often", [1, 4, 7, 25, 55, 130])
def test_a_crash_loop_stays_within_its_cap_even_if_nodes_keep_joining(often: int) -> None:
    """One hour after its first cooldown it is tried once per hour."""
    tries = crash_loop(list(range(5, 10 * 60, often)))
    late = [at for at in tries if at > tries[2] + 120]
    assert len(late) >= 4
    assert all(later - earlier >= 60 for earlier, later in pairwise(late)), tries


def test_a_joined_node_allows_another_try_and_earlier_failures_still_count_for_the_duration() -> None:
    quiet, joined = crash_loop([]), crash_loop([30])
    tried_at_once = [at for at in joined if 30 <= at < 45]
    assert len([at for at in quiet if 30 <= at < 45]) < len(tried_at_once) == 3
    after = next(at for at in joined if at > tried_at_once[-1])
    assert after - tried_at_once[-1] >= 40


def later_than(failures: list[Failure], at: str | None) -> list[Failure]:
    return [one for one in failures if at is None or (one.at or "") > at]


def uuid_in_all(uuid: str, failures: Sequence[Failure]) -> bool:
    return all(uuid in one.gpu_uuids for one in failures)


def test_in_random_histories_nothing_cools_without_three_failures_or_after_a_success() -> None:
    occurred = dict.fromkeys(("model", "node", "card", "left out", "over"), 0)
    for inventory in histories(13, 10_000):
        cooled = find_cooled(FLEET, inventory)
        real = [one for one in inventory.failures if one.at and one.code not in NO_FAILURES]
        ready = [one for one in inventory.replicas if not one.restarts]
        for key, found in cooled.models.items():
            mine = [one for one in real if (one.model, one.spec_hash) == (key, "h")]
            success = max((one.ready_at or "" for one in ready if (one.model, one.spec_hash) == (key, "h")), default="")
            assert len(later_than(mine, success)) >= 3
            assert set(map(id, found.failures)) <= set(map(id, mine))
            assert len(found.node_ids) != 1
        for key, left_out in cooled.left_out.items():
            for node_id in left_out:
                assert sum(one.model == key and one.spec_hash == "h" and node_id in one.node_ids for one in real) >= 3
        for node_id, found in cooled.nodes.items():
            assert len({(one.model, one.spec_hash) for one in found.failures}) >= 3
            assert found.node_ids == {node_id}
        for uuid, found in cooled.cards.items():
            assert len({(one.model, one.spec_hash) for one in found.failures}) >= 3
            assert all(uuid in one.gpu_uuids for one in found.failures)
            used = [one.ready_at or "" for one in ready if uuid in one.members[0].gpu_uuids]
            assert min(one.at or "" for one in found.failures) > max(used, default="")
            assert found.node_ids == {"a"}
            assert "a" not in cooled.nodes or not uuid_in_all(uuid, cooled.nodes["a"].failures)
        every = [*cooled.models.values(), *cooled.nodes.values(), *cooled.cards.values(),
                 *(one for out in cooled.left_out.values() for one in out.values())]
        now = 1_767_225_600.0
        assert all(one.until <= now + 3600 and one.over == (one.until <= now) for one in every)
        occurred["model"] += bool(cooled.models)
        occurred["node"] += bool(cooled.nodes)
        occurred["card"] += bool(cooled.cards)
        occurred["left out"] += bool(cooled.left_out)
        occurred["over"] += any(one.over for one in every)
    assert min(occurred.values()) > 20, occurred


def test_plans_do_not_depend_on_the_order_in_which_ray_lists_failures() -> None:
    chance = random.Random(7)
    for inventory in histories(5, 15):
        shuffled = list(inventory.failures)
        chance.shuffle(shuffled)
        again = inventory.model_copy(update={"failures": shuffled}, deep=True)
        plan, cooled = plan_for(FLEET, inventory), find_cooled(FLEET, inventory)
        assert plan == plan_for(FLEET, again)
        on_node = Counter(member.node_id for action in plan.actions for member in action.members)
        assert all(on_node[node_id] <= one.over for node_id, one in cooled.nodes.items())


THREE = [{"model": "m", "hash": "h", "node": node, "ago": ago} for node, ago in (("a", "4m"), ("b", "3m"), ("a", "2m"))]


def planned(*, failures: list[dict[str, Any]] = THREE, nodes: Any = ("a", "b"), replicas: Any = (), count: int = 2,
            policy: Any = None, successes: Any = (), **model: Any) -> Plan:
    """Plan one model m, with one GPU, on nodes with eight."""
    found = [{"gpus": 8, **({"name": node} if isinstance(node, str) else node)} for node in nodes]
    fleet = short_fleet({"models": [{"key": "m", "replicas": count, "gpus": 1, "hash": "h", **model}],
                         "policy": policy or {}})
    return plan_for(fleet, short_inventory({
        "nodes": found, "replicas": list(replicas), "failures": failures, "successes": successes}))


def outcome(plan: Plan) -> tuple[int, list[str]]:
    return len(plan.actions), [one.code for one in plan.blocked]


def test_three_failures_in_a_row_cool_a_model() -> None:
    assert outcome(planned()) == (0, ["COOLING_DOWN"])


@pytest.mark.parametrize("change", [
    {"hash": "other"},
    {"failures": THREE[:2]},
    {"failures": [{**one, "hash": "k"} for one in THREE]},
    {"failures": [{**one, "ago": None} for one in THREE]},
    {"failures": [{**one, "code": "NODE_TAKEN"} for one in THREE]},
    {"failures": [{**one, "ago": ago} for one, ago in zip(THREE, ("60h", "31h", "1m"), strict=True)]},
    {"nodes": ["a", "b", {"name": "c", "joined": "1m"}]},
    {"nodes": ["a", {"name": "b", "uncordoned": "1m"}]},
    {"successes": [{**THREE[0], "ago": "1m"}]},
    {"policy": {"cooldown": {"failures": 4}}},
    {"policy": {"cooldown": {"failures": 0}}},
], ids=["another spec", "two failures", "of another spec", "without a time", "found no place", "days apart", "new node",
        "uncordon", "a removed replica was ready", "policy", "off"])
def test_failures_that_are_not_in_a_row_do_not_cool_a_model(change: dict[str, Any]) -> None:
    assert outcome(planned(**change)) == (2, [])


def test_a_replica_without_a_place_is_not_listed_as_failed() -> None:
    codes = "ENGINE_EXITED", *sorted(NO_FAILURES)
    failures = [{**THREE[0], "code": code} for code in codes]
    found = failed_lately(short_inventory({"nodes": [{"name": "a"}, {"name": "b"}], "failures": failures}))
    assert [(one.model, one.count) for one in found] == [("m", 1)]


def test_failures_before_a_later_success_are_not_listed_even_if_that_replica_is_gone() -> None:
    for ago, count in (("5m", 3), ("1m", 0)):
        inventory = short_inventory({"failures": THREE, "successes": [{**THREE[0], "ago": ago}]})
        assert sum(one.count for one in failed_lately(inventory)) == count


def test_a_later_success_ends_a_cooldown_unless_that_replica_has_restarted() -> None:
    ready = {"model": "m", "id": 0, "node": "a", "hash": "h", "ready": "1m"}
    assert outcome(planned(replicas=[ready])) == (1, [])
    assert outcome(planned(replicas=[{**ready, "ready": "5m"}])) == (0, ["COOLING_DOWN"])
    assert outcome(planned(replicas=[{**ready, "restarts": 1}])) == (0, ["COOLING_DOWN"])
    assert outcome(planned(replicas=[{**ready, "hash": "k"}])) == (0, ["COOLING_DOWN"])


def test_a_new_node_that_the_model_may_not_use_allows_no_other_try() -> None:
    nodes = [{"name": "a", "labels": {"pool": "x"}}, {"name": "b", "labels": {"pool": "x"}}]
    new = {"name": "c", "joined": "1m"}
    assert outcome(planned(nodes=[*nodes, new], selector={"pool": "x"})) == (0, ["COOLING_DOWN"])
    relabelled = {**new, "labels": {"pool": "x"}}
    assert outcome(planned(nodes=[*nodes, relabelled], selector={"pool": "x"})) == (2, [])


@pytest.mark.parametrize("others", [[], [{"name": "head", "gpus": 0}]], ids=["alone", "beside a node without cards"])
def test_one_replica_is_tried_after_the_cooldown_if_no_other_node_has_the_cards(others: list[Any]) -> None:
    failed = [{"model": "m", "hash": "h", "node": "a", "ago": ago} for ago in ("40m", "35m", "30m")]
    assert outcome(planned(failures=failed, nodes=["a", *others])) == (1, ["COOLING_DOWN"])


OVER = [{"model": "m", "hash": "h", "node": "a", "ago": ago} for ago in ("40m", "35m", "30m")]
"""m failed on node a, and may be tried there again."""
BAD = [{"model": model, "hash": "h", "node": "a", "ago": "40m"} for model in ("x", "y", "z")]
"""Three specs failed on node a, which may be tried again."""


@pytest.mark.parametrize("failures", [OVER, BAD], ids=["one model on a node", "a node"])
@pytest.mark.parametrize("other", [
    {"name": "b", "gpus": 0}, {"name": "b", "cordon": {"reason": "disk"}}, {"name": "b", "used": {"GPU": 8}},
    {"name": "b", "slots": {"value": 1, "source": "test"}},
], ids=["no cards", "cordoned", "full", "one slot"])
def test_one_replica_is_tried_if_the_other_nodes_have_no_room(failures: Any, other: Any) -> None:
    plan = planned(failures=failures, nodes=["a", other], count=5)
    there = Counter(member.node for action in plan.actions for member in action.members)
    assert there["a"] == 1
    [blocked] = plan.blocked
    assert blocked.replicas == 5 - len(plan.actions)
    assert "one replica is tried first: cooled until" in blocked.message


def test_each_node_is_tried_separately_and_replicas_that_fit_elsewhere_go_there() -> None:
    failures = [*BAD, *({**one, "node": "b", "model": f"{one['model']}b"} for one in BAD)]
    plan = planned(failures=failures, nodes=["a", "b", {"name": "c", "gpus": 1}], count=9)
    assert Counter(member.node for action in plan.actions for member in action.members) == {"a": 1, "b": 1, "c": 1}
    assert outcome(planned(failures=failures, nodes=["a", "b", "c"])) == (2, [])


def test_a_node_on_which_a_try_is_starting_takes_no_other() -> None:
    starting = {"model": "n", "id": 0, "node": "a", "hash": "h", "state": "PENDING_CREATION"}
    nodes = ["a", {"name": "b", "gpus": 0}]
    assert outcome(planned(failures=BAD, nodes=nodes, replicas=[starting])) == (0, ["COOLING_DOWN"])
    assert outcome(planned(failures=OVER, nodes=nodes, replicas=[starting])) == (1, ["COOLING_DOWN"]), "n is tried"
    mine = {**starting, "model": "m"}
    assert outcome(planned(failures=OVER, nodes=nodes, replicas=[mine], count=3)) == (0, ["COOLING_DOWN"])


def test_a_node_without_room_is_not_reported_as_tried() -> None:
    plan = planned(failures=OVER, nodes=[{"name": "a", "used": {"GPU": 8}}])
    assert outcome(plan) == (0, ["INSUFFICIENT_GPU"])
    assert "cool" not in plan.blocked[0].message


def test_a_quota_also_limits_tried_replicas() -> None:
    plan = planned(failures=OVER, nodes=["a", {"name": "b", "gpus": 1}], count=4,
                   policy={"quotas": [{"selector": {}, "replicas": 1}]})
    assert [member.node for action in plan.actions for member in action.members] == ["b"]


def test_a_gang_is_tried_with_members_on_other_nodes() -> None:
    nodes = ["a", {"name": "b", "gpus": 8}, {"name": "c", "gpus": 0}]
    plan = planned(failures=BAD, nodes=nodes, gang={"gpus": 8, "workers": 1})
    assert outcome(plan) == (1, ["GANG_NEEDS_NODES"])
    assert plan.blocked[0].message.endswith("; one replica is tried first: cooled until 2025-12-31 23:25 UTC, 3 x "
                                            "ENGINE_EXITED: CUDA out of memory (a)")


@pytest.mark.parametrize("selector", [{"pool": "z"}, {"fleet.io/left-out": "yes"}])
def test_no_message_has_the_labels_that_keep_a_model_off_a_node(selector: dict[str, str]) -> None:
    nodes = [{"name": "a", "labels": {"pool": "x"}}, {"name": "b", "labels": {"pool": "y"}}]
    found = planned(failures=OVER, nodes=nodes, selector=selector).model_dump_json()
    assert "fleet.io/left-out-" not in found
    gang = planned(failures=OVER, nodes=nodes, gang={"gpus": 1, "workers": 1}, sameLabel="fleet.io/left-ou")
    assert "fleet.io/left-out-" not in gang.model_dump_json()


def test_a_clock_that_is_ahead_does_not_prolong_a_cooldown() -> None:
    ahead = [{**one, "ago": "0s"} for one in THREE]
    plan = planned(failures=ahead)
    inventory = short_inventory({"nodes": [{"name": "a"}, {"name": "b"}], "failures": ahead})
    skewed = inventory.model_copy(update={"failures": [
        one.model_copy(update={"at": "2026-01-01T06:00:00Z"}) for one in inventory.failures]})
    found = find_cooled(short_fleet({"models": [{"key": "m", "replicas": 1, "gpus": 1, "hash": "h"}]}), skewed)
    assert found.models["m"].until == 1_767_225_600 + 300
    assert "until 00:05 UTC" in plan.blocked[0].message


def test_nothing_cools_if_an_inventory_has_no_failures_or_predates_them() -> None:
    inventory = short_inventory({"nodes": [{"name": "a"}]})
    assert inventory.failures == []
    assert not find_cooled(FLEET, inventory)
    document = inventory.model_dump(by_alias=True)
    del document["failures"]
    assert not find_cooled(FLEET, Inventory.model_validate(document))
    assert Policy().cooldown.failures == 3
    assert before("1m") == "2025-12-31T23:59:00Z"


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
        found = cools(ago(*[f"{minute}m" for minute in range(count, 0, -1)])).left_out["m"]["a"]
        assert (found.until, found.over, len(found.failures)) == (NOW - 60 + seconds, False, count)
    many = cools(ago(*[f"{minute}m" for minute in range(1_200, 0, -1)]), policy={"cooldown": {"first": "1.5s"}})
    assert many.left_out["m"]["a"].until == NOW - 60 + 3600
    [ended] = cools(ago("7m", "6m", "5m")).left_out["m"].values()
    assert (ended.until, ended.over) == (NOW, True)


def test_failures_are_listed_from_oldest_to_newest_and_the_last_one_counts() -> None:
    found = cools([*ago("2m", model="x"), *ago("1m", "4m", model="y"), *ago("3m", model="z")]).nodes["a"]
    assert [one.model for one in found.failures] == ["y", "z", "x", "y"]
    assert found.until == NOW - 60 + 300
    assert [one.at for one in cools(ago("1m", "3m", "2m")).left_out["m"]["a"].failures] == [
        before("3m"), before("2m"), before("1m")]


@pytest.mark.parametrize(("times", "is_row"), [
    (("26h", "25h", "0s"), True), (("26h", "90001s", "0s"), False), (("25h", "25h", "25h"), True),
    (("90001s", "90001s", "90001s"), False),
], ids=["25 hours apart", "a second more", "25 hours ago", "a second longer ago"])
def test_failures_are_in_a_row_if_none_is_more_than_a_day_and_the_longest_cooldown_from_the_next(
    times: tuple[str, ...], is_row: bool
) -> None:
    assert ("a" in cools(ago(*times)).left_out.get("m", {})) == is_row


def test_failures_before_a_long_gap_no_longer_count() -> None:
    assert len(cools(ago("60h", "59h", "3m", "2m", "1m")).left_out["m"]["a"].failures) == 3


def test_failures_after_a_success_are_in_a_row_whatever_was_before_it() -> None:
    success = {"model": "m", "hash": "h", "node": "a", "ago": "9m"}
    found = cools(ago("30m", "20m", "4m", "3m", "2m"), successes=[success])
    assert len(found.left_out["m"]["a"].failures) == 3


def test_each_model_of_a_fleet_cools_for_its_own_failures() -> None:
    failures = [{**one, "model": model} for model, count in (("m", 1), ("n", 3), ("p", 3)) for one in THREE[:count]]
    inventory = short_inventory({"nodes": [{"name": "a", "gpus": 8}, {"name": "b", "gpus": 8}], "failures": failures})
    assert list(find_cooled(FLEET, inventory).models) == ["n", "p"]


def test_a_success_clears_its_spec_everywhere_for_the_model_and_only_its_own_node_for_the_pair() -> None:
    failures = [*ago("6m", "5m", "4m"), *ago("6m", "5m", "4m", node="b")]
    assert sorted(cools(failures).left_out["m"]) == ["a", "b"]
    for successes, models, left_out in (
            ([{"model": "m", "hash": "h", "node": "a", "ago": "1m"}], [], ["b"]),
            ([{"model": "m", "hash": "h", "node": "a", "ago": one} for one in ("1m", "9m")], [], ["b"]),
            ([{"model": "m", "hash": "h", "node": "a", "ago": "4m"}], [], ["b"]),
            ([{"model": "m", "hash": "h", "node": "c", "ago": "1m"}], [], ["a", "b"]),
            ([{"model": "m", "hash": "h", "node": "a", "ago": "7m"}], ["m"], ["a", "b"]),
            ([{"model": "m", "hash": "k", "node": "a", "ago": "1m"}], ["m"], ["a", "b"])):
        found = cools(failures, successes=successes)
        assert (list(found.models), sorted(found.left_out.get("m", {}))) == (models, left_out), successes


def test_successes_at_one_time_may_be_of_known_and_unknown_specs() -> None:
    found = cools(ago("6m", "5m", "4m"), successes=[
        {"model": "m", "hash": spec, "node": "b", "ago": "7m"} for spec in ("h", None)])
    assert list(found.left_out["m"]) == ["a"]


def test_a_running_replica_is_a_success_if_it_was_never_restarted() -> None:
    ready = {"model": "m", "id": 0, "node": "a", "hash": "h", "ready": "1m"}
    assert not cools(ago("6m", "5m", "4m"), replicas=[ready])
    for other in ({"restarts": 1}, {"ready": None}, {"state": "RESTARTING"}, {"hash": "k"}, {"model": "n"}):
        assert list(cools(ago("6m", "5m", "4m"), replicas=[{**ready, **other}]).left_out["m"]) == ["a"], other


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
    assert (list(found.nodes), found.models, found.left_out) == (["a"], {}, {})


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
        found = find_cooled(FLEET, inventory.model_copy(update={"failures": failures})).left_out["m"]["a"]
        assert [one.actor_id for one in found.failures] == [None, "a", "b", "z"]


def test_what_only_one_spec_did_says_nothing_about_a_node() -> None:
    found = cools(ago("4m", "3m", "2m"))
    assert (list(found.nodes), list(found.left_out), list(found.left_out["m"])) == ([], ["m"], ["a"])


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
    assert list(find_cooled(fleet, inventory).models) == ["m"]
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
        [found] = find_cooled(FLEET, three_each, reloads=which).left_out["m"].values()
        assert [one.reload for one in found.failures] == [which] * 3


def test_a_model_cools_for_failures_on_several_or_unknown_nodes_and_not_for_those_on_one() -> None:
    several = cools([*ago("4m", "3m"), *ago("2m", node="b")])
    assert (list(several.models), several.left_out) == (["m"], {})
    assert list(cools([{**one, "nodes": []} for one in ago("4m", "3m", "2m")]).models) == ["m"]
    assert list(cools(ago("4m", "3m", "2m")).models) == []
    assert list(cools([*ago("4m", "3m"), *ago("2m", nodes=["a", "b"])]).models) == ["m"]


def test_a_pair_of_a_model_and_a_node_needs_its_own_failures() -> None:
    gang = ago("4m", "3m", "2m", nodes=["b", "a"])
    assert list(cools(gang).left_out["m"]) == ["a", "b"]
    assert list(cools(gang, nodes=["a", {"name": "b", "joined": "1m"}]).left_out["m"]) == ["a"]
    assert list(cools(gang, nodes=["a", {"name": "b", "state": "DEAD"}]).left_out["m"]) == ["a"]
    assert cools(gang, nodes=["c"]).left_out == {}
    many = list("hgfedcba")
    assert list(cools(ago("4m", "3m", "2m", nodes=many), nodes=many).left_out["m"]) == many[::-1], "in a fixed order"


@pytest.mark.parametrize(("joined", "cooling"), [
    ("2m", False), ("1m", False), ("4m", False), ("5m", True), ("301m", True),
], ids=["with the last failure", "since", "with the first", "before", "long before"])
def test_a_usable_node_that_joined_since_gives_a_model_another_chance(joined: str, cooling: bool) -> None:
    failures = [*ago("4m", "3m"), *ago("2m", node="b")]
    assert ("m" in cools(failures, nodes=["a", "b", {"name": "c", "joined": joined}]).models) == cooling
    closed = {"name": "c", "joined": joined, "gpus": 0}
    assert "m" in cools(failures, nodes=["a", "b", closed]).models


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


def slots(limit: int) -> dict[str, Any]:
    return {"slots": {"value": limit, "source": "test"}}


def test_r2_a_full_slot_is_no_failure_and_five_failures_cool_into_the_future() -> None:
    full = {"nodes": [{"name": "a", **slots(1)}], "replicas": [{"model": "m", "id": 0, "node": "a", "hash": "h"}]}
    plans = [planned(failures=[], **full) for _ in range(5)]
    assert outcome(plans[0]) == (0, ["SLOTS_FULL"])
    assert plans == plans[:1] * 5
    five = planned(failures=[{**THREE[0], "ago": f"{minute}m"} for minute in range(5, 0, -1)], nodes=["a"])
    assert outcome(five) == (0, ["COOLING_DOWN"])
    assert "cooling until 00:19 UTC, 5 x ENGINE_EXITED" in five.blocked[0].message


def test_r3_after_the_cooldown_one_is_placed_and_its_success_clears_the_failures() -> None:
    past = [{**one, "ago": ago} for one, ago in zip(THREE, ("30m", "20m", "10m"), strict=True)]
    assert outcome(planned(failures=past, nodes=[{"name": "a", **slots(4)}], count=1)) == (1, [])
    ready = {"model": "m", "id": 0, "node": "a", "hash": "h", "ready": "1m"}
    assert outcome(planned(failures=past, nodes=[{"name": "a", **slots(4)}], replicas=[ready], count=4)) == (3, [])


def test_r4_a_new_node_ends_the_cooldown() -> None:
    assert outcome(planned(nodes=["a", "b", {"name": "c", "joined": "10s"}])) == (2, [])


def test_r5_a_new_label_of_a_node_ends_the_cooldown() -> None:  # Ray reads the labels of a node only when it joins
    nodes = ["a", {"name": "b", "labels": {"pool": "x"}, "joined": "10s"}]
    assert outcome(planned(nodes=nodes, selector={"pool": "x"})) == (2, [])


def test_p3_at_the_maximum_nothing_is_added() -> None:
    taken = [{"model": "m", "id": number, "node": "a", "hash": "h"} for number in range(3)]
    assert outcome(planned(failures=[], nodes=[{"name": "a", **slots(3)}], replicas=taken, count=3)) == (0, [])
