"""Who starts a run, and the id of its job: what the cluster's list of runs shows."""

from __future__ import annotations

import getpass
import os
import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from fleetctl.apply.record import Starter

_step_of: ContextVar[str | None] = ContextVar("step_of", default=None)


@contextmanager
def one_command(verb: str) -> Iterator[None]:
    """Mark the runs that are started meanwhile as steps of one command; the history shows them as one."""
    token = _step_of.set(f"{verb}-{secrets.token_hex(6)}")
    try:
        yield
    finally:
        _step_of.reset(token)


def starter() -> Starter:
    """Return who starts a run: `user@host`; in CI the person who triggered the job, and the address of the job."""
    environ = os.environ
    run = environ.get("GITHUB_RUN_ID") or environ.get("CI_JOB_ID")
    if not run:
        return Starter(f"{_user()}@{socket.gethostname()}", step_of=_step_of.get())
    person = environ.get("GITHUB_ACTOR") or environ.get("GITLAB_USER_LOGIN") or f"{_user()}@{socket.gethostname()}"
    return Starter(f"{person} (CI run {run})", ci_address(environ), _step_of.get())


def ci_address(environ: Mapping[str, str]) -> str | None:
    """Return the address of the CI job's page; None outside CI."""
    server, repository = environ.get("GITHUB_SERVER_URL"), environ.get("GITHUB_REPOSITORY")
    if server and repository and (run := environ.get("GITHUB_RUN_ID")):
        return f"{server}/{repository}/actions/runs/{run}"
    return environ.get("CI_JOB_URL") or None


def new_job_id(verb: str) -> str:
    """Return a new submission id for a Ray Job."""
    return f"fleetctl-{verb}-{secrets.token_hex(6)}"


def verb_of(job: str) -> str:
    """Return the verb of a submission id of ours: who waits for a lock is told to follow its holder, whatever it is."""
    found = re.fullmatch("fleetctl-(.+)-[0-9a-f]{12}", job)
    return found[1] if found else "apply"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
