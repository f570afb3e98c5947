"""The GitLab template: the scripts of its jobs, run as a runner does against a stand-in GitLab."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import git, make_remote
from cluster_stand_in import ClusterStandIn, all_ready, serve
from gitlab_stand_in import PROJECT_TOKEN, GitLabStandIn, gitlab
from offline_python import OFFLINE, offline_python
from pull_request import FLEET

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "templates" / "gitlab" / "fleetctl.gitlab-ci.yml").read_text()
DIGEST = f"python:3.12@sha256:{'0' * 64}"


class Refused(Exception):
    """GitLab creates no pipeline."""


def included(**inputs: str) -> dict[str, Any]:
    """The template as GitLab includes it: every input is given and matches its expression."""
    declared = next(yaml.safe_load_all(TEXT))["spec"]["inputs"]
    for name, one in declared.items():
        if not re.search(one["regex"], inputs.get(name, "")):
            raise Refused(name)
    assert inputs.keys() == declared.keys()
    text = re.sub(r"\$\[\[ inputs\.(\w+) ]]", lambda found: inputs[found[1]], TEXT)
    _, template = yaml.safe_load_all(text)
    return template


TEMPLATE = included(image=DIGEST, source="https://git.example.com/lab/fleetctl", commit="c" * 40)
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
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A repository of fleetctl: this program at a commit, and a later commit that no job may run."""
    folder = tmp_path_factory.mktemp("published")
    git(folder, "init", "-q", "-b", "main")
    shutil.copytree(ROOT / "fleetctl", folder / "fleetctl", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "requirements", folder / "requirements", ignore=shutil.ignore_patterns("__pycache__"))
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "a release")
    commit = git(folder, "rev-parse", "HEAD")
    (folder / "fleetctl" / "__init__.py").write_text("raise SystemExit('another commit')\n")
    git(folder, "commit", "-q", "-a", "-m", "later")
    git(folder, "tag", "v1")
    return folder, commit


def install(folder: Path, published: Path, commit: str) -> subprocess.CompletedProcess[str]:
    """Run before_script with `folder`/project as the checkout."""
    script = included(image=DIGEST, source=published.as_uri(), commit=commit)[".fleetctl"]["before_script"]
    python = folder / "bin" if (folder / "bin").exists() else offline_python(folder / "bin")
    return bash(script, folder, {"PATH": f"{python}:{os.environ['PATH']}", "HOME": str(folder), **OFFLINE,
                                 "CI_PROJECT_DIR": str(folder / "project")})


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, published: tuple[Path, str]) -> Path:
    """The environment that before_script creates. An earlier job has left files in its place."""
    folder = tmp_path_factory.mktemp("gitlab")
    left = folder / "project.fleetctl" / "lib" / "python3.12" / "site-packages"
    left.mkdir(parents=True)
    (left / "left.pth").write_text("import sys; sys.exit('code of an earlier job ran')\n")
    done = install(folder, *published)
    assert done.returncode == 0, done.stderr
    assert not left.exists() or not (left / "left.pth").exists()
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
    assert set(JOBS) == {"fleetctl:validate", "fleetctl:plan", "fleetctl:apply", "fleetctl:rollout", "fleetctl:drift"}
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


@pytest.mark.parametrize(("name", "value"), [
    ("image", "python:3.12"), ("image", "python:latest"), ("image", "python"), ("image", ""),
    ("image", f"python@sha256:{'0' * 63}"), ("image", f"python:3.12 @sha256:{'0' * 64}"),
    ("image", f"$IMAGE@sha256:{'0' * 64}"), ("image", f"python@sha256:{'0' * 64}x"),
    ("image", f"python@sha512:{'0' * 64}"), ("commit", "main"), ("commit", "v1"), ("commit", "HEAD"),
    ("commit", "c" * 39), ("commit", "c" * 41), ("commit", "$COMMIT"), ("source", "$(id)"), ("source", "a`id`"),
    ("source", "https://git.example.com/x --upload-pack=id"),
])
def test_what_can_be_moved_or_is_no_name_is_refused(name: str, value: str) -> None:
    good = {"image": DIGEST, "source": "https://git.example.com/lab/fleetctl.git", "commit": "c" * 40}
    assert included(**good)[".fleetctl"]["image"] == DIGEST
    with pytest.raises(Refused, match=name):
        included(**{**good, name: value})


def test_nothing_that_chooses_the_code_is_a_variable() -> None:
    used = set(re.findall(r"\$\{?([A-Z_]+)", "\n".join(TEMPLATE[".fleetctl"]["before_script"])))
    assert used == {"CI_PROJECT_DIR"}
    assert TEMPLATE["variables"].keys() == {"FLEETCTL_FILES"}
    assert "--require-hashes" in str(TEMPLATE[".fleetctl"]["before_script"])
    for job in JOBS.values():
        assert (job["image"], "image" in job["variables"]) == (DIGEST, False)


def test_a_commit_that_the_source_does_not_have_ends_the_job(tmp_path: Path, published: tuple[Path, str]) -> None:
    assert install(tmp_path, published[0], "d" * 40).returncode != 0


def jobs_of(**variables: str) -> set[str]:
    """The names of the jobs in a pipeline: the first rule that matches decides."""
    def holds(condition: str) -> bool:
        def side(word: str) -> str:
            return variables.get(word[1:], "") if word.startswith("$") else word.strip('"')

        parts = [part.split(" == ") for part in condition.split(" && ")]
        return all(side(words[0]) == side(words[1]) if len(words) == 2 else side(words[0]) for words in parts)

    found = ((name, next((rule for rule in job["rules"] if holds(rule["if"])), {"when": "never"}))
             for name, job in JOBS.items())
    return {name.removeprefix("fleetctl:") for name, rule in found if rule.get("when") != "never"}


ON_MAIN = {"CI_COMMIT_BRANCH": "main", "CI_DEFAULT_BRANCH": "main"}
ON_BRANCH = {"CI_COMMIT_BRANCH": "change", "CI_DEFAULT_BRANCH": "main", "CI_PIPELINE_SOURCE": "push"}


def test_a_push_is_validated_once_whether_or_not_a_merge_request_is_open() -> None:
    request = {"CI_PIPELINE_SOURCE": "merge_request_event", "CI_DEFAULT_BRANCH": "main"}
    assert jobs_of(**ON_BRANCH) == {"validate"}
    assert jobs_of(**ON_BRANCH, CI_OPEN_MERGE_REQUESTS="lab!1") == set()
    assert jobs_of(**request) == {"validate", "plan"}
    assert jobs_of(**ON_MAIN, CI_PIPELINE_SOURCE="push") == {"validate", "apply"}
    assert jobs_of(**ON_MAIN, CI_PIPELINE_SOURCE="schedule", FLEETCTL_DRIFT="1") == {"drift"}
    assert jobs_of(**ON_MAIN, CI_PIPELINE_SOURCE="schedule") == {"apply"}


def test_only_the_apply_job_is_in_the_environment_with_the_clusters_token() -> None:
    environments = {name.partition(":")[2]: job.get("environment", {}).get("name") for name, job in JOBS.items()}
    assert environments == {"validate": None, "plan": "fleet/read", "apply": "fleet/apply", "rollout": "fleet/rollout",
                            "drift": "fleet/read"}


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
