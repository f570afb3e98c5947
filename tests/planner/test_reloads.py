"""In-place updates: which replicas reload, which do not and why; the rest of the plan is unaffected."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_schemas import validator
from random_cases import cases
from short_forms import before, plan_for
from test_weight_sources import NAMES, ONE, OTHER, cluster_of, model

from fleetctl.agent.run_messages import ApplyRequest
from fleetctl.agent.wire import parse
from fleetctl.apply.prepare import ApplyOptions, apply_record, apply_request
from fleetctl.documents.fleet import HttpReload
from fleetctl.documents.inventory import UNKNOWN_SPEC, Failure, Inventory, Pause
from fleetctl.documents.loading import load_plan
from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.resolved import ResolvedFleet, engine_hash, hash_of_shape, shape_as_set
from fleetctl.planner.stale import moved_since
from fleetctl.render.plan_json import render_plan_json, saved_plan_json
from fleetctl.render.report.markdown import render_markdown
from fleetctl.render.report.of_plan import plan_report

RELOAD = HttpReload(path="/reload", body={"dir": "$(FLEETCTL_NEW_MODEL_DIR)"})
OLD = {"artifact": OTHER}


def in_place(fleet: ResolvedFleet, reload: tuple[HttpReload, ...] = (RELOAD,)) -> ResolvedFleet:
    """The fleet with in-place updates and the spec hashes of its file."""
    return replace(fleet, models=tuple(
        replace(one, reload=reload, engine_hash=engine_hash(one.workers, one.placement),
                spec_hash=hash_of_shape(shape_as_set(one.workers, one.placement))) for one in fleet.models))


def outdated(count: int, wanted: int | None = None, **more: Any) -> tuple[ResolvedFleet, Inventory]:
    """A model with `count` replicas that run other weights; `more` adds fields to each."""
    replicas = [{"model": "m", "id": number, "node": NAMES[number], "serves": OLD, "hash": "old"}
                for number in range(count)]
    target = count if wanted is None else wanted
    fleet, inventory = cluster_of([model("m") | {"replicas": target, "priority": 7}], replicas)
    fleet = in_place(fleet)
    return fleet, with_each(inventory, engine_hash=fleet.models[0].engine_hash, **more)


def with_each(inventory: Inventory, **more: Any) -> Inventory:
    return inventory.model_copy(update={"replicas": [
        one.model_copy(update={"actor_id": f"actor{one.replica_id}", **more}) for one in inventory.replicas]})


def reason(plan: Plan) -> str:
    return plan.models[0].reason


def test_replicas_with_only_other_weights_reload_and_the_plan_can_be_saved_and_sent() -> None:
    fleet, inventory = outdated(2)
    plan = plan_for(fleet, inventory)
    assert ([one.id for one in plan.reloads], plan.exit_code, plan.format_version) == (["m/0", "m/1"], 2, "2.0")
    assert (plan.starts, plan.drift, plan.summary.reload, plan.summary.outdated) == ([], [], 2, 2)
    saved = saved_plan_json(plan)
    assert load_plan(saved, "saved") == plan
    validator("plan").validate(json.loads(saved))
    request = parse(ApplyRequest, apply_request(plan, "job", "ana", ApplyOptions(), may_replan=False))
    [first, _] = request.plan.actions
    assert (first.reload.actor_id, first.reload.runs, first.spec_hash) == ("actor0", "old", fleet.models[0].spec_hash)
    assert (first.reload.requests[0].path, first.members[0].weights.artifact) == ("/reload", ONE)
    assert set(apply_record(plan)["shapes"]) == {fleet.models[0].spec_hash}
    [recorded] = apply_record(plan)["models"]  # lets later plans name the running spec
    assert (recorded["key"], recorded["specHash"], recorded["priority"]) == ("m", fleet.models[0].spec_hash, 7)
    assert '"dir": "$(FLEET' in saved
    assert '"dir": "***"' in render_plan_json(plan)
    shown = render_markdown(plan_report(plan))
    assert reason(plan).startswith("reload m/0, m/1 in place, one at a time; ")
    assert "Would reload in place" in shown
    assert "2 to reload" in shown


def test_several_requests_are_in_the_plan_in_their_order_and_it_can_be_saved_whatever_their_bodies_hold() -> None:
    fleet, inventory = outdated(1)
    pause = HttpReload(path="/pause", body={"seconds": [1e-6, 0.00001, {"x": 1e-7}]})
    plan = plan_for(in_place(fleet, (pause, RELOAD, HttpReload(path="/resume"))), inventory)
    saved = saved_plan_json(plan)
    validator("plan").validate(json.loads(saved))
    assert load_plan(saved, "saved") == plan
    [sent] = apply_request(plan, "job", "ana", ApplyOptions(), may_replan=False)["plan"]["actions"]
    assert [one["path"] for one in sent["reload"]["requests"]] == ["/pause", "/reload", "/resume"]
    assert '"dir": "$(FLEET' in saved
    assert '"dir": "***"' in render_plan_json(plan)


def test_a_plan_without_reloads_has_no_trace_of_them() -> None:
    fleet, inventory = outdated(1)
    for without in (replace(fleet, models=tuple(replace(one, reload=()) for one in fleet.models)),
                    in_place(cluster_of([{"key": "m", "replicas": 0, "gpus": 1}], [])[0])):
        text = saved_plan_json(plan_for(without, inventory))
        assert '"reload' not in text


def test_beside_a_model_that_is_updated_in_place_another_outdated_one_has_no_trace_of_it() -> None:
    replicas = [{"model": key, "id": 0, "node": node, "serves": OLD, "hash": "old"}
                for key, node in zip("mn", NAMES, strict=False)]
    fleet, inventory = cluster_of([model(key) | {"replicas": 1} for key in "mn"], replicas)
    first, second = in_place(fleet).models
    inventory = with_each(inventory, engine_hash=first.engine_hash)
    plan = plan_for(replace(fleet, models=(first, replace(second, reload=()))), inventory)
    assert [one.id for one in plan.reloads] == ["m/0"]
    assert ["in place" in one.reason for one in plan.models] == [True, False]


@pytest.mark.parametrize(("more", "policy", "expected"), [
    ({"engine_hash": "another"}, {}, "not in place: more than index or view of its weights has changed"),
    ({"engine_hash": None}, {}, "not in place: more than index or view of its weights has changed"),
    ({"state": "RESTARTING"}, {}, "not in place: not ready"),
    ({"restarts": 3, "restart_max": 3}, {}, "not in place: no restart is left"),
    ({"actor_id": None}, {}, "not in place: not ready"),
    ({"members": []}, {}, "not in place: more than index or view of its weights has changed"),
    ({"draining": True}, {}, "not in place: not ready"),
    ({}, {"protected_models": ["m"]}, "not in place: the model is protected"),
])
def test_replicas_that_do_not_reload_are_kept_and_the_plan_has_the_reason(
    more: dict[str, Any], policy: dict[str, Any], expected: str
) -> None:
    fleet, inventory = outdated(1)
    fleet = replace(fleet, policy=fleet.policy.model_copy(update=policy))
    plan = plan_for(fleet, with_each(inventory, **{"engine_hash": fleet.models[0].engine_hash, **more}))
    assert plan.actions == []
    assert expected in reason(plan)


def test_a_paused_model_does_not_reload_and_says_since_when_and_by_whom() -> None:
    fleet, inventory = outdated(1)
    pause = Pause(fleet=fleet.name, model="m", since=inventory.observed_at, by="ana")
    plan = plan_for(fleet, inventory.model_copy(update={"pauses": [pause]}))
    assert plan.reloads == []
    assert "m/0 not in place: paused since 00:00 UTC by ana" in reason(plan)


@pytest.mark.parametrize("more", [
    {"restarts": 2, "restart_max": 3}, {"restarts": 2}, {"restart_max": 1}, {"restart_max": 0},
    {"restarts": 9, "restarts_used": 0, "restart_max": 3}])
def test_a_replica_that_has_not_used_up_its_restarts_reloads(more: dict[str, Any]) -> None:
    assert [one.id for one in plan_for(*outdated(1, **more)).reloads] == ["m/0"]


def test_a_gang_reloads_with_all_its_ranks_and_only_those_of_the_spec() -> None:
    fleet, inventory = cluster_of([model("m", gang=3)], [{"model": "m", "id": 0, "nodes": ["n0", "n1", "gone"],
                                                          "serves": OLD, "hash": "old"}])
    fleet = in_place(fleet, (HttpReload(path="/reload"),))
    inventory = with_each(inventory, engine_hash=fleet.models[0].engine_hash)
    [reload] = plan_for(fleet, inventory).reloads
    assert [(one.node, one.node_id, one.rank) for one in reload.members] == [
        ("n0", "n0", 0), ("n1", "n1", 1), ("", "gone", 2)]
    assert reload.reload
    assert reload.reload.requests == [{"method": "POST", "path": "/reload"}]
    smaller = with_each(inventory, members=inventory.replicas[0].members[:2])
    assert plan_for(fleet, smaller).reloads == []


def test_without_a_known_engine_nothing_reloads() -> None:
    fleet, inventory = outdated(1)
    fleet = replace(fleet, models=tuple(replace(one, engine_hash=None) for one in fleet.models))
    assert plan_for(fleet, with_each(inventory, engine_hash=None)).reloads == []


def test_a_model_says_first_what_reloads_and_then_why_the_rest_does_not() -> None:
    fleet, inventory = outdated(3)
    [first, second, third] = inventory.replicas
    inventory = inventory.model_copy(update={"replicas": [
        first.model_copy(update={"state": "RESTARTING"}), second.model_copy(update={"engine_hash": "another"}), third]})
    assert reason(plan_for(fleet, inventory)).startswith(
        "reload m/2 in place, one at a time; m/1 not in place: more than index or view of its weights has changed "
        "(fleetctl replace); m/0 not in place: not ready")


def test_after_three_failed_reloads_a_model_cools_and_is_then_tried_with_one_replica() -> None:
    fleet, inventory = outdated(2)
    spec = fleet.models[0].spec_hash

    def failed(*ago: str) -> Inventory:
        return inventory.model_copy(update={"failures": [
            Failure(model="m", replica_id=0, actor_id="actor0", spec_hash=spec, node_ids=[NAMES[number % 2]],
                    reload=True, code="RELOAD_FAILED", message="HTTP 500", at=before(one))
            for number, one in enumerate(ago)]})

    assert len(plan_for(fleet, failed("3m", "2m")).reloads) == 2
    cooling = plan_for(fleet, failed("3m", "2m", "1m"))
    assert (cooling.reloads, cooling.exit_code) == ([], 0)
    assert "m/0, m/1 not in place: cooling until" in reason(cooling)
    assert "3 x RELOAD_FAILED: HTTP 500" in reason(cooling)
    assert len(plan_for(fleet, failed("3m", "2m", "1m"), ignore_cooldown=True).reloads) == 2
    assert [one.id for one in plan_for(fleet, failed("9m", "8m", "7m")).reloads] == ["m/0"]  # its cooldown is over
    one_node = [one.model_copy(update={"node_ids": [NAMES[0]]}) for one in failed("3m", "2m", "1m").failures]
    pair = plan_for(fleet, inventory.model_copy(update={"failures": one_node}))
    assert [one.id for one in pair.reloads] == ["m/1"]
    assert "m/0 not in place: cooling until" in reason(pair)
    over = [one.model_copy(update={"node_ids": [NAMES[0]]}) for one in failed("9m", "8m", "7m").failures]
    tried = plan_for(fleet, inventory.model_copy(update={"failures": over}))
    assert [one.id for one in tried.reloads] == ["m/0", "m/1"]


def test_failed_reloads_do_not_stop_starts_and_failed_starts_do_not_stop_reloads() -> None:
    fleet, inventory = outdated(1, wanted=2)
    plans = [plan_for(fleet, inventory.model_copy(update={"failures": [
        Failure(model=model, replica_id=9, actor_id=f"x{ago}", spec_hash=fleet.models[0].spec_hash, at=before(ago),
                node_ids=[NAMES[number % 2]], code="RELOAD_FAILED", reload=reload)
        for number, ago in enumerate(("3m", "2m", "1m")) for model in ("m", "a", "b", "c")]}))
        for reload in (True, False)]
    assert [(len(plan.reloads), len(plan.starts)) for plan in plans] == [(0, 1), (1, 0)]


def test_a_spec_that_ended_an_engine_is_not_reloaded_automatically_again() -> None:
    fleet, inventory = outdated(2)
    failure = Failure(model="m", replica_id=0, actor_id="actor0", spec_hash=fleet.models[0].spec_hash, reload=True,
                      node_ids=[NAMES[0]], code="RELOAD_ENDED", at=before("20h"))
    ended = inventory.model_copy(update={"failures": [failure]})
    plan = plan_for(fleet, ended)
    assert (plan.reloads, plan.exit_code) == ([], 0)
    assert "m/0, m/1 not in place: the engine of m/0 ended when it was asked to reload this" in reason(plan)
    assert len(plan_for(fleet, ended, ignore_cooldown=True).reloads) == 2
    for other in ({"spec_hash": "another"}, {"model": "another"}):
        elsewhere = inventory.model_copy(update={"failures": [failure.model_copy(update=other)]})
        assert len(plan_for(fleet, elsewhere).reloads) == 2


def test_a_replica_with_an_unknown_spec_always_reloads_first() -> None:
    fleet, inventory = outdated(2)
    replicas = [inventory.replicas[0], inventory.replicas[1].model_copy(update={"spec_hash": UNKNOWN_SPEC})]
    plan = plan_for(fleet, inventory.model_copy(update={"replicas": replicas}))
    assert [(one.id, one.reload.runs) for one in plan.reloads if one.reload] == [("m/1", UNKNOWN_SPEC), ("m/0", "old")]


def test_a_saved_plan_is_stale_once_its_replica_runs_another_spec_or_is_gone_or_lost() -> None:
    fleet, inventory = outdated(1)
    plan = plan_for(fleet, inventory)
    assert moved_since(plan, inventory) == []
    assert moved_since(plan, with_each(inventory, spec_hash="other")) == [
        "m/0: ran spec old when planned, runs spec other now"]
    assert moved_since(plan, inventory.model_copy(update={"replicas": []})) == [
        "m/0: ran spec old when planned, is gone now"]
    dead = [node.model_copy(update={"state": "DEAD"}) for node in inventory.nodes]
    assert moved_since(plan, inventory.model_copy(update={"nodes": dead})) == [
        "m/0: ran spec old when planned, is gone now"]


HASHES = st.sampled_from(["current", "old", "older", None])


@settings(max_examples=cases(60), deadline=None, derandomize=True)
@given(st.integers(0, 6), st.lists(st.tuples(HASHES, st.booleans(), st.sampled_from(["ALIVE", "PENDING_CREATION"])),
                                   max_size=6))
def test_reloads_change_nothing_else_and_their_success_leaves_nothing_to_do(
    wanted: int, drawn: list[tuple[str | None, bool, str]]
) -> None:
    """Actions, ids and blocked replicas are those of mode keep; reloaded replicas are current and not planned again."""
    fleet, inventory = outdated(len(drawn), wanted)
    [one] = fleet.models
    replicas = [replica.model_copy(update={
        "spec_hash": one.spec_hash if spec == "current" else spec, "state": state,
        "engine_hash": one.engine_hash if alike else "another"})
        for replica, (spec, alike, state) in zip(inventory.replicas, drawn, strict=True)]
    inventory = inventory.model_copy(update={"replicas": replicas})
    plan, kept = plan_for(fleet, inventory), plan_for(in_place(fleet, reload=()), inventory)
    assert (plan.starts, plan.blocked, plan.holds) == (kept.actions, kept.blocked, kept.holds)
    assert {reload.replica_id for reload in plan.reloads} == {
        number for number, (spec, alike, state) in enumerate(drawn)
        if spec in ("old", "older") and alike and state == "ALIVE"}
    done = {one.reload.actor_id for one in plan.actions if one.reload}
    after = inventory.model_copy(update={"replicas": [
        replica.model_copy(update={"spec_hash": one.spec_hash}) if replica.actor_id in done else replica
        for replica in replicas]})
    assert plan_for(fleet, after).reloads == []
