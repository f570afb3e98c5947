"""Executes the commands of `step`: reads the source and the cluster, plans, applies. Has no clock and no output.

An apply of the loop ends when everything is created. Each later look tells what became of the replicas it has begun:
ready, failed or gone, each told once (`Starts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from fleetctl.apply.history import read_history
from fleetctl.apply.outcome import AFTER_PILOT, TARGET_REACHED, final_exit_code, raise_if_refused
from fleetctl.apply.prepare import ApplyTask
from fleetctl.collector import free_frozen
from fleetctl.documents.base import age_text, as_datetime, span_text
from fleetctl.documents.canonical import canonical_json, sha256_hex, short_commit
from fleetctl.documents.events import History, ReplicaOutcome, RunSummary
from fleetctl.documents.inventory import STARTING_STATES, Inventory, Replica, dead_node_ids, is_live
from fleetctl.documents.quantity import count_of, first_few, grouped
from fleetctl.errors import FleetctlError, LockHeld, RevisionError
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.fleetfile.rule_schema import ENDLESS
from fleetctl.inventory.actors import list_rows
from fleetctl.inventory.json_values import text_of
from fleetctl.planner.breaker import Cooled, Cooling, find_cooled, seconds
from fleetctl.planner.failures import last_words
from fleetctl.planner.options import PlanOptions, file_flags
from fleetctl.planner.policy import refusing
from fleetctl.watch.source import WatchedSource
from fleetctl.watch.step import RESYNC_S, ApplyEnded, Looked, PlanMade, WatchState
from fleetctl.workflow.cluster import read
from fleetctl.workflow.dashboard import live_source, open_dashboard
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.planning import PlannedFleet, plan_fleet
from fleetctl.workflow.proposal import FleetReplanner


class Start(NamedTuple):
    """A replica that was begun for a revision; `since` = RFC 3339, by the cluster's clock.

    `runs` = the numbers of the runs that count once it has ended: the one that began it, and later ones that await it.
    `failed_before` = ids of actors that had failed under its name before.
    """

    model: str
    replica_id: int
    revision: str
    since: str
    runs: tuple[int, ...]
    failed_before: frozenset[str | None]


class Ending(NamedTuple):
    """News about how starts of a model ended; an empty `text` = told before. `of_run` = that of the whole run, once."""

    text: str
    of_run: Literal["", "fine", "failed"] = ""


class _How(NamedTuple):
    """How a start ended, in words, and when."""

    code: str
    why: str
    at: str


@dataclass(slots=True)
class Starts:
    """The starts that have not ended yet."""

    open: list[Start] = field(default_factory=list)
    _runs: int = 0
    _failed: set[int] = field(default_factory=set)
    _told: set[tuple[str, str, str]] = field(default_factory=set)
    """Failures that were told, by revision, model and code: each retry would tell them again."""

    def begin(
        self, revision: str, before: Inventory, outcomes: Sequence[ReplicaOutcome], *, counts: bool = True
    ) -> bool:
        """Note what a run has left starting; returns whether it is anything.

        `before` = what ran when it was planned; `counts` = its end counts as the run's.
        """
        runs = (self._runs,) if counts else ()
        self._runs += 1
        starting = [(row.model, row.replica_id) for row in outcomes
                    if row.outcome == "starting" and row.replica_id is not None]
        starts = {(start.model, start.replica_id): start for start in self.open}
        for key in starting:
            start = starts.get(key) or Start(*key, revision, before.observed_at, (), frozenset(
                failure.actor_id for failure in before.failures if (failure.model, failure.replica_id) == key))
            starts[key] = start._replace(runs=start.runs + runs)
        self.open = list(starts.values())
        return bool(starting)

    def adopt(self, revision: str, seen: Inventory, fleet: str) -> None:
        """Note what an earlier watch, which was ended, has left starting."""
        self.begin(revision, seen, [
            ReplicaOutcome(model=replica.model, replica_id=replica.replica_id, outcome="starting")
            for replica in seen.replicas if replica.fleet == fleet and replica.replica_id is not None
            and replica.level == "HOT" and replica.state in STARTING_STATES], counts=False)

    def end(self, seen: Inventory, fleet: str) -> list[Ending]:
        """Return what has ended by now, a text for each revision, model and way, and forget it."""
        if not seen.complete or not self.open:
            return []
        dead = dead_node_ids(seen)
        live = {(replica.model, replica.replica_id): replica for replica in seen.replicas
                if replica.fleet == fleet and is_live(replica, dead)}
        ended = [(start, _end_of(start, live.get((start.model, start.replica_id)), seen, fleet)) for start in self.open]
        self.open = [start for start, how in ended if how is None]
        news = list(self._news([(start, how) for start, how in ended if how is not None]))
        left = {run for start in self.open for run in start.runs}
        runs = {run for start, _ in ended for run in start.runs} - left
        news += [Ending("", "failed" if run in self._failed else "fine") for run in sorted(runs)]
        self._failed -= runs
        return news

    def _news(self, ended: Sequence[tuple[Start, _How]]) -> Iterator[Ending]:
        for (revision, model, code, why), rows in grouped(
                ((start.revision, start.model, how.code, how.why), (start, how.at)) for start, how in ended).items():
            starts = [start for start, _ in rows]
            what = model if len(starts) > 1 else f"{model}/{starts[0].replica_id}"
            after = age_text(min(start.since for start in starts), max((at for _, at in rows), key=as_datetime))
            if code == "ready":
                self._told = {told for told in self._told if told[:2] != (revision, model)}
                yield Ending(f"{short_commit(revision)}: {what}: {f'{len(starts)} ' if len(starts) > 1 else ''}ready "
                             f"after {after}")
                continue
            self._failed.update(run for start in starts for run in start.runs)
            if (revision, model, code) not in self._told:
                self._told.add((revision, model, code))
                count = f"{count_of(len(starts), 'replica')} " if len(starts) > 1 else ""
                yield Ending(f"{short_commit(revision)}: {what}: {count}{why.format(after=after)}")


def _end_of(start: Start, now: Replica | None, seen: Inventory, fleet: str) -> _How | None:
    """Return how and when a start ended, with the time that it took left open in the words; None = it has not."""
    if now is not None:
        return None if now.state in STARTING_STATES else _How("ready", "", _time_of(now.ready_at, start, seen))
    for failure in seen.failures:
        if ((failure.model, failure.replica_id) != (start.model, start.replica_id) or failure.reload
                or failure.fleet not in (None, fleet)):
            continue
        # a node's clock may be wrong: its time counts only where nothing else tells this failure from earlier ones
        is_own = (failure.actor_id not in start.failed_before if failure.actor_id
                  else failure.at is None or as_datetime(failure.at) >= as_datetime(start.since))
        if is_own:
            why = f"{failure.code}: {last_words(failure.message)}".replace("{", "{{").replace("}", "}}")
            return _How(failure.code, f"failed after {{after}}: {why}; it is tried again until the model cools down",
                        _time_of(failure.at, start, seen))
    return _How("gone", "gone after {after}: evicted, lost with its node, or Ray no longer knows how it ended",
                seen.observed_at)


def _time_of(at: str | None, start: Start, seen: Inventory) -> str:
    """Return a time by a node's clock; the time of the look if it cannot be right, or is unknown."""
    possible = at and as_datetime(start.since) <= as_datetime(at) <= as_datetime(seen.observed_at)
    return at if at and possible else seen.observed_at


