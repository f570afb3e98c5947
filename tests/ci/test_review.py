"""`fleetctl ci review` on a pull request: what reviewers see, what later steps get, and the exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from checkout import git
from github_stand_in import READ_ONLY_TOKEN, GitHubStandIn
from pull_request import FLEET, PullRequest
from stand_in_server import Answer

from fleetctl.errors import FleetctlError

BOT = "github-actions[bot]"
MORE = FLEET.replace("replicas: 1", "replicas: 3")
BROKEN = FLEET.replace("replicas: 1", "replicas: many")


def review(job, snapshot_file: Path, *flags: str | Path, **environ: str):
    return job("ci", "review", "-f", "fleet.yaml", "--inventory", snapshot_file, *flags, **environ)


def test_a_change_gets_one_comment_a_summary_outputs_and_annotations(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    pull.push(MORE)
    result = review(job, snapshot_file)
    assert result.code == 0
    [comment] = hub.of(BOT)
    assert comment.startswith("<!-- fleetctl:plan:lab -->\n")
    assert "2 to create, 1 blocked" in comment
    assert "actions/runs/99" in comment.splitlines()[-1]
    assert git(pull.remote.desk, "rev-parse", "change") in comment.splitlines()[-1]
    assert result.summary.startswith(comment.split("\n", 1)[0])
    assert result.outputs["exit_code"] == "3"
    assert result.outputs["has_changes"] == "true"
    assert len(result.outputs["plan_id"]) == 64
    assert "2 to create, 1 blocked" in result.outputs["summary"]
    assert "::error file=fleet.yaml,line=6," in result.log
    assert "hush-hush" not in result.log + comment + result.summary


def test_a_change_of_the_inventory_that_it_is_planned_on_is_a_warning(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    real = snapshot_file.read_text()
    pull.remote.commit("main", real, "lab.json")
    (pull.remote.desk / "linked.json").symlink_to("lab.json")
    git(pull.remote.desk, "add", "linked.json")
    git(pull.remote.desk, "commit", "-q", "-m", "a link")
    place = pull.push(MORE)
    (place / "published.json").write_text(real)  # by an earlier step of the job
    (place / "lab.json").write_text(real + " ")
    assert warnings(job, "linked.json", "published.json") == []

    pull.remote.commit("change", real + "\n", "lab.json")
    pull.push(MORE + "# again")
    assert warnings(job, "lab.json", "linked.json") == ["lab.json", "linked.json"]
    assert "This change edits the inventory that it is planned on" in hub.of(BOT)[0]


def test_a_change_of_its_inventory_is_on_the_terminal_and_in_every_report(
    job, pull: PullRequest, snapshot_file: Path, tmp_path: Path
) -> None:
    pull.remote.commit("main", snapshot_file.read_text(), "lab.json")
    pull.remote.commit("change", snapshot_file.read_text() + "\n", "lab.json")
    pull.push(MORE)
    files = {name: tmp_path / f"plan.{name}" for name in ("markdown", "html", "sarif", "junit")}
    result = job("ci", "review", "-f", "fleet.yaml", "--inventory", "lab.json",
                 *(word for name, file in files.items() for word in ("--report", f"{name}={file}")))
    assert result.code == 0, result.log
    text = "This change edits the inventory that it is planned on"
    assert f"\n{text}\n" in result.log
    assert all(text in file.read_text() for file in files.values())


def warnings(job, *inventories: str) -> list[str]:
    """The inventories with which a review warns that the change edits them."""
    found = []
    for inventory in inventories:
        result = job("ci", "review", "-f", "fleet.yaml", "--inventory", inventory)
        assert result.code == 0, result.log
        found += [inventory] if "INVENTORY_CHANGED" in result.log else []
    return found


def test_a_file_that_the_checkout_converts_is_a_warning(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    """A quotation mark of another language becomes one of YAML's here. A watch reads the commit, where it is text."""
    converted = FLEET + "# “text”\n"
    pull.remote.commit("change", converted)
    place = pull.push("fleet.yaml working-tree-encoding=ASCII//TRANSLIT\n", name=".gitattributes")
    assert (place / "fleet.yaml").read_text() == converted.replace("”", '"').replace("“", '"')
    result = review(job, snapshot_file)
    assert "::warning file=fleet.yaml,line=1,col=1,title=FILE_DIFFERS" in result.log
    assert "is not here what the commit has" in hub.of(BOT)[0]

    pull.remote.commit("change", "fleet.yaml eol=crlf\n", ".gitattributes")
    place = pull.push(MORE)
    assert b"\r\n" in (place / "fleet.yaml").read_bytes()
    assert "FILE_DIFFERS" not in review(job, snapshot_file).log


