"""A run and its tasks: one loop, one clock, one lock, one end, and the one expression that builds an outcome.

A task never waits: `step` goes as far as it can and returns, so one loop serves any number of tasks. The loop runs in
a thread of its own: a call to Ray may hang, and the run must still react to SIGTERM. It then starts nothing more,
reports, and exits.
"""

from __future__ import annotations

import signal
import threading
import time
from typing import Any, Callable, Generator, Iterator, List, NamedTuple, Optional, Sequence, Union

import ray

from .lock import HeldLock, Interrupted, LockBusy, take_lock
from .messages import Action, GotWeights, Place, Replica
from .ports import host_port
from .report import first_line
from .run_messages import EventStream, Holder, Outcome, Requested, Target

POLL_S = 0.1
WORKER = "run"
"""The name of the thread in which a run works."""
REPORT_S = 1.2
"""Ray sends SIGKILL three seconds after SIGTERM; the summary must be written by then."""
DONE = ("ready", "gone")
PAUSED = "PAUSED"
"""The code of what a run leaves undone because a user has paused the model or its fleet."""
Steps = Generator[None, None, Outcome]


class OnNodes(NamedTuple):
    """The weights of a model on the disks of nodes, as the subject of an outcome."""

    model: str
    nodes: Sequence[str]
    replica_id: Optional[int] = None


Subject = Union[Action, Replica, Target, OnNodes]


def outcome_of(
    subject: Subject, kind: str, code: Optional[str] = None, message: str = "", *, places: Sequence[Place] = (),
    seconds: Optional[float] = None, level: Optional[str] = None, notes: Sequence[str] = (),
    replicas: Optional[int] = None,
) -> Outcome:
    """Return the outcome of a subject: ready, gone, starting, failed, blocked or skipped.

    `places` = those of a replica that is ready. They give its addresses, one for the leader of each group and copy or
    the Standalone member; and how its members got their weights: the sums, with the source of the largest fetch.
    `replicas` = how many replicas of the model are blocked, or wait for a pilot.
    """
    addresses = [host_port(place.ip, place.port) for place in places if place.rank == 0 and place.port is not None]
    fetches = [place.weights.fetched for place in places if place.weights and place.weights.fetched]
    weights = None
    if fetches:
        largest = max(fetches, key=lambda fetch: fetch.bytes)
        weights = GotWeights(
            largest.source, largest.from_, sum(fetch.bytes for fetch in fetches),
            max(fetch.seconds for fetch in fetches), sum(fetch.reused for fetch in fetches))
    notes = list(dict.fromkeys([*notes, *(note for fetch in fetches for note in fetch.left)]))
    return Outcome(
        subject.model, kind, subject.replica_id, list(subject.nodes), message, code,
        None if seconds is None else round(seconds, 2), level, replicas,
        address=addresses[0] if addresses else None, addresses=addresses if len(addresses) > 1 else None,
        weights=weights, notes=notes or None,
        variant=subject.variant if isinstance(subject, (Action, Replica, Target)) else None)


class Task:
    """Something a run does, with one outcome. A task implements `steps`, which yields where it waits, or `step`."""

    begun = False
    outcome: Optional[Outcome] = None
    _going: Optional[Steps] = None

    def __init__(self, key: str, subject: Subject) -> None:
        self.key, self.subject = key, subject

    def may_begin(self) -> bool:
        """Return whether its turn has come; asked each round until it has."""
        return True

    @property
    def may_be_left(self) -> bool:
        """Return whether a run that does not wait may end before this task has its outcome."""
        return False

    def step(self) -> None:
        """Go as far as possible without waiting. An error becomes the outcome of this task alone."""
        try:
            self._going = self._going or self.steps()
            next(self._going)
        except StopIteration as end:
            self.outcome = end.value
        except Exception as error:
            self.outcome = outcome_of(self.subject, "failed", "AGENT_ERROR", first_line(error))

    def steps(self) -> Steps:
        """Do the task: yield where it waits, and return its outcome."""
        raise NotImplementedError

    def at_end(self, interrupted: bool) -> Outcome:
        """Return the outcome of a task that has none when the run ends."""
        raise NotImplementedError


