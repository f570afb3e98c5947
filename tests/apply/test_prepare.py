"""The checks before a plan is applied, and whether there is work to do."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, event
from small_plans import small_plan

from fleetctl.apply.prepare import ApplyOptions, ApplyTask, apply_request, awaited, refuse_used
from fleetctl.errors import PlanUsed
from fleetctl.inventory.client import DashboardClient
from fleetctl.planner.options import PlanOptions, has_expired


def starting_replica(state: str = "PENDING_CREATION", replica_id: int = 0) -> dict[str, Any]:
    return {"model": "org/one:1", "replicaId": replica_id, "state": state, "fleet": "lab",
            "members": [{"nodeId": "id-a", "gpus": 80_000}]}


def test_starting_replicas_are_awaited_for_their_startup_timeout(client: DashboardClient) -> None:
    plan = small_plan("a", "b", replicas=[starting_replica()])
    request = apply_request(plan, "j", "ann", ApplyOptions(), may_replan=False)
    assert request["await"] == [{"key": "org/one:1", "lifecycle": {"startupTimeout": 90.0}}]
    ready_one = small_plan("a", "b", replicas=[starting_replica("ALIVE")])
    assert apply_request(ready_one, "j", "ann", ApplyOptions(), may_replan=False)["await"] == []


def test_there_is_work_if_a_replica_must_be_created_or_awaited(client: DashboardClient) -> None:
    gang = {"model": "org/gang", "replicaId": 0, "fleet": "lab", "members": [{"nodeId": "id-a"}]}
    running = [starting_replica("ALIVE", 0), starting_replica("ALIVE", 1)]
    running[1]["members"] = [{"nodeId": "id-b", "gpus": 80_000}]
    assert ApplyTask(client, small_plan("a")).has_work
    assert not ApplyTask(client, small_plan("a", "b", replicas=[gang, *running])).has_work, "the third one is blocked"
    running[1]["state"] = "RESTARTING"
    assert ApplyTask(client, small_plan("a", "b", replicas=[gang, *running])).has_work


EVERYTHING = [
    {"model": "org/gang", "replicaId": 0, "fleet": "lab", "members": [{"nodeId": "id-a"}]},
    starting_replica("PENDING_CREATION", 0), starting_replica("ALIVE", 1), starting_replica("ALIVE", 2),
]


@pytest.mark.parametrize("options", [PlanOptions(targets=("org/gang",)), PlanOptions(excludes=("org/one:1",))])
def test_a_model_excluded_by_flags_is_not_awaited(client: DashboardClient, options: PlanOptions) -> None:
    plan = small_plan("a", replicas=EVERYTHING, options=options)
    assert [row.starting for row in plan.models if row.key == "org/one:1"] == [1]
    assert awaited(plan) == []
    assert not ApplyTask(client, plan).has_work
    assert apply_request(plan, "j", "ann", ApplyOptions(), may_replan=False)["await"] == []


def test_a_targeted_model_is_awaited(client: DashboardClient) -> None:
    plan = small_plan("a", replicas=EVERYTHING, options=PlanOptions(targets=("org/one:1",)))
    assert ApplyTask(client, plan).has_work
    assert [row.key for row in awaited(plan)] == ["org/one:1"]


@pytest.mark.parametrize(("expires", "over"), [
    (None, False), ("2026-03-04T12:00:00Z", False), ("2026-03-04T11:59:59Z", True),
    ("2026-03-04T13:30:00+02:00", True), ("2026-03-04T11:30:00-02:00", False), ("2026-03-04T11:59:58.5Z", True),
])
def test_a_plan_expires_at_its_time_in_any_time_zone(expires: str | None, over: bool) -> None:
    assert has_expired(small_plan("a", expires_at=expires), "2026-03-04T12:00:00Z") is over


def test_a_plan_counts_as_used_once_a_job_with_its_id_took_the_lock(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    plan = small_plan("a")
    cluster.add_job("another", planId="f" * 64).log = event(1, "lockAcquired")
    cluster.add_job("refused", planId=plan.plan_id).log = event(1, "lockHeld")
    cluster.add_job("log-is-gone", planId=plan.plan_id)
    cluster.refusals["GET", "/api/jobs/log-is-gone/logs"] = [(500, "its node is dead")]
    refuse_used(client, plan, "p.fleetplan")
    cluster.add_job("user", planId=plan.plan_id).log = event(0, "version") + event(1, "lockAcquired")
    with pytest.raises(PlanUsed, match="by job user"):
        refuse_used(client, plan, "p.fleetplan")