def test_warnings_about_the_files_are_once_in_the_comment_the_log_and_every_report_and_new_ones_first(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path, tmp_path: Path
) -> None:
    pull.push(MORE.replace("command: [", "command: [vllm, serve, x, --port, '8000', "))
    files = {name: tmp_path / f"plan.{name}" for name in ("markdown", "html", "sarif", "junit", "json")}
    result = review(job, snapshot_file, *(
        word for name, file in files.items() for word in ("--report", f"{name}={file}")))
    assert result.code == 0, result.log
    [comment] = hub.of(BOT)
    texts = [comment, *(file.read_text() for file in files.values())]
    assert [text.count("is fixed, so a second replica on the same node fails") for text in texts] == [1] * 6
    assert comment.index("New warnings of the fleet files") < comment.index("`FL065`") < comment.index("### Models")
    plan, annotations = result.log.split("::error", 1)
    assert plan.count("FL065") == 1
    assert annotations.count("title=FL065") == 1


def test_the_effect_of_the_change_is_shown(job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path) -> None:
    pull.push(MORE)
    assert review(job, snapshot_file).code == 0
    assert re.search(r"This change alone, since [^\n]+\n\n1 ", hub.of(BOT)[0])


def test_a_renamed_file_is_compared_with_its_old_version(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    git(pull.remote.desk, "checkout", "-q", "-b", "change")
    git(pull.remote.desk, "mv", "fleet.yaml", "lab.yaml")
    pull.push(MORE, name="lab.yaml")
    assert job("ci", "review", "-f", "lab.yaml", "--inventory", snapshot_file).code == 0
    assert re.search(r"This change alone, since [^\n]+\n\n1 more to create, 1 more blocked", hub.of(BOT)[0])


def test_the_second_push_updates_the_same_comment(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    pull.push(MORE)
    review(job, snapshot_file)
    pull.push(FLEET.replace("replicas: 1", "replicas: 2"))
    result = review(job, snapshot_file)
    [comment] = hub.of(BOT)
    assert "2 to create, 0 blocked" in comment
    assert [method for method, _ in hub.writes()] == ["POST", "PATCH"]
    assert "updated on #7" in result.log


def test_a_broken_file_is_reported_at_its_line_and_its_fix_in_the_same_comment(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    pull.push(BROKEN)
    result = review(job, snapshot_file)
    assert result.code == 1
    [comment] = hub.of(BOT)
    assert comment.startswith("<!-- fleetctl:plan:lab -->\n")
    assert "fleet.yaml:7:15" in comment
    assert "::error file=fleet.yaml,line=7,col=15" in result.log
    assert result.outputs == {"plan_id": "", "has_changes": "false", "exit_code": "1", "summary": "1 error, 0 warnings",
                             "plan_file": "", "reports": ""}
    pull.push(MORE)
    review(job, snapshot_file)
    assert len(hub.of(BOT)) == 1
    assert "2 to create" in hub.of(BOT)[0]


def test_a_change_that_fixes_a_broken_main_is_reviewed(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    pull.main = pull.remote.commit("main", BROKEN)
    pull.push(MORE)
    result = review(job, snapshot_file)
    assert result.code == 0
    [comment] = hub.of(BOT)
    assert "2 to create" in comment
    for text in (comment, result.log, result.summary):
        assert "cannot be read (1 problem), so the effect of the change alone is unknown" in " ".join(text.split())
    assert "fleet.yaml:7:15" not in result.log


def test_an_empty_variable_is_ignored_and_an_empty_flag_is_a_usage_error(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    pull.push(MORE)
    assert review(job, snapshot_file, FLEETCTL_BASE="").code == 0
    assert "2 to create" in hub.of(BOT)[0]
    result = review(job, snapshot_file, "--base", "")
    assert result.code == 64
    assert "BASE is empty; is a variable unset?" in result.log


def test_without_a_plan_the_reports_say_why(job, pull: PullRequest, snapshot_file: Path) -> None:
    checkout = pull.push(BROKEN)
    result = review(job, snapshot_file, FLEETCTL_REPORTS="junit=plan.xml\njson=plan.json\nhtml=plan.html")
    assert result.code == 1
    assert result.outputs["reports"].splitlines() == ["plan.xml", "plan.html"]
    assert "FL022" in (checkout / "plan.xml").read_text()
    assert not (checkout / "plan.json").exists()


@pytest.mark.parametrize("text", ["a: [", "", "\x00", "- not\n- a fleet\n"])
def test_a_file_that_is_not_a_fleet_uses_the_comment_of_its_base(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path, text: str
) -> None:
    pull.push(text)
    assert review(job, snapshot_file).code == 1
    assert hub.of(BOT)[0].startswith("<!-- fleetctl:plan:lab -->\n")


def test_an_unreachable_cluster_is_reported_in_the_comment(job, pull: PullRequest, hub: GitHubStandIn) -> None:
    pull.push(MORE)
    result = job("ci", "review", "-f", "fleet.yaml", "--address", "http://127.0.0.1:9")
    assert result.code == 1
    assert "cannot reach" in hub.of(BOT)[0]
    assert result.outputs["exit_code"] == "1"
    assert result.outputs["summary"] == "1 error"


@pytest.mark.parametrize("token", ["s3cret\r\nX-Evil: 1", "s3cr\u00e9t"])
def test_an_invalid_token_loses_only_the_comment_and_is_not_shown(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path, token: str
) -> None:
    pull.push(MORE)
    result = review(job, snapshot_file, GITHUB_TOKEN=token)
    assert result.code == 0
    assert "contains characters not allowed in a header" in result.log
    assert "s3cr" not in result.log + result.summary
    assert "2 to create" in result.summary
    assert result.outputs["exit_code"] == "3"


def test_an_unwritable_output_file_does_not_prevent_the_comment(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path, tmp_path: Path
) -> None:
    pull.push(MORE)
    result = review(job, snapshot_file, GITHUB_OUTPUT=str(tmp_path / "not" / "here"))
    assert result.code == 0
    assert "no outputs" in result.log
    assert len(hub.of(BOT)) == 1


def test_an_unwritable_report_is_reported_like_any_error(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleetctl.cli import reporting

    write_file = reporting.write_file

    def no_space(path: Path, text: str, *, mode: int | None) -> None:
        if path.name == "plan.md":
            raise FleetctlError(f"cannot write {path}: No space left on device")
        write_file(path, text, mode=mode)

    monkeypatch.setattr(reporting, "write_file", no_space)
    checkout = pull.push(MORE)
    result = review(job, snapshot_file, FLEETCTL_REPORTS="markdown=plan.md\njunit=plan.xml")
    assert result.code == 1
    assert "No space left on device" in hub.of(BOT)[0]
    assert "No plan for fleet lab" in result.summary
    assert result.outputs["reports"] == "plan.xml"
    assert "No space left" in (checkout / "plan.xml").read_text()


def test_a_read_only_token_changes_nothing_but_the_comment(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    pull.push(MORE, fork=True)
    result = review(job, snapshot_file, GITHUB_TOKEN=READ_ONLY_TOKEN)
    assert result.code == 0
    assert hub.of(BOT) == []
    assert "no comment on #7" in result.log
    assert "read-only token" in result.log
    assert "2 to create" in result.summary
    assert result.outputs["exit_code"] == "3"


def test_a_forge_that_is_down_does_not_fail_the_plan(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    pull.push(MORE)
    hub.refusals["GET"] = [Answer(404, {"message": "Not Found"})] * 9
    assert review(job, snapshot_file).code == 0


@pytest.mark.parametrize(("replicas", "fail_on", "code"), [
    (1, "policy", 0), (1, "blocked", 0), (3, "policy", 0), (3, "blocked", 3),
])
def test_a_change_fails_no_job_and_blocked_replicas_do_only_on_request(
    job, pull: PullRequest, snapshot_file: Path, replicas: int, fail_on: str, code: int
) -> None:
    pull.push(FLEET.replace("replicas: 1", f"replicas: {replicas}") + "# pushed\n")
    assert review(job, snapshot_file, "--fail-on", fail_on).code == code


def test_a_policy_violation_fails_the_job_and_force_lifts_its_threshold(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    pull.push(MORE.replace("spec:\n", "spec:\n  policy: {maxNewReplicas: 1}\n"))
    result = review(job, snapshot_file)
    assert (result.code, result.outputs["exit_code"]) == (4, "4")
    assert "maxNewReplicas" in hub.of(BOT)[0]
    assert review(job, snapshot_file, FLEETCTL_FORCE="true").code == 0


def test_reports_and_the_plan_are_written_and_listed_in_the_outputs(
    job, pull: PullRequest, snapshot_file: Path
) -> None:
    checkout = pull.push(MORE)
    result = review(job, snapshot_file, FLEETCTL_PLAN="p.fleetplan",
                   FLEETCTL_REPORTS="markdown=plan.md\n junit=plan.xml \n")
    assert result.code == 0
    assert result.outputs["reports"].splitlines() == ["plan.md", "plan.xml"]
    assert result.outputs["plan_file"] == "p.fleetplan"
    assert (checkout / "plan.md").read_text().startswith("<!-- fleetctl:plan:lab -->")
    assert (checkout / "p.fleetplan").stat().st_mode & 0o777 == 0o600


def test_files_are_named_from_the_root_of_the_checkout(
    job, pull: PullRequest, snapshot_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = pull.push(MORE)
    (checkout / "below").mkdir()
    outside = tmp_path / "outside.xml"
    result = job("ci", "review", "-f", "../fleet.yaml", "--inventory", snapshot_file, "--out", "p.fleetplan",
                "--report", "markdown=plan.md", "--report", f"junit={outside}", folder=checkout / "below")
    assert result.code == 0
    assert result.outputs["reports"].splitlines() == ["below/plan.md", str(outside)]
    assert result.outputs["plan_file"] == "below/p.fleetplan"


def test_everything_can_come_from_variables(job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path) -> None:
    pull.push(MORE)
    result = job("ci", "review", FLEETCTL_FILES="fleet.yaml\n", FLEETCTL_INVENTORY=str(snapshot_file),
                FLEETCTL_FAIL_ON="blocked", FLEETCTL_COMMENT="false", FLEETCTL_BASE="", FLEETCTL_PULL_REQUEST="")
    assert result.code == 3
    assert hub.requests == []


def test_no_files_is_a_usage_error(job, pull: PullRequest) -> None:
    pull.push(MORE)
    assert job("ci", "review").code == 64


def test_a_shallow_checkout_is_an_error_that_says_how_to_fetch_more(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    pull.push(MORE, depth=1)
    result = review(job, snapshot_file)
    assert result.code == 1
    assert "fetch-depth: 0" in result.log
    assert "fetch-depth" in hub.of(BOT)[0]


def test_only_a_shallow_checkout_gets_the_hint_to_fetch_more(
    job, pull: PullRequest, snapshot_file: Path, tmp_path: Path
) -> None:
    pull.push(MORE)
    other = tmp_path / "elsewhere.yaml"
    other.write_text(FLEET.replace("org/one", "org/two"))
    outside = review(job, snapshot_file, "-f", other, "--base", "HEAD")
    assert "outside of the git repository" in outside.log
    assert "fetch-depth" not in outside.log
    no_git = review(job, snapshot_file, PATH=str(tmp_path))
    assert "git is not installed" in no_git.log
    assert "check out the repository" not in no_git.log


def test_a_checkout_of_another_owner_is_an_error_that_says_how_to_trust_it(
    job, pull: PullRequest, snapshot_file: Path
) -> None:
    pull.push(MORE)
    result = review(job, snapshot_file, GIT_TEST_ASSUME_DIFFERENT_OWNER="1")
    assert "dubious ownership" in result.log
    assert "safe.directory" in result.log


def test_without_a_checkout_the_error_says_to_check_out_the_repository(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path, fleet_file: Path
) -> None:
    pull.push(MORE)
    result = job("ci", "review", "-f", fleet_file, "--inventory", snapshot_file,
                 GITHUB_WORKSPACE=str(fleet_file.parent),
                GIT_CEILING_DIRECTORIES=str(fleet_file.parent.parent))
    assert result.code == 1
    assert "check out the repository" in result.log


def test_a_change_cannot_send_the_jobs_token_to_a_cluster_it_names(
    job, pull: PullRequest, hub: GitHubStandIn
) -> None:
    pull.push(MORE.replace("spec:\n", f"spec:\n  cluster: {{address: '{hub.url}'}}\n"))
    before = len(hub.requests)
    result = job("ci", "review", "-f", "fleet.yaml", "--no-comment", RAY_AUTH_TOKEN="s3cret")
    assert result.code == 1
    assert "sets another spec.cluster.address" in result.log
    assert len(hub.requests) == before


def test_with_an_unreadable_base_the_change_cannot_choose_a_cluster_either(
    job, pull: PullRequest, hub: GitHubStandIn
) -> None:
    pull.main = pull.remote.commit("main", BROKEN)
    pull.push(MORE.replace("spec:\n", f"spec:\n  cluster: {{address: '{hub.url}'}}\n"))
    before = len(hub.requests)
    result = job("ci", "review", "-f", "fleet.yaml", "--no-comment", RAY_AUTH_TOKEN="s3cret")
    assert result.code == 1
    assert "the address in its base is unknown; that cluster was not contacted" in " ".join(result.log.split())
    assert len(hub.requests) == before


@pytest.mark.parametrize(("event", "ref", "flags"), [
    ('{"issue": {"number": 7, "pull_request": {"url": "x"}}}', "refs/heads/main", ()),
    ('{"inputs": {}}', "refs/heads/change", ("--pull-request", "7")),
    (None, "refs/pull/7/merge", ()),
], ids=["issue_comment", "workflow_dispatch", "no event file"])
def test_without_a_known_base_no_cluster_in_the_file_is_contacted(
    job, pull: PullRequest, hub: GitHubStandIn, tmp_path: Path, event: str | None, ref: str, flags: tuple[str, ...]
) -> None:
    pull.push(MORE.replace("spec:\n", f"spec:\n  cluster: {{address: '{hub.url}'}}\n"))
    event_file = tmp_path / "event.json"
    if event:
        event_file.write_text(event)
    before = len(hub.requests)
    result = job("ci", "review", "-f", "fleet.yaml", "--no-comment", *flags, RAY_AUTH_TOKEN="s3cret",
                GITHUB_EVENT_PATH=str(event_file), GITHUB_REF=ref)
    assert result.code == 1
    assert "FLEETCTL_ADDRESS" in result.log
    assert len(hub.requests) == before


def test_without_a_known_base_the_job_may_name_the_cluster(
    job, pull: PullRequest, snapshot_file: Path, tmp_path: Path
) -> None:
    pull.push(MORE.replace("spec:\n", "spec:\n  cluster: {address: 'http://127.0.0.1:9'}\n"))
    environ = {"GITHUB_EVENT_PATH": str(tmp_path / "none.json"), "GITHUB_REF": "refs/pull/7/merge"}
    assert review(job, snapshot_file, "--no-comment", **environ).code == 0
    environ["FLEETCTL_ADDRESS"] = "http://127.0.0.1:9"
    assert "cannot reach" in job("ci", "review", "-f", "fleet.yaml", "--no-comment", **environ).log


def test_a_push_to_a_branch_gets_a_summary_and_no_comment(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path, tmp_path: Path
) -> None:
    pull.push(MORE)
    event = tmp_path / "push.json"
    event.write_text('{"before": "a", "after": "b"}')
    result = review(job, snapshot_file, GITHUB_EVENT_PATH=str(event), GITHUB_REF="refs/heads/main")
    assert result.code == 0
    assert hub.requests == []
    assert "2 to create" in result.summary


def test_a_merge_queue_group_is_reviewed_against_its_base_without_a_comment(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    checkout = pull.push(MORE)
    event = pull.tmp_path / "queue.json"
    head = git(checkout, "rev-parse", "HEAD")
    event.write_text(json.dumps({"merge_group": {"base_sha": pull.main, "head_sha": head}}))
    queued = {"GITHUB_EVENT_PATH": str(event), "GITHUB_REF": "refs/heads/gh-readonly-queue/main/pr-7-0"}
    result = review(job, snapshot_file, **queued)
    assert result.code == 0
    assert re.search(r"This change alone, since [^\n]+\n\n1 ", result.summary)
    assert head in result.summary.splitlines()[-1]
    assert hub.requests == []
    pull.push(MORE.replace("spec:\n", f"spec:\n  cluster: {{address: '{hub.url}'}}\n"))
    result = job("ci", "review", "-f", "fleet.yaml", RAY_AUTH_TOKEN="s3cret", **queued)
    assert "sets another spec.cluster.address" in result.log
    assert hub.requests == []


def test_outside_ci_a_review_prints_only_the_plan(run_cli, fleet_file: Path, snapshot_file: Path) -> None:
    done = run_cli("ci", "review", "-f", fleet_file, "--inventory", snapshot_file)
    assert done.returncode == 0
    assert done.stdout.rstrip().endswith("0 to remove (fleetctl never removes)")
    assert "::" not in done.stdout
    assert "--base REV" in done.stderr
    assert "--base REV" not in run_cli("ci", "review", "-f", fleet_file, "--inventory", snapshot_file, "--base",
                                       "HEAD").stderr
