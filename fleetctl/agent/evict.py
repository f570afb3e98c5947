"""Evict and restart: the explicit verbs that end replicas, only those they name. Apply never imports this."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Callable, Generator, Iterator, List, Optional, Sequence, Set

import ray

from . import cluster, records
from .budget import give_restart
from .ending import KILLED, Drain, await_end
from .lock import Interrupted
from .readiness import is_ready
from .reload import forget_dead_actors
from .report import Refused, actor_name, decode_failure, evict_command, kept_failure, warm_name
from .run import Run, Steps, Task, outcome_of
from .run_messages import EventStream, ExplicitRequest, Outcome, Target
from .warm import Demotion

LEAVE_S = 20.0
"""How long engines may take beyond their grace period to end and free their cards, before their actor is ended anyway.
An actor of an older release has a grace period of its own, two seconds."""
GONE_S, MARGIN_S = 30.0, 120.0
DRAIN_POLL_S = 0.5


class ExplicitRun(Run):
    """A run of an explicit verb: requests drain, then it acts under a lock, on exactly the actors that it names.

    A replica that goes to WARM serves until its weights are loaded and drains then, so the demotion waits for that.
    """

    def __init__(self, request: ExplicitRequest, events: EventStream, lock_name: str) -> None:
        super().__init__(request, events)
        self.request, self._lock_name = request, lock_name

    def begin(self) -> None:
        """Wait until requests have drained, and take the lock."""
        drain_s = 0.0 if self.request.level == "WARM" else self.request.drain
        if drain_s:
            drain = Drain(self.request.replicas, drain_s, self)
            while not drain.is_over():
                if self.stop.wait(min(drain_s, DRAIN_POLL_S)):
                    raise Interrupted
        if self.stop.is_set():
            raise Interrupted
        self.lock = self.take(self._lock_name, self.request.holder, self.request.lock_timeout)

    def work(self) -> None:
        """Carry out the tasks, and release the lock."""
        try:
            super().work()
        finally:
            self.lock.release()


def find_actor(target: Target) -> Optional[Any]:
    """Return the actor that the user confirmed; None if it is gone, even if another actor has its name now."""
    name_of = warm_name if target.level == "WARM" else actor_name
    try:
        handle = ray.get_actor(name_of(target.model, target.replica_id))
    except ValueError:
        return None
    return handle if handle._actor_id.hex() == target.actor_id else None


def run_evict(request: ExplicitRequest, events: EventStream) -> int:
    """End the named replicas permanently."""
    return Evict(request, events, request.fleet).carry_out()


class Evict(ExplicitRun):
    """Ends all replicas of a request together; engines first, so that none of their processes outlives its actor.

    An interrupt stops it only before the first replica ends.
    """

    def __init__(self, request: ExplicitRequest, events: EventStream, lock_name: str) -> None:
        super().__init__(request, events, lock_name)
        self.over = threading.Event()  # never set: its tasks end by themselves
        self.demotion = Demotion(request, self)
        self.evictions = [Eviction(target, self) for target in request.replicas]
        self.tasks += self.evictions

    def rounds(self, tasks: Optional[Sequence[Task]] = None) -> Iterator[List[Task]]:
        """Step what is done for all replicas together, and then each replica's task."""
        ending = self._end_all()
        for ended in super().rounds(tasks):
            next(ending, None)
            yield ended

    def _end_all(self) -> Generator[None, None, None]:
        self._find_all()
        yield from self.demotion.prepare([eviction.target for eviction in self.evictions if eviction.outcome is None])
        for eviction in self.evictions:
            eviction.outcome = eviction.outcome or self.demotion.refused.get(eviction.target.actor_id)
        ending = [eviction for eviction in self.evictions if eviction.outcome is None]
        for eviction in ending:
            self.events.emit("replicaEnding", f"{eviction.key} is being ended", model=eviction.target.model,
                             replicaId=eviction.target.replica_id)
        leaving = [(eviction, Leaving(eviction.handle, self.clock)) for eviction in ending]
        while leaving:
            for eviction, asked in leaving:
                if asked.is_over():
                    ray.kill(eviction.handle, no_restart=True)
                    eviction.killed, eviction.is_silent = True, asked.is_silent
            leaving = [(eviction, asked) for eviction, asked in leaving if not eviction.killed]
            if leaving:
                yield
        self.lock.release()

    def _find_all(self) -> None:
        """Find the actors that may end: enough of their models must stay ready, and of their variants.

        Which ones are ready is read under the lock, just before: others may have ended since the client looked.
        """
        ready = {model: _ready_actors(model) for model in self.request.keep}
        for eviction in self.evictions:
            eviction.handle, up = find_actor(eviction.target), ready.get(eviction.target.model, set())
            if eviction.handle is None:
                eviction.outcome = outcome_of(eviction.target, "failed", "NOT_FOUND", f"{eviction.key} is already gone")
            elif eviction.target.actor_id in up:
                target, keep = eviction.target, self.request.keep[eviction.target.model]
                kept = [(target.model, up, keep)]
                kept += [(f"variant {one.variant} of {one.model}", up.intersection(one.actors), one.least)
                        for one in self.request.keep_of_each
                        if one.model == target.model and target.actor_id in one.actors]
                too_few = next(((of, len(those) - 1, least) for of, those, least in kept
                                if len(those) <= least), None)
                if too_few is None:
                    up.remove(target.actor_id)
                else:
                    of, left, least = too_few
                    eviction.outcome = outcome_of(
                        target, "skipped", "TOO_FEW_READY", f"without it {left} of {of} would be ready, and {least} "
                        "must stay ready: it keeps running")

    def end(self) -> int:
        """Write the summary, and forget what was kept about actors that have ended."""
        with suppress(Exception):  # the outcomes must still be reported
            forget_dead_actors()
            records.forget_dead_actors()
        return super().end()


