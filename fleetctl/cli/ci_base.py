"""What a change under review is measured against, and which cluster it is planned on.

Neither comes from the change itself: what a pull request names as its cluster would be sent this job's token. What is
vouched for here counts as given, like --address (see `connect.open_dashboard`); nothing else that a file names does.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError, RevisionError

if TYPE_CHECKING:
    from fleetctl.fleetfile.resolved import ResolvedFleet
    from fleetctl.forge.change import ChangeRequest, Forge
    from fleetctl.render.report.model import Report
    from fleetctl.review.inputs import Side

NOT_FETCHED = ("the checkout lacks what the change is measured against: in GitHub Actions give actions/checkout "
               "fetch-depth: 0, in GitLab set GIT_DEPTH: 0")

NOT_CHECKED_OUT = "check the repository out before this step, with its history"

SAY_WHICH_CLUSTER = "say which cluster to plan on: --address, FLEETCTL_ADDRESS, or the action's input `address`"


def base_revision(change: ChangeRequest | None, files: Sequence[str]) -> str | None:
    """Return the revision the change starts from; None where there is no change, or nobody tells.

    Forges check out what a merge would give: its first parent is the target branch, and its second the change. Raises
    RevisionError where the files lie in no repository.
    """
    if change is None:
        return None
    from fleetctl.review.revisions import NoRepository, repository_of

    try:
        merged = repository_of(files[0], os.environ).find("HEAD^2")
    except NoRepository as error:
        raise RevisionError(error.message, hint=NOT_CHECKED_OUT) from None
    if merged and merged.id == change.head:
        return "HEAD^1"
    return f"{change.base}...HEAD" if change.base else None


def read_base(files: Sequence[str], revision: str) -> Side:
    """Return the fleet as it was at the revision; raises RevisionError, with how to fetch it, where it is not here."""
    from fleetctl.review.base import load_base
    from fleetctl.review.revisions import MissingRevision

    try:
        return load_base(files, revision, os.environ)
    except MissingRevision as error:
        raise RevisionError(error.message, hint=NOT_FETCHED) from None


def vouched_address(head: ResolvedFleet, base: Side | None, forge: Forge | None) -> str | None:
    """Return what the files name as their cluster, where the job may take it for given: its base names the same, or
    the forge says that no change is under review. None = what the files say is what anybody may have written.

    Raises FleetctlError when a change names another cluster than its base did.
    """
    if base is None and (forge is None or forge.change is None):
        return head.cluster.address if forge else None
    _refuse_new_address(head, base)
    return head.cluster.address


def _refuse_new_address(head: ResolvedFleet, base: Side | None) -> None:
    if (base is None or base.problems) and head.cluster.address:
        raise FleetctlError(
            "the change names its cluster itself, spec.cluster.address, and nobody tells what its base named; "
            "nothing was asked there", hint=SAY_WHICH_CLUSTER)
    known = base.fleet.cluster.address if base and base.fleet else None
    if head.cluster.address not in (None, known):
        raise FleetctlError(
            "the change names another cluster, spec.cluster.address, than its base; nothing was asked there",
            hint=SAY_WHICH_CLUSTER)


def tell_broken(base: Side | None, report: Report) -> Report:
    """Return the report of a plan with why it does not tell what the change causes alone, if the base has errors."""
    if base is None or not base.problems:
        return report
    from fleetctl.cli.changing import why_untold
    from fleetctl.render.report.model import Column, Finding, Table

    text = why_untold(base)
    table = Table("base", "This change alone", (Column("message", "what"),), ((text,),), rank=0)
    return replace(report, tables=(table, *report.tables),
                   findings=(*report.findings, Finding("warning", "BASE_BROKEN", base.revision.name, text)))


def fleet_name(files: Sequence[str], revision: str | None) -> str:
    """Return what the fleet is called, also where its files have errors: in them, in the base, else their names."""
    return _name_in(files) or (revision and _name_at(files, revision)) or ", ".join(files)


def _name_in(files: Sequence[str]) -> str | None:
    from fleetctl.fleetfile.compose import compose_bytes
    from fleetctl.fleetfile.sources import read_sources

    read, _ = read_sources(files, None)
    for source in read:
        for document in compose_bytes(source).documents:
            node = document.node(("metadata", "name"))
            if node is not None and isinstance(node.value, str) and node.value:
                return node.value
    return None


def _name_at(files: Sequence[str], revision: str) -> str | None:
    try:
        base = read_base(files, revision)
    except RevisionError:
        return None
    return base.fleet.name if base.fleet else None
