"""One replica from its check to its readiness. Each attempt has its own outcome; a failure stops no other attempt.

An attempt never waits: `step` goes as far as it can and returns, so one loop serves any number of attempts.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, NamedTuple, Optional, Sequence, Set

import ray

from . import cluster
from .cards import MAX_TRIES, NONE_CLEAN, REFUSED, SEARCHING, CleanCards
from .create import TARGET_REACHED, CardTurns, CreatedHere, Creating, Grants, check, create, take_back
from .lock import HeldLock
from .messages import FailedStart, Mark, Place, Replica
from .report import Refused, actor_name, decode_failure, evict_command, first_line, kept_failure, read_mark
from .run import PAUSED, Task, outcome_of
from .run_messages import Outcome
from .view import View

SHORTFALL_S = 3.0
"""Ray reports its free resources with a delay, so a shortfall counts only once it has lasted this long."""
ANSWER_S = 5.0
NO_WORKER_S = 60.0
ROOM_REPORT_S = 10.0
"""After this long an attempt reports that it waits for room; another run may have just taken it."""
WORKER_S = 300.0
"""Limit for a worker to start once Ray may have granted its replica; Ray itself retries after 60 s."""
CONSTRUCTED_S = 10.0
"""Ray briefly reports ALIVE after the constructor has raised; ALIVE without a repr for longer is a failure."""
MARGIN_S = 120.0
"""Constructors enforce their own timeout; the agent waits this much longer, then reports `starting`."""


class SharedState(NamedTuple):
    """State that all attempts of a run share.

    `ours` = fleets whose replicas count as ours; `clock` in seconds; `creating` = the replicas that wait for Ray;
    `why_paused` = why a model gets no replicas now, "" = it does.
    """

    not_counted: Callable[[str], Set[int]]
    ours: Collection[str]
    lock: HeldLock
    grants: Grants
    view: View
    emit: Callable[..., None]
    clock: Callable[[], float]
    turns: CardTurns
    creating: Creating
    why_paused: Callable[[str], str]


class Attempt(Task):
    """The creation of one planned replica. `granted` = Ray has chosen its cards, or never will."""

    def __init__(self, replica: Replica, context: SharedState) -> None:
        super().__init__(replica.id, replica)
        self.replica = replica
        self.created: Optional[CreatedHere] = None
        self.granted = self._shortfall_reported = False
        self._context = context
        self._begun = self._since = self._seen = self._alive_since = context.clock()
        self._handle: Any = None
        self._answer: Any = None
        self._tries = 0
        self._clean_cards: Optional[CleanCards] = None
        self._refusal = self._dirty = ""
        self._phase: Callable[[], None] = self._take_turn

    def may_begin(self) -> bool:
        """Return whether there is room among those that wait for Ray, and every earlier one has its shared cards."""
        context = self._context
        return self.granted or (context.creating.has_room(self.replica) and context.turns.may_begin(self.key))

    @property
    def may_be_left(self) -> bool:
        """Return whether Ray has chosen its cards: it starts by itself."""
        return self.granted

    def at_end(self, interrupted: bool) -> Outcome:
        """Return that a created replica continues to start, and any other was skipped."""
        code, why = ("INTERRUPTED", "the apply was interrupted") if interrupted else (None, "created, not awaited")
        return outcome_of(self.replica, "starting" if self._handle is not None else "skipped", code, why)

    def step(self) -> None:
        """Go as far as possible without waiting. An error becomes the outcome of this replica alone."""
        try:
            while self.outcome is None:
                phase = self._phase
                phase()
                if self._phase == phase:
                    break
        except Exception as error:
            self._end("failed", "AGENT_ERROR", first_line(error))
        self.granted = self.granted or self.outcome is not None
        if self.granted:
            self._context.turns.done(self.key)
        self._context.creating.note(self.replica, is_waiting=not self.granted)
        self._now()

    def _end(self, kind: str, code: Optional[str] = None, message: str = "", places: Sequence[Place] = ()) -> None:
        self._release_cards()
        seconds = None if self.created is None else self._context.clock() - self._begun
        self.outcome = outcome_of(self.replica, kind, code, message, places=places, seconds=seconds)

    def _enter(self, phase: Callable[[], None]) -> None:
        self._phase = phase
        self._since = self._alive_since = self._context.clock()

    def _now(self) -> float:
        """Return the time. A gap in which Ray did not answer is excluded from all durations."""
        now = self._context.clock()
        gap = now - self._seen
        if gap > ANSWER_S:
            self._since += gap
            self._alive_since += gap
        self._seen = now
        return now

    def _passed(self) -> float:
        """Return the seconds spent in this phase."""
        return self._now() - self._since

    def _take_turn(self) -> None:
        """The first phase, which the first step ends: waiting for a turn is no part of the check, nor Ray's silence."""
        self._seen = self._context.clock()
        return self._enter(self._check)

    def _check(self) -> None:
        if not self._context.lock.hold():
            return self._end("skipped", "LOCK_LOST", "this run no longer holds the lock; another apply may be running")
        if paused := self._context.why_paused(self.replica.model):
            return self._end("blocked", PAUSED, paused)
        try:
            check(self.replica, self._context.not_counted(self.replica.model), self._context.view)
            created = create(self.replica, self._context.view)
        except Refused as refusal:
            if refusal.code != "NODE_TAKEN" or self._passed() >= SHORTFALL_S:
                self._refused(refusal)
            return None
        self.created, self._handle, self._tries = created, created.handle, self._tries + 1
        nodes = self.replica.nodes
        self._context.emit("replicaCreated", f"{self.key}: created on {', '.join(nodes)}", nodes=nodes,
                           model=self.replica.model, replicaId=self.replica.replica_id)
        if len(self.replica.members) == 1:
            self._context.grants.created(created, self.replica.members[0])
            return self._enter(self._await_grant)
        return self._enter(self._await_group)

    def _refused(self, refusal: Refused) -> None:
        """Turn a refusal into an outcome. If the name exists, another apply has created this replica: await that."""
        if refusal.code == "NAME_TAKEN":
            try:
                self._handle = ray.get_actor(actor_name(self.replica.model, self.replica.replica_id))
            except ValueError:
                return self._end("failed", "NAME_TAKEN", f"{refusal}, but it is gone again")
            self.granted = True
            self.replica = self.replica._replace(members=())  # it may be on other nodes than planned
            return self._enter(self._await_ready)
        return self._end("skipped" if refusal.code == TARGET_REACHED else "blocked", refusal.code, str(refusal))

    def _await_grant(self) -> None:
        """Wait for the worker of a single member; take the replica back if Ray has no room for it."""
        created = self.created
        assert created is not None
        member, lifecycle = self.replica.members[0], self.replica.lifecycle
        node_id = member.node_id
        record = cluster.actor_record(created.actor_id)
        trouble = cluster.node_trouble(node_id) if record.state == "DEAD" and not record.placed else None
        if trouble:  # Ray gave up because the node died after our check
            self._context.view.ended(created.name, created.actor_id)
            return self._end("failed", trouble[0], f"{member.node}: {trouble[1]}")
        if record.placed or record.state == "DEAD":
            self.granted = True
            self._context.grants.placed(created)
            self._context.view.granted(created.actor_id)
            self._release_cards()
            return self._enter(self._await_ready)
        timeout_s = lifecycle.scheduling_timeout
        if self._passed() < timeout_s:
            return self._report_shortfall(created, node_id)
        short = cluster.shortfalls(self.replica.members)
        if short and not self._context.grants.may_be_granted(created, node_id):
            take_back(created)
            self._context.view.ended(created.name, created.actor_id)
            return self._end("failed", "NODE_TAKEN", f"Ray gave it no worker within {timeout_s:g} s: needs "
                                                     f"{created.claim}; {'; '.join(short)}; taken back")
        if self._passed() >= WORKER_S:
            return self._no_worker()
        return None

    def _report_shortfall(self, created: CreatedHere, node_id: str) -> None:
        """Report once, after ROOM_REPORT_S, that the replica waits for room."""
        if self._shortfall_reported or self._passed() < ROOM_REPORT_S:
            return
        self._shortfall_reported = True
        short = cluster.shortfalls(self.replica.members)
        if short and not self._context.grants.may_be_granted(created, node_id):
            self._context.emit("roomAwaited", f"{self.key}: waiting for room: {'; '.join(short)}",
                               model=self.replica.model, replicaId=self.replica.replica_id)

    def _no_worker(self) -> None:
        self._end("starting", "NO_WORKER",
                  f"Ray has given it no worker for {self._passed():.0f} s; it starts when there is room, or "
                  f"`{evict_command(self.key)}` removes it")

    def _await_group(self) -> None:
        """Wait until a gang's placement group has its cards, or the gang has stopped waiting for them."""
        created = self.created
        assert created is not None
        if cluster.group_is_granted(created.name) or cluster.actor_record(created.actor_id).state in ("ALIVE", "DEAD"):
            self.granted = True
            self._context.view.granted(created.actor_id)
            self._release_cards()
            self._enter(self._await_ready)

    def _await_ready(self) -> None:
        """Wait until the replica is ready (its constructor has returned: ALIVE, with a repr) or DEAD."""
        record = cluster.actor_record(self._handle._actor_id.hex())
        if record.is_up:
            self._answer = self._handle.__ray_ready__.remote()
            return self._enter(self._await_answer)
        if record.state == "DEAD":
            return self._died(self._cause_of_death(record))
        if record.state != "ALIVE":
            self._alive_since = self._context.clock()
        elif self._now() - self._alive_since >= CONSTRUCTED_S:
            return self._end("failed", "NEVER_CONSTRUCTED", "Ray reports its actor as ALIVE, but its constructor never "
                             f"returned; `{evict_command(self.key)}` removes it")
        if self._passed() >= self.replica.lifecycle.startup_timeout + self.replica.grace_s + MARGIN_S:
            return self._end("starting", "STILL_STARTING", "it continues by itself; `fleetctl status` shows it")
        return None

    def _cause_of_death(self, record: cluster.ActorRecord) -> FailedStart:
        """Return the failure that a gang has kept or the constructor has raised; else EVICTED, or NODE_GONE."""
        failure = kept_failure(self._handle._actor_id.hex()) or decode_failure(record.death)
        if record.killed and failure.code == "REPLICA_DIED":
            return FailedStart("EVICTED", "it was evicted; the next apply starts another")
        for member in self.replica.members if failure.code == "REPLICA_DIED" else ():
            trouble = cluster.node_trouble(member.node_id)
            if trouble and trouble[0] == "NODE_GONE":
                return FailedStart(trouble[0], f"{member.node}: {trouble[1]}")
        return failure

    def has_gone_down(self) -> bool:
        """Return whether a replica that was ready is down now, with its new outcome."""
        if self.outcome is None or self.outcome.outcome != "ready":
            return False
        try:
            record = cluster.actor_record(self._handle._actor_id.hex())
            if record.state == "ALIVE":
                return False
            code, why = "STILL_STARTING", "it was ready, went down and is restarting"
            if record.state == "DEAD":
                failure = self._cause_of_death(record)
                code, why = failure.code, f"it was ready and went down: {failure.message}"
        except Exception:  # Ray does not say
            return False
        self.outcome = outcome_of(self.replica, "failed" if record.state == "DEAD" else "starting", code, why)
        return True

    def _died(self, failure: FailedStart) -> None:
        """Report the failure; or, if members refused their cards, look for clean ones on their nodes.

        No engine has run, and the replica's name is free again.
        """
        if self.created is not None:
            self._context.grants.ended(self.created)
            self._context.view.ended(self.created.name, self.created.actor_id)
        if failure.code not in REFUSED or self.created is None or self._tries >= MAX_TRIES:
            return self._end("failed", failure.code, failure.message)
        self._context.emit("cardInUse", f"{self.key}: {failure.message}: {SEARCHING}", level="warning",
                           model=self.replica.model, replicaId=self.replica.replica_id)
        self.replica = self.replica._replace(earlier_tries=[*self.replica.earlier_tries, self.created.actor_id])
        self.granted = False  # keeps the lock, or releases it once more
        claiming = [member for member in self.replica.members if member.gpus]
        refusing = [member for member in claiming if member.node_id in failure.node_ids]
        self._refusal, self._dirty, self._clean_cards = failure.code, failure.message, CleanCards(refusing or claiming)
        return self._enter(self._find_clean_cards)

    def _find_clean_cards(self) -> None:
        assert self._clean_cards is not None
        found = self._clean_cards.step()
        if found:
            self._clean_cards.free_the_clean()
        if found and self._context.lock.hold():
            return self._enter(self._check)
        if found is not None:
            self._end("failed", self._refusal, self._dirty if found else f"{self._dirty}; {NONE_CLEAN}")
        return None

    def _release_cards(self) -> None:
        """Give back the dirty cards that the search has held for this replica."""
        search, self._clean_cards = self._clean_cards, None
        if search is not None:
            search.release()

    def _await_answer(self) -> None:
        done, _ = ray.wait([self._answer], timeout=0)
        late = self._passed() >= ANSWER_S
        if not done and not late:
            return None
        try:
            ray.get(self._answer, timeout=0)
        except ray.exceptions.GetTimeoutError:
            pass  # Ray reports it as up, so it counts as ready
        except Exception:  # it has died since, or is being restarted: check its state again
            return self._enter(self._await_ready)
        return self._ready("it is up, but its process does not answer" if not done else "")

    def _ready(self, note: str) -> None:
        mark = read_mark(cluster.actor_record(self._handle._actor_id.hex()).report) or Mark()
        if self.created is None and mark.fleet not in self._context.ours:
            return self._end("blocked", "CLAIMED_BY_FLEET",
                             f"fleet {mark.fleet} has just started a replica of this model")
        unchecked = dict.fromkeys(place.unchecked for place in mark.members if place.unchecked)
        code = "NOT_ANSWERING" if note else "CARDS_UNCHECKED" if unchecked else None
        message = note or (f"its cards were not checked: {'; '.join(unchecked)}" if unchecked else "")
        return self._end("ready", code, message, mark.members)


class EarlierAttempt(Attempt):
    """A replica that was starting before this run: awaited, never taken back. A user can evict it."""

    def __init__(self, replica: Replica, context: SharedState) -> None:
        super().__init__(replica, context)
        self.granted = True
        self._phase = self._find

    def _find(self) -> None:
        try:
            self._handle = ray.get_actor(actor_name(self.replica.model, self.replica.replica_id))
        except ValueError:
            return self._end("failed", "REPLICA_DIED", "it was starting when this run began and is gone now")
        return self._enter(self._await_worker)

    def _await_worker(self) -> None:
        record = cluster.actor_record(self._handle._actor_id.hex())
        if record.placed or record.state not in ("PENDING_CREATION", "RESTARTING"):
            self._enter(self._await_ready)
        elif self._passed() >= NO_WORKER_S:
            self._no_worker()
