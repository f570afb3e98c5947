"""Cluster: it starts our jobs, with an interpreter that has Ray, and none of them hangs."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.apply.run_state import NEVER_STARTED, read_log, summary_of
from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.base import as_datetime
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.inventory.jobs import LOOKS, Job
from fleetctl.inventory.notes import NOTES

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
        limit_s = STARTS_WITHIN_S if job.status == "PENDING" else ENDS_WITHIN_S
        if not job.ended and job.metadata.get("verb") not in {*NOTES, *LOOKS} and passed_s > limit_s:
            yield _lasting(job, passed_s // 60)


def _lasting(job: Job, minutes: int) -> Diagnosed:
    verb = job.metadata.get("verb") or "run"
    waits = job.status == "PENDING"
    attach = verb == "apply" and not waits
    return Diagnosed(
        code="RUN_NOT_STARTED" if waits else "RUN_LASTS", severity="warning", area="cluster",
        subject=job.submission_id,
        message=f"this {verb} has been {'waiting for its start' if waits else 'running'} for {minutes} min"
                + ("" if waits else ", and may hold the lock of its fleet"),
        advice="the head node has no free place for a job, or no agent that starts it" if waits
        else "see what it waits for; `fleetctl stop` ends an apply, and what it created stays",
        command=f"fleetctl apply --attach {job.submission_id}" if attach
        else f"fleetctl history show {job.submission_id}")
