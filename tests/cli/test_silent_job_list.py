"""A list of jobs that never answers costs the history and a warning; every other command works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, all_ready, event, summary
from record_rows import now, record

from fleetctl.inventory import records

JOB = "fleetctl-apply-8dd5457ba23d"
WARNING = "the list of jobs could not be read"


@pytest.fixture(autouse=True)
def silent(cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list never answers, in a cluster that has records; a replica runs, and one starts."""
    monkeypatch.setattr(records, "LIST_S", 0.1)
    cluster.silent.add(("GET", "/api/jobs/"))
    cluster.records.put(records.RUN, [])
    cluster.add_replica("org/two", 0, cluster.nodes[0]["node_id"], gpus=0)


def test_plan_status_and_endpoints_work_with_one_warning(cli, fleet_file: Path) -> None:
    for words in (("plan", "-f", fleet_file), ("status",), ("inventory",), ("endpoints",)):
        done = cli(*words)
        assert done.code == 0, (words, done.err)
        shown = " ".join((done.out + done.err).split())
        assert words[0] == "endpoints" or shown.count(WARNING) == 1, shown
    assert json.loads(cli("inventory", "--format", "json").out)["complete"]


@pytest.mark.slow
def test_an_apply_runs_and_its_saved_plan_is_refused_afterwards(
        cli, cluster: ClusterStandIn, fits: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    assert cli("plan", "-f", fits, "--out", saved).code == 0
    done = cli("apply", saved, "--yes")
    assert done.code == 0, done.err
    [job] = cluster.jobs
    run = {key: value for key, value in cluster.jobs[job].body["metadata"].items() if key != "tool"}
    cluster.records.add(records.RUN, record(job, now(), **run, ended=True))
    again = cli("apply", saved, "--yes")
    assert (again.code, f"already applied by job {job}" in again.err) == (6, True)


def test_notes_are_written_obeyed_and_withdrawn(cli, cluster: ClusterStandIn, fits: Path) -> None:
    assert cli("cordon", "node-a", "--reason", "why").code == 0
    assert cli("slots", "node-b", "0").code == 0
    assert json.loads(cli("plan", "-f", fits, "--format", "json").out)["actions"] == []
    assert cli("uncordon", "node-a").code == 0
    assert cli("slots", "node-b", "--clear").code == 0
    assert "no note cordons node-a" in cli("uncordon", "node-a").err
    assert len(json.loads(cli("plan", "-f", fits, "--format", "json").out)["actions"]) == 2


def test_a_starting_replica_is_known_by_the_driver_that_created_it(cli, cluster: ClusterStandIn) -> None:
    cluster.add_replica("org/slow", 0, cluster.nodes[1]["node_id"], state="PENDING_CREATION")
    found = json.loads(cli("inventory", "--format", "json").out)
    [slow] = [one for one in found["replicas"] if one["model"] == "org/slow"]
    assert (slow["fleet"], slow["specHash"], found["complete"]) == ("lab", "abc", True)


def test_evict_drain_and_replace_work(cli, cluster: ClusterStandIn, fits: Path) -> None:
    def answer(request: dict) -> list[tuple[str, str]]:  # type: ignore[type-arg]
        if "plan" in request:
            return all_ready(request)[-1:]
        rows = [{"model": one["model"], "replicaId": one["replicaId"], "outcome": "gone", "nodes": one["nodes"],
                 "message": ""} for one in request["replicas"]]
        return [("SUCCEEDED", event(0, "version", version="1.0") + summary(1, *rows))]

    cluster.on_submit = answer
    done = cli("evict", "org/two/0", "--yes")
    assert done.code == 0, done.err
    assert cli("drain", "node-a", "-f", fits, "--yes").code in (0, 3)


def test_a_running_eviction_and_a_running_apply_are_known_by_their_records(cli, cluster: ClusterStandIn) -> None:
    for job, fields in ((JOB, {"verb": "apply"}), ("fleetctl-evict-8dd5457ba23d", {
            "verb": "evict", "replicas": '["org/two/0"]'})):
        cluster.add_job(job, fleet="lab", namespace="fleet", **fields).status = "RUNNING"
        cluster.records.add(records.RUN, record(job, now(), fleet="lab", namespace="fleet", **fields))
    [two] = json.loads(cli("inventory", "--format", "json").out)["replicas"]
    assert two["draining"]
    cluster.on_stop = lambda job: job.steps.append(("STOPPED", summary(2, code=3, interrupted=True)))
    done = cli("stop", "--yes")
    assert done.code == 0, done.err
    assert ("POST", f"/api/jobs/{JOB}/stop") in cluster.writes()


def test_a_run_is_found_by_its_whole_id_and_the_history_says_why_it_cannot_be_shown(
        cli, cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.add_job(JOB, ("SUCCEEDED", event(0, "version", version="1.0") + summary(1)), verb="apply", fleet="lab")
    assert cli("apply", "--attach", JOB).code == 0
    assert cli("history", "show", JOB).code == 0
    cluster.silent.clear()
    cluster.refusals["GET", "/api/jobs/"] = [(500, "out of memory")]
    done = cli("history")
    assert done.code == 1
    assert "/api/jobs/ answered 500" in done.err