def step_all(tasks: Sequence[Task], is_over: Callable[[], bool] = lambda: False) -> List[Task]:
    """Step all tasks whose turn has come, in order, until the run is over; return those that this has ended."""
    ended: List[Task] = []
    for task in tasks:
        if task.outcome is None and not is_over():
            task.begun = task.begun or task.may_begin()
            if task.begun:
                task.step()
            if task.outcome is not None:
                ended.append(task)
    return ended


class RunEnded(Exception):
    """The run ends before any of its tasks has begun: the exit code, the message, and further fields of its summary."""

    def __init__(self, code: int, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.code, self.fields = code, fields


class Run:
    """One run, from its request to its summary. A verb overrides `begin`, which sets its tasks; or also `work`, `end`.

    `stop` is set at SIGTERM: start nothing more. `over` ends the loop at once: it is `stop`, unless a verb keeps them
    apart because its tasks must end themselves. `fields` = those of its first event.
    """

    def __init__(self, request: Requested, events: EventStream, **fields: Any) -> None:
        self.events = events
        self.stop = self.over = threading.Event()
        self.clock: Callable[[], float] = time.monotonic
        self.tasks: List[Task] = []
        signal.signal(signal.SIGTERM, lambda *_: self.stop.set())
        events.begin(request, **fields)

    def take(
        self, lock_name: str, holder: Holder, timeout_s: float, waiting: Callable[[Holder], None] = lambda _: None
    ) -> HeldLock:
        """Take a lock for this run; raises LockBusy, or Interrupted if the run stops."""
        driver = ray.get_runtime_context().get_job_id()
        return take_lock(lock_name, holder._replace(driver=driver), timeout_s, waiting, self.stop.is_set)

    def begin(self) -> None:
        """Prepare: take the lock, and set the tasks. Raises LockBusy, Interrupted or Ended if nothing may be begun."""

    def work(self) -> None:
        """Carry out the tasks."""
        for _ in self.rounds():
            if all(task.outcome for task in self.tasks):
                break

    def end(self) -> int:
        """Write the summary and return the exit code: 0 all done, 3 some not."""
        outcomes = self.outcomes(self.tasks)
        done = sum(outcome.outcome in DONE for outcome in outcomes)
        return self.events.end(0 if done == len(outcomes) else 3, f"{done} of {len(outcomes)} done", outcomes,
                               interrupted=self.stop.is_set())

    def outcomes(self, tasks: Sequence[Task]) -> List[Outcome]:
        """Return the outcome of each task, in order, also of those that have none when the run ends."""
        return [task.outcome or task.at_end(self.stop.is_set()) for task in tasks]

    def rounds(self, tasks: Optional[Sequence[Task]] = None) -> Iterator[List[Task]]:
        """Step tasks whose turn has come, in order, round by round until the run is over; yield those that end.

        `tasks` = those to step, None = all of the run. They may change between two rounds.
        """
        while not self.over.is_set():
            began = self.clock()
            yield step_all(self.tasks if tasks is None else tasks, self.over.is_set)
            self.over.wait(max(POLL_S, self.clock() - began))

    def carry_out(self) -> int:
        """Begin, work, end. Returns the exit code: also 5 if the lock is held, 3 if the run stops before it begins."""
        try:
            self.begin()
        except LockBusy as busy:
            return self.events.end(5, str(busy), holder=busy.holder)
        except Interrupted:
            return self.events.end(3, "interrupted before anything was begun", interrupted=True)
        except RunEnded as early:
            return self.events.end(early.code, str(early), **early.fields)
        self._work_in_thread()
        return self.end()

    def _work_in_thread(self) -> None:
        """Return when the work has ended, or REPORT_S after the run is over."""
        failures: List[BaseException] = []

        def work() -> None:
            try:
                self.work()
            except BaseException as error:
                failures.append(error)

        worker = threading.Thread(target=work, name=WORKER, daemon=True)
        worker.start()
        while worker.is_alive() and not self.over.is_set():
            worker.join(POLL_S)
        worker.join(REPORT_S)
        if failures:
            raise failures[0]
