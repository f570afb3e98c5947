"""The frame of a verb that changes something: connect, show what would be done, ask, let an agent do it, and report.

A verb connects with `on_cluster` (or by `workflow/proposal.py`, if it plans), decides what it asks of whom, and leaves
the order of the rest to `perform`. Its agent's run is followed by the functions of `apply/`; how the result is told is
the verb's own. A run has a starter and a job id, as the cluster's list of runs shows them.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from fleetctl.apply.jobs import Patience
from fleetctl.apply.prepare import Starter
from fleetctl.cli.console import NOTHING_DONE, confirm, say
from fleetctl.cli.process import this_command
from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.dashboard import Live
from fleetctl.planner.options import require_complete
from fleetctl.workflow.cluster import cluster_of, read
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.invocation import Invocation, Where

DECLINED = 1
"""The exit code after a no."""
_step_of: ContextVar[str | None] = ContextVar("step_of", default=None)


@dataclass(frozen=True, slots=True)
class OnCluster:
    """The cluster that a verb acts on; `fleet` = that of the verb's files, None without files."""

    invocation: Invocation
    source: Live
    fleet: ResolvedFleet | None

    def read(self, *, whole: bool = False) -> Inventory:
        """Return what runs now; with `whole` raises InventoryError when a part could not be read."""
        seen = read(self.invocation, self.source)
        if whole:
            require_complete(seen)
        return seen


@contextmanager
def on_cluster(invocation: Invocation, where: Where, fleet: ResolvedFleet | None = None) -> Iterator[OnCluster]:
    """Connect to the cluster that the flags or the fleet's file name."""
    with live_source(invocation, where, cluster_of(fleet)) as source:
        yield OnCluster(invocation, source, fleet)


def perform(
    act: Callable[[], int], question: str, *, yes: bool, shown: Iterable[tuple[str, str]] = (), dry_run: bool = False,
    foreseen: Callable[[], int] = lambda: 0, otherwise: str = "nothing was done",
) -> int:
    """Show what would be done, ask, and do it; returns the exit code. An empty question is not asked.

    `shown` = lines, each with its label. With `dry_run` nothing is asked or done, and `foreseen` returns the code.
    `otherwise` = the note after a no. Raises UsageError if there is no terminal to ask on.
    """
    for label, line in shown:
        say(label, line)
    if dry_run:
        say("note", NOTHING_DONE)
        return foreseen()
    if question and not confirm(question, yes=yes, otherwise=otherwise):
        return DECLINED
    return act()


def patient() -> Patience:
    """Return how to wait for a cluster that is slow to accept a run: as usual, and saying so."""
    return Patience(report=lambda line: say("note", line))


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
    named = re.fullmatch("fleetctl-(.+)-[0-9a-f]{12}", job)
    return named[1] if named else "apply"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
