"""Checks of the cluster: it answers, its Ray version, its inventory, its jobs, leftovers of dead runs and replicas."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.apply.history import NEVER_STARTED, read_log, summary_of
from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.base import as_datetime
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.quantity import amount_of, count_of
from fleetctl.errors import ClusterRefused, ClusterUnreachable, FleetctlError
from fleetctl.inventory.assemble import PlacementGroup
from fleetctl.inventory.autoscaler import silent_text
from fleetctl.inventory.cards import card_warnings
from fleetctl.inventory.dashboard import version_warnings
from fleetctl.inventory.jobs import READ_ONLY, STANDBY
from fleetctl.inventory.marks import parse_actor_name, refused_claims
from fleetctl.inventory.records import NOTES

CODES: dict[type[FleetctlError], str] = {
    ClusterUnreachable: "CLUSTER_UNREACHABLE", ClusterRefused: "CLUSTER_REFUSED"}


def check_reach(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the reason why the cluster could not be read."""
    error = evidence.refusal
    if error is not None:
        yield Diagnosed(code=CODES.get(type(error), "CLUSTER_NOT_READ"), severity="error", area="client",
                        subject="cluster", message=error.message, advice=error.hint or "")


ALLOWED_S = 60
"""Tolerated clock difference; a response may have taken some seconds to arrive."""