NOTHING_LEFT = "another apply had created what was missing"
SHOWN = 3
NEWS_KEPT = 50
RUNS_SHOWN = 20
LATE_S = 600.0
"""How long a look and a plan may take, with every wait: git, the dashboard, a large plan."""

PULSE_LIMIT_S = 5.0
"""How long the GET between two looks may take."""

Run = Callable[[ApplyTask], RunSummary]
"""Submits an apply that ends when everything is created, and follows it to its end."""
_VOLATILE: Any = {
    "observed_at": True, "warnings": True, "unread": True, "failures": True, "successes": True, "starts": True,
    "replicas": {"__all__": {"error", "restarts", "since", "ready_at", "tool_version"}},
    "nodes": {"__all__": {"gpus": {"__all__": {"processes"}}}}}
"""Fields that change constantly and affect no plan. Failures affect plans by cooling, which is added below."""
_MEMORY_STEP = 1 << 30
"""The change of a card's memory in use, in bytes, that counts: serving engines fluctuate by less."""


@dataclass(slots=True)
class Watcher:
    """One source, one cluster. `clock` is monotonic, in seconds; `run` applies."""

    invocation: Invocation
    source: WatchedSource
    where: Where
    clock: Callable[[], float]
    run: Run
    state: WatchState
    good: LoadedFleet | None = None
    """The fleet of the last good revision."""
    seen: Inventory | None = None
    planned: PlannedFleet | None = None
    plan_s: float = 0
    """How long the last plan took."""
    looked_at: float = 0
    """The time of the last look, in seconds since the epoch."""
    next_turn_by: float | None = None
    """When the next turn of the loop is due, by `clock`; None = unknown: it applies, or has not begun."""
    applies: Counter[str] = field(default_factory=Counter)
    """The number of applies by outcome; one that has begun replicas counts once all of them have ended their start."""
    starts: Starts = field(default_factory=Starts)
    keeps_history: bool = False
    """The history of the fleet is read with each plan, for the status page."""
    history: History | None = None
    news: tuple[tuple[str, str], ...] = ()
    """The latest news, each with its time; the newest is last."""
    _endings: list[Ending] = field(default_factory=list)
    """How starts ended between the last look and its plan: the next run may use their names again."""
    _judged_good: str | None = None
    """The revision that was judged last, and found good."""
    _ended: tuple[str, str, float] = ("", "", 0)
    """The revision whose loading was ended at its limit, the message, and until when it is not loaded again."""

    def say(self, at: str, text: str) -> None:
        """Add to the news."""
        self.news = (*self.news[1 - NEWS_KEPT:], (at, text))

    def note_turn(self, seconds: float | None) -> None:
        """Note that the loop turns now, and again after this time; None = unknown."""
        self.next_turn_by = None if seconds is None else self.clock() + seconds + max(LATE_S, 3 * self.state.interval_s)

    @property
    def is_late(self) -> bool:
        """Return whether the next turn of the loop is overdue."""
        next_turn_by = self.next_turn_by  # read once: the loop's thread may replace it
        return next_turn_by is not None and self.clock() > next_turn_by

    def look(self) -> Looked:
        """Get the newest revision from the source, judge it, and read the cluster."""
        free_frozen()
        revision, source_problem, fault = None, "", ""
        try:
            revision = self.source.newest()
            fault = self._fault(revision)
        except RevisionError as error:
            revision, source_problem = None, error.message  # a revision that could not be judged may not be good
        remembered = self._remembered() if self.good is None else None
        is_first = self.seen is None
        cluster, cluster_problem = self._cluster()
        endings, self._endings = self._endings, []
        if cluster and self.good and self.seen:
            fleet = self.good.sound().name
            if is_first:
                self.starts.adopt(revision or remembered or "", self.seen, fleet)
            endings += self.starts.end(self.seen, fleet)
        ended = tuple(ending.of_run for ending in endings if ending.of_run)
        self.applies = self.applies + Counter(ended)
        return Looked(self.clock(), revision, source_problem, fault, remembered, cluster, cluster_problem,
                      tuple(ending.text for ending in endings if ending.text), ended)

    def plan(self, revision: str) -> PlanMade | ApplyEnded:
        """Plan the last good fleet."""
        if self.good is None:
            raise ValueError("there is no good revision to plan")
        begun = self.clock()
        try:
            self.planned = plan_fleet(self.invocation, self.good, PlanOptions(files=tuple(self.source.paths)),
                                      self.where, git=self.source.facts(revision))
        except FleetctlError as error:
            return ApplyEnded(self.clock(), "error", error.message)
        plan, self.plan_s = self.planned.plan, self.clock() - begun
        if self.keeps_history:
            fleet = self.planned.fleet  # only for display, so a failure is ignored: the next plan reads it again
            with (suppress(FleetctlError),
                  open_dashboard(self.invocation, self.where.address, fleet.cluster.address) as client):
                self.history = read_history(client, fleet.name, RUNS_SHOWN)
        inventory = self.planned.inventory
        self._endings += self.starts.end(inventory, self.planned.fleet.name)
        cooled_at = [cooled.next_try for cooled in _cooled(self.planned.fleet, inventory)
                     if cooled.next_try is not None]
        replan_s = min(cooled_at) - seconds(inventory.observed_at) if cooled_at else None
        blocked = _listed([f"{row.model}: {count_of(row.replicas, 'replica')} blocked: {row.code}: {row.message}"
                           for row in plan.blocked])
        return PlanMade(self.clock(), len(plan.actions), blocked,
                        "; ".join(finding.message for finding in refusing(plan.policy)), replan_s,
                        "".join(growth.model_dump_json() for growth in plan.growth),
                        tuple(dict.fromkeys(plan.outdated)), f"fleetctl rollout {file_flags(plan.options.files)}")

    def apply(self) -> ApplyEnded:
        """Apply the last plan."""
        if self.planned is None:
            raise ValueError("there is no plan to apply")
        ended = self._applied(self.planned)
        if ended.outcome != "begun":
            self.applies = self.applies + Counter([ended.outcome])  # a new object: /metrics may be reading the old one
        return ended

    def _applied(self, planned: PlannedFleet) -> ApplyEnded:
        try:
            with open_dashboard(self.invocation, self.where.address, planned.fleet.cluster.address) as client:
                summary = self.run(ApplyTask(
                    client, planned.plan, replanner=FleetReplanner(self.invocation, planned, self.where)))
            raise_if_refused(summary)
        except LockHeld as error:
            return ApplyEnded(self.clock(), "locked", error.message)
        except FleetctlError as error:
            return ApplyEnded(self.clock(), "error", error.message)
        acted = [row for row in summary.outcomes if row.outcome != "blocked" and row.code != TARGET_REACHED]
        reached = any(row.code == TARGET_REACHED for row in summary.outcomes)
        fine = final_exit_code(acted, interrupted=summary.interrupted, waited=summary.waited) == 0
        begun = self.starts.begin(self.state.good or "", planned.inventory, acted, counts=fine)
        return ApplyEnded(self.clock(), ("begun" if begun else "fine") if fine else "partial",
                          _result(acted, lambda row: f"{row.code}: {last_words(row.message)}", {
                              one.id: one.ready_in.about for one in planned.plan.starts if one.ready_in})
                          or (NOTHING_LEFT if reached else summary.message),
                          _result(acted, lambda row: row.code or ""))

    def _fault(self, revision: str) -> str:
        if revision == self._judged_good:
            return ""
        # a fault is not remembered: git may fail for lack of memory or disk space, which is not the commit's fault
        fault = self.source.fault(revision) or self._fault_of_files(revision)
        self._judged_good = self._judged_good if fault else revision
        return fault

    def _remembered(self) -> str | None:
        """Put an earlier watch's last good revision in force, by the same rules, and return it."""
        try:
            good = self.source.remembered()
            return good if good and not (self.source.fault(good) or self._fault_of_files(good)) else None
        except RevisionError:
            return None  # the next look tries again

    def _fault_of_files(self, revision: str) -> str:
        """Put the fleet of a revision in force, or return what is wrong with its files."""
        revision_ended, fault, until = self._ended
        if revision == revision_ended and self.clock() < until:
            return fault  # a revision that takes its full time at every look would slow down the last good one
        loaded = self.source.load(revision)
        if loaded.fleet is None:
            fault = _listed([f"{error.file}:{error.line}:{error.column}: {error.message}" for error in loaded.errors])
            if any(error.code == ENDLESS for error in loaded.errors):
                self._ended = revision, fault, self.clock() + RESYNC_S
            return fault
        if self.good and self.good.sound().name != loaded.fleet.name:
            return (f"it renames fleet {self.good.sound().name} to {loaded.fleet.name}, which would start all replicas "
                    "again beside the running ones; start another watch for it")
        self.source.accept(revision)
        self.good = loaded
        return ""

    def starting(self) -> frozenset[str] | None:
        """Return the ids of the actors that Ray has not seen ready; None = nothing that was begun starts, or unknown.

        One GET, whose answer has no other actors.
        """
        if not self.starts.open or self.good is None:
            return None
        try:
            with open_dashboard(self.invocation, self.where.address, self.good.sound().cluster.address) as client:
                listing = list_rows(client.within(PULSE_LIMIT_S), "actors", lambda row: text_of(row.get("actor_id")),
                                    filters=[("state", "=", "PENDING_CREATION")])
                return frozenset(listing.rows)
        except FleetctlError:
            return None  # the next look says what is wrong

    def _cluster(self) -> tuple[str | None, str]:
        """Return the cluster's digest, or why there is none; without a good fleet it is not read."""
        if self.good is None:
            return None, ""
        try:
            with live_source(self.invocation, self.where, self.good.sound().cluster) as source:
                seen = read(self.invocation, source)
        except FleetctlError as error:
            return None, error.message
        self.seen = seen if seen.complete else self.seen
        return cluster_digest(self.good.sound(), seen), "" if seen.complete else _listed(seen.warnings)


