"""The forge of a run, and its change request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleetctl.errors import ForgeError
from fleetctl.forge.forges import ChangeRequest, GitHub, find_forge

GITHUB = {"GITHUB_ACTIONS": "true"}


def change_of(tmp_path: Path, event: Any, **environ: str) -> ChangeRequest | None:
    path = tmp_path / "event.json"
    path.write_text(json.dumps(event))
    forge = find_forge({**GITHUB, "GITHUB_EVENT_PATH": str(path), **environ})
    assert forge is not None
    return forge.change


def pull(head_repository: str | None = "lab/fleet") -> dict[str, Any]:
    repository = {"full_name": head_repository} if head_repository else None
    return {"pull_request": {"number": 7, "base": {"sha": "b1", "repo": {"full_name": "lab/fleet"}},
                             "head": {"sha": "h1", "repo": repository}}}


def test_the_forge_is_detected_from_its_variables() -> None:
    assert find_forge({}) is None
    assert find_forge({"GITHUB_ACTIONS": "false"}) is None
    for environ, name in ((GITHUB, "GitHub"), ({"GITLAB_CI": "true"}, "GitLab")):
        forge = find_forge(environ)
        assert forge is not None
        assert forge.name == name
    assert find_forge(GITHUB, "none") is None


def test_a_flag_wins_over_the_variables() -> None:
    forge = find_forge(GITHUB, "gitlab", number=3)
    assert forge is not None
    assert forge.name == "GitLab"
    assert forge.change == ChangeRequest(3, "!3")


def test_the_pull_request_is_read_from_the_event(tmp_path: Path) -> None:
    assert change_of(tmp_path, pull()) == ChangeRequest(7, "#7", "b1", "h1")


@pytest.mark.parametrize("head", ["mallory/fleet", None])
def test_another_repository_is_a_fork_even_if_it_was_deleted(tmp_path: Path, head: str | None) -> None:
    change = change_of(tmp_path, pull(head))
    assert change is not None
    assert change.from_fork


def test_without_an_event_the_pull_request_is_read_from_the_ref(tmp_path: Path) -> None:
    assert change_of(tmp_path, {}, GITHUB_REF="refs/pull/12/merge") == ChangeRequest(12, "#12")
    assert change_of(tmp_path, [], GITHUB_REF="refs/heads/pull/12/merge") is None


def test_a_comment_event_has_a_change_request_only_on_a_pull_request(tmp_path: Path) -> None:
    assert change_of(tmp_path, {"issue": {"number": 9, "pull_request": {"url": "x"}}}) == ChangeRequest(9, "#9")
    assert change_of(tmp_path, {"issue": {"number": 9}}) is None


def test_a_merge_queue_group_has_a_base_and_an_optional_number(tmp_path: Path) -> None:
    event = {"merge_group": {"base_sha": "b1", "head_sha": "h1", "base_ref": "refs/heads/main"}}
    assert change_of(tmp_path, event) == ChangeRequest(None, "the merge queue", "b1", "h1")
    environ = {**GITHUB, "GITHUB_EVENT_PATH": str(tmp_path / "event.json")}
    forge = find_forge(environ, number=8)
    assert forge is not None
    assert forge.change == ChangeRequest(8, "#8", "b1", "h1")
    with pytest.raises(ForgeError, match="does not belong to a pull request"):
        GitHub(environ, ChangeRequest(None, "the merge queue")).comment("x")


def test_a_push_has_no_change_request(tmp_path: Path) -> None:
    assert change_of(tmp_path, {"before": "a", "after": "b"}, GITHUB_REF="refs/heads/main") is None


def test_a_given_number_wins_and_keeps_the_commits_of_the_same_pull_request(tmp_path: Path) -> None:
    path = tmp_path / "event.json"
    path.write_text(json.dumps(pull()))
    environ = {**GITHUB, "GITHUB_EVENT_PATH": str(path)}
    for number, expected in ((7, ChangeRequest(7, "#7", "b1", "h1")), (8, ChangeRequest(8, "#8"))):
        forge = find_forge(environ, number=number)
        assert forge is not None
        assert forge.change == expected


def test_an_event_that_is_not_json_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "event.json"
    path.write_text("{")
    with pytest.raises(ForgeError, match="cannot be read"):
        find_forge({**GITHUB, "GITHUB_EVENT_PATH": str(path)})
