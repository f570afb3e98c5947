"""The frame of a verb: the order in which it shows, asks and acts.

The starter of a run, as the history shows it: a user on a host, or a user's CI run with its address.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from unittest.mock import patch

import pytest

from fleetctl.apply.prepare import Starter
from fleetctl.cli import console
from fleetctl.cli.verb import DECLINED, new_job_id, perform, starter
from fleetctl.errors import UsageError


def starter_in(environ: dict[str, str]) -> Starter:
    with patch.dict(os.environ, environ, clear=True):
        return starter()


def test_outside_ci_the_starter_is_user_and_host() -> None:
    found = starter_in({})
    assert found.name.count("@") == 1
    assert found.ci_run is None


@pytest.mark.parametrize(("environ", "name", "address"), [
    ({"GITHUB_RUN_ID": "7", "GITHUB_ACTOR": "ann", "GITHUB_SERVER_URL": "https://git.example.com",
      "GITHUB_REPOSITORY": "lab/fleet"}, "ann (CI run 7)", "https://git.example.com/lab/fleet/actions/runs/7"),
    ({"CI_JOB_ID": "8", "GITLAB_USER_LOGIN": "bob", "CI_JOB_URL": "https://git.example.com/j/8"}, "bob (CI run 8)",
     "https://git.example.com/j/8"),
    ({"GITHUB_RUN_ID": "7", "GITHUB_ACTOR": "ann"}, "ann (CI run 7)", None),
])
def test_in_ci_the_starter_is_the_user_and_the_run(environ: dict[str, str], name: str, address: str | None) -> None:
    found = starter_in(environ)
    assert (found.name, found.ci_run) == (name, address)


def test_a_ci_run_without_an_actor_names_its_run() -> None:
    assert starter_in({"CI_JOB_ID": "8"}).name.endswith(" (CI run 8)")


def test_job_ids_are_unique() -> None:
    assert len({new_job_id("apply") for _ in range(100)}) == 100


@pytest.fixture
def acted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in order; a question is answered with `no` unless a test types `y`."""
    monkeypatch.setattr(console, "may_ask", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    return []


def act(acted: list[str]) -> Callable[[], int]:
    def done() -> int:
        acted.append("done")
        return 3
    return done


def test_a_verb_shows_then_asks_then_acts_and_ends_with_its_code(
    acted: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert perform(act(acted), "End it?", yes=False, shown=[("end", "a/0"), ("note", "b")]) == 3
    assert acted == ["done"]
    assert capsys.readouterr().err == "end: a/0\nnote: b\nEnd it? [y/N] "


def test_after_a_no_nothing_is_done(acted: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert perform(act(acted), "End it?", yes=False, otherwise="it stays") == DECLINED
    assert (acted, capsys.readouterr().err) == ([], "End it? [y/N] note: it stays\n")


def test_a_dry_run_asks_and_does_nothing_and_tells_its_own_code(
    acted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert perform(act(acted), "End it?", yes=False, shown=[("end", "a/0")], dry_run=True, foreseen=lambda: 2) == 2
    assert (acted, capsys.readouterr().err) == ([], f"end: a/0\nnote: {console.NOTHING_DONE}\n")


def test_without_a_question_or_with_yes_nobody_is_asked(
    acted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "may_ask", lambda: False)
    assert [perform(act(acted), "", yes=False), perform(act(acted), "End it?", yes=True)] == [3, 3]
    with pytest.raises(UsageError, match="no terminal"):
        perform(act(acted), "End it?", yes=False)
    assert acted == ["done", "done"]
