"""What a watcher does next: a pure function of what it remembers and what has happened. Times are handed in.

    Looked ──► MakePlan ──► PlanMade ──► Apply ──► ApplyEnded
       └──────────────► Rest ◄─────┴─────────────────┘

Nothing is done on what was not read whole; a plan is made for a revision and a cluster only once, and again when
either has changed, or `RESYNC_S` later; what fails is tried again ever more slowly.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

RESYNC_S = 600.0
"""After this time a plan is made again although nothing has changed, as informers of Kubernetes do."""

SLOWEST_S = 300.0
SOONEST_S = 1.0
"""How long it rests at least, where plan and apply have taken the whole interval."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The source and the cluster were read. `revision` None = the source did not answer, and `unreadable` says why.

    `fault` = why this revision must not be used; `remembered` = the last good one of an earlier watch, now in force;
    `cluster` = a digest, None = it could not be read whole.
    """

    at: float
    revision: str | None = None
    unreadable: str = ""
    fault: str = ""
    remembered: str | None = None
    cluster: str | None = None
    away: str = ""


@dataclass(frozen=True, slots=True)
class PlanMade:
    """The plan of the last good revision. `refused` = why a person has to decide; `again_s` = when to plan again;
    `nodes` = which nodes the autoscaler is to provide, as one word; empty = none may be added.
    """

    at: float
    create: int = 0
    blocked: str = ""
    refused: str = ""
    again_s: float | None = None
    nodes: str = ""


@dataclass(frozen=True, slots=True)
class ApplyEnded:
    """How an apply ended: `error` = before or instead of any start; `locked` = another one runs."""

    at: float
    outcome: Literal["fine", "partial", "locked", "error"]
    message: str


Happened = Looked | PlanMade | ApplyEnded


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Plan the revision on the cluster."""

    revision: str


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply the plan that was made."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Say something that is new. `about` is one of the keys of `State.told`."""

    about: str
    text: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Look again after so many seconds."""

    seconds: float


Do = MakePlan | Apply | Tell | Rest


@dataclass(frozen=True, slots=True)
class State:
    """What a watcher remembers. `seen`, `good`, `applied` = the newest, the newest sound and the last applied revision.

    `looked_at` = when it looked last; `planned_for` = the revision and the cluster of the last plan, made again at
    `again_at` at the latest; `away` and `failures` = how many times in a row the cluster was away, or an apply failed;
    `nodes` = what the autoscaler is to provide, `asked` = what it was asked for last; `behind_at` = since when an apply
    has something to do, or there is no good revision; `told` = what was said last on each thing.
    """

    interval_s: float
    report_only: bool = False
    seen: str | None = None
    good: str | None = None
    applied: str | None = None
    looked_at: float = 0.0
    planned_for: tuple[str, str] | None = None
    again_at: float = 0.0
    away: int = 0
    failures: int = 0
    nodes: str = ""
    asked: str = ""
    behind_at: float | None = None
    told: dict[str, str] = field(default_factory=dict)

    def behind(self, at: float | None) -> State:
        """Return it with this time for `behind_at`, unless it is known; None = an apply has nothing to do."""
        return replace(self, behind_at=at if at is None or self.behind_at is None else self.behind_at)

    def rest(self, at: float) -> Rest:
        """Return the rest until an interval after the last look, or until a plan is to be made again before that."""
        return Rest(max(SOONEST_S, min(self.looked_at + self.interval_s, self.again_at) - at))

    def pause(self, failures: int) -> float:
        """Return the interval, doubled for each failure in a row, up to some minutes."""
        return max(self.interval_s, min(self.interval_s * 2.0 ** min(failures, 20), SLOWEST_S))


def step(state: State, happened: Happened) -> tuple[State, list[Do]]:
    """Return what to remember and what to do, in this order; the last is MakePlan, Apply or Rest."""
    if isinstance(happened, Looked):
        return _looked(state, happened)
    return _planned(state, happened) if isinstance(happened, PlanMade) else _applied(state, happened)


def _looked(state: State, now: Looked) -> tuple[State, list[Do]]:
    fault = f"{_short(now.revision)}: {now.fault}" if now.fault else ""
    judged = [("revision", fault)] if now.revision is not None else []
    state, said = _tell(state, ("source", now.unreadable), *judged, ("cluster", now.away))
    if now.revision is not None and now.revision != state.seen:
        state = replace(state, seen=now.revision)
    good = now.remembered if now.fault or now.revision is None else now.revision
    if good is not None and good != state.good:
        state = replace(state, good=good, failures=0).behind(now.at)
        said = [*said, Tell("good", _short(good))]
    if state.good is None:
        state = state.behind(now.at)
    state = replace(state, away=state.away + 1 if now.away else 0, looked_at=now.at)
    if now.cluster is None or state.good is None:
        return state, [*said, Rest(state.pause(state.away))]
    target = (state.good, now.cluster)
    if target == state.planned_for and now.at < state.again_at:
        return state, [*said, state.rest(now.at)]
    return replace(state, planned_for=target), [*said, MakePlan(state.good)]


def _short(revision: str | None) -> str:
    return (revision or "")[:10]


def _planned(state: State, plan: PlanMade) -> tuple[State, list[Do]]:
    refused = f"{_short(state.good)}: {plan.refused}" if plan.refused else ""
    wanted = str(plan.create) if plan.create and state.report_only else ""
    state, said = _tell(state, ("blocked", plan.blocked), ("policy", refused), ("wanted", wanted))
    due = bool(plan.create) or plan.nodes != state.asked
    state = replace(state, nodes=plan.nodes).behind(plan.at if due or refused else None)
    if due and not refused and not state.report_only:
        return state, [*said, Apply()]
    state, over = _tell(state, ("locked", ""), ("error", ""))
    said = [*said, *over]
    state = replace(state, failures=0, again_at=plan.at + min(RESYNC_S, plan.again_s or RESYNC_S),
                    applied=state.applied if plan.create else state.good)
    return state, [*said, state.rest(plan.at)]


def _applied(state: State, end: ApplyEnded) -> tuple[State, list[Do]]:
    if end.outcome == "locked":
        state, said = _tell(state, ("locked", end.message))
        return replace(state, again_at=end.at), [*said, Rest(state.interval_s)]
    if end.outcome == "error":
        state, said = _tell(state.behind(end.at), ("locked", ""), ("error", end.message))
    else:
        state, said = _tell(state, ("locked", ""), ("error", ""))
        state = replace(state, applied=state.good, asked=state.nodes)
        said = [*said, Tell("applied", f"{_short(state.good)}: {end.message}")]
    failures = state.failures + 1
    if end.outcome == "fine":
        state, failures = state.behind(None), 0
    # a cluster that has changed by then is planned at once; on this one the same plan would fail again
    state = replace(state, failures=failures, again_at=end.at + state.pause(failures))
    return state, [*said, state.rest(end.at)]


def _tell(state: State, *news: tuple[str, str]) -> tuple[State, list[Do]]:
    """Say what is not what was said last about a thing, its end too; empty text = it is over."""
    changed = {about: text for about, text in news if text != state.told.get(about, "")}
    told = {about: text for about, text in {**state.told, **changed}.items() if text}
    return replace(state, told=told), [Tell(about, text) for about, text in changed.items()]
