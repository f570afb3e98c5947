"""Wait for a plan: a watch starts this agent ahead, so that the next plan needs no new job.

It takes a single plan, and from then on is that plan's run, like an agent that came with a plan: each run has a
process, a log, and a lock that ends with its process. The watch starts the next agent, and tells this one that it is
still there.

Clients write to Ray's package table, under names made of the id of this job; whoever can write there can submit jobs
too. Nothing is carried out that is not for this fleet, from this release, and what its plan's id says.
"""

from __future__ import annotations

import hashlib
import json
import signal
import threading
import time
import zlib

from .apply import run_apply
from .messages import Json
from .records import become_run, begin_run
from .run_messages import (
    ApplyRequest,
    EventStream,
    Handover,
    StandbyRequest,
    UnreadPlan,
    WatchSign,
    take_document,
)
from .wire import WrongDocument, parse

POLL_S = 0.5
WATCH_EVERY_S, WATCH_GONE_S = 10.0, 300.0
"""How often it asks whether its watch has written, and for how long none may have."""


class StandbyEnded(Exception):
    """It waits no longer: the message says why."""


def wait_for_plan(request: StandbyRequest) -> Handover:
    """Return the first plan that a client hands over; raises StandbyEnded."""
    stop, now = threading.Event(), time.monotonic()
    former = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    gone_at, ask_at = now + WATCH_GONE_S, now
    try:
        while not stop.wait(POLL_S):
            now = time.monotonic()
            found = take_document(f"{request.job}-plan")
            if found is not None:
                return parse(Handover, found)
            if now >= ask_at:
                ask_at = now + WATCH_EVERY_S
                agent = _agent_of_watch(request.job)
                if agent not in ("", request.agent):
                    raise StandbyEnded("a watch of another release has taken over; no plan came")
                gone_at = now + WATCH_GONE_S if agent else gone_at
            if now >= gone_at:
                raise StandbyEnded(f"its watch has been gone for {WATCH_GONE_S / 60:g} minutes; no plan came")
    finally:
        signal.signal(signal.SIGTERM, former)
    raise StandbyEnded("it was stopped; no plan came")


def _agent_of_watch(job: str) -> str:
    """Return the hash of the agent that a watch has, if it has written since this was asked last; "" = it has not."""
    try:
        return parse(WatchSign, take_document(f"{job}-watch") or {"agent": ""}).agent
    except (ValueError, RecursionError, zlib.error):
        return ""


def checked_plan(handed: Handover, standby: StandbyRequest) -> ApplyRequest:
    """Return what is to be carried out; raises WrongDocument if it is not meant for this agent, or was changed."""
    request = parse(ApplyRequest, handed.request)
    fleet = request.plan.fleet
    if handed.agent != standby.agent:
        raise WrongDocument("it is from another release")
    if (fleet.name, fleet.namespace, request.job) != (standby.fleet, standby.namespace, standby.job):
        raise WrongDocument("it is for another fleet or another agent")
    if request.plan.plan_id != _plan_id(parse(UnreadPlan, handed.request).plan):
        raise WrongDocument("it was changed after it was made (planId does not match)")
    return request


def _plan_id(plan: Json) -> str:
    """Return the id of a plan document, as the client computes it."""
    content = {key: value for key, value in plan.items() if key != "planId"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def run_standby(request: StandbyRequest, events: EventStream) -> int:
    """Wait for a plan and carry it out, once clients can see that this run does; returns the exit code.

    Without a plan the log has only the first and the last line.
    """
    try:
        handed = wait_for_plan(request)
        plan = checked_plan(handed, request)
        if not become_run(request.job, {**handed.metadata, "ticket": handed.ticket}):
            raise WrongDocument("Ray has ended this job, so the plan is another's")
    except (StandbyEnded, ValueError, RecursionError, zlib.error) as end:
        events.begin(request)
        if isinstance(end, StandbyEnded):
            return events.end(0, str(end))
        return events.end(1, f"the plan that was handed over is not carried out: {end}")
    begin_run(request.job)
    return run_apply(plan, events)
