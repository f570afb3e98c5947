"""What became of the replicas that a watch has begun: ready, failed or gone, each told once. Pure; times are given.

An apply of the loop ends when everything is created. Each later look tells how these starts ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from fleetctl.documents.base import age_text, as_datetime
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.inventory import STARTING_STATES, Inventory, Replica, dead_node_ids, is_live
from fleetctl.documents.quantity import count_of, grouped

SHORT = 10
"""Characters of a revision."""


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
        known = {(one.model, one.replica_id): one for one in self.open}
        for key in starting:
            start = known.get(key) or Start(*key, revision, before.observed_at, (), frozenset(
                one.actor_id for one in before.failures if (one.model, one.replica_id) == key))
            known[key] = start._replace(runs=start.runs + runs)
        self.open = list(known.values())
        return bool(starting)

    def adopt(self, revision: str, seen: Inventory, fleet: str) -> None:
        """Note what an earlier watch, which was ended, has left starting."""
        self.begin(revision, seen, [
            ReplicaOutcome(model=one.model, replica_id=one.replica_id, outcome="starting")
            for one in seen.replicas if one.fleet == fleet and one.replica_id is not None and one.level == "HOT"
            and one.state in STARTING_STATES], counts=False)

    def end(self, seen: Inventory, fleet: str) -> list[Ending]:
        """Return what has ended by now, a text for each revision, model and way, and forget it."""
        if not seen.complete or not self.open:
            return []
        dead = dead_node_ids(seen)
        live = {(one.model, one.replica_id): one for one in seen.replicas if one.fleet == fleet and is_live(one, dead)}
        ended = [(one, _end_of(one, live.get((one.model, one.replica_id)), seen, fleet)) for one in self.open]
        self.open = [one for one, how in ended if how is None]
        news = list(self._news([(one, how) for one, how in ended if how is not None]))
        left = {run for one in self.open for run in one.runs}
        runs = {run for one, _ in ended for run in one.runs} - left
        news += [Ending("", "failed" if run in self._failed else "fine") for run in sorted(runs)]
        self._failed -= runs
        return news

    def _news(self, ended: Sequence[tuple[Start, _How]]) -> Iterator[Ending]:
        for (revision, model, code, why), rows in grouped(
                ((one.revision, one.model, how.code, how.why), (one, how.at)) for one, how in ended).items():
            starts = [one for one, _ in rows]
            what = model if len(starts) > 1 else f"{model}/{starts[0].replica_id}"
            after = age_text(min(one.since for one in starts), max((at for _, at in rows), key=as_datetime))
            if code == "ready":
                self._told = {told for told in self._told if told[:2] != (revision, model)}
                yield Ending(f"{revision[:SHORT]}: {what}: {f'{len(starts)} ' if len(starts) > 1 else ''}ready after "
                             f"{after}")
                continue
            self._failed.update(run for one in starts for run in one.runs)
            if (revision, model, code) not in self._told:
                self._told.add((revision, model, code))
                count = f"{count_of(len(starts), 'replica')} " if len(starts) > 1 else ""
                yield Ending(f"{revision[:SHORT]}: {what}: {count}{why.format(after=after)}")


def _end_of(start: Start, now: Replica | None, seen: Inventory, fleet: str) -> _How | None:
    """Return how and when a start ended, with the time that it took left open in the words; None = it has not."""
    if now is not None:
        return None if now.state in STARTING_STATES else _How("ready", "", _time_of(now.ready_at, start, seen))
    for one in seen.failures:
        if ((one.model, one.replica_id) != (start.model, start.replica_id) or one.reload
                or one.fleet not in (None, fleet)):
            continue
        # a node's clock may be wrong: its time counts only where nothing else tells this failure from earlier ones
        is_own = (one.actor_id not in start.failed_before if one.actor_id
                  else one.at is None or as_datetime(one.at) >= as_datetime(start.since))
        if is_own:
            why = f"{one.code}: {one.message}".replace("{", "{{").replace("}", "}}")
            return _How(one.code, f"failed after {{after}}: {why}; it is tried again until the model cools down",
                        _time_of(one.at, start, seen))
    return _How("gone", "gone after {after}: evicted, lost with its node, or Ray no longer knows how it ended",
                seen.observed_at)


def _time_of(at: str | None, start: Start, seen: Inventory) -> str:
    """Return a time by a node's clock; the time of the look if it cannot be right, or is unknown."""
    possible = at and as_datetime(start.since) <= as_datetime(at) <= as_datetime(seen.observed_at)
    return at if at and possible else seen.observed_at
