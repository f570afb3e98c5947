"""One apply on the client's side: the request to the agent, interrupts, and refusals before any action."""

from __future__ import annotations

import os
import signal

import pytest
from cluster_stand_in import ClusterStandIn, StoredJob, event, ready, summary
from small_plans import small_plan

from fleetctl.apply import jobs
from fleetctl.apply.prepare import ApplyOptions, ApplyTask, Starter, apply_request
from fleetctl.apply.run import Detached, Started, follow, running, start_apply
from fleetctl.documents.events import Event
from fleetctl.documents.plan import GitFacts
from fleetctl.errors import ApplyError, WaitTimeout
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.engine_log import log_name
from fleetctl.version import __version__

VERSION, CREATED = event(0, "version", "fleetctl agent"), event(1, "replicaCreated", "m/0: created")
STOPPED_SUMMARY = summary(2, {"model": "m", "replicaId": 0, "outcome": "starting", "nodes": [], "message": "goes on"},
                          code=3, interrupted=True)


class InterruptingUser:
    """A user who presses Ctrl-C at the first event, and receives the others."""

    def __init__(self) -> None:
        self.received: list[str] = []

    def __call__(self, event: Event) -> None:
        self.received.append(event.type)
        if len(self.received) == 1:
            raise KeyboardInterrupt


def nothing(_: Event) -> None:
    return


def test_the_agent_gets_exactly_the_plan(cluster: ClusterStandIn, client: DashboardClient) -> None:
    plan = small_plan("a", "b", namespace="ns", git=GitFacts(commit="c" * 40, branch="main", dirty=True))
    starter = Starter("ann@laptop", "https://ci.example.com/7")
    start_apply(ApplyTask(client, plan), "j", starter, ApplyOptions(4, 30.0, single_use=True))
    request = cluster.request_of("j")
    assert request["plan"] == plan.model_dump(mode="json", by_alias=True)
    assert {key: request[key] for key in ("namespace", "job", "parallelism", "lockTimeout", "singleUse")} == {
        "namespace": "ns", "job": "j", "parallelism": 4, "lockTimeout": 30.0, "singleUse": True}
    assert request["holder"] == {"job": "j", "who": "ann@laptop", "planId": plan.plan_id}
    assert cluster.jobs["j"].body["metadata"] == {
        "tool": "fleetctl", "verb": "apply", "fleet": "lab", "namespace": "ns", "planId": plan.plan_id,
        "create": "3", "who": "ann@laptop", "run": "https://ci.example.com/7", "toolVersion": __version__,
        "commit": "c" * 40, "branch": "main", "dirty": "true", "agent": jobs.agent_package().sha256}


def test_the_listed_metadata_contains_no_secret(cluster: ClusterStandIn, client: DashboardClient) -> None:
    start_apply(ApplyTask(client, small_plan("a")), "j", Starter("ann"), ApplyOptions())
    assert "hush-hush" not in str(cluster.jobs["j"].body)


def test_every_member_of_the_plan_has_its_own_log(client: DashboardClient) -> None:
    plan = small_plan("a", "b", namespace="ns")
    logs = apply_request(plan, "j", "ann", ApplyOptions(), may_replan=False)["logs"]
    members = [(action, member) for action in plan.actions for member in action.members]
    assert len(members) == 4
    assert logs == {
        f"{action.id}|{member.group}|{member.copy_index}|{member.rank}": log_name(
            "ns", action.model, action.replica_id, member.group, member.copy_index, member.rank)
        for action, member in members}
    assert len(set(logs.values())) == 4


