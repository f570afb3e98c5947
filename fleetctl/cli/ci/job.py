"""A CI job from its flags and variables, the base of its change, and the rules of trust.

Neither the base nor the cluster it is planned on comes from the change itself: otherwise a pull request could name a
cluster and be sent this job's token. An address trusted here counts as given with --address (see
`workflow/dashboard.py:open_dashboard`); no other address in a file does.

All else is done by the function of the plain command, whose reports go to the forge.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fleetctl.cli import flags
from fleetctl.cli.process import this_invocation
from fleetctl.cli.publish import Publisher
from fleetctl.cli.reporting import Reports, parse_reports
from fleetctl.errors import FleetctlError, RevisionError, UsageError
from fleetctl.fleetfile.load import load_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.forge.forges import ChangeRequest, Forge, ForgeName, Sink, find_forge
from fleetctl.review.git_discovery import NoRepository
from fleetctl.review.inputs import Side, load_base
from fleetctl.review.revisions import MissingRevision, repository_of
from fleetctl.workflow.contexts import given_address
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.output_files import check_out

# every flag has a variable, because a template cannot build a command line safely
ForgeOption = Annotated[ForgeName, typer.Option("--forge", envvar="FLEETCTL_FORGE", help="Forge to report to.")]
ForceOption = Annotated[bool, typer.Option("--force", envvar="FLEETCTL_FORCE", help=flags.FORCE_HELP)]
IgnoreCooldownOption = Annotated[bool, typer.Option(
    "--ignore-cooldown", envvar="FLEETCTL_IGNORE_COOLDOWN", help=flags.IGNORE_COOLDOWN_HELP)]
SelectorOption = Annotated[Any, flags.option(
    "--selector", "-l", metavar="LABELS", envvar="FLEETCTL_SELECTOR", parser=flags.label_selector,
    help="Only models with these labels.")]
LockTimeoutOption = Annotated[float, flags.option(
    "--lock-timeout", metavar="DURATION", envvar="FLEETCTL_LOCK_TIMEOUT", parser=flags.duration,
    help=f"{flags.LOCK_TIMEOUT_HELP} [default: 10m]")]

NOT_FETCHED = ("the checkout lacks the base of the change: in GitHub Actions set fetch-depth: 0 of actions/checkout, "
               "in GitLab set GIT_DEPTH: 0")
NAME_CLUSTER = "name the cluster to plan on: --address, FLEETCTL_ADDRESS, or the action's input `address`"


@dataclass(frozen=True, slots=True)
class CiJob:
    """One run of `fleetctl ci`. `reports` = its files, and all that its forge can show."""

    invocation: Invocation
    files: tuple[str, ...]
    where: Where
    forge: Forge | None
    reports: Reports

    @property
    def change(self) -> ChangeRequest | None:
        """The pull or merge request under review; None if there is none."""
        return self.forge.change if self.forge else None

    def revision(self, base: str | None = None) -> str | None:
        """Return --base, or the revision the change starts from; None if there is no change, or its base is unknown.

        Forges check out a merge commit: its first parent is the target branch, its second the change. That parent is
        named by its commit, which stays the same whatever is checked out when the name is read. Raises RevisionError
        for files outside a repository.
        """
        if base is not None or self.change is None:
            return base
        try:
            repository = repository_of(self.files[0], self.invocation.environ).outermost
        except NoRepository as error:
            raise RevisionError(error.message,
                                hint="check out the repository with its history before this step") from None
        merged = repository.find("HEAD^2")
        if merged and merged.id == self.change.head:
            return repository.commit("HEAD^1").id
        return f"{self.change.base}...HEAD" if self.change.base else None

    def read_base(self, revision: str | None) -> Side | None:
        """Return the fleet at the revision; if it is missing, raises RevisionError with a hint how to fetch it."""
        try:
            return None if revision is None else load_base(self.files, revision, self.invocation.environ)
        except MissingRevision as error:
            raise RevisionError(error.message, hint=NOT_FETCHED) from None

    def trusted_for(self, head: ResolvedFleet, base: Side | None) -> Where:
        """Return where to plan the change: as the job says, else the address in the files if it can be trusted.

        It can if the base has the same address, or the forge reports no change under review; otherwise the author of
        the files may be anyone. Raises FleetctlError if a change names another cluster than its base.
        """
        if self.where.inventory or self._names_cluster():
            return self.where
        address = head.cluster.address
        if base is None and self.change is None:
            return replace(self.where, address=address if self.forge else None)
        if (base is None or base.problems) and address:
            raise FleetctlError(
                "the change sets spec.cluster.address, and the address in its base is unknown; that cluster was not "
                "contacted", hint=NAME_CLUSTER)
        if address not in (None, base.fleet.cluster.address if base and base.fleet else None):
            raise FleetctlError(
                "the change sets another spec.cluster.address than its base; that cluster was not contacted",
                hint=NAME_CLUSTER)
        return replace(self.where, address=address)

    def trusted(self) -> Where:
        """Return the cluster for a job without a change under review: its own settings, else those of the files."""
        if self._names_cluster() or "-" in self.files or self.forge is None or self.change:
            return self.where
        return self.trusted_for(load_fleet(self.files), None)

    def _names_cluster(self) -> bool:
        return bool(given_address(self.invocation, self.where.address))


def job_of(
    files: Sequence[str], where: Where, forge: ForgeName, *, comments: bool = False, number: int | None = None,
    out: Path | None = None, reports: Sequence[str] = (), may_lack_files: bool = False,
) -> CiJob:
    """Return the job. `comments` = keep a comment on the change, which is that of `number` if the forge names none.

    Raises UsageError for invalid settings, before any file or cluster is read.
    """
    if not files and not may_lack_files:
        raise UsageError("no fleet files", hint="give -f FLEET, or set FLEETCTL_FILES")
    if "-" in files and not may_lack_files:
        raise UsageError("standard input is not a file of the repository", hint="name the fleet files")
    invocation, detected = this_invocation(), find_forge(os.environ, forge, number=number)
    reading = (*files, where.inventory)
    if out:
        check_out(out, reading)
    publisher = None
    if detected:
        commented = comments and detected.change is not None and detected.change.number is not None
        sinks: tuple[Sink, ...] = ("summary", "outputs", "comment") if commented else ("summary", "outputs")
        publisher = Publisher(invocation, detected, sinks, annotates=True)
    wanted = parse_reports(reports, sinks=(), beside=out, reading=reading)
    return CiJob(invocation, tuple(files), where, detected, replace(wanted, publisher=publisher, errors_too=True))


def lines_of(given: Sequence[str] | None, variable: str) -> tuple[str, ...]:
    """Return the values of a flag, otherwise the lines of its variable."""
    entries = os.environ.get(variable, "").splitlines()
    return tuple(given or (line.strip() for line in entries if line.strip()))
