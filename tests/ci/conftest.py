"""A job of GitHub Actions for a pull request, run in this process: its checkout, its files, its forge."""

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
class StepResult:
    """The result of a command of the job; the log is both streams, as a runner reads them."""

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


JobRunner = Callable[..., StepResult]


@pytest.fixture
def job(pull: PullRequest) -> JobRunner:
    """Run `fleetctl ...` as a step of the job of the last push."""

    def run_step(*arguments: str | Path, folder: Path | None = None, **environ: str) -> StepResult:
        env = {**pull.environ, "PATH": os.environ["PATH"], "HOME": str(pull.tmp_path), "TMPDIR": str(pull.tmp_path),
               **environ}
        done = run_here(*arguments, env=env, folder=folder or Path(env.get("GITHUB_WORKSPACE", pull.remote.desk)))
        return StepResult(done.returncode, done.stdout + done.stderr, read_outputs(env.get("GITHUB_OUTPUT", "")),
                          text_of(env["GITHUB_STEP_SUMMARY"]))

    return run_step
