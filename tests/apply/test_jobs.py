"""Ray Jobs over REST, against a real HTTP server: requests, refusals, and their messages."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn

from fleetctl.apply import jobs
from fleetctl.apply.jobs import CONFIRM_S, JOB_AGENT_S, Patience, agent_package
from fleetctl.errors import ApplyError, ClusterRefused, InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import Job, fetch_job, list_jobs, log_of

JOB = "fleetctl-apply-1"
REQUEST = {"job": "x", "secret": "hush-hush"}


class WaitingUser:
    """A clock that only waiting advances, and the lines shown to the user in the meantime."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[str] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def submit(client: DashboardClient, **metadata: str) -> WaitingUser:
    user = WaitingUser()
    submit_for(user, client, **metadata)
    return user


def submit_for(user: WaitingUser, client: DashboardClient, **metadata: str) -> None:
    jobs.submit(client, JOB, "apply", REQUEST, namespace="my fleet", metadata=metadata, follow_up="look again",
                patience=Patience(user.told.append, user.sleep, lambda: user.now))


def test_a_submitted_job_runs_the_agent_from_its_package(cluster: ClusterStandIn, client: DashboardClient) -> None:
    user = submit(client, fleet="lab", planId="p")
    assert (user.now, user.told) == (0, [])
    assert cluster.packages[agent_package().name] == agent_package().data
    assert cluster.jobs[JOB].body == {
        "entrypoint": "sh fleetctl_agent/start.sh apply fleetctl-apply-1-request 'my fleet'", "submission_id": JOB,
        "runtime_env": {"working_dir": agent_package().uri},
        "metadata": {"tool": "fleetctl", "verb": "apply", "fleet": "lab", "planId": "p",
                     "agent": agent_package().sha256}}