class Eviction(Task):
    """One named replica: it ends together with the others, and then this waits until its actor is gone."""

    handle: Any = None
    killed = False
    is_silent = False
    """Its process did not answer."""

    def __init__(self, target: Target, run: Evict) -> None:
        super().__init__(target.key, target)
        self.target, self._run = target, run

    def may_begin(self) -> bool:
        """Return whether its actor was ended."""
        return self.killed

    def steps(self) -> Steps:
        """Wait until its actor and the actor's process are gone."""
        begun = self._run.clock()
        while (record := cluster.actor_record(self.target.actor_id)).state != "DEAD":
            if self._run.clock() >= begun + GONE_S:
                why = f"{self.key} was ended, but its actor still exists"
                return outcome_of(self.target, "failed", "STILL_THERE", why)
            yield
        try:
            killed = yield from await_end(record, self.target.nodes[0], self._run.clock)
        except Refused as why:
            return outcome_of(self.target, "failed", why.code, str(why))
        outcome = self._run.demotion.gone(self.target)
        if not killed and not self.is_silent:
            return outcome
        return outcome._replace(message="\n".join(filter(None, [KILLED, outcome.message])))


def _ready_actors(model: str) -> Set[str]:
    """Return the actor ids of a model's ready replicas."""
    found = set()
    for number in cluster.live_ids(model, cluster.taken_names(), set()):
        try:
            actor_id = ray.get_actor(actor_name(model, number))._actor_id.hex()
        except ValueError:  # it has just ended
            continue
        record = cluster.actor_record(actor_id)
        if record.is_up and is_ready(actor_id, record.report):
            found.add(actor_id)
    return found


class Leaving:
    """A replica that was asked to end its engines, each within its grace period. Its actor lives on until `is_over`.

    One that is not ready is not asked: its constructor runs. `again` = Ray is to restart it. An actor of an older
    release does not tell its period, or lacks the method.
    """

    def __init__(self, handle: Any, clock: Callable[[], float], *, again: bool = False) -> None:
        self._clock, self._begun, self._grace_s = clock, clock(), 0.0
        self._grace: Any = None
        self._left: Any = None
        if cluster.actor_record(handle._actor_id.hex()).is_up:
            grace, leave = getattr(handle, "grace_s", None), getattr(handle, "leave", None)
            self._grace = grace.remote() if grace else None
            self._left = leave.remote(*([again] if grace else [])) if leave else None

    @property
    def is_silent(self) -> bool:
        """Whether its process has not answered even the question that it can answer immediately."""
        return self._grace is not None

    def is_over(self) -> bool:
        """Return whether the engines have ended, or have had their time, or were not asked."""
        if self._grace is not None and ray.wait([self._grace], timeout=0)[0]:
            with suppress(ray.exceptions.RayError):
                self._grace_s = float(ray.get(self._grace))
            self._grace = None
        late = self._clock() >= self._begun + LEAVE_S + self._grace_s
        return self._left is None or late or bool(ray.wait([self._left], timeout=0)[0])


