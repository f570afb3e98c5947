"""`--report comment`, `summary` and `outputs`: any command with a report publishes it in a CI job, as `ci` does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, all_ready, serve
from github_stand_in import READ_ONLY_TOKEN, GitHubStandIn
from pull_request import FLEET, PullRequest

BOT = "github-actions[bot]"
MORE = FLEET.replace("replicas: 1", "replicas: 3")
BROKEN = FLEET.replace("replicas: 1", "replicas: many")
EVERYWHERE = ("--report", "comment", "--report", "summary", "--report", "outputs")


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    """A node of 8 GPUs; every created replica becomes ready."""
    stand_in = ClusterStandIn(on_submit=lambda request: all_ready(request)[-1:])
    stand_in.add_node("node-a")
    with serve(stand_in):
        yield stand_in


def test_a_plan_is_published_as_a_review_is(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path, tmp_path: Path
) -> None:
    pull.push(MORE)
    plain = job("plan", "-f", "fleet.yaml", "--inventory", snapshot_file, "--base", "HEAD^1", "--out", "p.fleetplan",
                *EVERYWHERE)
    assert plain.code == 0, plain.log
    assert "comment: written on #7" in plain.log
    assert "::" not in plain.log, "annotations are a format, and part of `ci`"
    [comment] = hub.of(BOT)
    reviewed = job("ci", "review", "-f", "fleet.yaml", "--inventory", snapshot_file, "--base", "HEAD^1",
                   FLEETCTL_PLAN="p.fleetplan", GITHUB_OUTPUT=str(tmp_path / "of-review"),
                   GITHUB_STEP_SUMMARY=str(tmp_path / "summary-of-review"))
    assert (hub.of(BOT), len(hub.writes())) == ([comment], 1), "the same marker, and the same text"
    assert (plain.summary, plain.outputs) == (reviewed.summary, reviewed.outputs)
    assert plain.outputs["plan_file"] == "p.fleetplan"


def test_an_error_replaces_the_comment_of_the_plan_before(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    pull.push(MORE)
    words = ("plan", "-f", "fleet.yaml", "--inventory", snapshot_file, *EVERYWHERE, "--report", "markdown=plan.md")
    assert job(*words).code == 0
    checkout = pull.push(BROKEN)
    result = job(*words)
    assert result.code == 1
    [comment] = hub.of(BOT)
    assert "No plan for fleet" in comment
    assert "fleet.yaml:7:15" in comment
    assert result.log.count("fleet.yaml:7:15: error") == 1
    assert (result.outputs["exit_code"], result.outputs["reports"]) == ("1", "plan.md")
    assert "No plan for fleet" in (checkout / "plan.md").read_text()


def test_a_broken_file_that_is_not_a_fleet_updates_the_comment_of_its_base(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    pull.push("a: [")
    assert job("plan", "-f", "fleet.yaml", "--inventory", snapshot_file, "--base", "HEAD^1", *EVERYWHERE).code == 1
    assert hub.of(BOT)[0].startswith("<!-- fleetctl:plan:lab -->\n")


def test_a_check_and_a_diff_have_comments_of_their_own(job, pull: PullRequest, hub: GitHubStandIn) -> None:
    pull.push(MORE)
    assert job("validate", "-f", "fleet.yaml", *EVERYWHERE).outputs["summary"] == "0 errors, 0 warnings"
    differs = job("diff", "HEAD^1", "-f", "fleet.yaml", "--detailed-exitcode", *EVERYWHERE)
    assert (differs.code, differs.outputs["exit_code"]) == (2, "2")
    assert [text.partition("\n")[0] for text in hub.of(BOT)] == [
        "<!-- fleetctl:validate:lab -->", "<!-- fleetctl:diff:lab -->"]
    pull.push(BROKEN)
    assert job("diff", "HEAD^1", "-f", "fleet.yaml", *EVERYWHERE).code == 1
    assert "No diff of fleet" in hub.of(BOT)[1]


def test_an_apply_is_published_as_that_of_ci_is(job, pull: PullRequest, cluster: ClusterStandIn) -> None:
    pull.merge(FLEET + "# merged\n")
    pull.environ.update(FLEETCTL_ADDRESS=cluster.url)
    result = job("apply", "-f", "fleet.yaml", "--yes", "--report", "summary", "--report", "outputs",
                 "--report", "html=apply.html")
    assert result.code == 0, result.log
    assert "## Apply of fleet lab" in result.summary
    assert (result.outputs["summary"], result.outputs["has_changes"]) == ("Apply: 1 ready, 0 removed", "true")
    assert result.outputs["reports"] == "apply.html"
    place = Path(pull.environ["GITHUB_WORKSPACE"])
    assert "org/one/0" in (place / "apply.html").read_text()
    assert pull.hub.requests == []

    (place / "fleet.yaml").write_text(BROKEN)
    failed = job("apply", "-f", "fleet.yaml", "--yes", "--format", "json", "--report", "summary")
    assert failed.code == 1
    assert "No apply of fleet lab" in failed.summary
    assert failed.log.count('"type":"runSummary"') == 1


def test_a_rollout_and_the_history_are_published(job, pull: PullRequest, cluster: ClusterStandIn) -> None:
    pull.merge(FLEET + "# merged\n")
    pull.environ.update(FLEETCTL_ADDRESS=cluster.url)
    result = job("rollout", "-f", "fleet.yaml", "--yes", "--report", "summary", "--report", "outputs")
    assert (result.code, result.outputs["has_changes"]) == (0, "false")
    assert "## Rollout of fleet lab" in result.summary
    assert "## History of fleet lab" in job("history", "-f", "fleet.yaml", "--report", "summary").summary


def test_a_read_only_token_loses_only_the_comment(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    pull.push(MORE, fork=True)
    result = job("plan", "-f", "fleet.yaml", "--inventory", snapshot_file, *EVERYWHERE, GITHUB_TOKEN=READ_ONLY_TOKEN)
    assert (result.code, hub.of(BOT)) == (0, [])
    assert "no comment on #7; the plan is still valid" in result.log
    assert "2 to create" in result.summary


@pytest.mark.parametrize(("sink", "environ", "words"), [
    ("comment", {"GITHUB_ACTIONS": ""}, "not in a CI job: neither GITHUB_ACTIONS nor GITLAB_CI is true"),
    ("comment", {"GITHUB_EVENT_PATH": "", "GITHUB_REF": ""}, "does not belong to a pull request"),
    ("comment", {"GITHUB_TOKEN": ""}, "GITHUB_TOKEN is not set"),
    ("comment", {"GITHUB_REPOSITORY": ""}, "GITHUB_REPOSITORY is not set"),
    ("summary", {"GITHUB_STEP_SUMMARY": ""}, "GITHUB_STEP_SUMMARY is not set"),
    ("outputs", {"GITHUB_OUTPUT": ""}, "GITHUB_OUTPUT is not set"),
    ("summary", {"GITHUB_ACTIONS": "", "GITLAB_CI": "true"}, "GitLab has no summary page for a job"),
    ("outputs", {"GITHUB_ACTIONS": "", "GITLAB_CI": "true"}, "CI_PROJECT_DIR is not set"),
    ("comment", {"GITHUB_ACTIONS": "", "GITLAB_CI": "true"}, "does not belong to a merge request"),
])
@pytest.mark.parametrize("command", ["plan", "apply"])
def test_what_the_job_lacks_for_a_sink_is_a_usage_error_before_the_cluster_is_contacted(
    job, pull: PullRequest, cluster: ClusterStandIn, command: str, sink: str, environ: dict[str, str], words: str
) -> None:
    pull.push(MORE)
    result = job(command, "-f", "fleet.yaml", "--report", sink, FLEETCTL_ADDRESS=cluster.url, **environ)
    assert result.code == 64
    assert f"--report {sink}: " in result.log
    assert words in " ".join(result.log.split())
    assert (cluster.requests, pull.hub.requests) == ([], [])
