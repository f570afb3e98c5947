"""The base of a change under review, and the cluster it is planned on.

Neither comes from the change itself: otherwise a pull request could name a cluster and be sent this job's token. An
address trusted here counts as given with --address (see `workflow/dashboard.py:open_dashboard`); no other address in a
file does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleetctl.cli.ci.job import Job
from fleetctl.errors import FleetctlError, RevisionError
from fleetctl.fleetfile.compose import compose_bytes
from fleetctl.fleetfile.load import load_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.fleetfile.sources import read_sources
from fleetctl.forge.change import ChangeRequest, Forge
from fleetctl.render.report.model import EVERYONE, Column, Finding, Report, Table
from fleetctl.review.arguments import load_base
from fleetctl.review.git_discovery import NoRepository
from fleetctl.review.inputs import Side
from fleetctl.review.revisions import MissingRevision, repository_of
from fleetctl.workflow.base_plan import why_unknown
from fleetctl.workflow.invocation import Invocation, Where

NOT_FETCHED = ("the checkout lacks the base of the change: in GitHub Actions set fetch-depth: 0 of actions/checkout, "
               "in GitLab set GIT_DEPTH: 0")

NOT_CHECKED_OUT = "check out the repository with its history before this step"

NAME_CLUSTER = "name the cluster to plan on: --address, FLEETCTL_ADDRESS, or the action's input `address`"


def base_revision(invocation: Invocation, change: ChangeRequest | None, files: Sequence[str]) -> str | None:
    """Return the revision the change starts from; None if there is no change, or its base is unknown.

    Forges check out a merge commit: its first parent is the target branch, its second the change. That parent is named
    by its commit, which stays the same whatever is checked out when the name is read. Raises RevisionError for files
    outside a repository.
    """
    if change is None:
        return None
    try:
        repository = repository_of(files[0], invocation.environ).outermost
    except NoRepository as error:
        raise RevisionError(error.message, hint=NOT_CHECKED_OUT) from None
    merged = repository.find("HEAD^2")
    if merged and merged.id == change.head:
        return repository.commit("HEAD^1").id
    return f"{change.base}...HEAD" if change.base else None


def read_base(invocation: Invocation, files: Sequence[str], revision: str) -> Side:
    """Return the fleet at the revision; if it is missing, raises RevisionError with a hint how to fetch it."""
    try:
        return load_base(files, revision, invocation.environ)
    except MissingRevision as error:
        raise RevisionError(error.message, hint=NOT_FETCHED) from None


def trusted_address(head: ResolvedFleet, base: Side | None, forge: Forge | None) -> str | None:
    """Return the cluster address of the files if it can be trusted: the base has the same address, or the forge reports
    no change under review. None = not trusted, the author of the files may be anyone.

    Raises FleetctlError if a change names another cluster than its base.
    """
    if base is None and (forge is None or forge.change is None):
        return head.cluster.address if forge else None
    if (base is None or base.problems) and head.cluster.address:
        raise FleetctlError(
            "the change sets spec.cluster.address, and the address in its base is unknown; that cluster was not "
            "contacted", hint=NAME_CLUSTER)
    known = base.fleet.cluster.address if base and base.fleet else None
    if head.cluster.address not in (None, known):
        raise FleetctlError(
            "the change sets another spec.cluster.address than its base; that cluster was not contacted",
            hint=NAME_CLUSTER)
    return head.cluster.address


def trusted_where(job: Job) -> Where:
    """Return the cluster for a job without a change under review: its own settings, else those of the files."""
    if job.address() or "-" in job.files or job.forge is None or job.forge.change:
        return job.where
    return replace(job.where, address=trusted_address(load_fleet(job.files), None, job.forge))


def add_warning(base: Side | None, report: Report) -> Report:
    """Return the report; if the base has errors, with a warning that the effect of the change alone is unknown."""
    if base is None or not base.problems:
        return report
    text = why_unknown(base)
    table = Table("base", "This change alone", (Column("message", "what"),), ((text,),), rank=0,
                  readers=EVERYONE - {"terminal"})  # where plan has said it
    return replace(report, tables=(table, *report.tables),
                   findings=(*report.findings, Finding("warning", "BASE_BROKEN", base.revision.name, text)))


def fleet_name(invocation: Invocation, files: Sequence[str], revision: str | None) -> str:
    """Return the fleet's name even if the files have errors: from the files, from the base, else the file names."""
    name = _name_in(files)
    if name is None and revision is not None:
        try:
            base = read_base(invocation, files, revision)
        except RevisionError:
            base = None
        name = base.fleet.name if base and base.fleet else None
    return name or ", ".join(files)


def _name_in(files: Sequence[str]) -> str | None:
    read, _ = read_sources(files, None)
    size = 0
    for source in read:
        composed = compose_bytes(source, size)
        size += composed.size
        for document in composed.documents:
            node = document.node(("metadata", "name"))
            if node is not None and isinstance(node.value, str) and node.value:
                return node.value
    return None