def test_following_relays_every_event_and_returns_the_summary(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.add_job("j", ("SUCCEEDED", VERSION + CREATED + summary(2, ready("m", 0))))
    types: list[str] = []
    result = follow(Started(client, "j"), lambda one: types.append(one.type))
    assert types == ["version", "replicaCreated", "runSummary"]
    assert (result.exit_code, result.interrupted) == (0, False)


def test_the_first_interrupt_stops_the_job_and_waits_for_its_report(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    def report(job: StoredJob) -> None:
        job.steps = [("STOPPED", VERSION + CREATED + STOPPED_SUMMARY)]

    cluster.add_job("j", ("RUNNING", VERSION + CREATED))
    cluster.on_stop = report
    announced: list[str] = []
    user = InterruptingUser()
    result = follow(Started(client, "j"), user, announce=lambda: announced.append("stopping"))
    assert announced == ["stopping"]
    assert user.received == ["version", "replicaCreated", "runSummary"], "every event once, also those after Ctrl-C"
    assert cluster.writes() == [("POST", "/api/jobs/j/stop")]
    assert (result.interrupted, [row.outcome for row in result.outcomes]) == (True, ["starting"])


def test_an_immediate_second_interrupt_only_detaches(cluster: ClusterStandIn, client: DashboardClient) -> None:
    def second() -> None:
        raise KeyboardInterrupt

    cluster.add_job("j", ("RUNNING", VERSION))
    with pytest.raises(Detached) as caught:
        follow(Started(client, "j"), InterruptingUser(), pause=second)
    assert (caught.value.submission_id, caught.value.stopped) == ("j", False)
    assert cluster.writes() == []


def test_a_second_interrupt_after_the_stop_does_not_wait_for_the_report(
        cluster: ClusterStandIn, client: DashboardClient) -> None:
    """It arrives while the stand-in delays its response to the stop, so this process is certainly waiting."""
    cluster.add_job("j", ("RUNNING", VERSION))
    cluster.on_stop = lambda _: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(Detached) as caught:
        follow(Started(client, "j"), InterruptingUser())
    assert (caught.value.submission_id, caught.value.stopped) == ("j", True)


def test_a_job_that_does_not_stop_in_time_is_detached_from(
    cluster: ClusterStandIn, client: DashboardClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.apply.follow.STOP_PATIENCE_S", 0.0)
    cluster.add_job("j", ("RUNNING", VERSION))
    with pytest.raises(Detached):
        follow(Started(client, "j"), InterruptingUser())
    assert cluster.jobs["j"].stopped


def test_a_job_that_ends_without_a_report_is_an_interrupted_run_without_outcomes(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    """It may have been stopped before it began, or killed because it was too slow to report."""
    cluster.add_job("j", ("RUNNING", VERSION))
    cluster.on_stop = lambda job: setattr(job, "steps", [("STOPPED", VERSION)])
    result = follow(Started(client, "j"), InterruptingUser())
    assert (result.interrupted, result.outcomes) == (True, [])
    assert "fleetctl status" in result.message


@pytest.mark.parametrize("answer", [(0, ""), (500, "no agent"), (405, "Method Not Allowed"), (403, "")])
def test_a_stop_request_that_fails_is_reported(
    cluster: ClusterStandIn, client: DashboardClient, answer: tuple[int, str]
) -> None:
    cluster.add_job("j", ("RUNNING", VERSION))
    cluster.refusals["POST", "/api/jobs/j/stop"] = [answer]
    with pytest.raises(ApplyError, match="job j was not stopped and continues: ") as caught:
        follow(Started(client, "j"), InterruptingUser())
    assert "fleetctl stop j" in (caught.value.hint or "")


def test_the_clients_own_time_limit_does_not_stop_the_job(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("j", ("RUNNING", VERSION))
    with pytest.raises(WaitTimeout):
        follow(Started(client, "j"), nothing, wait_timeout_s=0)
    assert cluster.writes() == []


def test_running_applies_are_listed_by_fleet(cluster: ClusterStandIn, client: DashboardClient) -> None:
    for number, (status, verb, fleet) in enumerate([
        ("RUNNING", "apply", "lab"), ("PENDING", "apply", "other"), ("SUCCEEDED", "apply", "lab"),
        ("STOPPED", "apply", "lab"), ("RUNNING", "evict", "lab"),
    ]):
        cluster.add_job(f"j{number}", verb=verb, fleet=fleet).status = status
    assert [job.submission_id for job in running(client, None)] == ["j0", "j1"]
    assert [job.submission_id for job in running(client, "lab")] == ["j0"]
    assert running(client, "nobody") == []
