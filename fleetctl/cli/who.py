"""Who runs this command and how its job is called: what the cluster's list of applies will show."""

from __future__ import annotations

import getpass
import os
import secrets
import socket


def who() -> str:
    """Return `user@host`, with the CI run where there is one."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    run = os.environ.get("GITHUB_RUN_ID") or os.environ.get("CI_JOB_ID")
    return f"{user}@{socket.gethostname()}{f' (CI run {run})' if run else ''}"


def new_job_id(verb: str) -> str:
    """Return a fresh submission id for a Ray Job."""
    return f"fleetctl-{verb}-{secrets.token_hex(6)}"
