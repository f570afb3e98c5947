"""Old runs at the command line: an apply deletes some after its result, `prune --runs` all of them after asking."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from cli_result import Cli
from cluster_stand_in import ClusterStandIn, Steps

from fleetctl.apply import old_runs
from fleetctl.apply.old_runs import AT_ONCE, SLACK

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def _runs_begin_now(cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """And there is time to delete all of them, however busy this machine is."""
    monkeypatch.setattr(old_runs, "WITHIN_S", 3600.0)
    answer = cluster.on_submit

    def on_submit(request: dict[str, Any]) -> Steps:
        cluster.jobs[request["job"]].start_time = int(time.time() * 1000)
        return answer(request)

    cluster.on_submit = on_submit


@pytest.fixture
def keeps_ten(fits: Path) -> Path:
    fits.write_text(fits.read_text().replace("spec:\n", "spec:\n  history: {keepRuns: 10, keepFor: 2d}\n", 1))
    return fits


def add_old(cluster: ClusterStandIn, count: int, fleet: str = "lab") -> list[str]:
    """Add ended applies of 30 days ago, oldest first; return their ids."""
    names = [f"fleetctl-apply-{number:012x}" for number in range(len(cluster.jobs), len(cluster.jobs) + count)]
    for number, name in enumerate(names):
        job = cluster.add_job(name, verb="apply", fleet=fleet, namespace="fleet", create="0")
        job.status, job.start_time = "SUCCEEDED", int(time.time() * 1000) - 30 * DAY_MS + number
        job.end_time = job.start_time + 1
    return names


def deleted(cluster: ClusterStandIn) -> int:
    return sum(method == "DELETE" for method, _ in cluster.requests)


def test_an_apply_deletes_a_part_of_the_old_runs_after_its_result(
    cli: Cli, cluster: ClusterStandIn, keeps_ten: Path
) -> None:
    names = add_old(cluster, AT_ONCE + 100)
    done = cli("apply", keeps_ten, "--yes", "--format", "json")
    assert done.code == 0
    assert json.loads(done.out)["exitCode"] == 0
    assert f"{AT_ONCE} ended runs deleted that spec.history does not keep" in done.err
    assert [name for name in names if name not in cluster.jobs] == names[:AT_ONCE]
    assert {"PUT", "POST"} & {method for method, _ in cluster.requests[-AT_ONCE:]} == set(), "it is the last thing"


@pytest.mark.parametrize(("old", "goes"), [(1000 + SLACK - 1, 0), (1000 + SLACK, SLACK + 1)])
def test_a_fleet_file_without_history_keeps_a_thousand_runs(
    cli: Cli, cluster: ClusterStandIn, fits: Path, old: int, goes: int
) -> None:
    add_old(cluster, old)
    assert cli("apply", fits, "--yes").code == 0
    assert deleted(cluster) == goes, "with this apply's own run, one or none more than are left until it pays"


def test_a_saved_plan_keeps_what_its_fleet_file_said(
    cli: Cli, cluster: ClusterStandIn, keeps_ten: Path, tmp_path: Path
) -> None:
    assert cli("plan", keeps_ten, "--out", tmp_path / "plan").code == 0
    keeps_ten.unlink()
    add_old(cluster, 100)
    assert cli("apply", tmp_path / "plan", "--yes").code == 0
    assert deleted(cluster) == 91, "with its own run there are 101"


def test_a_dashboard_that_deletes_nothing_changes_no_exit_code(
    cli: Cli, cluster: ClusterStandIn, keeps_ten: Path
) -> None:
    add_old(cluster, 100)
    cluster.refusals["DELETE", "/api/jobs/"] = [(405, "405: Method Not Allowed")] * 20
    done = cli("apply", keeps_ten, "--yes")
    assert done.code == 0
    assert done.err.count("old runs stay in the cluster's list of jobs: DELETE was answered with 405") == 1
    assert f"`fleetctl prune -f {keeps_ten} --runs` deletes them by hand" in " ".join(done.err.split())


def test_prune_lists_old_runs_by_fleet_and_verb_and_deletes_them_after_a_yes(
    cli: Cli, cluster: ClusterStandIn, keeps_ten: Path
) -> None:
    add_old(cluster, 30)
    add_old(cluster, 30, fleet="other")
    shown = cli("prune", keeps_ten, "--runs", "--dry-run", "--format", "json")
    assert shown.code == 0
    [row] = json.loads(shown.out)["runs"]
    assert (row["fleet"], row["verb"], row["found"], row["removed"]) == ("lab", "apply", 20, 0)
    assert cli("prune", keeps_ten, "--runs", typed="n\n").code == 1
    assert deleted(cluster) == 0
    done = cli("prune", keeps_ten, "--runs", "--yes")
    assert done.code == 0
    assert "20 of 20 runs deleted" in done.out
    assert len(cluster.jobs) == 40
    assert cli("prune", keeps_ten, "--runs", "--yes").out.strip() == "no run to delete"


def test_prune_says_that_the_cluster_deletes_no_runs(cli: Cli, cluster: ClusterStandIn, keeps_ten: Path) -> None:
    add_old(cluster, 30)
    cluster.refusals["DELETE", "/api/jobs/"] = [(404, "404: Not Found")] * 20
    done = cli("prune", keeps_ten, "--runs", "--yes")
    assert done.code == 1
    assert "no run was deleted: DELETE was answered with 404" in done.err
    assert cli("prune", keeps_ten, "--runs", "--nodes", "a=b").code == 64
