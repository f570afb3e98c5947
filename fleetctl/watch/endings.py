"""What became of the replicas that a watch has begun: ready, failed or gone, each told once. Pure; times are given.

An apply of the loop ends when everything is created. Each later look tells how these starts ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from fleetctl.documents.base import age_text, as_datetime
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.inventory import LIVE_STATES, STARTING_STATES, Failure, Inventory, Replica
from fleetctl.documents.quantity import count_of, grouped

SHORT = 10
"""Characters of a revision."""


class Start(NamedTuple):
    """A replica that run number `run` has begun for a revision; `since` = RFC 3339, by the cluster's clock.

    `run` None = the run was counted when it ended, such as one that also had failures.
    """

    model: str
    replica_id: int
    revision: str
    run: int | None
    since: str


class Ending(NamedTuple):
    """News about how starts of a model ended; an empty `text` = told before. `of_run` = that of the whole run, once."""

    text: str
    of_run: Literal["", "fine", "failed"] = ""


@dataclass(slots=True)
class Starts:
    """The starts that have not ended yet."""

    open: list[Start] = field(default_factory=list)
    _runs: int = 0
    _failed: set[int] = field(default_factory=set)
    _told: set[tuple[str, str, str]] = field(default_factory=set)
    """Failures that were told, by revision, model and code: each retry would tell them again."""

    def begin(self, revision: str, since: str, outcomes: Sequence[ReplicaOutcome], *, counts: bool = True) -> bool:
        """Note what a run has left starting; returns whether it is anything. `counts` = its end counts as the run's."""
        begun = [Start(row.model, row.replica_id, revision, self._runs if counts else None, since) for row in outcomes
                 if row.outcome == "starting" and row.replica_id is not None]
        self._runs += 1
        again = {(one.model, one.replica_id) for one in begun}
        self.open = [*(one for one in self.open if (one.model, one.replica_id) not in again), *begun]
        return bool(begun)

    def adopt(self, revision: str, seen: Inventory, fleet: str) -> None:
        """Note what an earlier watch, which was ended, has left starting."""
        self.begin(revision, seen.observed_at, [
            ReplicaOutcome(model=one.model, replica_id=one.replica_id, outcome="starting")
            for one in seen.replicas if one.fleet == fleet and one.replica_id is not None and one.level == "HOT"
            and one.state in STARTING_STATES], counts=False)

    def end(self, seen: Inventory, fleet: str) -> list[Ending]:
        """Return what has ended by now, a text for each revision, model and way, and forget it."""
        if not seen.complete or not self.open:
            return []
        live = {(one.model, one.replica_id): one for one in seen.replicas
                if one.fleet == fleet and one.level == "HOT" and one.state in LIVE_STATES}
        ended = [(one, _end_of(one, live.get((one.model, one.replica_id)), seen.failures)) for one in self.open]
        self.open = [one for one, how in ended if how is None]
        news = list(self._news(seen.observed_at, [(one, how) for one, how in ended if how is not None]))
        left = {one.run for one in self.open}
        runs = {run for run in (one.run for one, _ in ended) if run is not None and run not in left}
        news += [Ending("", "failed" if run in self._failed else "fine") for run in sorted(runs)]
        self._failed -= runs
        return news

    def _news(self, at: str, ended: Sequence[tuple[Start, tuple[str, str]]]) -> Iterator[Ending]:
        for (revision, model, code, why), starts in grouped(
                ((one.revision, one.model, *how), one) for one, how in ended).items():
            what = model if len(starts) > 1 else f"{model}/{starts[0].replica_id}"
            after = age_text(min(one.since for one in starts), at)
            if code == "ready":
                self._told = {told for told in self._told if told[:2] != (revision, model)}
                yield Ending(f"{revision[:SHORT]}: {what}: {f'{len(starts)} ' if len(starts) > 1 else ''}ready after "
                             f"{after}")
                continue
            self._failed.update(one.run for one in starts if one.run is not None)
            if (revision, model, code) not in self._told:
                self._told.add((revision, model, code))
                count = f"{count_of(len(starts), 'replica')} " if len(starts) > 1 else ""
                yield Ending(f"{revision[:SHORT]}: {what}: {count}{why.format(after=after)}")


def _end_of(start: Start, now: Replica | None, failures: Sequence[Failure]) -> tuple[str, str] | None:
    """Return how a start ended, as a code and in words with the time that it took left open; None = it has not."""
    if now is not None:
        return None if now.state in STARTING_STATES else ("ready", "")
    begun = as_datetime(start.since)
    for one in failures:
        if ((one.model, one.replica_id) == (start.model, start.replica_id) and not one.reload
                and (one.at is None or as_datetime(one.at) >= begun)):
            why = f"{one.code}: {one.message}".replace("{", "{{").replace("}", "}}")
            return one.code, f"failed after {{after}}: {why}; it is tried again until the model cools down"
    return "gone", "gone after {after}: evicted, or Ray no longer knows how it ended"
