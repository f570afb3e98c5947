"""Ray Jobs over REST, against a real HTTP server: what is sent, what is refused, and how that is told."""

from __future__ import annotations

import pytest
from cluster_stand_in import ClusterStandIn

from fleetctl.apply import jobs
from fleetctl.apply.package import Package, job_package
from fleetctl.errors import ApplyError, ClusterRefused, InventoryError
from fleetctl.inventory.client import DashboardClient

PACKAGE = job_package({"job": "x"})


class Waits(list[float]):
    """Counts waits instead of waiting."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def submit(client: DashboardClient, **metadata: str) -> Waits:
    waits = Waits()
    jobs.submit(client, "fleetctl-apply-1", "apply", PACKAGE, metadata, sleep=waits)
    return waits


def test_a_submitted_job_runs_the_agent_out_of_its_package(cluster: ClusterStandIn, client: DashboardClient) -> None:
    assert submit(client, fleet="lab", planId="p") == []
    assert cluster.packages == {PACKAGE.name: PACKAGE.data}
    assert cluster.jobs["fleetctl-apply-1"].body == {
        "entrypoint": "sh fleetctl_agent/start.sh apply", "submission_id": "fleetctl-apply-1",
        "runtime_env": {"working_dir": PACKAGE.uri},
        "metadata": {"tool": "fleetctl", "verb": "apply", "fleet": "lab", "planId": "p"}}


def test_nothing_is_written_but_the_package_and_the_job(cluster: ClusterStandIn, client: DashboardClient) -> None:
    submit(client)
    assert cluster.writes() == [("PUT", f"/api/packages/gcs/{PACKAGE.name}"), ("POST", "/api/jobs/")]


def test_a_package_the_cluster_has_is_not_sent_again(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.packages[PACKAGE.name] = PACKAGE.data
    submit(client)
    assert cluster.writes() == [("POST", "/api/jobs/")]


def test_requests_carry_the_token_and_do_not_look_like_a_browsers(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    submit(client)
    assert {seen.get("authorization") for seen in cluster.headers} == {"Bearer a-token"}
    assert all(seen["user-agent"].startswith("fleetctl/") for seen in cluster.headers)


def test_a_cluster_that_has_just_come_up_is_waited_for(cluster: ClusterStandIn, client: DashboardClient) -> None:
    busy = (500, "Traceback ...\nException: No available agent to submit job, please try again later.")
    cluster.refusals["POST", "/api/jobs/"] = [busy, busy]
    assert len(submit(client)) == 2
    assert "fleetctl-apply-1" in cluster.jobs


def test_it_is_not_waited_for_without_end(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.refusals["POST", "/api/jobs/"] = [(500, "No available agent to submit job")] * 1_000
    with pytest.raises(ApplyError, match=r"submitting the job failed.*500.*No available agent"):
        submit(client)
    assert len(cluster.refusals["POST", "/api/jobs/"]) > 900


def test_another_error_of_the_cluster_is_told_at_once_with_its_last_line(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.refusals["POST", "/api/jobs/"] = [(500, "Traceback (most recent call last):\n  ...\nOSError: disk full\n")]
    with pytest.raises(ApplyError, match=r"the job failed: POST /api/jobs/ answered 500: OSError: disk full"):
        submit(client)
    assert cluster.jobs == {}


@pytest.mark.parametrize("status", [404, 405])
def test_where_jobs_cannot_be_had_the_hint_says_what_apply_needs(
    cluster: ClusterStandIn, client: DashboardClient, status: int
) -> None:
    cluster.refusals["PUT", "/api/packages"] = [(status, "no")]
    with pytest.raises(ApplyError, match="uploading the agent failed") as caught:
        submit(client)
    assert "Jobs API" in (caught.value.hint or "")
    assert cluster.jobs == {}


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_told_as_such(cluster: ClusterStandIn, client: DashboardClient, status: int) -> None:
    cluster.refusals["GET", "/api/packages"] = [(status, "no")]
    with pytest.raises(ClusterRefused, match=str(status)) as caught:
        submit(client)
    assert "a-token" not in caught.value.message + (caught.value.hint or "")


def test_a_job_that_was_taken_although_the_answer_was_lost_counts_as_submitted(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.add_job("fleetctl-apply-1")
    cluster.refusals["POST", "/api/jobs/"] = [(0, "")]
    submit(client)


def test_a_job_whose_submission_was_cut_off_and_did_not_arrive_is_an_error(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.refusals["POST", "/api/jobs/"] = [(0, "")]
    with pytest.raises(InventoryError, match="cut off"):
        submit(client)


def test_a_second_try_that_finds_the_job_already_there_is_fine(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    """The first try was taken although it was answered with `No available agent`."""
    cluster.refusals["POST", "/api/jobs/"] = [(500, "No available agent")]
    cluster.add_job("fleetctl-apply-1")
    submit(client)


def test_a_package_that_does_not_stay_is_an_error(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.refusals["GET", "/api/packages"] = [(404, "no"), (404, "no")]
    with pytest.raises(ApplyError, match="uploading the agent"):
        jobs.upload(client, Package("_ray_pkg_0.zip", b"x"))


def test_one_job_is_looked_at(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("j", ("RUNNING", ""), ("FAILED", ""), fleet="lab").message = "exit code 1"
    assert jobs.look(client, "j") == jobs.Job("j", "RUNNING", {"tool": "fleetctl", "fleet": "lab"}, "exit code 1", 1)
    assert jobs.look(client, "j").ended


def test_an_unknown_job_is_told_as_such(client: DashboardClient) -> None:
    with pytest.raises(ApplyError, match="knows no job nowhere"):
        jobs.look(client, "nowhere")


@pytest.mark.parametrize("answer", [(502, "Bad Gateway"), (503, ""), (200, "<html>login</html>"), (200, "[]")])
def test_an_answer_that_says_nothing_about_a_job_is_as_good_as_none(
    cluster: ClusterStandIn, client: DashboardClient, answer: tuple[int, str]
) -> None:
    cluster.add_job("j")
    cluster.refusals["GET", "/api/jobs/j"] = [answer]
    with pytest.raises(InventoryError):
        jobs.look(client, "j")


def test_our_jobs_are_listed_oldest_first_and_others_left_out(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("young", start_time=30)
    cluster.add_job("old", start_time=10)
    cluster.add_job("foreign", tool="other")
    cluster.add_job("bare").body["metadata"] = None
    assert [job.submission_id for job in jobs.ours(client)] == ["old", "young"]


def test_a_log_that_cannot_be_served_is_told_from_an_empty_one(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.add_job("j").log = ""
    assert jobs.log_of(client, "j") == ""
    cluster.refusals["GET", "/api/jobs/j/logs"] = [(500, "the node is dead")]
    assert jobs.log_of(client, "j") is None


def test_a_job_is_stopped_by_name(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("j")
    cluster.add_job("other")
    jobs.stop(client, "j")
    assert cluster.writes() == [("POST", "/api/jobs/j/stop")]
    assert (cluster.jobs["j"].stopped, cluster.jobs["other"].stopped) == (True, False)
