"""Checks of the cluster: its Ray, what could be read, its jobs, and what dead runs and replicas have left."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.apply.run_state import NEVER_STARTED, read_log, summary_of
from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.base import as_datetime
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.quantity import amount_of
from fleetctl.inventory.cards import card_warnings
from fleetctl.inventory.dashboard import version_warnings
from fleetctl.inventory.jobs import READ_ONLY
from fleetctl.inventory.marks import parse_actor_name
from fleetctl.inventory.notes import NOTES
from fleetctl.inventory.used import PlacementGroup


def check_ray(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the version that is too old."""
    for message in version_warnings(evidence.inventory.cluster.ray_version or ""):
        yield Diagnosed(code="RAY_TOO_OLD", severity="error", area="cluster", subject="Ray", message=message,
                        advice="upgrade Ray on all nodes; plans and questions work as before")


def check_reading(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each warning of the inventory; without a whole inventory nothing is planned."""
    seen = evidence.inventory
    elsewhere = {*card_warnings(evidence.alive), *version_warnings(seen.cluster.ray_version or "")}
    reported = [warning for warning in seen.warnings if warning not in elsewhere]
    for warning in reported or ([] if seen.complete else ["something could not be read"]):
        beside = seen.complete or (bool(seen.unread) and warning not in seen.unread)
        yield Diagnosed(
            code="READING" if beside else "NOT_READ_WHOLE", severity="warning" if beside else "error",
            area="cluster", subject="inventory", message=warning, command="fleetctl inventory",
            advice="" if beside else "until all can be read, nothing is planned or applied")


STARTS_WITHIN_S, ENDS_WITHIN_S = 300, 2 * 3600


def check_start(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield why the agent could not ask the nodes, and why that of our latest run did not write its first line."""
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
        advice="the head node must start jobs with the interpreter that runs Ray's workers; "
               "see dashboard_agent.log there",
        command=f"fleetctl history show {job.submission_id}")


def check_end(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield runs that wait for their start, or for their end, longer than any should."""
    now_ms = as_datetime(evidence.now).timestamp() * 1000
    for job in evidence.vitals.jobs:
        passed_s = int((now_ms - job.start_time_ms) / 1000) if job.start_time_ms else 0
        verb, waits = job.metadata.get("verb") or "run", job.status == "PENDING"
        if job.ended or verb in {*NOTES, *READ_ONLY} or passed_s <= (STARTS_WITHIN_S if waits else ENDS_WITHIN_S):
            continue
        yield Diagnosed(
            code="RUN_NOT_STARTED" if waits else "RUN_LASTS", severity="warning", area="cluster",
            subject=job.submission_id,
            message=f"this {verb} has been {'waiting for its start' if waits else 'running'} for {passed_s // 60} min"
                    + ("" if waits else ", and may hold the lock of its fleet"),
            advice="the head node has no free place for a job, or no agent that starts it" if waits
            else "see what it waits for; `fleetctl stop` ends an apply, and what it created stays",
            command=f"fleetctl apply --attach {job.submission_id}" if verb == "apply" and not waits
            else f"fleetctl history show {job.submission_id}")


def leaked(evidence: Evidence) -> list[PlacementGroup]:
    """Return the groups that are named as ours, and of which no live actor has the name.

    A coordinator has its name before it asks for its group, and the groups were listed before the actors. Which
    namespace a group is in only the agent can tell: it asks again before it removes one. Where the actors could not be
    read whole, none is.
    """
    if not evidence.inventory.complete:
        return []
    live = {one.foreign_id or f"ModelActor:{one.model}:{one.replica_id}" for one in evidence.inventory.replicas
            if one.level == "HOT"}
    return [group for group in evidence.vitals.groups if group.name not in live and group.group_id
            and (name := parse_actor_name(group.name)) and name.replica_id is not None and name.level == "HOT"]


def check_groups(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each group of a gang whose replica is gone, with what it would hold permanently."""
    names = {node.id: node.name for node in evidence.inventory.nodes}
    for group in leaked(evidence):
        held = sum(claim.gpus for _, claim in group.held)
        nodes = ", ".join(dict.fromkeys(names.get(node_id, node_id) for node_id, _ in group.held)) or "no node"
        yield Diagnosed(
            code="LEAKED_GROUP", severity="error", area="cluster", subject=group.name,
            message=f"its placement group holds {amount_of(held, 'GPU')} on {nodes}, and no "
                    "replica of that name lives",
            advice="--fix removes it, where it is in our namespace and its creator is dead",
            command="fleetctl doctor --fix")


def check_locks(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each lock of a run that was ended before it could release it; the next run takes it over."""
    for lock in evidence.locks:
        yield Diagnosed(
            code="LOCK_LEFT", severity="warning", area="cluster", subject=lock.fleet,
            message=f"run {lock.job or 'unknown'} ended without releasing the lock of this fleet",
            advice="it blocks nothing: the next run takes it over. --fix releases it",
            command="fleetctl doctor --nodes --fix")