def test_the_request_is_a_document_that_is_neither_unpacked_nor_listed(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    submit(client)
    assert cluster.document(f"{JOB}-request") == REQUEST
    assert "hush-hush" not in str(cluster.jobs[JOB].body)
    assert b"hush-hush" not in agent_package().data


def test_only_the_agent_the_request_and_the_job_are_written(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    submit(client)
    assert cluster.writes() == [("PUT", f"/api/packages/gcs/{agent_package().name}"),
                                ("PUT", f"/api/packages/gcs/{JOB}-request"), ("POST", "/api/jobs/")]


def test_an_agent_package_that_the_cluster_has_is_not_sent_again(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.packages[agent_package().name] = agent_package().data
    submit(client)
    assert cluster.writes() == [("PUT", f"/api/packages/gcs/{JOB}-request"), ("POST", "/api/jobs/")]


def test_ray_is_to_delete_a_document_before_it_has_it(cluster: ClusterStandIn, client: DashboardClient) -> None:
    """A client that is killed right after an upload leaves nothing for ever: the GET before it starts Ray's clock."""
    submit(client)
    jobs.offer(client, jobs.document("j-plan", {}))
    for name in (f"{JOB}-request", "j-plan"):
        of_it = [method for method, path in cluster.requests if path == f"/api/packages/gcs/{name}"]
        assert of_it[:2] == ["GET", "PUT"]


def test_requests_carry_the_token_and_do_not_look_like_a_browsers(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    submit(client)
    assert {seen.get("authorization") for seen in cluster.headers} == {"Bearer a-token"}
    assert all(seen["user-agent"].startswith("fleetctl/") for seen in cluster.headers)


NO_AGENT = (500, "Traceback ...\nException: No available agent to submit job, please try again later.")


def test_a_cluster_that_has_just_started_is_awaited_with_a_message(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.refusals["POST", "/api/jobs/"] = [NO_AGENT, NO_AGENT]
    user = submit(client)
    assert user.now == 2
    assert len(user.told) == 1, "after the first try, and only once"
    assert "which starts jobs, does not answer; waiting up to 60 s" in user.told[0]
    assert JOB in cluster.jobs


def test_the_wait_is_limited_by_time_and_the_cause_is_named(cluster: ClusterStandIn, client: DashboardClient) -> None:
    """Ray takes 10 s for each such response, so a limited number of tries would not limit the time."""
    cluster.refusals["POST", "/api/jobs/"] = [NO_AGENT] * 1_000
    user = WaitingUser()
    with pytest.raises(ApplyError, match="has not answered for 60 s") as caught:
        submit_for(user, client)
    assert "dashboard_agent.log" in (caught.value.hint or "")
    assert user.now <= JOB_AGENT_S + 1


def test_a_response_that_a_retry_cannot_change_is_reported_immediately(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.refusals["POST", "/api/jobs/"] = [(400, "the body is not JSON\n")]
    with pytest.raises(ApplyError, match=r"the job failed: POST /api/jobs/ answered 400: the body is not JSON"):
        submit(client)
    assert cluster.jobs == {}


@pytest.mark.parametrize("status", [404, 405])
def test_without_the_jobs_api_the_hint_says_what_apply_needs(
    cluster: ClusterStandIn, client: DashboardClient, status: int
) -> None:
    cluster.refusals["PUT", "/api/packages"] = [(status, "no")]
    with pytest.raises(ApplyError, match="sending the agent failed") as caught:
        submit(client)
    assert "Jobs API" in (caught.value.hint or "")
    assert cluster.jobs == {}


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_reported_as_such(cluster: ClusterStandIn, client: DashboardClient, status: int) -> None:
    cluster.refusals["GET", "/api/packages"] = [(status, "no")]
    with pytest.raises(ClusterRefused, match=str(status)) as caught:
        submit(client)
    assert "a-token" not in caught.value.message + (caught.value.hint or "")


UNCLEAR = {"cut off": (0, ""), "gateway": (504, "upstream timed out"),
           "error": (500, "Traceback\nOSError: disk full\n.\n")}


@pytest.mark.parametrize("answer", UNCLEAR.values(), ids=UNCLEAR)
def test_an_accepted_job_whose_response_was_lost_counts_as_submitted(
    cluster: ClusterStandIn, client: DashboardClient, answer: tuple[int, str]
) -> None:
    cluster.add_job(JOB)
    cluster.refusals["POST", "/api/jobs/"] = [answer]
    [told] = submit(client).told
    assert "checking whether the cluster has accepted it" in told
    assert ("OSError: disk full)" in told) == ("disk full" in answer[1])


def test_a_job_that_a_slow_gateway_delivers_later_counts_as_submitted(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.refusals["POST", "/api/jobs/"] = [(504, "upstream timed out")]
    user = WaitingUser()
    sleep = user.sleep

    def deliver(seconds: float) -> None:
        sleep(seconds)
        if user.now >= 3 and JOB not in cluster.jobs:
            cluster.add_job(JOB)

    user.sleep = deliver  # type: ignore[method-assign]
    submit_for(user, client)
    assert 3 <= user.now < CONFIRM_S


@pytest.mark.parametrize("answer", UNCLEAR.values(), ids=UNCLEAR)
def test_an_unconfirmed_submission_is_reported_with_a_command_to_check_it(
    cluster: ClusterStandIn, client: DashboardClient, answer: tuple[int, str]
) -> None:
    cluster.refusals["POST", "/api/jobs/"] = [answer]
    user = WaitingUser()
    with pytest.raises(ApplyError, match=f"unknown whether the cluster has accepted job {JOB}: ") as caught:
        submit_for(user, client)
    assert caught.value.hint == "look again"
    assert user.now >= CONFIRM_S


def test_a_package_that_ray_does_not_keep_is_an_error(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.refusals["GET", "/api/packages"] = [(404, "no"), (404, "no")]
    with pytest.raises(ApplyError, match="sending the agent"):
        submit(client)


def test_one_job_is_read(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("j", ("RUNNING", ""), ("FAILED", ""), fleet="lab").message = "exit code 1"
    assert fetch_job(client, "j") == Job("j", "RUNNING", {"tool": "fleetctl", "fleet": "lab"}, "exit code 1", 1)
    assert fetch_job(client, "j").ended


def test_an_unknown_job_is_reported_as_such(client: DashboardClient) -> None:
    with pytest.raises(ApplyError, match="has no job nowhere"):
        fetch_job(client, "nowhere")


@pytest.mark.parametrize("answer", [(502, "Bad Gateway"), (503, ""), (200, "<html>login</html>"), (200, "[]")])
def test_a_response_that_is_not_a_job_is_an_error(
    cluster: ClusterStandIn, client: DashboardClient, answer: tuple[int, str]
) -> None:
    cluster.add_job("j")
    cluster.refusals["GET", "/api/jobs/j"] = [answer] * 3
    with pytest.raises(InventoryError):
        fetch_job(client, "j")


def test_what_is_not_text_where_ray_has_text_is_absent(cluster: ClusterStandIn, client: DashboardClient) -> None:
    metadata: dict[str, Any] = {"draining": ["n"], "verb": [], "fleet": 10**400, "who": None, "planId": "p"}
    cluster.add_job("j", **metadata)
    job = cluster.jobs["j"]
    odd: Any = []
    job.status, job.message, job.error_type, job.start_time, job.driver_id = odd, odd, odd, 10**400, odd
    [found] = list_jobs(client)
    assert found == Job("j", "", {"tool": "fleetctl", "planId": "p"})


def test_only_fleetctls_jobs_are_listed_oldest_first(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("young", start_time=30)
    cluster.add_job("old", start_time=10)
    cluster.add_job("foreign", tool="other")
    cluster.add_job("bare").body["metadata"] = None
    assert [job.submission_id for job in list_jobs(client)] == ["old", "young"]


def test_a_log_that_cannot_be_served_is_not_an_empty_log(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.add_job("j").log = ""
    assert log_of(client, "j") == ""
    cluster.refusals["GET", "/api/jobs/j/logs"] = [(500, "the node is dead")]
    assert log_of(client, "j") is None


def test_a_job_is_stopped_by_name(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("j")
    cluster.add_job("other")
    jobs.stop(client, "j")
    assert cluster.writes() == [("POST", "/api/jobs/j/stop")]
    assert (cluster.jobs["j"].stopped, cluster.jobs["other"].stopped) == (True, False)
