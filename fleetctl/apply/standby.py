"""The client's side of an agent that waits for a plan: start one, find one, hand it a plan.

A plan is handed over under the name of the waiting job, and the job's row says who got it: the agent writes the ticket
of the plan there before it acts. If it does not, the client ends the job, and only then is the plan nobody's: so no
plan is carried out twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from fleetctl.apply import jobs
from fleetctl.apply.follow import parse_line
from fleetctl.apply.prepare import Starter
from fleetctl.documents.plan import PlanFleet
from fleetctl.errors import ApplyError, InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import AGENT, STANDBY, Job, find_job, log_of
from fleetctl.inventory.records import read_runs
from fleetctl.version import __version__

TICKET = "ticket"
"""The key of a run's metadata with the ticket of the plan that was handed to it."""
TAKEN_S, STARTS_S = 5.0, 30.0
"""How long an agent that waits may take to take a plan, and one that is being started."""
ENDED_S, PAUSE_S = 15.0, 0.1
"""How long a waiting agent may take to end, and the pause between two queries."""
KEEP_S, SIGN_S = 20.0, 60.0
"""How often a watch looks after its agent, and how often it tells it that it is there; see agent/standby.py."""


def _waits(job: Job, fleet: PlanFleet) -> bool:
    """Return whether a job's agent may wait for a plan of this fleet, made by this release."""
    return (not job.ended and job.metadata.get("verb") == STANDBY
            and job.metadata.get(AGENT) == jobs.agent_package().sha256
            and (job.metadata.get("fleet"), job.metadata.get("namespace")) == (fleet.name, fleet.namespace))


def find_standby(client: DashboardClient, fleet: PlanFleet) -> str | None:
    """Return the newest job whose agent waits for a plan of this fleet; None if there is none, or it is unknown."""
    with suppress(InventoryError):
        for job in reversed(_noted(client, fleet)):
            found = find_job(client, job.submission_id)
            if found and _waits(found, fleet):
                return found.submission_id
    return None


def _noted(client: DashboardClient, fleet: PlanFleet) -> list[Job]:
    return [job for job in read_runs(client) if not job.ended and job.metadata.get("verb") == STANDBY
            and (job.metadata.get("fleet"), job.metadata.get("namespace")) == (fleet.name, fleet.namespace)]


def hand_over(
    client: DashboardClient, standby: str, fleet: PlanFleet, ticket: str, metadata: dict[str, str],
    request: dict[str, Any], patience: jobs.Patience,
) -> bool:
    """Hand a plan to the agent that waits as job `standby`; returns whether it carries it out.

    If not, nobody does. Raises ApplyError if that is unknown.
    """
    job = None
    with suppress(InventoryError):
        job = find_job(client, standby)
    if job is None or not _waits(job, fleet):
        return False
    plan = jobs.document(f"{standby}-plan", {
        "ticket": ticket, "agent": jobs.agent_package().sha256, "metadata": metadata, "request": request})
    if not jobs.offer(client, plan):
        return False
    is_up = False
    with suppress(InventoryError):
        is_up = any(run.submission_id == standby for run in _noted(client, fleet))
    taken = _taken_by(client, standby, TAKEN_S if is_up else STARTS_S, patience)
    if taken == "":
        why = _last_words(client, standby)
        patience.report(f"job {standby}, whose agent waited for a plan, has ended without it{why}")
    if taken == ticket:
        return True
    jobs.withdraw(client, plan.name)
    if taken is not None:
        return False
    patience.report(f"job {standby}, whose agent waited for a plan, does not take it and is ended")
    jobs.stop(client, standby)
    taken = _taken_by(client, standby, ENDED_S, patience, ended=True)
    if taken is None:
        raise ApplyError(f"it is unknown whether job {standby} carries out the plan: it does not end",
                         hint=f"`fleetctl history show {standby}` says it once it has ended; then apply again")
    return taken == ticket


def _last_words(client: DashboardClient, standby: str) -> str:
    """Return why an agent has ended, after a colon, if its log says so."""
    with suppress(InventoryError):
        said = [event.message for line in (log_of(client, standby) or "").split("\n")
                if (event := parse_line(line)) and event.type == "runSummary"]
        return f": {said[-1]}" if said else ""
    return ""


def _taken_by(
    client: DashboardClient, standby: str, within_s: float, patience: jobs.Patience, *, ended: bool = False
) -> str | None:
    """Return the ticket of the plan that an agent got, "" if it has ended without one; None = not known in time.

    `ended` = wait until the job has ended.
    """
    deadline = patience.clock() + within_s
    while True:
        with suppress(InventoryError):
            job = find_job(client, standby)
            got = job.metadata.get(TICKET, "") if job else ""
            if job is None or job.ended or (got and not ended):
                return got
        if patience.clock() >= deadline:
            return None
        patience.sleep(PAUSE_S)


def submit_standby(client: DashboardClient, job: str, fleet: PlanFleet, starter: Starter) -> None:
    """Start an agent that waits for a plan of this fleet; raises ApplyError if the cluster refuses it."""
    request = {"fleet": fleet.name, "namespace": fleet.namespace, "agent": jobs.agent_package().sha256, "job": job,
               "toolVersion": __version__}
    metadata = {"fleet": fleet.name, "namespace": fleet.namespace, **replace(starter, command=None).metadata()}
    jobs.submit(client, job, STANDBY, request, namespace=fleet.namespace, metadata=metadata,
                follow_up="it ends by itself")


@dataclass(slots=True)
class StandbyKeeper:
    """Keeps an agent waiting for a watch: finds or starts it, and tells it that the watch is there.

    `clock` is monotonic, in seconds; `new_job` returns a new id for a job.
    """

    starter: Starter
    new_job: Callable[[], str]
    clock: Callable[[], float]
    job: str | None = None
    """The job whose agent waits, or is being started."""
    _due: dict[str, float] = field(default_factory=dict)
    _dismissed: bool = False

    def keep(self, client: DashboardClient, fleet: PlanFleet) -> None:
        """See that an agent waits; raises FleetctlError if none can be kept. Does nothing most of the time."""
        if not self._is_due("keep", KEEP_S):
            return
        found = find_job(client, self.job) if self.job else None
        if found is None or not _waits(found, fleet):
            self.job = find_standby(client, fleet)
        if not self._dismissed:
            self._dismissed = True
            for other in _noted(client, fleet):
                self._sign(client, other.submission_id)  # it ends if it is of another release
        if self.job is None:
            job = self.new_job()
            submit_standby(client, job, fleet, self.starter)
            self.job = job
        elif self._is_due(self.job, SIGN_S):
            self._sign(client, self.job)

    def look_now(self) -> None:
        """Let the next `keep` look whether an agent waits: this one has got a plan, or has ended."""
        self._due.clear()

    def _sign(self, client: DashboardClient, job: str) -> None:
        jobs.offer(client, jobs.document(f"{job}-watch", {"agent": jobs.agent_package().sha256}))

    def _is_due(self, what: str, every_s: float) -> bool:
        now = self.clock()
        if now < self._due.get(what, now):
            return False
        self._due[what] = now + every_s
        return True
