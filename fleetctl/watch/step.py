"""A watcher's next step: a pure function of its state and the latest event. Times are parameters.

    Looked ──► MakePlan ──► PlanMade ──► Apply ──► ApplyEnded
       └──────────────► Rest ◄─────┴─────────────────┘

Nothing is done on an incomplete reading. A revision and a cluster are planned once, and again when either has changed
or after `RESYNC_S`. Failures are retried with growing pauses.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from fleetctl.documents.canonical import short_commit
from fleetctl.documents.quantity import some

RESYNC_S = 600.0
"""After this time a plan is made again even if nothing has changed, like the resync of Kubernetes informers."""

SLOWEST_S = 300.0
SOONEST_S = 1.0
"""The shortest rest, when plan and apply have taken the whole interval."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The source and the cluster were read. `revision` None = the source did not answer, because of `source_problem`.

    `fault` = why this revision must not be used; `remembered` = an earlier watch's last good revision, now in force;
    `cluster` = a digest, None = it could not be read completely, because of `cluster_problem`; `endings` = news of how
    started replicas ended; `ended` = the runs of which all have, by how.
    """

    at: float
    revision: str | None = None
    source_problem: str = ""
    fault: str = ""
    remembered: str | None = None
    cluster: str | None = None
    cluster_problem: str = ""
    endings: tuple[str, ...] = ()
    ended: tuple[Literal["fine", "failed"], ...] = ()


@dataclass(frozen=True, slots=True)
class PlanMade:
    """The plan of the last good revision. `create` = the number of its actions; `refused` = why a person must decide;
    `replan_s` = when to plan again; `nodes` = a key of the nodes to request from the autoscaler, empty = none;
    `outdated` = the models that keep a former spec until the command `rollout`.
    """

    at: float
    create: int = 0
    blocked: str = ""
    refused: str = ""
    replan_s: float | None = None
    nodes: str = ""
    outdated: tuple[str, ...] = ()
    rollout: str = ""


@dataclass(frozen=True, slots=True)
class ApplyEnded:
    """The end of an apply: `error` = it failed before it started anything; `locked` = another apply runs.

    `begun` = everything was created and some of it still starts: later looks tell how that ended. `gist` = what a retry
    that ends alike has in common with it, as the message has times and ports; empty = the message.
    """

    at: float
    outcome: Literal["fine", "begun", "partial", "locked", "error"]
    message: str
    gist: str = ""


Event = Looked | PlanMade | ApplyEnded


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Plan the revision on the cluster."""

    revision: str


@dataclass(frozen=True, slots=True)
class StartApply:
    """Apply the plan that was made."""


