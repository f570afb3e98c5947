"""Carry out a plan: take the lock, create replicas in the plan's order, wait until they are ready, report each one.

Partial success is a result: if one replica fails, the others continue. The lock is held until the last new replica has
its worker. Waiting needs no lock, nor do reloads, which have their own, nor the last step: nodes fetch the weights that
the fleet file keeps there.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Set, Tuple, Union

import ray
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

from . import cluster, run_messages
from .attempt import Attempt, EarlierAttempt, SharedState
from .create import TARGET_REACHED, CardTurns, Creating, Grants, replica_of
from .engine import LAST_OUTPUT, without_output
from .lock import LockBusy
from .messages import Replica
from .node_request import ask_for_nodes, report_silence
from .pilot import AFTER_PILOT, Pilots, ready_text
from .prefetch import fetches_of
from .processes import MISSING
from .records import DRAINING, add, why_paused
from .reload import WAITS_TURN, Reloads, forget_dead_actors
from .report import CARD_FAILURES, KV_NAMESPACE, actor_name
from .run import PAUSED, OnNodes, Run, RunEnded, Task, outcome_of
from .run_messages import ApplyRequest, EventStream, Outcome, PlanRequest, ReplanAnswer
from .view import View
from .wire import document_of, parse

HEARTBEAT_S = 8.0
"""Often enough that a client that says something every ten seconds has this to say."""
MAX_REPLANS = 3
REPLAN_S = 60.0
"""How long the client may take to plan again."""
NODE_CODES = ("NODE_TAKEN", "NODE_GONE", "NODE_DRAINING", MISSING, *CARD_FAILURES)
"""Codes of refusals that another node may avoid."""
NOT_BY_VARIANT = (*NODE_CODES, "EVICTED", "NAME_TAKEN", "NEVER_CONSTRUCTED", "AGENT_ERROR")
"""Codes of failures that do not speak against a variant: another one would fare no better, or it is not gone."""
OTHER_VARIANT = "OTHER_VARIANT"
LOCK_S = 60.0
"""How long an apply tries to take its lock again once a pilot is ready, or longer if its request says so."""
TOGETHER_S = 2.0
"""How long an apply waits for more failures of variants before it asks for a plan with others."""
LEVELS = {"ready": "info", "starting": "info", "skipped": "warning"}
"""The level of the event of each outcome; any other is an error."""


class ApplyRun(Run):
    """One apply, from its request to its summary."""

    def __init__(self, request: ApplyRequest, events: EventStream) -> None:
        super().__init__(request, events, planId=request.plan.plan_id)
        self._request, self._plan = request, request.plan
        self._context: SharedState
        self._blocked = list(self._plan.blocked)
        self._promoted: Set[str] = set()
        self._refused: List[Attempt] = []
        self._asked: List[Attempt] = []
        self._replans_left, self._answer_name, self._answer_by = MAX_REPLANS if request.may_replan else 0, "", 0.0
        self._questions, self._failed_at = 0, 0.0
        self._may_change_variants = request.may_replan and request.wait
        self._pilots, self._lock_by = Pilots(self._plan, may_follow=request.may_replan and request.wait), 0.0
        self._instead: Dict[str, str] = {}
        """By replica: what failed in its place."""
        self._given_up: Set[Tuple[str, Optional[str]]] = set()
        """The models and variants that have failed when another plan came."""
        self._last_tries: Set[str] = set()
        """The replicas of such variants in later plans: the client knew better, and their failures are outcomes."""
        self._reloads = Reloads(request, self)
        self._fetches = fetches_of(request, self)
        self._last_beat = self.clock()

    def begin(self) -> None:
        """Take the fleet's lock and the plan, if it may be applied once only; ask for the nodes that the plan needs."""
        request, fleet = self._request, self._plan.fleet.name
        try:
            lock = self.take(fleet, request.holder, request.lock_timeout, lambda holder: self.events.emit(
                "lockWaiting", f"the lock of {fleet} is held; to end its holder: fleetctl stop {holder.job}",
                holder=holder))
        except LockBusy as busy:
            self.events.emit("lockHeld", str(busy), level="error", holder=busy.holder)
            raise
        earlier = claim_single_use(self._plan.plan_id, request.job) if request.single_use else None
        if earlier:
            raise RunEnded(6, f"this plan was already applied by job {earlier}", usedBy=earlier)
        self.events.emit("lockAcquired", f"lock of fleet {fleet} acquired")
        for node_id in sorted(cluster.draining_nodes()):
            add(DRAINING, node_id, {})  # no GET shows this, and a drain is never undone
        self._rounds = ask_for_nodes(self._plan, self.events)
        forget_dead_actors()
        ours = {fleet, self._plan.options.adopt_from or fleet}
        self._context = SharedState(self._not_counted, ours, lock, Grants(), View(self.clock), self.events.emit,
                                    self.clock, CardTurns(()), Creating(request.parallelism), self.why_paused)

    def why_paused(self, model: str) -> str:
        """Return why this run may begin nothing more for a model; "" = it may."""
        return why_paused(self._plan.fleet.name, self._plan.fleet.namespace, model)

    def work(self) -> None:
        """Create and await all replicas, reload others, then fetch the weights that nodes keep, until SIGTERM."""
        self.tasks += self._accept(self._request)
        self.tasks += self._reloads.tasks
        self.tasks[:0] = self._already_starting()
        self._pilots.begin([task for task in self.tasks if isinstance(task, Attempt)])
        for ended in self.rounds():
            for task in ended:
                if not self._hold_back(task):
                    self._report(task)
                    if isinstance(task, Attempt) and self._pilots.note(task):
                        self._lock_by = self.clock() + max(LOCK_S, self._request.lock_timeout)
            creating = any(isinstance(task, Attempt) and not task.granted for task in self.tasks)
            if not creating and not self._replan():
                self._release()
                if all(task.outcome or (task.may_be_left and not self._request.wait) for task in self.tasks):
                    break
            self._heartbeat()
        for task in self.tasks:
            if isinstance(task, Attempt) and not self.stop.is_set() and task.has_gone_down():
                self._report(task)
        self._fetch()
        if self._rounds is not None and self._rounds.are_over(self.stop, if_never=True):
            report_silence(self.events)  # it was asked for nodes and does not look at the cluster any more

    def _fetch(self) -> None:
        """Fetch the weights that nodes keep, except those of models that are paused now."""
        for task in self._fetches:
            if paused := self.why_paused(task.subject.model):
                task.outcome = outcome_of(task.subject, "blocked", PAUSED, paused, level="COLD")
        for _ in self.rounds(self._fetches):
            if all(task.outcome or task.may_be_left for task in self._fetches):
                break

    def _release(self) -> None:
        lock = self._context.lock
        if not lock.released:
            lock.release()
            self.events.emit("lockReleased", f"lock of fleet {self._plan.fleet.name} released", level="debug")

    def _accept(self, request: Union[ApplyRequest, PlanRequest]) -> List[Attempt]:
        """Accept a plan, the run's own or a new one after nodes refused replicas; return its replicas as tasks."""
        self._plan = plan = request.plan
        self.events.emit("planAccepted", f"plan {plan.plan_id[:12]}: {len(plan.starts)} to create", level="debug",
                         **request.record)
        replicas = [replica_of(plan, action, request.logs) for action in plan.starts]
        self._promoted.update(replica.id for replica in replicas if replica.op == "promote")
        context = self._context._replace(turns=CardTurns(replicas))
        context.creating.at_once = cluster.workers_at_once()
        return [Attempt(replica, context) for replica in replicas]

    def _not_counted(self, model: str) -> Set[int]:
        """Return the ids of a model's replicas that exist but do not count: lost and unmanaged ones."""
        return {row.replica_id for row in (*self._plan.lost, *self._plan.unmanaged)
                if row.model == model and row.replica_id is not None}

    def _already_starting(self) -> List[Task]:
        """Return the replicas of planned models that were starting before this run; the run awaits them too."""
        names, planned = cluster.taken_names(), {task.key for task in self.tasks if isinstance(task, Attempt)}
        rows = [Replica(f"{model.key}/{replica_id}", model.key, replica_id, model.lifecycle)
                for model in self._request.await_
                for replica_id in cluster.live_ids(model.key, names, self._not_counted(model.key) | set(model.but))]
        return [EarlierAttempt(row, self._context) for row in rows
                if row.id not in planned and _is_starting(actor_name(row.model, row.replica_id))]

    def _hold_back(self, task: Task) -> bool:
        """Hold back the outcome of an attempt if another plan may change it; returns whether it did."""
        if not isinstance(task, Attempt) or not task.outcome:
            return False
        held = self._replans_left > 0 and task.outcome.code in NODE_CODES
        if self._may_change_variants and task.replica.id not in self._last_tries and _has_failed(task):
            held, self._failed_at = True, self.clock()
        if held:
            self._refused.append(task)
        return held

    def _ask_for_plan(self) -> None:
        """Ask the client for a new plan. The question lists Ray's free resources as they are now."""
        self._answer_name = f"{self._request.job}-replan-{self._questions}"
        self._questions += 1
        self._asked, pilots = list(self._refused), self._pilots.ask()
        refused, failed = _split(self._asked)
        self._replans_left -= bool(refused)
        self._answer_by = self.clock() + REPLAN_S
        outcomes = [task.outcome for task in self._asked if task.outcome]
        reasons = list(dict.fromkeys([*(without_output(outcome.message) for outcome in outcomes),
                                      *map(ready_text, pilots)]))
        count = len(outcomes) + self._pilots.following
        self.events.emit(
            "replanWanted", f"{'; '.join(reasons[:3])}{'; ...' if len(reasons) > 3 else ''}: planning again for "
            f"{count} replica{'' if count == 1 else 's'}",
            level="warning" if outcomes else "info", refused=[task.outcome for task in refused],
            failed=[task.outcome for task in failed], pilots=pilots,
            nodes=cluster.nodes_now(self._context.view.left), answer=self._answer_name)

    def _awaits_lock(self) -> bool:
        """Take the lock again for what follows a pilot; returns whether another run has it, and may give it up yet."""
        lock, was_released = self._context.lock, self._context.lock.released
        if not self._pilots.ready:
            return False
        if lock.take_again():
            if was_released:
                self.events.emit("lockAcquired", f"lock of fleet {self._plan.fleet.name} acquired again", level="debug")
            return False
        if self.clock() >= self._lock_by:
            self._pilots.ask()
            self._pilots.not_planned("another run has the lock")
        return bool(self._pilots.ready)

    def _replan(self) -> bool:
        """Ask for a new plan if nodes refused replicas, variants failed, or a pilot is ready: the agent contains no
        planner. Returns whether there is, or may be, more to create.

        Meanwhile the apply awaits its created replicas, and holds the lock unless all had their workers before one
        failed. What follows a pilot is planned under the lock again. If the client has gone there is no answer, and
        the plan stays as it is.
        """
        waits = not self._answer_name and (self.clock() < self._failed_at + TOGETHER_S or self._awaits_lock())
        if not self._refused and not self._pilots.are_open:
            return False
        if waits:
            return True
        if not self._answer_name:
            self._ask_for_plan()
        found = run_messages.take_document(self._answer_name)
        if found is None and self.clock() < self._answer_by:
            return True
        self._answer_name = ""
        self._may_change_variants = self._may_change_variants and found is not None  # else the client has gone
        answer = ReplanAnswer(why="no client has answered") if found is None else parse(ReplanAnswer, found)
        refused = self._asked
        self._refused = [task for task in self._refused if task not in refused]
        if answer.request is None:
            self.events.emit("notReplanned", f"the plan stays as it is: {answer.why}", level="warning")
            self._pilots.not_planned(answer.why)
            for task in refused:
                self._report(task)
            return bool(self._refused)
        plan = answer.request.plan
        total, models = len(refused) + self._pilots.following, {task.replica.model for task in refused}
        models |= self._pilots.planned(models, plan)
        self._blocked = [*(row for row in self._blocked if row.model not in models), *plan.blocked]
        accepted = self._accept(answer.request)
        if any(row.nodes for row in plan.growth):  # those that follow a pilot
            self._rounds = ask_for_nodes(plan, self.events)
        kept = self._replaced(refused, accepted)
        self.tasks = [*(task for task in self.tasks if task not in refused or task in kept), *accepted]
        count = len(plan.starts)
        where = " elsewhere" if not self._instead else " elsewhere or as another variant"
        self.events.emit("replanned", f"planned again: {count} of {total}{where if refused else ''}", placed=count,
                         waiting=self._pilots.count)
        for task in kept:
            self._report(task)
        return bool(accepted or self._refused)

    def _replaced(self, asked: List[Attempt], accepted: List[Attempt]) -> List[Attempt]:
        """Note which failed variant each new replica stands for, and return those for which there is none."""
        new = list(accepted)
        kept: List[Attempt] = []
        refused, failed = _split(asked)
        self._given_up.update((task.replica.model, task.replica.variant) for task in failed)
        self._last_tries.update(one.replica.id for one in new
                                if (one.replica.model, one.replica.variant) in self._given_up)
        for task in (*refused, *failed):  # a refused replica has the first claim on a new one
            found = next((one for one in new if one.replica.model == task.replica.model), None)
            if found is not None:
                new.remove(found)
            if task in refused:
                continue
            if found is None:
                kept.append(task)
                continue
            assert task.outcome is not None
            self._instead[found.key] = (f"variant {task.replica.variant} failed in its place, as {task.key}: "
                                        f"{task.outcome.code}: {task.outcome.message}")
            self.events.emit(
                "variantFailed", f"{task.key}: variant {task.replica.variant} failed: "
                f"{without_output(task.outcome.message)}; {found.key} takes its place as variant "
                f"{found.replica.variant}", level="warning",
                model=task.replica.model, replicaId=task.replica.replica_id, variant=task.replica.variant,
                code=task.outcome.code)
        return kept

    def _report(self, task: Task) -> None:
        found = task.outcome
        assert found is not None
        if found.outcome == "ready" and task.key in self._promoted:
            task.outcome = found = found._replace(level="HOT")
        instead = self._instead.get(task.key)
        if instead and found.outcome == "ready" and not found.code:
            task.outcome = found = found._replace(code=OTHER_VARIANT, message=instead)
        elif instead:  # no other row of the summary says that a variant has failed
            how, separator, output = found.message.partition(LAST_OUTPUT)
            instead = without_output(instead) if output else instead  # the last output is that of this replica
            task.outcome = found = found._replace(
                message=f"{'; '.join(filter(None, (how, instead)))}{separator}{output}")
        where = f" on {', '.join(found.nodes)}" if found.nodes else ""
        why = f": {found.message}" if found.message else ""
        details = {name: value for name, value in document_of(found).items() if name not in ("message", "level")}
        word = "promoted" if found.level else found.outcome
        self.events.emit("replica" + found.outcome.capitalize(), f"{task.key}: {word}{where}{why}",
                         level=LEVELS.get(found.outcome, "error"), **details)

    def _heartbeat(self) -> None:
        if self.clock() - self._last_beat >= HEARTBEAT_S:
            self._last_beat = self.clock()
            done = sum(task.outcome is not None for task in self.tasks) - len(self._refused)
            blocked = sum(row.replicas for row in self._blocked)
            later = self._pilots.count
            message = (f"{done} of {len(self.tasks)} done" + (f", {later} after a pilot" if later else "")
                       + (f", {blocked} blocked" if blocked else ""))
            self.events.emit("progress", message, done=done, total=len(self.tasks))

    def end(self) -> int:
        """Write the summary. A created replica that is not ready yet continues to start."""
        interrupted = self.stop.is_set()
        for task in self._refused:  # an interrupt came before another plan
            self._report(task)
        results = sorted(self.outcomes(self.tasks), key=lambda row: (row.model, row.replica_id or 0))
        attempts = [task for task in self.tasks if isinstance(task, Attempt)]
        results += self._pilots.left(attempts, interrupted)
        results += [outcome_of(OnNodes(row.model, ()), "blocked", row.code, row.message, replicas=row.replicas)
                    for row in self._blocked]
        ready = sum(row.outcome == "ready" for row in results)
        wanted = sum(row.replicas or 1 for row in results)
        fetched = self.outcomes([task for task in self._fetches if task.outcome or interrupted])
        complete = not interrupted and all(_is_done(row, self._request.wait) for row in (*results, *fetched))
        return self.events.end(0 if complete else 3, f"{ready} of {wanted} ready", [*results, *fetched],
                               interrupted=interrupted, waited=self._request.wait)


