"""The starter of a run and the id of its job, as the cluster's list of runs shows them."""

from __future__ import annotations

import getpass
import os
import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from fleetctl.apply.prepare import Starter
from fleetctl.cli.process import this_command

_step_of: ContextVar[str | None] = ContextVar("step_of", default=None)


@contextmanager
def one_command(verb: str) -> Iterator[None]:
    """Mark the runs started in this block as steps of one command, which the history shows as one."""
    token = _step_of.set(f"{verb}-{secrets.token_hex(6)}")
    try:
        yield
    finally:
        _step_of.reset(token)


def starter() -> Starter:
    """Return the starter of a run: `user@host`; in CI the user who triggered the job, and the URL of the job."""
    environ = os.environ
    run = environ.get("GITHUB_RUN_ID") or environ.get("CI_JOB_ID")
    if not run:
        return Starter(f"{_user()}@{socket.gethostname()}", None, _step_of.get(), this_command())
    person = environ.get("GITHUB_ACTOR") or environ.get("GITLAB_USER_LOGIN") or f"{_user()}@{socket.gethostname()}"
    return Starter(f"{person} (CI run {run})", ci_address(environ), _step_of.get(), this_command())


def ci_address(environ: Mapping[str, str]) -> str | None:
    """Return the URL of the CI job's page; None outside CI."""
    server, repository = environ.get("GITHUB_SERVER_URL"), environ.get("GITHUB_REPOSITORY")
    if server and repository and (run := environ.get("GITHUB_RUN_ID")):
        return f"{server}/{repository}/actions/runs/{run}"
    return environ.get("CI_JOB_URL") or None


def new_job_id(verb: str) -> str:
    """Return a new submission id for a Ray Job."""
    return f"fleetctl-{verb}-{secrets.token_hex(6)}"


def verb_of(job: str) -> str:
    """Return the verb of one of our submission ids; `apply` if it cannot be told. A lock may be held by any verb."""
    found = re.fullmatch("fleetctl-(.+)-[0-9a-f]{12}", job)
    return found[1] if found else "apply"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
