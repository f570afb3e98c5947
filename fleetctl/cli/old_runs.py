"""Ended runs that no history keeps: deleted after an apply, by `apply` and `watch`, and by `prune --runs`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from fleetctl.apply.old_runs import Deletion, default_history, delete_old_runs, delete_runs, find_old
from fleetctl.apply.prepare import ApplyTask
from fleetctl.cli.console import confirm, say
from fleetctl.documents.cold import Pruned, PrunedRuns
from fleetctl.documents.plan import PlanHistory
from fleetctl.documents.quantity import count_of, grouped
from fleetctl.errors import ApplyError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import Job
from fleetctl.inventory.json_values import moment_of_ms
from fleetctl.workflow.invocation import Invocation

SAID_EVERY = 1000
BY_HAND = "`fleetctl prune --runs` deletes them by hand"


def delete_after(task: ApplyTask, said: set[str]) -> None:
    """Delete old runs after an apply that has ended; never fails. A problem is said once for each `said`."""
    done = delete_old_runs(task.client, task.plan, time.time())
    if done.deleted:
        say("note", f"{count_of(len(done.deleted), 'ended run')} deleted that spec.history does not keep")
    if done.problem and done.problem not in said:
        said.add(done.problem)
        say("note", f"old runs stay in the cluster's list of jobs: {done.problem}; {BY_HAND}")


def prune_runs(
    invocation: Invocation, client: DashboardClient, fleets: Sequence[ResolvedFleet], namespace: str, *,
    dry_run: bool, yes: bool,
) -> Pruned | None:
    """Find the runs that the histories of `fleets` do not keep, ask, and delete them; None = not confirmed.

    Raises InventoryError, and ApplyError if the cluster deletes no jobs.
    """
    with invocation.working("reading the list of jobs and what needs them"):
        old = list(_old_runs(client, fleets, namespace))
    removed: frozenset[str] = frozenset()
    if old and not dry_run:
        if not confirm(f"Delete {count_of(len(old), 'ended run')} and their place in the history?", yes=yes,
                       otherwise="nothing was deleted"):
            return None
        with invocation.working(f"deleting {count_of(len(old), 'run')}"):
            done = _deleted(client, old)
        if done.problem and not done.deleted:
            raise ApplyError(f"no run was deleted: {done.problem}",
                             hint="give an --address that passes DELETE to Ray's dashboard")
        if done.problem:
            say("warning", f"not all runs were deleted: {done.problem}")
        removed = frozenset(done.deleted)
    rows = grouped(((job.metadata.get("fleet") or "", job.metadata.get("verb") or ""), job) for job in old)
    return Pruned(dry_run=dry_run, nodes=[], runs=[
        PrunedRuns(fleet=fleet, verb=verb, found=len(runs), removed=sum(job.submission_id in removed for job in runs),
                   newest=moment_of_ms(runs[-1].start_time_ms)) for (fleet, verb), runs in sorted(rows.items())])


def _deleted(client: DashboardClient, old: Sequence[Job]) -> Deletion:
    """Delete the runs, and say from time to time how many are gone: with a long list each takes a part of a second."""
    done = Deletion()
    for first in range(0, len(old), SAID_EVERY):
        part = delete_runs(client, old[first:first + SAID_EVERY])
        done = Deletion([*done.deleted, *part.deleted], part.problem)
        if done.problem or first + SAID_EVERY >= len(old):
            break
        say("note", f"{len(done.deleted)} of {len(old)} runs deleted")
    return done


def _old_runs(client: DashboardClient, fleets: Sequence[ResolvedFleet], namespace: str) -> Iterator[Job]:
    """Yield the runs to delete, each once: those of no fleet are found for every fleet."""
    seen = set[str]()
    for fleet in fleets:
        keep = PlanHistory(**fleet.history.model_dump()) if fleet.history else default_history()
        for job in find_old(client, fleet.name, namespace, keep, time.time()):
            if job.submission_id not in seen:
                seen.add(job.submission_id)
                yield job
