"""The issue about drift: one per fleet, only our own, open while there is drift."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from github_stand_in import READ_ONLY_TOKEN, GitHubStandIn, github
from gitlab_stand_in import GitLabStandIn, gitlab
from stand_in_server import Answer

from fleetctl.errors import ForgeError
from fleetctl.forge.forges import Forge, GitHub, GitLab

MARKER = "<!-- fleetctl:drift:lab -->"


@pytest.fixture(params=["github", "gitlab"])
def hub(request: pytest.FixtureRequest) -> Iterator[GitHubStandIn | GitLabStandIn]:
    with (github if request.param == "github" else gitlab)() as stand_in:
        yield stand_in


def forge_of(hub: GitHubStandIn | GitLabStandIn) -> Forge:
    kind = GitHub if isinstance(hub, GitHubStandIn) else GitLab
    return kind(hub.environment(), None, sleep=lambda _: None)


def write_issue(hub: GitHubStandIn | GitLabStandIn, text: str, *, is_open: bool = True):
    return forge_of(hub).issue("Drift of fleet lab", f"{MARKER}\n{text}\n", is_open=is_open)


def state(hub: GitHubStandIn | GitLabStandIn) -> list[tuple[str, str]]:
    return [(row["state"].removesuffix("ed") if row["state"] == "opened" else row["state"],
             row.get("body") or row.get("description") or "") for row in hub.issues]


def test_one_issue_is_opened_updated_closed_and_opened_again(hub: GitHubStandIn | GitLabStandIn) -> None:
    assert write_issue(hub, "all is well", is_open=False) is None
    assert hub.issues == []
    first = write_issue(hub, "one")
    assert (first.created, first.url) == (True, hub.issues[0].get("html_url") or hub.issues[0]["web_url"])
    assert hub.issues[0]["title"] == "Drift of fleet lab"
    assert write_issue(hub, "two").created is False
    assert state(hub) == [("open", f"{MARKER}\ntwo\n")]
    write_issue(hub, "over", is_open=False)
    assert state(hub) == [("closed", f"{MARKER}\nover\n")]
    write_issue(hub, "still over", is_open=False)  # not touched again
    assert state(hub) == [("closed", f"{MARKER}\nover\n")]
    write_issue(hub, "again")
    assert state(hub) == [("open", f"{MARKER}\nagain\n")]


def test_an_issue_by_another_author_with_our_marker_is_left_alone(hub: GitHubStandIn | GitLabStandIn) -> None:
    write_issue(hub, "ours")
    author = hub.issues[0]["user" if isinstance(hub, GitHubStandIn) else "author"]
    author["login" if isinstance(hub, GitHubStandIn) else "username"] = "a-stranger"
    write_issue(hub, "new")
    assert state(hub) == [("open", f"{MARKER}\nours\n"), ("open", f"{MARKER}\nnew\n")]


def test_of_two_issues_opened_at_once_one_stays_open(hub: GitHubStandIn | GitLabStandIn) -> None:
    write_issue(hub, "one")
    hub.issues.append({**hub.issues[0], "number": 21, "iid": 2})
    write_issue(hub, "two")
    assert [one[0] for one in state(hub)] == ["open", "closed"]
    write_issue(hub, "over", is_open=False)
    assert state(hub) == [("closed", f"{MARKER}\nover\n"), ("closed", f"{MARKER}\ntwo\n")]
    write_issue(hub, "again")
    assert [one[0] for one in state(hub)] == ["open", "closed"]


@pytest.mark.parametrize(("answer", "hint"), [
    (Answer(403, {"message": "no"}), "issues: write"), (Answer(410, {"message": "off"}), "disabled"),
])
def test_a_refusal_of_github_is_an_error_with_a_hint(answer: Answer, hint: str) -> None:
    with github() as hub:
        hub.refusals["POST"] = [answer] * 3
        with pytest.raises(ForgeError) as refused:
            write_issue(hub, "one")
    assert hint in str(refused.value.hint)


def test_a_read_only_token_is_refused() -> None:
    with github() as hub, pytest.raises(ForgeError):
        GitHub(hub.environment(READ_ONLY_TOKEN), None, sleep=lambda _: None).issue("t", MARKER, is_open=True)