def run_restart(request: ExplicitRequest, events: EventStream) -> int:
    """End the named replicas' engines and start them again, one replica at a time.

    Ray restarts the actor with the same name, nodes and spec. That does not count toward the model's `restart.max`. In
    releases before, Ray's own limit held: such a replica with no restart left is refused, as ending it would be
    permanent. The lock is for restarts only: an apply may run meanwhile.
    """
    run = ExplicitRun(request, events, f"{request.fleet}/restart")
    before: Optional[RestartTask] = None
    for target in request.replicas:
        before = RestartTask(target, run, before)
        run.tasks.append(before)
    return run.carry_out()


class RestartTask(Task):
    """One named replica; its turn comes once the one before it has its outcome. Skipped if that one is not ready."""

    def __init__(self, target: Target, run: Run, before: Optional[RestartTask]) -> None:
        super().__init__(target.key, target)
        self._target, self._run, self._before = target, run, before
        self._killed = False

    def may_begin(self) -> bool:
        """Return whether the replica before it has its outcome."""
        return self._before is None or self._before.outcome is not None

    def steps(self) -> Steps:
        """Restart the replica and wait until it is ready again."""
        if self._before and self._before.outcome and self._before.outcome.outcome != "ready":
            return outcome_of(self._target, "skipped", "NOT_BEGUN", "one before it is not ready: it runs as before")
        outcome = yield from self._restart()
        return self._reported(outcome)

    def at_end(self, interrupted: bool) -> Outcome:  # noqa: ARG002  # a run that is not interrupted awaits all
        """Return the outcome of an interrupted restart."""
        if not self._killed:
            return outcome_of(self._target, "skipped", "INTERRUPTED", "interrupted: it runs as before")
        return self._reported(
            outcome_of(self._target, "starting", "INTERRUPTED", "interrupted: its start continues by itself"))

    def _reported(self, outcome: Outcome) -> Outcome:
        self._run.events.emit("replicaRestarted", f"{self.key}: {outcome.outcome}", model=self._target.model,
                              replicaId=self._target.replica_id)
        return outcome

    def _restart(self) -> Steps:
        target, begun = self._target, self._run.clock()
        handle = find_actor(target)
        if handle is None:
            return outcome_of(target, "failed", "NOT_FOUND", f"{self.key} is already gone")
        before = cluster.actor_record(target.actor_id)
        if before.restarts_left == 0:
            return outcome_of(
                target, "failed", "RESTARTS_USED", f"all its {before.restarts} restarts are used, so ending it would "
                f"be permanent: run `{evict_command(self.key)}`; the next apply starts another one")
        self._run.events.emit("replicaEnding", f"{self.key} is being restarted", model=target.model,
                              replicaId=target.replica_id)
        self._killed = True
        give_restart(target.actor_id)
        leaving = Leaving(handle, self._run.clock, again=True)
        while not leaving.is_over():
            yield
        if cluster.actor_record(target.actor_id).restarts == before.restarts:
            ray.kill(handle, no_restart=False)
        try:
            yield from await_end(before, target.nodes[0], self._run.clock)
        except Refused as why:
            return outcome_of(target, "failed", why.code, str(why))
        killed = self._run.clock()
        while self._run.clock() < killed + target.startup_timeout + MARGIN_S:
            record, seconds = cluster.actor_record(target.actor_id), self._run.clock() - begun
            if record.is_up and record.restarts > before.restarts:
                return outcome_of(target, "ready", seconds=seconds)
            if record.state == "DEAD":
                failure = kept_failure(target.actor_id) or decode_failure(record.death)
                return outcome_of(target, "failed", failure.code, failure.message, seconds=seconds)
            yield
        return outcome_of(target, "starting", "STILL_STARTING", "it continues by itself; `fleetctl status` shows it")
