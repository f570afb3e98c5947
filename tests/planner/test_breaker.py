"""The breaker: random histories, what ends a cooldown, and LocalAI's acceptance cases for its own breaker."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from short_forms import before, plan_for, short_fleet, short_inventory

from fleetctl.documents.base import moment_at
from fleetctl.documents.fleet import Policy
from fleetctl.documents.inventory import Failure, Inventory, ReplicaMember
from fleetctl.documents.plan import Plan
from fleetctl.planner.breaker import NO_FAILURES, find_cooled
from fleetctl.planner.cooling import Limits, try_nodes
from fleetctl.planner.failures import failed_lately
from fleetctl.planner.live import sort_out
from fleetctl.planner.placement.claims import Avoided, replica_shape
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.ledger.ledger import open_ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.reasons.explain import explain

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
        found = find_cooled(fleet, now).models.get(("m", ""))
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
        for (key, _), found in cooled.models.items():
            mine = [one for one in real if (one.model, one.spec_hash) == (key, "h")]
            success = max((one.ready_at or "" for one in ready if (one.model, one.spec_hash) == (key, "h")), default="")
            assert len(later_than(mine, success)) >= 3
            assert set(map(id, found.failures)) <= set(map(id, mine))
            assert len(found.node_ids) != 1
        for (key, _), left_out in cooled.avoided.items():
            for node_id in left_out:
                assert sum(one.model == key and one.spec_hash == "h" and node_id in one.node_ids for one in real) >= 3
        for node_id, found in cooled.nodes.items():
            assert len({one.model for one in found.failures}) >= 3
            assert found.node_ids == {node_id}
        for uuid, found in cooled.cards.items():
            assert len({one.model for one in found.failures}) >= 3
            assert all(uuid in one.gpu_uuids for one in found.failures)
            used = [one.ready_at or "" for one in ready if uuid in one.members[0].gpu_uuids]
            assert min(one.at or "" for one in found.failures) > max(used, default="")
            assert found.node_ids == {"a"}
            assert "a" not in cooled.nodes or not uuid_in_all(uuid, cooled.nodes["a"].failures)
        every = [*cooled.models.values(), *cooled.nodes.values(), *cooled.cards.values(),
                 *(one for out in cooled.avoided.values() for one in out.values())]
        now = 1_767_225_600.0
        assert all(one.until <= now + 3600 and one.over == (one.until <= now) for one in every)
        occurred["model"] += bool(cooled.models)
        occurred["node"] += bool(cooled.nodes)
        occurred["card"] += bool(cooled.cards)
        occurred["left out"] += bool(cooled.avoided)
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
        of_model = Counter((action.model, member.node_id) for action in plan.actions for member in action.members)
        assert all(of_model[key, node_id] <= one.over for (key, _), own in cooled.avoided.items()
                   for node_id, one in own.items())


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


def test_each_of_many_nodes_is_tried_once() -> None:
    inventory = short_inventory({"nodes": [{"name": f"n{number:03}", "gpus": 8} for number in range(600)]})
    fleet = short_fleet({"models": [{"key": "m", "replicas": 700, "gpus": 1}]})
    ids = [node.id for node in inventory.nodes]
    limits, demand = Limits(avoided={(0, 0): dict.fromkeys(ids, "")}, tried={(0, 0): ids}), Demand(
        replica_shape(fleet.models[0]), 700, 0, 0, 0)
    placer = Placer(open_ledger(inventory, (), sort_out(inventory, "lab", ())))
    assert placer.place(limits.narrowed(demand).shape) is None
    tries = try_nodes(limits, [demand], [], placer, lambda _: True)
    assert [one.nodes for one in tries.placed] == [{number} for number in range(600)]


def test_a_node_that_is_both_avoided_and_cordoned_is_called_cordoned() -> None:
    recent = [{**one, "ago": ago} for one, ago in zip(OVER, ("6m", "5m", "4m"), strict=True)]
    plan = planned(failures=recent, nodes=[{"name": "a", "cordon": {"reason": "disk"}}, {"name": "b", "gpus": 0}])
    assert sorted(reason.code for reason in plan.blocked[0].reasons) == ["CORDONED", "INSUFFICIENT_GPU"]


def test_a_model_that_avoids_nodes_says_why_with_the_words_of_each_rule() -> None:
    inventory = short_inventory({"nodes": [{"name": "a", "gpus": 8}, {"name": "b", "gpus": 8}]})
    shape = replica_shape(short_fleet({"models": [{"key": "m", "replicas": 1, "gpus": 1}]}).models[0])
    avoiding = shape.avoiding([Avoided(inventory.nodes[0].id, "NODE_COOLING", "a rule for a")])
    placer = Placer(open_ledger(inventory, (), sort_out(inventory, "lab", ())))
    assert [one.node for one in placer.place(avoiding) or ()] == [1]
    neither = avoiding.avoiding([Avoided(inventory.nodes[1].id, "NODE_COOLING", "another rule")])
    assert placer.place(neither) is None
    [reason] = explain(neither, placer).reasons
    assert (reason.need, reason.node_count) == ("a rule for a", 2)


def test_a_clock_that_is_ahead_does_not_prolong_a_cooldown() -> None:
    ahead = [{**one, "ago": "0s"} for one in THREE]
    plan = planned(failures=ahead)
    inventory = short_inventory({"nodes": [{"name": "a"}, {"name": "b"}], "failures": ahead})
    skewed = inventory.model_copy(update={"failures": [
        one.model_copy(update={"at": "2026-01-01T06:00:00Z"}) for one in inventory.failures]})
    found = find_cooled(short_fleet({"models": [{"key": "m", "replicas": 1, "gpus": 1, "hash": "h"}]}), skewed)
    assert found.models["m", ""].until == 1_767_225_600 + 300
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
