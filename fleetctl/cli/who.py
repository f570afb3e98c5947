"""Who runs this command and how its job is called: what the cluster's list of applies will show."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.apply.record import Starter


def who(environ: Mapping[str, str] = os.environ) -> Starter:
    """Return who starts a run: `user@host`; in CI the person who set the run off, and the run's address."""
    from fleetctl.apply.record import Starter

    run = environ.get("GITHUB_RUN_ID") or environ.get("CI_JOB_ID")
    if not run:
        return Starter(f"{_user()}@{socket.gethostname()}")
    person = environ.get("GITHUB_ACTOR") or environ.get("GITLAB_USER_LOGIN") or f"{_user()}@{socket.gethostname()}"
    return Starter(f"{person} (CI run {run})", _run_address(environ))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _run_address(environ: Mapping[str, str]) -> str | None:
    server, repository = environ.get("GITHUB_SERVER_URL"), environ.get("GITHUB_REPOSITORY")
    if server and repository:
        return f"{server}/{repository}/actions/runs/{environ.get('GITHUB_RUN_ID')}"
    return environ.get("CI_JOB_URL") or None


def new_job_id(verb: str) -> str:
    """Return a fresh submission id for a Ray Job."""
    return f"fleetctl-{verb}-{secrets.token_hex(6)}"
