"""The client's side of an agent that waits: who gets a plan, and that nobody does only once its job has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, StoredJob, event, ready, summary
from record_rows import now, record
from small_plans import small_plan

from fleetctl.apply import jobs
from fleetctl.apply.history import read_history, read_run
from fleetctl.apply.old_runs import beyond, default_history
from fleetctl.apply.prepare import ApplyOptions, ApplyTask, Starter
from fleetctl.apply.run import Started, start_apply
from fleetctl.apply.standby import TICKET, StandbyKeeper, find_standby
from fleetctl.documents.plan import PlanFleet
from fleetctl.errors import ApplyError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import AGENT, STANDBY, list_jobs
from fleetctl.inventory.records import RUN

PLAN = small_plan("a", "b")
LAB = PLAN.fleet
WAITS, OWN = "fleetctl-apply-00000000000a", "fleetctl-apply-0000000000ff"


def add_standby(cluster: ClusterStandIn, job: str = WAITS, *, is_up: bool = True, **metadata: str) -> StoredJob:
    """A job whose agent waits for a plan."""
    written = {"verb": STANDBY, "fleet": "lab", "namespace": "fleet", "who": "a watch",
               AGENT: jobs.agent_package().sha256, **metadata}
    found = cluster.add_job(job, ("RUNNING", ""), **written)
    found.step()
    if is_up:
        cluster.records.add(RUN, record(job, now(), verb=STANDBY, fleet="lab", namespace="fleet"))
    return found


class Waiting:
    """A clock that sleeping advances; `agent` is what the agent does meanwhile."""

    def __init__(self, agent: Callable[[], None] = lambda: None) -> None:
        self.now, self.agent, self.said = 0.0, agent, list[str]()

    def patience(self) -> jobs.Patience:
        return jobs.Patience(self.said.append, self.sleep, lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.agent()


def apply(client: DashboardClient, waiting: Waiting | None = None, standby: str | None = WAITS) -> Started:
    return start_apply(ApplyTask(client, PLAN), OWN, Starter("ann"), ApplyOptions(), (waiting or Waiting()).patience(),
                       standby=standby)


def take(cluster: ClusterStandIn, job: StoredJob) -> Callable[[], None]:
    """The agent: it reads what was handed over, and writes into its row that it has."""
    def agent() -> None:
        if f"{WAITS}-plan" in cluster.packages:
            handed = cluster.document(f"{WAITS}-plan")
            del cluster.packages[f"{WAITS}-plan"]
            job.body["metadata"] |= {**handed["metadata"], "verb": "apply", TICKET: handed["ticket"]}

    return agent


def test_the_agent_that_waits_gets_the_plan_and_no_job_is_submitted(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    handed: list[dict[str, Any]] = []
    job = add_standby(cluster)
    agent = take(cluster, job)

    def remember() -> None:
        handed.append(cluster.document(f"{WAITS}-plan"))
        agent()

    assert find_standby(client, LAB) == WAITS
    assert apply(client, Waiting(remember)).submission_id == WAITS
    [document] = handed
    assert (document["agent"], document["ticket"]) == (jobs.agent_package().sha256, OWN)
    request = document["request"]
    assert request["plan"] == PLAN.model_dump(mode="json", by_alias=True)
    assert (request["job"], request["holder"]["job"]) == (WAITS, WAITS), "the lock names the job that holds it"
    assert document["metadata"]["planId"] == PLAN.plan_id
    assert "hush-hush" not in str(document["metadata"])
    assert cluster.writes() == [("PUT", f"/api/packages/gcs/{WAITS}-plan")]
    assert find_standby(client, LAB) is None, "it waits no longer"


@pytest.mark.parametrize("other", [
    {AGENT: "0" * 64}, {"fleet": "other"}, {"namespace": "other"}, {"verb": "apply"}])
def test_only_an_agent_of_this_release_and_fleet_that_still_waits_is_asked(
    cluster: ClusterStandIn, client: DashboardClient, other: dict[str, str]
) -> None:
    add_standby(cluster, **other)
    assert find_standby(client, LAB) is None
    assert apply(client).submission_id == OWN
    assert f"{WAITS}-plan" not in cluster.packages


@pytest.mark.parametrize("answer", [(405, "405: Method Not Allowed"), (403, "")])
def test_a_dashboard_that_refuses_the_plan_gets_a_job(
    cluster: ClusterStandIn, client: DashboardClient, answer: tuple[int, str]
) -> None:
    add_standby(cluster)
    cluster.refusals["PUT", f"/api/packages/gcs/{WAITS}-plan"] = [answer] * 9
    assert apply(client).submission_id == OWN
    assert not cluster.jobs[WAITS].stopped


@pytest.mark.parametrize("is_up", [True, False])
def test_a_plan_that_is_not_taken_is_nobodys_once_the_job_has_ended(
    cluster: ClusterStandIn, client: DashboardClient, is_up: bool
) -> None:
    add_standby(cluster, is_up=is_up)
    cluster.on_stop = lambda job: setattr(job, "steps", [("RUNNING", ""), ("STOPPED", "")])
    waiting = Waiting()
    assert apply(client, waiting).submission_id == OWN
    assert (waiting.now > 25) is not is_up, "an agent that is being started has more time"
    assert "does not take it and is ended" in waiting.said[0]
    order = [request for request in cluster.writes() if WAITS in request[1] or request == ("POST", "/api/jobs/")]
    offer = ("PUT", f"/api/packages/gcs/{WAITS}-plan")
    assert order == [offer, offer, ("POST", f"/api/jobs/{WAITS}/stop"), ("POST", "/api/jobs/")]
    assert cluster.document(f"{WAITS}-plan") == {}, "its env values do not stay in Ray's table"


def test_a_plan_that_is_taken_at_the_last_moment_gets_no_second_job(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    job, read = add_standby(cluster), list[dict[str, Any]]()

    def read_slowly() -> None:
        if not read:
            read.append(cluster.document(f"{WAITS}-plan"))
            del cluster.packages[f"{WAITS}-plan"]

    def stop(_: StoredJob) -> None:
        job.body["metadata"] |= {**read[0]["metadata"], "verb": "apply", TICKET: read[0]["ticket"]}
        job.steps = [("STOPPED", event(0, "version") + summary(1, interrupted=True))]

    cluster.on_stop = stop
    assert apply(client, Waiting(read_slowly)).submission_id == WAITS
    assert OWN not in cluster.jobs


def test_a_ticket_that_ray_overwrites_as_it_ends_the_job_is_nobodys(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    """The agent and Ray write the same row; the agent acts only if its own words stay."""
    job = add_standby(cluster)

    def overwrite() -> None:
        if job.body["metadata"].pop(TICKET, None):
            job.status = "STOPPED"

    cluster.on_stop = lambda _: job.body["metadata"].update({TICKET: OWN})
    assert apply(client, Waiting(overwrite)).submission_id == OWN
    assert OWN in cluster.jobs


def test_a_job_that_the_cluster_no_longer_knows_gets_no_plan(cluster: ClusterStandIn, client: DashboardClient) -> None:
    assert apply(client).submission_id == OWN
    assert cluster.writes()[-1] == ("POST", "/api/jobs/")
    assert f"{WAITS}-plan" not in cluster.packages


@pytest.mark.parametrize("refused", [True, False])
def test_without_a_certain_end_there_is_no_second_job(
    cluster: ClusterStandIn, client: DashboardClient, refused: bool
) -> None:
    add_standby(cluster)
    cluster.refusals["POST", f"/api/jobs/{WAITS}/stop"] = [(500, "no agent")] * refused
    with pytest.raises(ApplyError, match=WAITS):
        apply(client)
    assert OWN not in cluster.jobs
    assert cluster.document(f"{WAITS}-plan") == {}, "the agent, should it go on, finds no plan"


@pytest.mark.parametrize("status", ["FAILED", "SUCCEEDED", "STOPPED"])
def test_an_agent_that_dies_before_it_says_that_it_has_the_plan_did_nothing(
    cluster: ClusterStandIn, client: DashboardClient, status: str
) -> None:
    job = add_standby(cluster)
    job.log = event(0, "version") + summary(1, code=1, message="it was changed")
    waiting = Waiting(lambda: setattr(job, "status", status))
    assert apply(client, waiting).submission_id == OWN
    assert not job.stopped
    assert waiting.said == [f"job {WAITS}, whose agent waited for a plan, has ended without it: it was changed"]
    assert cluster.document(f"{WAITS}-plan") == {}


def test_an_agent_whose_log_is_gone_has_no_last_words(cluster: ClusterStandIn, client: DashboardClient) -> None:
    job = add_standby(cluster)
    cluster.refusals["GET", f"/api/jobs/{WAITS}/logs"] = [(404, "")]
    waiting = Waiting(lambda: setattr(job, "status", "FAILED"))
    assert apply(client, waiting).submission_id == OWN
    assert waiting.said == [f"job {WAITS}, whose agent waited for a plan, has ended without it"]


def test_of_two_plans_for_one_agent_the_other_gets_a_job(cluster: ClusterStandIn, client: DashboardClient) -> None:
    job = add_standby(cluster)
    waiting = Waiting(lambda: job.body["metadata"].update({TICKET: "another's", "verb": "apply"}))
    assert apply(client, waiting).submission_id == OWN
    assert not job.stopped, "it is the run of the other plan"
    assert cluster.document(f"{WAITS}-plan") == {}, "which has been read, so only this one is withdrawn"


@pytest.mark.parametrize("fails", [(0, ""), (503, "")])
def test_a_plan_that_cannot_be_withdrawn_comes_with_a_job_all_the_same(
    cluster: ClusterStandIn, client: DashboardClient, fails: tuple[int, str]
) -> None:
    job = add_standby(cluster)

    def end() -> None:
        job.status = "FAILED"
        cluster.refusals["PUT", f"/api/packages/gcs/{WAITS}-plan"] = [fails]

    assert apply(client, Waiting(end)).submission_id == OWN


def keeper(clock: Waiting) -> StandbyKeeper:
    numbers = iter(range(100))
    return StandbyKeeper(Starter("a watch", command="watch"), lambda: f"fleetctl-apply-{next(numbers):012x}",
                         lambda: clock.now)


def test_a_watch_keeps_one_agent_waiting_and_tells_it_that_it_is_there(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    clock = Waiting()
    kept = keeper(clock)
    for _ in range(500):
        kept.keep(client, LAB)
        clock.now += 1
    [job] = cluster.jobs
    metadata = cluster.jobs[job].body["metadata"]
    assert (metadata["verb"], metadata["fleet"], metadata["who"]) == (STANDBY, "lab", "a watch")
    assert "command" not in metadata, "the history shows it as what it is, not as an apply of the watch"
    signs = [path for method, path in cluster.writes() if method == "PUT" and path.endswith(f"{job}-watch")]
    assert 7 <= len(signs) <= 9
    assert cluster.document(f"{job}-watch") == {"agent": jobs.agent_package().sha256}

    cluster.jobs[job].status = "FAILED"
    clock.now += 30
    kept.keep(client, LAB)
    assert len(cluster.jobs) == 2, "it is replaced when it ends"
    kept.look_now()
    cluster.jobs[str(kept.job)].body["metadata"]["verb"] = "apply"
    kept.keep(client, LAB)
    assert len(cluster.jobs) == 3, "and when it has got a plan"


def test_a_watch_takes_over_the_agent_of_another_and_dismisses_those_of_other_releases(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    add_standby(cluster)
    old = "fleetctl-apply-00000000000b"
    add_standby(cluster, old, **{AGENT: "0" * 64})
    add_standby(cluster, "fleetctl-apply-00000000000c", **{AGENT: "0" * 64}).body["metadata"]["fleet"] = "other"
    cluster.records.add(RUN, record("fleetctl-apply-00000000000c", now(), verb=STANDBY, fleet="other",
                                    namespace="fleet"))
    clock = Waiting()
    kept = keeper(clock)
    kept.keep(client, LAB)
    assert (kept.job, len(cluster.jobs)) == (WAITS, 3)
    assert cluster.document(f"{old}-watch") == {"agent": jobs.agent_package().sha256}, "by which it knows"
    clock.now += 30
    kept.keep(client, LAB)
    assert cluster.writes().count(("PUT", f"/api/packages/gcs/{old}-watch")) == 1
    assert "fleetctl-apply-00000000000c-watch" not in cluster.packages, "another fleet's is left alone"


def test_the_history_shows_an_agent_that_waits_as_what_it_is(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("fleetctl-apply-0000000000ee", ("SUCCEEDED", event(0, "version") + summary(1, ready("m", 0))),
                    verb="apply", fleet="lab").step()
    add_standby(cluster).start_time = 9
    first, second = read_history(client, "lab", 5).runs
    assert (first.verb, first.state, first.message) == (STANDBY, "running", "its agent waits for a plan")
    assert second.verb == "apply"
    assert read_run(client, "latest", "lab").id == second.id, "the latest run is one that has begun"


def test_agents_that_got_no_plan_are_deleted_like_other_old_runs(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    for number in range(3):
        add_standby(cluster, f"fleetctl-apply-{number:012x}").status = "SUCCEEDED"
    keep = default_history().model_copy(update={"keep_runs": 1})
    old = beyond(list_jobs(client), "lab", "fleet", keep, 1e10)
    assert [job.submission_id[-1] for job in old] == ["0", "1"]


def test_a_fleet_of_this_name_in_another_namespace_is_another(client: DashboardClient) -> None:
    assert find_standby(client, PlanFleet(name="lab", namespace="other")) is None
