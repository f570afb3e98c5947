"""A job of GitHub Actions for a pull request, in this process: its checkout, its files, its forge."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from checkout import make_remote
from github_stand_in import GitHubStandIn, github
from in_process import run_here
from pull_request import FLEET, PullRequest
from runner_files import read_outputs, text_of


@dataclass(frozen=True)
class Ended:
    """How a command of the job ended; the log is both streams, as a runner reads them."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str


@pytest.fixture
def hub() -> Iterator[GitHubStandIn]:
    """A GitHub with pull request 7."""
    with github() as stand_in:
        yield stand_in


@pytest.fixture
def pull(tmp_path: Path, hub: GitHubStandIn) -> PullRequest:
    """A pull request into a main branch that holds FLEET."""
    remote = make_remote(tmp_path)
    return PullRequest(remote, hub, tmp_path, remote.commit("main", FLEET))


JobRunner = Callable[..., Ended]


@pytest.fixture
def job(pull: PullRequest) -> JobRunner:
    """Run `fleetctl ...` as a step of the job that the last push has started."""

    def running(*arguments: str | Path, folder: Path | None = None, **environ: str) -> Ended:
        told = {**pull.environ, "PATH": os.environ["PATH"], "HOME": str(pull.tmp_path), "TMPDIR": str(pull.tmp_path),
                **environ}
        done = run_here(*arguments, env=told, folder=folder or Path(told.get("GITHUB_WORKSPACE", pull.remote.desk)))
        return Ended(done.returncode, done.stdout + done.stderr, read_outputs(told.get("GITHUB_OUTPUT", "")),
                     text_of(told["GITHUB_STEP_SUMMARY"]))

    return running