@dataclass(frozen=True, slots=True)
class Notify:
    """Report something new. `about` is a key of `WatchState.conditions`; an empty `text` = the condition is over."""

    about: str
    text: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Look again after this time."""

    seconds: float


Command = MakePlan | StartApply | Notify | Rest


@dataclass(frozen=True, slots=True)
class WatchState:
    """A watcher's memory. `seen`, `good`, `applied` = the newest, the newest good and the last applied revision.

    `looked_at` = the time of the last look; `planned_for` = the revision and the cluster of the last plan, to be made
    again by `replan_at`; `cluster_failures`, `failures` = consecutive failures to read the cluster, and to apply;
    `nodes` = nodes to request from the autoscaler, `requested` = the last request; `behind_at` = since when an apply
    has something to do, or there is no good revision; `told_applied` = the gist of the last news of an apply;
    `outdated` = the models last found to keep a former spec; `conditions` = the last text reported on each topic.
    """

    interval_s: float
    report_only: bool = False
    seen: str | None = None
    good: str | None = None
    applied: str | None = None
    looked_at: float = 0.0
    planned_for: tuple[str, str] | None = None
    replan_at: float = 0.0
    cluster_failures: int = 0
    failures: int = 0
    nodes: str = ""
    requested: str = ""
    behind_at: float | None = None
    told_applied: str = ""
    outdated: frozenset[str] = frozenset()
    conditions: dict[str, str] = field(default_factory=dict)

    def behind(self, at: float | None) -> WatchState:
        """Return the state with `behind_at` set, unless it is already; None clears it: an apply has nothing to do."""
        return replace(self, behind_at=at if at is None or self.behind_at is None else self.behind_at)

    def rest(self, at: float) -> Rest:
        """Return the rest until one interval after the last look, or until `replan_at` if that is earlier."""
        return Rest(max(SOONEST_S, min(self.looked_at + self.interval_s, self.replan_at) - at))

    def pause(self, failures: int) -> float:
        """Return the interval, doubled for each consecutive failure, up to SLOWEST_S."""
        return max(self.interval_s, min(self.interval_s * 2.0 ** min(failures, 20), SLOWEST_S))


def step(state: WatchState, event: Event) -> tuple[WatchState, list[Command]]:
    """Return the new state and the commands, in order; the last is MakePlan, Apply or Rest."""
    if isinstance(event, Looked):
        return _looked(state, event)
    return _planned(state, event) if isinstance(event, PlanMade) else _applied(state, event)


def _looked(state: WatchState, now: Looked) -> tuple[WatchState, list[Command]]:
    fault = f"{short_commit(now.revision)}: {now.fault}" if now.fault else ""
    judged = [("revision", fault)] if now.revision is not None else []
    state, notices = _report(state, ("source", now.source_problem), *judged, ("cluster", now.cluster_problem))
    if now.revision is not None:
        state = replace(state, seen=now.revision)
    good = now.remembered if now.fault or now.revision is None else now.revision
    if good is not None and good != state.good:
        state = replace(state, good=good, failures=0).behind(now.at)
        notices = [*notices, Notify("good", short_commit(good))]
    if state.good is None:
        state = state.behind(now.at)
    notices += [Notify("ended", text) for text in now.endings]
    for how in now.ended:
        state = replace(state, failures=0 if how == "fine" else state.failures + 1)
    state = replace(state, cluster_failures=state.cluster_failures + 1 if now.cluster_problem else 0, looked_at=now.at)
    if now.cluster is None or state.good is None:
        return state, [*notices, Rest(state.pause(state.cluster_failures))]
    target = (state.good, now.cluster)
    if target == state.planned_for and now.at < state.replan_at:
        return state, [*notices, state.rest(now.at)]
    return replace(state, planned_for=target), [*notices, MakePlan(state.good)]


def _planned(state: WatchState, plan: PlanMade) -> tuple[WatchState, list[Command]]:
    refused = f"{short_commit(state.good)}: {plan.refused}" if plan.refused else ""
    wanted = str(plan.create) if plan.create and state.report_only else ""
    state, notices = _report(state, ("blocked", plan.blocked), ("policy", refused), ("wanted", wanted))
    if outdated := [key for key in plan.outdated if key not in state.outdated]:
        notices = [*notices, Notify("outdated", f"{short_commit(state.good)}: running replicas of {some(outdated)} "
                                                f"keep their former spec; `{plan.rollout}` replaces them")]
    state = replace(state, outdated=frozenset(plan.outdated))
    due = bool(plan.create) or plan.nodes != state.requested
    state = replace(state, nodes=plan.nodes).behind(plan.at if due or refused else None)
    if due and not refused and not state.report_only:
        return state, [*notices, StartApply()]
    state, over = _report(state, ("locked", ""), ("error", ""))
    state = replace(state, failures=0, replan_at=plan.at + min(RESYNC_S, plan.replan_s or RESYNC_S),
                    applied=state.applied if plan.create else state.good)
    return state, [*notices, *over, state.rest(plan.at)]


def _applied(state: WatchState, end: ApplyEnded) -> tuple[WatchState, list[Command]]:
    if end.outcome == "locked":
        state, notices = _report(state, ("locked", end.message))
        return replace(state, replan_at=end.at), [*notices, Rest(state.interval_s)]
    if end.outcome == "error":
        state, notices = _report(state.behind(end.at), ("locked", ""), ("error", end.message))
    else:
        state, notices = _report(state, ("locked", ""), ("error", ""))
        revision = short_commit(state.good)
        gist = f"{revision}: {end.gist or end.message}"
        notices += [Notify("applied", f"{revision}: {end.message}")] if gist != state.told_applied else []
        state = replace(state, applied=state.good, requested=state.nodes, told_applied=gist)
    failures = state.failures + 1
    if end.outcome in ("fine", "begun"):
        state, failures = state.behind(None), 0 if end.outcome == "fine" else state.failures
    # a changed cluster is planned at once; on an unchanged one the same plan would fail again
    state = replace(state, failures=failures, replan_at=end.at + state.pause(failures))
    return state, [*notices, state.rest(end.at)]


def _report(state: WatchState, *texts: tuple[str, str]) -> tuple[WatchState, list[Command]]:
    """Report the texts that differ from the last report on their topic; an empty text ends a condition."""
    changed = {about: text for about, text in texts if text != state.conditions.get(about, "")}
    conditions = {about: text for about, text in {**state.conditions, **changed}.items() if text}
    return replace(state, conditions=conditions), [Notify(about, text) for about, text in changed.items()]