def _result(
    acted: Sequence[ReplicaOutcome], why: Callable[[ReplicaOutcome], str],
    ready_in: Mapping[str, int] | None = None,
) -> str:
    """Return what a run has done, by model: `org/m 2 starting, org/n 1 ready`; failed ones with the reason.

    `ready_in` = how many seconds a start will take, by its id: `org/m 2 starting (ready in about 4m10s)`.
    """
    counts = Counter[tuple[str, str]]()
    for row in acted:
        counts[row.model, "after a pilot" if row.code == AFTER_PILOT else row.outcome] += row.replicas
    more: dict[tuple[str, str], str] = {
        (row.model, "failed"): f" ({why(row)})" for row in acted if row.outcome == "failed"}
    expected = grouped((row.model, seconds) for row in acted if row.outcome == "starting"
                       and (seconds := (ready_in or {}).get(f"{row.model}/{row.replica_id}")))
    more |= {(model, "starting"): f" (ready in about {span_text(max(times))})" for model, times in expected.items()}
    return _listed([f"{model} {count} {outcome}{more.get((model, outcome), '')}"
                    for (model, outcome), count in counts.items()])


def _listed(texts: Sequence[str]) -> str:
    return "; ".join(first_few(texts, SHOWN))


def cluster_digest(fleet: ResolvedFleet, inventory: Inventory) -> str | None:
    """Return the digest of an inventory for the plans of a fleet; None if it is incomplete.

    The memory in use of a fully granted card affects no plan, and that of a host changes constantly.
    """
    if not inventory.complete:
        return None
    state = inventory.model_dump(mode="json", exclude=_VOLATILE)
    for node in state["nodes"]:
        for card in node["gpus"]:
            if card["unified"] or card["share"] == 1:
                card["memory_used"] = None
            for key in ("memory_used", "memory_foreign"):
                card[key] = (card[key] or 0) // _MEMORY_STEP
    state["cools"] = [{about: [cooling.until, cooling.over] for about, cooling in _cooling(cooled).items()}
                      for cooled in _cooled(fleet, inventory)]
    return sha256_hex(canonical_json(state))


def _cooled(fleet: ResolvedFleet, inventory: Inventory) -> list[Cooled]:
    """Return what cools for new replicas, and for in-place updates."""
    return [find_cooled(fleet, inventory, reloads=reloads) for reloads in (False, True)]


def _cooling(cooled: Cooled) -> dict[str, Cooling]:
    by_subject = {' '.join(("model", *filter(None, of))): cooling for of, cooling in cooled.models.items()}
    by_subject |= {f"card {uuid}": cooling for uuid, cooling in cooled.cards.items()}
    for of, nodes in ((("", ""), cooled.nodes), *cooled.avoided.items(), *cooled.no_image.items()):
        by_subject |= {f"node {node_id} {' '.join(filter(None, of))}": cooling for node_id, cooling in nodes.items()}
    return by_subject
