"""Planning again during an apply: only for the refused replicas, and from the agent's view of the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, event, ready, summary
from small_plans import small_plan

from fleetctl.apply.run import ReplanWanted, Started, answer_agent, follow, limited_to_refused
from fleetctl.documents.events import Event
from fleetctl.documents.plan import Plan
from fleetctl.errors import InventoryError
from fleetctl.inventory.claims import Claim
from fleetctl.inventory.client import DashboardClient

WANTED = {
    "answer": "j-replan-0", "refused": [{"model": "org/one:1", "replicaId": 2, "outcome": "blocked"}],
    "nodes": [{"nodeId": "a1", "state": "ALIVE", "free": {"GPU": 7.5, "CPU": 2.0, "memory": 1024.0}},
              {"nodeId": "b2", "state": "DRAINING", "free": {"GPU": 8.0}},
              {"nodeId": "c3", "state": "DEAD", "free": {}}]}


def replan_event(**changes: Any) -> Event:
    return Event.model_validate({"seq": 3, "time": "2026-03-04T12:00:00Z", "type": "replanWanted", "message": "x",
                                 **WANTED, **changes})


def blocked(plan: Plan) -> dict[str, int]:
    return {row.model: row.replicas for row in plan.blocked}


def test_the_agents_view_is_read() -> None:
    view = ReplanWanted.model_validate(WANTED).view()
    assert view.free == {"a1": Claim(75_000, 20_000, 1024), "b2": Claim(80_000)}
    assert view.draining == {"b2"}


def test_the_answer_is_a_request_with_the_new_plan(cluster: ClusterStandIn, client: DashboardClient) -> None:
    plan = small_plan("a", "b")
    wanted: list[ReplanWanted] = []

    def replanner(one: ReplanWanted) -> Plan:
        wanted.append(one)
        return plan

    answer_agent(client, replan_event(), replanner)
    request = cluster.document("j-replan-0")["request"]
    assert request["plan"] == plan.model_dump(mode="json", by_alias=True)
    assert set(request) == {"plan", "record", "logs"}
    assert wanted[0].refused_by_model() == {"org/one:1": 1}


def test_without_a_plan_the_agent_gets_the_reason(cluster: ClusterStandIn, client: DashboardClient) -> None:
    def replanner(_: ReplanWanted) -> Plan:
        raise InventoryError("the inventory is not complete")

    answer_agent(client, replan_event(), replanner)
    assert cluster.document("j-replan-0") == {"why": "the inventory is not complete"}


def test_an_agent_may_take_the_answer_before_the_check(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.refusals["GET", "/api/packages"] = [(404, "no such package")]
    answer_agent(client, replan_event(), lambda _: small_plan("a"))
    assert "request" in cluster.document("j-replan-0")


def test_an_answer_that_does_not_arrive_does_not_end_the_client(cluster: ClusterStandIn, client: DashboardClient
                                                                ) -> None:
    log = event(0, "version") + event(1, "replanWanted", "draining", **WANTED) + summary(2, ready("m", 0))
    cluster.add_job("j", ("SUCCEEDED", log))
    cluster.refusals["PUT", "/api/packages"] = [(500, "out of memory")]
    assert follow(Started(client, "j", lambda _: small_plan("a")), lambda _: None).exit_code == 0


def test_a_request_of_another_release_is_not_answered(cluster: ClusterStandIn, client: DashboardClient) -> None:
    answer_agent(client, replan_event(answer=None), lambda _: small_plan("a"))
    assert cluster.writes() == []


@pytest.mark.parametrize("can_plan", [True, False])
def test_only_a_client_that_can_plan_answers(cluster: ClusterStandIn, client: DashboardClient, can_plan: bool) -> None:
    """A client that only attached leaves the answer to the client that started the apply."""
    log = event(0, "version") + event(1, "replanWanted", "draining", **WANTED) + summary(2, ready("m", 0))
    cluster.add_job("j", ("SUCCEEDED", log))
    replanner = (lambda _: small_plan("a")) if can_plan else None
    follow(Started(client, "j", replanner), lambda _: None)
    assert [method for method, _ in cluster.writes()] == (["PUT"] if can_plan else [])


def test_only_as_many_replicas_as_were_refused_are_created() -> None:
    fresh = small_plan("a", "b")
    assert [action.id for action in fresh.actions] == ["org/gang/0", "org/one:1/0", "org/one:1/1"]
    limited = limited_to_refused(fresh, fresh, {"org/one:1": 1})
    assert [action.id for action in limited.actions] == ["org/one:1/0"]


def test_unplaced_replicas_are_blocked_with_the_new_reason_in_addition_to_replicas_blocked_before() -> None:
    former = small_plan("a", "b")
    assert blocked(former) == {"org/one:1": 1}
    fresh = small_plan("a")
    limited = limited_to_refused(fresh, former, {"org/one:1": 2})
    placed = sum(action.model == "org/one:1" for action in limited.actions)
    assert blocked(limited) == {"org/one:1": 1 + 2 - placed}
    assert {row.model: row.message for row in limited.blocked}["org/one:1"] == {
        row.model: row.message for row in fresh.blocked}["org/one:1"]


def test_failed_replicas_without_another_variant_are_not_blocked_as_well() -> None:
    former = small_plan("a", "b")
    fresh = small_plan("a", "b").model_copy(update={"actions": []})
    assert blocked(limited_to_refused(fresh, former, {"org/one:1": 3}, {"org/one:1": 2})) == {"org/one:1": 1 + 1}
    assert blocked(limited_to_refused(fresh, former, {"org/one:1": 2}, {"org/one:1": 2})) == {"org/one:1": 1}


def test_a_model_without_refused_replicas_is_left_out() -> None:
    plan = small_plan("a", "b")
    limited = limited_to_refused(plan, plan, {"org/gang": 1})
    assert [action.model for action in limited.actions] == ["org/gang"]
    assert blocked(limited) == {}


def waiting(plan: Plan, count: int) -> Plan:
    """The plan with its last `count` actions waiting for a pilot."""
    return plan.model_copy(update={"actions": plan.actions[:-count], "after_pilot": plan.actions[-count:]})


def test_a_ready_pilot_asks_for_all_that_waits_for_it() -> None:
    pilot = {"model": "org/one:1", "replicaId": 0, "outcome": "ready"}
    wanted = ReplanWanted.model_validate({"answer": "x", "pilots": [pilot]})
    assert wanted.wanted_by_model({"org/one:1": 39, "other": 5}) == {"org/one:1": 39}
    refused = ReplanWanted.model_validate({**WANTED, "pilots": [pilot]})
    assert refused.wanted_by_model({"org/one:1": 39}) == {"org/one:1": 40}


def test_what_still_waits_in_the_new_plan_is_not_blocked_and_counts_within_the_limit() -> None:
    fresh = small_plan("a", "b")
    assert [action.id for action in fresh.actions] == ["org/gang/0", "org/one:1/0", "org/one:1/1"]
    limited = limited_to_refused(waiting(fresh, 1), fresh, {"org/one:1": 2})
    assert [[one.id for one in limited.actions], [one.id for one in limited.after_pilot]] == [
        ["org/one:1/0"], ["org/one:1/1"]]
    assert blocked(limited) == {"org/one:1": 1}, "as before"
    fewer = limited_to_refused(waiting(fresh, 1), fresh, {"org/one:1": 1})
    assert [[one.id for one in fewer.actions], fewer.after_pilot] == [["org/one:1/0"], []]