def check_clock(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield a large difference from the cluster's clock, or that its answers do not tell its time."""
    if evidence.ahead_s is None:
        yield Diagnosed(
            code="CLOCK_UNKNOWN", severity="warning", area="client", subject="clock",
            message="the dashboard's answers do not tell the time: notes, plans and cooldowns end by this machine's",
            advice="a proxy in front must pass the header `Date` on; until then this machine should use NTP")
    elif abs(ahead_s := round(evidence.ahead_s)) > ALLOWED_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        yield Diagnosed(
            code="CLOCK_SKEW", severity="warning", area="client", subject="clock",
            message=f"this machine's clock is {abs(ahead_s)} s {way} the cluster's: notes, plans and cooldowns end by "
                    "the cluster's, and times in output and logs of this machine differ from it",
            advice="set the clock that is wrong; both machines should use NTP")


def check_ray(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield a Ray version that is too old."""
    for message in version_warnings(evidence.inventory.cluster.ray_version or ""):
        yield Diagnosed(code="RAY_TOO_OLD", severity="error", area="cluster", subject="Ray", message=message,
                        advice="upgrade Ray on all nodes; commands that only read, such as plan, work as before")


def check_token(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield that the dashboard answers requests without a token."""
    if evidence.vitals.is_open:
        yield Diagnosed(
            code="NO_TOKEN_NEEDED", severity="warning", area="cluster", subject="dashboard",
            message="it answers requests without a token: whoever reaches it can read everything, and run programs on "
                    "every node unless a proxy in front passes only GETs",
            advice="start Ray 2.52 or later with RAY_AUTH_MODE=token, or let only trusted machines reach the address")


def check_reading(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield false claims of replicas, and the other warnings: errors if the inventory is incomplete because of them."""
    seen = evidence.inventory
    for replica in seen.replicas:
        for why in replica.refused:
            yield Diagnosed(
                code="CLAIM_REFUSED", severity="error", area="replica", subject=replica.actor_name, message=why,
                advice="what Ray says counts. A replica of this fleetctl says only what is true: find out which "
                       f"job created this one, with `ray list actors --detail --filter actor_id={replica.actor_id}`",
                command="fleetctl inventory")
    other_checks = {*card_warnings(evidence.alive), *version_warnings(seen.cluster.ray_version or ""),
                    *refused_claims(seen.replicas)}
    reported = [warning for warning in seen.warnings if warning not in other_checks]
    for warning in reported or ([] if seen.complete else ["a part of the cluster could not be read"]):
        harmless = seen.complete or (bool(seen.unread) and warning not in seen.unread)
        yield Diagnosed(
            code="READING" if harmless else "NOT_READ_WHOLE", severity="warning" if harmless else "error",
            area="cluster", subject="inventory", message=warning, command="fleetctl inventory",
            advice="" if harmless else "until everything can be read, nothing is planned or applied")


def check_autoscaler(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield that the autoscaler reports nothing any more: an error for a fleet that asks it for nodes."""
    since, told = evidence.vitals.autoscaler_silent, evidence.autoscaler
    if since or told:
        grows = evidence.fleet is not None and bool(evidence.fleet.cluster.grow)
        yield Diagnosed(
            code="AUTOSCALER_SILENT", severity="error" if grows else "warning", area="cluster", subject="autoscaler",
            message=silent_text(since) if since else told.partition("; see")[0],
            advice="see monitor.log in Ray's log folder on the head node, or with KubeRay the log of the container "
                   "`autoscaler` of its pod; a monitor that has ended comes back when Ray's head is started again")


MANY_ROWS, LONG_S = 5_000, 5.0
"""A list of this length takes about a second on an idle head node; a list that takes longer than LONG_S is slow."""


def check_job_list(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield that Ray's list of jobs could not be read, or is long: Ray itself never shortens it."""
    vitals = evidence.vitals
    if vitals.no_jobs:
        yield Diagnosed(
            code="JOB_LIST_UNREAD", severity="error", area="cluster", subject="jobs",
            message=f"Ray's list of jobs could not be read: {vitals.no_jobs}",
            advice=f"if it is too long, delete what you can: `{evidence.prune_runs}` for runs of fleetctl, `ray job "
                   "delete` for others; what is left goes with a new Ray session",
            command="fleetctl history")
    elif vitals.job_rows > MANY_ROWS or vitals.job_list_s > LONG_S:
        yield Diagnosed(
            code="JOB_LIST_LONG", severity="warning", area="cluster", subject="jobs",
            message=f"Ray lists {count_of(vitals.job_rows, 'job')}, of which {len(vitals.jobs)} are runs of fleetctl; "
                    f"reading the list took {vitals.job_list_s:.1f} s, and `fleetctl history` takes as long each time",
            advice=f"`{evidence.prune_runs}` deletes runs that spec.history does not keep, `ray job delete` a "
                   "job of another program",
            command="fleetctl history")


STARTS_WITHIN_S, ENDS_WITHIN_S = 300, 2 * 3600


def check_start(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield why the nodes could not be examined, and why the agent of the latest run did not start."""
    if evidence.unasked is not None:
        yield Diagnosed(code="NODES_NOT_ASKED", severity="error", area="cluster", subject="agent",
                        message=evidence.unasked.message, advice=evidence.unasked.hint or "")
    if evidence.vitals.failed is None:
        return
    job, text = evidence.vitals.failed
    log = read_log(text, job)
    summary = summary_of(log)
    begun = any(event.type == "version" for event in log.events)
    if begun or (summary is None and job.error_type not in NEVER_STARTED):
        return
    yield Diagnosed(
        code="AGENT_NOT_STARTED", severity="error", area="cluster", subject=job.submission_id,
        message=f"the agent of the latest run did not start: {summary.message if summary else job.end_text}",
        advice="the head node must start jobs with the Python interpreter of Ray's workers; "
               "see dashboard_agent.log there",
        command=f"fleetctl history show {job.submission_id}")


def check_end(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield runs that have been pending or running for suspiciously long."""
    now_ms = as_datetime(evidence.now).timestamp() * 1000
    for job in evidence.vitals.jobs:
        passed_s = int((now_ms - job.start_time_ms) / 1000) if job.start_time_ms else 0
        verb, pending = job.metadata.get("verb") or "run", job.status == "PENDING"
        if job.ended or passed_s <= (STARTS_WITHIN_S if pending else ENDS_WITHIN_S) or verb in {
                *NOTES, *READ_ONLY, *(() if pending else (STANDBY,))}:
            continue
        yield Diagnosed(
            code="RUN_NOT_STARTED" if pending else "RUN_LASTS", severity="warning", area="cluster",
            subject=job.submission_id,
            message=f"this {verb} has been {'waiting to start' if pending else 'running'} for {passed_s // 60} min"
                    + ("" if pending else ", and may hold the lock of its fleet"),
            advice="the head node has no capacity for another job, or Ray's agent that starts jobs is down" if pending
            else "see what it waits for; `fleetctl stop` ends an apply, and the replicas it created stay",
            command=f"fleetctl apply --attach {job.submission_id}" if verb == "apply" and not pending
            else f"fleetctl history show {job.submission_id}")


def leaked(evidence: Evidence) -> list[PlacementGroup]:
    """Return the placement groups named like a fleetctl replica without a live actor of that name.

    A gang's coordinator has its name before it requests its group, and the groups were listed before the actors. Only
    the agent knows a group's namespace: it checks again before it removes one. If the actors could not be read
    completely, no group counts as leaked.
    """
    if not evidence.inventory.complete:
        return []
    live = {replica.foreign_id or f"ModelActor:{replica.model}:{replica.replica_id}"
            for replica in evidence.inventory.replicas if replica.level == "HOT"}
    return [group for group in evidence.vitals.groups if group.name not in live and group.group_id
            and (name := parse_actor_name(group.name)) and name.replica_id is not None and name.level == "HOT"]


def check_groups(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each placement group whose gang is gone, with the GPUs it still holds."""
    names = {node.id: node.name for node in evidence.inventory.nodes}
    for group in leaked(evidence):
        held = sum(claim.gpus for _, claim in group.held)
        nodes = ", ".join(dict.fromkeys(names.get(node_id, node_id) for node_id, _ in group.held)) or "no node"
        yield Diagnosed(
            code="LEAKED_GROUP", severity="error", area="cluster", subject=group.name,
            message=f"its placement group holds {amount_of(held, 'GPU')} on {nodes}, but there is no live "
                    "replica of that name",
            advice="--fix removes it if it is in fleetctl's namespace and its creator is dead",
            command="fleetctl doctor --fix")


def check_locks(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each lock of a run that ended without releasing it; the next run takes it over."""
    for lock in evidence.locks:
        yield Diagnosed(
            code="LOCK_LEFT", severity="warning", area="cluster", subject=lock.fleet,
            message=f"run {lock.job or 'unknown'} ended without releasing the lock of this fleet",
            advice="it blocks nothing: the next run takes it over. --fix releases it",
            command="fleetctl doctor --nodes --fix")
