"""Old runs: nothing that is needed is deleted, everything else in the end; a cluster that deletes no jobs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn
from old_run_worlds import ARTIFACT, DAY, HOUR, NOW, NOW_S, DirectClient, World
from random_cases import cases
from record_rows import record
from small_plans import small_plan

from fleetctl.apply import old_runs
from fleetctl.apply.history import find_recorded
from fleetctl.apply.old_runs import delete_runs, find_old
from fleetctl.documents.base import as_datetime
from fleetctl.documents.fleet import Cluster, Policy
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import PlanHistory
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import Live
from fleetctl.inventory.jobs import Job, list_jobs
from fleetctl.inventory.records import records_of
from fleetctl.planner.breaker import Cooled, find_cooled

COOLDOWNS = ({}, {"failures": 1}, {"failures": 2, "first": "1h", "max": "20d"}, {"failures": 1, "max": "30d"})
NOTED = ("cordon", "uncordon", "slots")


def cooled(seen: Inventory) -> list[Cooled]:
    """What cools, with the time of each, for several policies and for both kinds of failures."""
    fleets = [ResolvedFleet("lab", Cluster(), (), (), (), Policy.model_validate({"cooldown": one}))
              for one in COOLDOWNS]
    return [find_cooled(fleet, seen, reloads=reloads) for fleet in fleets for reloads in (False, True)]


def fetch_failed(seen: Inventory) -> dict[str, str | None]:
    """The latest failed fetch to each living node."""
    return {node.id: max((one.at for one in node.unfetched if one.artifact == ARTIFACT), default=None,
                         key=as_datetime) for node in seen.nodes if node.state != "DEAD"}


def rest(seen: Inventory) -> dict[str, Any]:
    """Everything else in an inventory."""
    document = seen.model_dump(exclude={"failures", "successes"})
    for node in document["nodes"]:
        node.pop("unfetched", None)
    return document


def prune(client: DashboardClient, keep: PlanHistory, now_s: float = NOW_S) -> list[str]:
    done = delete_runs(client, find_old(client, "lab", "fleet", keep, now_s))
    assert done.problem == ""
    return done.deleted


def group_of(job: Job) -> str | None:
    return job.metadata.get("fleet")


@pytest.mark.parametrize("seed", range(cases(150)))
def test_a_cluster_reads_the_same_after_its_old_runs_are_gone(seed: int) -> None:
    world = World(seed, jobs=60)
    client, chance = DirectClient(world.cluster), world.chance
    keep = PlanHistory(keep_runs=chance.randint(1, 12), keep_for=chance.choice([60, 2 * HOUR, 5 * DAY, 20 * DAY]))
    before, all_before, rows_before = Live(client, lambda: NOW).read(), list_jobs(client), {**world.cluster.jobs}
    specs = {(one.model, one.spec_hash) for one in before.replicas if one.fleet == "lab" and one.spec_hash}
    shapes = {spec: one.shape for spec, one in find_recorded(client, "lab", specs).items()}

    deleted = set(prune(client, keep))

    after = Live(client, lambda: NOW).read()
    assert rest(after) == rest(before)
    assert cooled(after) == cooled(before)
    assert fetch_failed(after) == fetch_failed(before)
    assert {spec: one.shape for spec, one in find_recorded(client, "lab", specs).items()} == shapes
    for job in all_before:
        if job.submission_id in deleted:
            assert group_of(job) in ("lab", None)
            assert job.ended
            assert NOW_S - job.end_time_ms / 1000 > max(HOUR, keep.keep_for)
            assert job.submission_id.startswith(f"fleetctl-{job.metadata['verb']}-")
    assert rows_before.keys() - world.cluster.jobs.keys() == deleted, "no other job is gone"
    left = list_jobs(client)
    for group in ("lab", None):
        newest = [job for job in all_before if group_of(job) == group][-keep.keep_runs:]
        last_of_verb = {job.metadata["verb"]: job for job in all_before if group_of(job) == group}
        assert all(job in left for job in (*newest, *last_of_verb.values()))


@pytest.mark.parametrize("seed", range(cases(60)))
def test_what_nothing_needs_any_more_goes_in_the_end(seed: int) -> None:
    world = World(seed, jobs=60)
    client, keep = DirectClient(world.cluster), PlanHistory(keep_runs=3, keep_for=DAY)
    prune(client, keep)
    world.cluster.actors.clear()
    world.cluster.nodes[:] = [row for row in world.cluster.nodes if row["state"] == "DEAD"]
    for job in world.cluster.jobs.values():
        job.status, job.end_time = "SUCCEEDED", job.end_time or int(NOW_S * 1000)
    prune(client, keep, NOW_S + 100 * DAY)
    left = [job for job in list_jobs(client) if job.submission_id.startswith("fleetctl-")]
    for group in ("lab", None):
        runs = [job for job in left if group_of(job) == group]
        last_of_verb = {job.metadata["verb"]: job.submission_id for job in runs}
        needless = [job for job in runs[:-keep.keep_runs] if job.submission_id not in last_of_verb.values()
                    and job.metadata["verb"] not in NOTED]
        assert needless == []
        about = Counter((verb == "slots", key, job.metadata[key]) for job in runs[:-keep.keep_runs]
                        if (verb := job.metadata["verb"]) in NOTED for key in ("node", "nodeName"))
        assert len(about) <= 2 * 2 * 10, "one note of each kind for each id and name"


def many(cluster: ClusterStandIn, count: int, fleet: str = "lab") -> None:
    """Add ended applies, oldest first, that ended 40 days ago."""
    for number in range(count):
        job = cluster.add_job(f"fleetctl-apply-{number:012x}", verb="apply", fleet=fleet, namespace="fleet")
        job.status, job.start_time = "SUCCEEDED", int((NOW_S - 40 * DAY + number) * 1000)
        job.end_time = job.start_time + 1


@pytest.mark.parametrize(("answer", "said"), [
    ((405, "405: Method Not Allowed"), "DELETE was answered with 405"), ((501, ""), "DELETE was answered with 501"),
    ((404, "404: Not Found"), "DELETE was answered with 404"), ((403, "no"), "(403 on /api/jobs/fleetctl-apply-0"),
])
def test_a_proxy_that_passes_no_delete_is_asked_once(
    cluster: ClusterStandIn, client: DashboardClient, answer: tuple[int, str], said: str
) -> None:
    many(cluster, 100)
    cluster.refusals["DELETE", "/api/jobs/"] = [answer] * 1000
    done = delete_runs(client, find_old(client, "lab", "fleet", PlanHistory(keep_runs=10, keep_for=DAY), NOW_S))
    assert done.deleted == []
    assert said in done.problem
    assert done.problem.endswith(": the dashboard, or a proxy in front of it, deletes no jobs")
    assert len(cluster.writes()) <= old_runs.READERS


def test_a_run_that_ray_does_not_delete_ends_the_deletion(cluster: ClusterStandIn, client: DashboardClient) -> None:
    many(cluster, 100)
    cluster.refusals["DELETE", "/api/jobs/"] = [(500, "RuntimeError: no agent")]
    done = delete_runs(client, find_old(client, "lab", "fleet", PlanHistory(keep_runs=10, keep_for=DAY), NOW_S))
    assert len(done.deleted) == old_runs.READERS - 1
    assert done.problem == "DELETE was answered with 500"


def test_a_run_that_another_client_has_deleted_is_no_problem(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    many(cluster, 3)
    old = find_old(client, "lab", "fleet", PlanHistory(keep_runs=1, keep_for=DAY), NOW_S)
    first = next(old)
    del cluster.jobs[first.submission_id]
    done = delete_runs(client, [first, *old])
    assert done.problem == ""
    assert len(cluster.jobs) == 1


def test_nothing_is_deleted_if_it_is_unknown_what_is_needed(cluster: ClusterStandIn, client: DashboardClient) -> None:
    many(cluster, 3)
    cluster.refusals["GET", "/api/v0/actors"] = [(500, "no")] * 20
    done = delete_runs(client, find_old(client, "lab", "fleet", PlanHistory(keep_runs=1, keep_for=DAY), NOW_S))
    assert done.deleted == []
    assert "/api/v0/actors answered 500" in done.problem
    assert cluster.writes() == []


def test_of_a_few_runs_too_many_nothing_more_is_read(cluster: ClusterStandIn, client: DashboardClient) -> None:
    many(cluster, 10)
    keep = PlanHistory(keep_runs=5, keep_for=DAY)
    assert list(find_old(client, "lab", "fleet", keep, NOW_S, slack=5)) == []
    assert [path for _, path in cluster.requests] == ["/api/jobs/"]
    assert len(list(find_old(client, "lab", "fleet", keep, NOW_S, slack=4))) == 5


def created(cluster: ClusterStandIn, number: int, model: str) -> dict[str, Any]:
    """The actor of a replica that one of the runs of `many` has created."""
    cluster.jobs[f"fleetctl-apply-{number:012x}"].driver_id = f"{number + 1:08x}"
    cluster.add_replica(model, number, cluster.nodes[0]["node_id"])
    cluster.actors[-1]["job_id"] = f"{number + 1:08x}"
    return cluster.actors[-1]


def test_a_replica_that_died_silently_keeps_its_run_if_the_time_of_its_death_cannot_be_read(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.add_node("a")
    many(cluster, 10)
    cause = {"actor_died_error_context": {"reason": "WORKER_DIED"}}
    created(cluster, 3, "m").update(state="DEAD", repr_name="", death_cause=cause, up_ms=(0, int(NOW_S * 1000)))
    keep = PlanHistory(keep_runs=1, keep_for=DAY)
    cluster.refusals["GET", "/logical/actors"] = [(500, "busy")]
    old = [job.submission_id for job in find_old(client, "lab", "fleet", keep, NOW_S)]
    assert len(old) == 8
    assert f"fleetctl-apply-{3:012x}" not in old


def test_no_log_is_read_if_the_runs_that_created_the_replicas_are_listed(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.add_node("a")
    many(cluster, 10)
    created(cluster, 3, "m")
    assert len(list(find_old(client, "lab", "fleet", PlanHistory(keep_runs=1, keep_for=DAY), NOW_S))) == 8
    assert [path for _, path in cluster.requests if path.endswith("/logs")] == []


def test_the_list_is_not_read_if_there_cannot_be_too_many_runs(
    cluster: ClusterStandIn, client: DashboardClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_runs, "WITHIN_S", 3600.0)  # however busy this machine is
    many(cluster, 100)
    plan = small_plan("a")
    keep = plan.fleet.model_copy(update={"history": PlanHistory(keep_runs=10, keep_for=DAY)})
    plan = plan.model_copy(update={"fleet": keep})
    cluster.records.put("run", [], runs=str(10 + old_runs.SLACK))
    assert old_runs.delete_old_runs(client, plan, NOW_S) == old_runs.Deletion()
    assert ("GET", "/api/jobs/") not in cluster.requests
    cluster.records.put("run", [], runs=str(11 + old_runs.SLACK))
    assert len(old_runs.delete_old_runs(client, plan, NOW_S).deleted) == 90


def test_a_list_that_is_too_long_is_not_read_after_an_apply(cluster: ClusterStandIn, client: DashboardClient) -> None:
    many(cluster, 100)
    cluster.records.put("run", [], runs="5000", jobs=str(old_runs.MAX_ROWS + 1))
    done = old_runs.delete_old_runs(client, small_plan("a"), NOW_S)
    assert (done.deleted, done.problem) == ([], "with 10001 jobs it takes too long to read after an apply")
    assert ("GET", "/api/jobs/") not in cluster.requests


@pytest.mark.parametrize("in_rows", [False, True])
def test_a_run_is_not_kept_for_notes_that_rows_of_records_have(
    cluster: ClusterStandIn, client: DashboardClient, in_rows: bool
) -> None:
    node_id = cluster.add_node("a")
    many(cluster, 10)
    cluster.jobs[f"fleetctl-apply-{4:012x}"].body["metadata"]["draining"] = node_id
    for one in records_of(list_jobs(client)) if in_rows else ():
        cluster.records.add(one.kind, record(one.subject, one.at))
    old = [job.submission_id for job in find_old(client, "lab", "fleet", PlanHistory(keep_runs=1, keep_for=DAY), NOW_S)]
    assert (f"fleetctl-apply-{4:012x}" in old) == in_rows