def _is_done(row: Outcome, waited: bool) -> bool:
    """Return whether a run has done for these replicas what it was to do; Ray calls a job failed that says it has not.
    """
    return row.outcome == "ready" or row.code == TARGET_REACHED or (not waited and (
        (row.outcome == "starting" and row.code is None) or row.code in (AFTER_PILOT, WAITS_TURN)))


def _has_failed(task: Attempt) -> bool:
    """Return whether a replica of a variant has failed in a way that another variant may avoid."""
    found = task.outcome
    return bool(found and found.outcome == "failed" and task.replica.variant and found.code not in NOT_BY_VARIANT)


def _split(tasks: List[Attempt]) -> Tuple[List[Attempt], List[Attempt]]:
    """Return the replicas that nodes have refused, and those whose variant has failed."""
    failed = [task for task in tasks if _has_failed(task)]
    return [task for task in tasks if task not in failed], failed


def _is_starting(name: str) -> bool:
    """Return whether the named actor of our namespace is starting: neither ALIVE nor DEAD."""
    try:
        actor_id = ray.get_actor(name)._actor_id.hex()
    except ValueError:
        return False
    return cluster.actor_record(actor_id).state not in ("ALIVE", "DEAD")


def claim_single_use(plan_id: str, job: str) -> Optional[str]:
    """Record that this job applies this saved plan. Returns the job that applied it before, or None."""
    key = b"plan:" + plan_id.encode()
    if _internal_kv_put(key, job.encode(), overwrite=False, namespace=KV_NAMESPACE):  # it exists
        return bytes(_internal_kv_get(key, namespace=KV_NAMESPACE)).decode()
    return None


def run_apply(request: ApplyRequest, events: EventStream) -> int:
    """Run one apply and return its exit code."""
    return ApplyRun(request, events).carry_out()
