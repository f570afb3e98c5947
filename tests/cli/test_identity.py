"""The starter of a run, as the history shows it: a user on a host, or a user's CI run with its address."""

from __future__ import annotations

import os
from unittest.mock import patch

import pytest

from fleetctl.apply.prepare import Starter
from fleetctl.cli.identity import new_job_id, starter


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
