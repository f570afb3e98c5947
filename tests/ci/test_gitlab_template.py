"""The GitLab template: the scripts of its jobs, run as a runner does against a stand-in GitLab."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import make_remote
from cluster_stand_in import ClusterStandIn, all_ready, serve
from gitlab_stand_in import PROJECT_TOKEN, GitLabStandIn, gitlab
from offline_python import OFFLINE, offline_python
from pull_request import FLEET

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TEMPLATE: dict[str, Any] = yaml.safe_load((ROOT / "templates" / "gitlab" / "fleetctl.gitlab-ci.yml").read_text())
JOBS = {name: {**TEMPLATE[".fleetctl"], **job} for name, job in TEMPLATE.items() if name.startswith("fleetctl:")}
MORE = FLEET.replace("replicas: 1", "replicas: 2")


@pytest.fixture
def lab() -> Iterator[GitLabStandIn]:
    with gitlab() as stand_in:
        yield stand_in


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    stand_in = ClusterStandIn(on_submit=lambda request: all_ready(request)[-1:])
    stand_in.add_node("node-a")
    stand_in.add_node("node-b")
    with serve(stand_in):
        yield stand_in


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that before_script creates, with this project as the package."""
    folder = tmp_path_factory.mktemp("gitlab")
    done = bash(TEMPLATE[".fleetctl"]["before_script"], folder, {
        "PATH": f"{offline_python(folder / 'bin')}:{os.environ['PATH']}", "HOME": str(folder), **OFFLINE,
        "CI_PROJECT_DIR": str(folder / "project"), "FLEETCTL_PACKAGE": str(ROOT)})
    assert done.returncode == 0, done.stderr
    return folder / "project.fleetctl"


@pytest.fixture
def run_job(tmp_path: Path, installed: Path, lab: GitLabStandIn, cluster: ClusterStandIn):
    """Push MORE to a branch; then run the script of a job in the checkout of its merge request."""
    remote = make_remote(tmp_path)
    base = remote.commit("main", FLEET, "fleet.yaml")
    head = remote.commit("change", MORE, "fleet.yaml")
    place = remote.check_out(tmp_path / "work", "change", depth=9)
    Path(f"{place}.fleetctl").symlink_to(installed)

    def run_script(name: str, **environ: str) -> subprocess.CompletedProcess[str]:
        job = JOBS[name]
        variables = {**TEMPLATE["variables"], **TEMPLATE[".fleetctl"]["variables"], **job.get("variables", {})}
        env = {**lab.environment(), **variables, "FLEETCTL_FILES": "fleet.yaml", "FLEETCTL_ADDRESS": cluster.url,
               "CI_PROJECT_DIR": str(place), "CI_MERGE_REQUEST_DIFF_BASE_SHA": base, "CI_COMMIT_SHA": head,
                "PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), **environ}
        return bash(job["script"], place, env)

    run_script.place = place
    return run_script


def test_the_template_has_a_job_for_each_step_of_a_change() -> None:
    assert set(JOBS) == {"fleetctl:validate", "fleetctl:plan", "fleetctl:apply", "fleetctl:drift"}
    for job in JOBS.values():
        assert job["rules"]
        assert job["stage"] in {"test", "deploy"}


def test_a_scheduled_drift_check_applies_nothing_and_writes_an_issue(
    run_job, cluster: ClusterStandIn, lab: GitLabStandIn
) -> None:
    [only] = JOBS["fleetctl:drift"]["rules"]
    assert JOBS["fleetctl:apply"]["rules"][0] == {**only, "when": "never"}
    done = run_job("fleetctl:drift", CI_MERGE_REQUEST_IID="")
    assert done.returncode == 2, done.stderr
    assert "2 can be created" in lab.issues[0]["description"]
    assert (run_job.place / "fleetctl-drift.html").is_file()
    assert cluster.writes() == []


def test_the_package_to_install_is_required(tmp_path: Path) -> None:
    done = bash(TEMPLATE[".fleetctl"]["before_script"], tmp_path, {"PATH": os.environ["PATH"], **TEMPLATE["variables"]})
    assert done.returncode != 0
    assert "FLEETCTL_PACKAGE" in done.stderr


def test_validate_needs_no_cluster_and_writes_its_report(run_job, cluster: ClusterStandIn, lab: GitLabStandIn) -> None:
    done = run_job("fleetctl:validate")
    assert done.returncode == 0, done.stderr
    assert_artifacts_exist(run_job.place, JOBS["fleetctl:validate"])
    assert cluster.requests == []
    assert lab.requests == []


def test_the_review_keeps_one_note_and_writes_its_artifacts(run_job, lab: GitLabStandIn) -> None:
    for _ in range(2):
        done = run_job("fleetctl:plan")
        assert done.returncode == 0, done.stderr
    [note] = lab.of("project_42_bot")
    assert note.startswith("<!-- fleetctl:plan:lab -->")
    assert re.search(r"This change alone, since [^\n]+\n\n1 ", note)
    assert_artifacts_exist(run_job.place, JOBS["fleetctl:plan"])
    values = dict(line.split("=", 1) for line in (run_job.place / "fleetctl.env").read_text().splitlines())
    assert values["FLEETCTL_OUT_HAS_CHANGES"] == "true"
    assert PROJECT_TOKEN not in done.stdout + done.stderr + note


def test_without_a_token_for_notes_the_review_is_still_valid(run_job, lab: GitLabStandIn) -> None:
    done = run_job("fleetctl:plan", GITLAB_TOKEN="", CI_JOB_TOKEN="the-jobs-own")
    assert done.returncode == 0
    assert "project access token" in done.stderr
    assert lab.of("project_42_bot") == []


def test_the_apply_of_the_merged_files_needs_no_terminal(run_job, cluster: ClusterStandIn) -> None:
    done = run_job("fleetctl:apply", CI_MERGE_REQUEST_IID="")
    assert done.returncode == 0, done.stderr
    assert len(cluster.jobs) == 1
    assert "Apply: 2 ready, 0 removed" in done.stdout


def assert_artifacts_exist(place: Path, job: dict[str, Any]) -> None:
    """Assert that every artifact of the job exists."""
    named = [*job["artifacts"].get("paths", []), *job["artifacts"]["reports"].values()]
    assert [name for name in named if not (place / name).is_file()] == []


def bash(lines: list[str], folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the lines of a script as a runner does."""
    return subprocess.run(["bash", "-eo", "pipefail", "-c", "\n".join(lines)], cwd=folder, env=environ, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=240, check=False)
