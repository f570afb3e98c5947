"""One apply from the client's side: what is asked of the agent, interruptions, and refusals before any action."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, StoredJob, event, ready, summary
from small_plans import small_plan

from fleetctl.apply import run as run_module
from fleetctl.apply.log_name import log_name
from fleetctl.apply.request import DEFAULT_STARTUP_S, ApplyOptions, apply_request
from fleetctl.apply.run import Detached, Started, follow, raise_if_refused, running, start_apply
from fleetctl.apply.session import ApplyTask
from fleetctl.apply.used import refuse_used
from fleetctl.documents.events import Event, RunSummary
from fleetctl.documents.plan import GitFacts
from fleetctl.errors import ApplyError, ClusterUnreachable, InventoryError, LockHeld, PlanUsed, WaitTimeout
from fleetctl.inventory.client import DashboardClient

VERSION, CREATED = event(0, "version", "fleetctl agent"), event(1, "replicaCreated", "m/0: created")
STOPPED_SUMMARY = summary(2, {"model": "m", "replicaId": 0, "outcome": "starting", "nodes": [], "message": "goes on"},
                          code=3, interrupted=True)


def interrupt(_: Event) -> None:
    raise KeyboardInterrupt


def nothing(_: Event) -> None:
    return


def test_the_agent_is_asked_to_carry_out_exactly_the_plan(cluster: ClusterStandIn, client: DashboardClient) -> None:
    plan = small_plan("a", "b", namespace="ns", git=GitFacts(commit="c" * 40))
    start_apply(client, plan, "j", "ann@laptop", ApplyOptions(4, 30.0, single_use=True), {"org/one:1": 90.0})
    asked = cluster.request_of("j")
    assert asked["plan"] == plan.model_dump(mode="json", by_alias=True)
    assert {key: asked[key] for key in ("namespace", "job", "parallelism", "lockTimeout", "singleUse")} == {
        "namespace": "ns", "job": "j", "parallelism": 4, "lockTimeout": 30.0, "singleUse": True}
    assert asked["holder"] == {"job": "j", "who": "ann@laptop", "planId": plan.plan_id}
    assert cluster.jobs["j"].body["metadata"] == {
        "tool": "fleetctl", "verb": "apply", "fleet": "lab", "planId": plan.plan_id, "who": "ann@laptop",
        "commit": "c" * 40}


def test_nothing_secret_stands_in_what_everybody_can_list(cluster: ClusterStandIn, client: DashboardClient) -> None:
    start_apply(client, small_plan("a"), "j", "ann", ApplyOptions(), {})
    assert "hush-hush" not in str(cluster.jobs["j"].body)


def test_every_member_of_the_plan_has_its_own_log(client: DashboardClient) -> None:
    plan = small_plan("a", "b", namespace="ns")
    logs = apply_request(plan, "j", "ann", ApplyOptions(), {})["logs"]
    members = [(action, member) for action in plan.actions for member in action.members]
    assert len(members) == 4
    assert logs == {
        f"{action.id}|{member.group}|{member.copy_index}|{member.rank}": log_name(
            "ns", action.model, action.replica_id, member.group, member.copy_index, member.rank)
        for action, member in members}
    assert len(set(logs.values())) == 4


def starting_replica(state: str = "PENDING_CREATION", replica_id: int = 0) -> dict[str, Any]:
    return {"model": "org/one:1", "replicaId": replica_id, "state": state, "fleet": "lab",
            "members": [{"nodeId": "id-a", "gpus": 80_000}]}


def test_replicas_that_start_already_are_awaited_for_as_long_as_they_may_take(client: DashboardClient) -> None:
    plan = small_plan("a", "b", replicas=[starting_replica()])
    request = apply_request(plan, "j", "ann", ApplyOptions(), {"org/one:1": 90.0})
    assert request["await"] == [{"key": "org/one:1", "lifecycle": {"startupTimeout": 90.0}}]
    saved = apply_request(plan, "j", "ann", ApplyOptions(), {})
    assert saved["await"][0]["lifecycle"]["startupTimeout"] == DEFAULT_STARTUP_S
    ready_one = small_plan("a", "b", replicas=[starting_replica("ALIVE")])
    assert apply_request(ready_one, "j", "ann", ApplyOptions(), {})["await"] == []


def test_there_is_work_as_long_as_something_is_to_be_created_or_awaited(client: DashboardClient) -> None:
    gang = {"model": "org/gang", "replicaId": 0, "fleet": "lab", "members": [{"nodeId": "id-a"}]}
    here = [starting_replica("ALIVE", 0), starting_replica("ALIVE", 1) | {"members": [{"nodeId": "id-b", "gpus": 80_000}]}]
    assert ApplyTask(client, small_plan("a"), {}).has_work
    assert not ApplyTask(client, small_plan("a", "b", replicas=[gang, *here]), {}).has_work, "the third is blocked"
    here[1]["state"] = "RESTARTING"
    assert ApplyTask(client, small_plan("a", "b", replicas=[gang, *here]), {}).has_work


def test_following_relays_every_event_and_returns_the_summary(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.add_job("j", ("SUCCEEDED", VERSION + CREATED + summary(2, ready("m", 0))))
    seen: list[str] = []
    result = follow(Started(client, "j"), lambda one: seen.append(one.type))
    assert seen == ["version", "replicaCreated", "runSummary"]
    assert (result.exit_code, result.interrupted) == (0, False)


def test_the_first_interrupt_stops_the_job_and_waits_for_its_report(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    def report(job: StoredJob) -> None:
        job.steps = [("STOPPED", VERSION + CREATED + STOPPED_SUMMARY)]

    cluster.add_job("j", ("RUNNING", VERSION + CREATED))
    cluster.on_stop = report
    told: list[str] = []
    result = follow(Started(client, "j"), interrupt, on_interrupt=lambda: told.append("stopping"))
    assert told == ["stopping"]
    assert cluster.writes() == [("POST", "/api/jobs/j/stop")]
    assert (result.interrupted, [row.outcome for row in result.outcomes]) == (True, ["starting"])


def test_the_second_interrupt_only_lets_go(cluster: ClusterStandIn, client: DashboardClient) -> None:
    """It comes while the stand-in still holds back its answer to the stop, so this process is sure to be waiting."""
    cluster.add_job("j", ("RUNNING", VERSION))
    cluster.on_stop = lambda _: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(Detached) as caught:
        follow(Started(client, "j"), interrupt)
    assert caught.value.submission_id == "j"


def test_a_job_that_does_not_stop_in_time_is_let_go_of(
    cluster: ClusterStandIn, client: DashboardClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "STOP_PATIENCE_S", 0.0)
    cluster.add_job("j", ("RUNNING", VERSION))
    with pytest.raises(Detached):
        follow(Started(client, "j"), interrupt)
    assert cluster.jobs["j"].stopped


def test_a_job_that_ends_without_a_report_is_an_interruption_that_claims_nothing(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    """It may have been stopped before it began, or killed because it was too slow to report: nobody knows."""
    cluster.add_job("j", ("RUNNING", VERSION))
    cluster.on_stop = lambda job: setattr(job, "steps", [("STOPPED", VERSION)])
    result = follow(Started(client, "j"), interrupt)
    assert (result.interrupted, result.outcomes) == (True, [])
    assert "fleetctl status" in result.message


def test_a_stop_that_does_not_get_through_is_told(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("j", ("RUNNING", VERSION))
    cluster.refusals["POST", "/api/jobs/j/stop"] = [(0, "")]
    with pytest.raises((InventoryError, ClusterUnreachable)):
        follow(Started(client, "j"), interrupt)


def test_the_clients_own_time_limit_stops_nothing(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("j", ("RUNNING", VERSION))
    with pytest.raises(WaitTimeout):
        follow(Started(client, "j"), nothing, wait_timeout_s=0)
    assert cluster.writes() == []


def ended(code: int, message: str = "told", **extra: Any) -> RunSummary:
    return RunSummary(seq=1, time="t", message=message, exit_code=code, **extra)


def test_a_lock_that_is_held_names_its_holder_and_how_to_get_past() -> None:
    with pytest.raises(LockHeld, match="told, started by bob@ci") as caught:
        raise_if_refused(ended(5, holder={"job": "fleetctl-apply-9", "who": "bob@ci"}))
    hint = caught.value.hint or ""
    assert all(way in hint for way in ("--lock-timeout", "--attach fleetctl-apply-9", "ray job stop fleetctl-apply-9"))
    assert caught.value.exit_code == 5


def test_a_lock_whose_holder_does_not_answer_is_told_too() -> None:
    with pytest.raises(LockHeld, match="^told$") as caught:
        raise_if_refused(ended(5))
    assert "  " not in (caught.value.hint or "")
    assert "--attach`" in (caught.value.hint or "")


def test_a_plan_that_was_used_names_the_job_that_used_it() -> None:
    with pytest.raises(PlanUsed, match="already applied by job j7") as caught:
        raise_if_refused(ended(6, usedBy="j7"))
    assert caught.value.exit_code == 6


def test_an_agent_that_could_not_begin_is_an_error() -> None:
    with pytest.raises(ApplyError, match="no Python interpreter"):
        raise_if_refused(ended(1, "no Python interpreter with ray was found"))


@pytest.mark.parametrize("code", [0, 3])
def test_a_run_that_did_something_is_no_refusal(code: int) -> None:
    raise_if_refused(ended(code))


def test_the_start_scripts_own_summary_is_one_the_client_reads() -> None:
    from pathlib import Path

    import fleetctl.agent
    from fleetctl.apply.follow import parse_line

    script = Path(fleetctl.agent.__file__).with_name("start.sh").read_text()
    line = next(line for line in script.splitlines() if line.startswith("echo '{"))
    told = parse_line(line.removeprefix("echo '").removesuffix("'"))
    assert isinstance(told, RunSummary)
    with pytest.raises(ApplyError, match="no Python interpreter"):
        raise_if_refused(told)


def test_running_applies_are_listed_by_fleet(cluster: ClusterStandIn, client: DashboardClient) -> None:
    for number, (status, verb, fleet) in enumerate([
        ("RUNNING", "apply", "lab"), ("PENDING", "apply", "other"), ("SUCCEEDED", "apply", "lab"),
        ("STOPPED", "apply", "lab"), ("RUNNING", "evict", "lab"),
    ]):
        cluster.add_job(f"j{number}", verb=verb, fleet=fleet).status = status
    assert [job.submission_id for job in running(client, None)] == ["j0", "j1"]
    assert [job.submission_id for job in running(client, "lab")] == ["j0"]
    assert running(client, "nobody") == []


def test_a_plan_counts_as_used_once_a_job_with_its_id_took_the_lock(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    plan = small_plan("a")
    cluster.add_job("another", planId="f" * 64).log = event(1, "lockAcquired")
    cluster.add_job("refused", planId=plan.plan_id).log = event(1, "lockHeld")
    cluster.add_job("log-is-gone", planId=plan.plan_id)
    cluster.refusals["GET", "/api/jobs/log-is-gone/logs"] = [(500, "its node is dead")]
    refuse_used(client, plan)
    cluster.add_job("user", planId=plan.plan_id).log = VERSION + event(1, "lockAcquired")
    with pytest.raises(PlanUsed, match="by job user"):
        refuse_used(client, plan)
