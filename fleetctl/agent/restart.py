"""Restart: the explicit verb that ends replicas' engines and starts them again, one replica at a time.

Ray restarts the actor with the same name, nodes and spec. That uses one of the restarts that the model allows, so a
replica with none left is refused: ending it would be permanent.
"""

from __future__ import annotations

import shlex
from typing import Optional

import ray

from . import cluster
from .events import EventStream
from .evict import ExplicitRun, find_actor
from .failure import decode_failure, kept_failure
from .messages import ExplicitRequest, Outcome, Target
from .run import Run, Steps, Task, outcome_of

MARGIN_S = 120.0


def run_restart(request: ExplicitRequest, events: EventStream) -> int:
    """Restart the named replicas. The lock is for restarts only: an apply may run meanwhile."""
    run = ExplicitRun(request, events, f"{request.fleet}/restart")
    before: Optional[Restart] = None
    for target in request.replicas:
        before = Restart(target, run, before)
        run.tasks.append(before)
    return run.carry_out()


class Restart(Task):
    """One named replica; its turn comes once the one before it has its outcome. Skipped if that one is not ready."""

    def __init__(self, target: Target, run: Run, before: Optional[Restart]) -> None:
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
                f"be permanent: run `fleetctl evict {shlex.quote(self.key)}`; the next apply starts another one")
        self._run.events.emit("replicaEnding", f"{self.key} is being restarted", model=target.model,
                              replicaId=target.replica_id)
        self._killed = True
        ray.kill(handle, no_restart=False)
        while self._run.clock() < begun + target.startup_timeout + MARGIN_S:
            record, seconds = cluster.actor_record(target.actor_id), self._run.clock() - begun
            if record.state == "ALIVE" and record.report and record.restarts > before.restarts:
                return outcome_of(target, "ready", seconds=seconds)
            if record.state == "DEAD":
                failure = kept_failure(target.actor_id) or decode_failure(record.death)
                return outcome_of(target, "failed", failure.code, failure.message, seconds=seconds)
            yield
        return outcome_of(target, "starting", "STILL_STARTING", "it continues by itself; `fleetctl status` shows it")
