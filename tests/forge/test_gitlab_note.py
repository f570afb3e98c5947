"""The note on a merge request: as on GitHub, one per fleet and only our own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gitlab_stand_in import JOB_TOKEN, PROJECT_TOKEN, GitLabStandIn, gitlab

from fleetctl.errors import ForgeError
from fleetctl.forge.forges import GitLab, find_forge, merge_request

MARKER = "<!-- fleetctl:plan:lab -->"
BOT = "project_42_bot"


@pytest.fixture
def lab() -> Iterator[GitLabStandIn]:
    with gitlab() as stand_in:
        yield stand_in


def forge(environ: dict[str, str]) -> GitLab:
    return GitLab(environ, merge_request(environ))


def test_the_first_run_creates_and_the_second_updates_in_place(lab: GitLabStandIn) -> None:
    assert forge(lab.environment()).comment(f"{MARKER}\none").created is True
    assert forge(lab.environment()).comment(f"{MARKER}\ntwo").created is False
    assert lab.of(BOT) == [f"{MARKER}\ntwo"]


def test_notes_of_others_and_of_the_system_are_left_alone_and_all_pages_are_read(lab: GitLabStandIn) -> None:
    lab.add(f"{MARKER}\nfake", "mallory")
    for number in range(130):
        lab.add(f"{MARKER}\nchanged title {number}", BOT, system=True)
    ours = lab.add(f"{MARKER}\nold", BOT)
    assert forge(lab.environment()).comment(f"{MARKER}\nnew").created is False
    assert ours["body"] == f"{MARKER}\nnew"
    assert lab.of("mallory") == [f"{MARKER}\nfake"]


def test_a_refused_job_token_is_an_error_with_a_hint(lab: GitLabStandIn) -> None:
    with pytest.raises(ForgeError, match="401") as refused:
        forge(lab.environment(CI_JOB_TOKEN=JOB_TOKEN, GITLAB_USER_LOGIN="ann")).comment(MARKER)
    assert "GITLAB_TOKEN" in str(refused.value.hint)
    assert JOB_TOKEN not in f"{refused.value.message} {refused.value.hint}"
    assert lab.requests[0].headers["job-token"] == JOB_TOKEN


def test_without_a_token_no_request_is_sent(lab: GitLabStandIn) -> None:
    with pytest.raises(ForgeError, match="no token"):
        forge(lab.environment(GITLAB_TOKEN="")).comment(MARKER)
    assert lab.requests == []


@pytest.mark.parametrize("missing", ["CI_PROJECT_ID", "CI_API_V4_URL"])
def test_a_missing_variable_is_named(lab: GitLabStandIn, missing: str) -> None:
    environ = lab.environment()
    del environ[missing]
    with pytest.raises(ForgeError, match=f"{missing} is not set"):
        forge(environ).comment(MARKER)


def test_the_merge_request_is_read_from_the_environment(lab: GitLabStandIn) -> None:
    environ = {**lab.environment(), "CI_MERGE_REQUEST_DIFF_BASE_SHA": "abc", "CI_COMMIT_SHA": "def",
               "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "77"}
    found = merge_request(environ)
    assert found is not None
    assert (found.number, found.label, found.base, found.head, found.from_fork) == (5, "!5", "abc", "def", True)
    assert merge_request({"GITLAB_CI": "true"}) is None


def test_outputs_are_a_dotenv_report_of_one_line_each(lab: GitLabStandIn, tmp_path: Path) -> None:
    found = find_forge({**lab.environment(), "CI_PROJECT_DIR": str(tmp_path)})
    assert found is not None
    found.output({"plan_id": "ab12", "summary": "one\nFLEETCTL_PLAN_ID=evil"})
    assert (tmp_path / "fleetctl.env").read_text() == (
        "FLEETCTL_OUT_PLAN_ID=ab12\nFLEETCTL_OUT_SUMMARY=one FLEETCTL_PLAN_ID=evil\n")
    assert PROJECT_TOKEN not in (tmp_path / "fleetctl.env").read_text()


def test_outputs_are_not_written_through_a_symbolic_link_in_the_checkout(lab: GitLabStandIn, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "fleetctl.env").symlink_to(victim)
    GitLab({**lab.environment(), "CI_PROJECT_DIR": str(checkout)}, None).output({"plan_id": "ab12"})
    assert victim.read_text() == "as it was"
    assert (checkout / "fleetctl.env").read_text() == "FLEETCTL_OUT_PLAN_ID=ab12\n"
    assert [file.name for file in checkout.iterdir()] == ["fleetctl.env"]


def test_in_a_merged_results_pipeline_the_head_is_the_source_branch(lab: GitLabStandIn) -> None:
    environ = {**lab.environment(), "CI_COMMIT_SHA": "merge"}
    for sha, head in (("source", "source"), ("", "merge")):
        found = merge_request({**environ, "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": sha})
        assert found is not None
        assert found.head == head


@pytest.mark.parametrize("name", ["GITLAB_TOKEN", "CI_JOB_TOKEN"])
@pytest.mark.parametrize("token", ["s3cret\nX-Evil: 1", "s3cr\u00e9t", "s3cret\x00"])
def test_a_token_not_allowed_in_a_header_is_refused_and_not_shown(lab: GitLabStandIn, name: str, token: str) -> None:
    with pytest.raises(ForgeError, match="contains characters not allowed in a header") as refused:
        forge({**lab.environment(GITLAB_TOKEN=""), name: token}).comment(MARKER)
    assert "s3cr" not in f"{refused.value.message} {refused.value.hint} {refused.value!r}"
    assert lab.requests == []


def test_a_line_end_after_a_token_is_dropped(lab: GitLabStandIn) -> None:
    assert forge(lab.environment(GITLAB_TOKEN=f"{PROJECT_TOKEN}\n")).comment(MARKER).created is True
