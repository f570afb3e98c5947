"""A saved plan can be applied once. Used = a job with its id took the fleet's lock; the agent checks again."""

from __future__ import annotations

from fleetctl.apply.replan_command import replan_command
from fleetctl.documents.plan import Plan
from fleetctl.errors import PlanUsed
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import log_of, ours


def refuse_used(client: DashboardClient, plan: Plan, saved_as: str) -> None:
    """Raise PlanUsed when the cluster's list of jobs shows that this plan, saved as that file, was applied before."""
    for job in ours(client):
        if job.metadata.get("planId") != plan.plan_id:
            continue
        if '"type":"lockAcquired"' in (log_of(client, job.submission_id) or ""):
            raise used_by(job.submission_id, replan_command(plan, saved_as))


def used_by(submission_id: str, again: str = "fleetctl plan -f FLEET --out FILE") -> PlanUsed:
    """Return the error for a plan that job `submission_id` has applied; `again` = the command for a new one."""
    return PlanUsed(f"this plan was already applied by job {submission_id}", hint=f"make a new one: {again}")
