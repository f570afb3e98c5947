"""Update in place: the engines of a running replica load other weights on an HTTP request. This ends nothing.

On the replica's side (`Reloading`): each member fetches the new weights into a separate folder; then the engines of
rank 0 get the request; then all members serve the new weights. From the first request until all engines have loaded the
new or, after a failure, their former weights, the replica's spec is unknown: any later reload asks the engines.

On the side of an apply (`Reloads`): it asks replicas to reload, one per model at a time, and reports the results. A
failure ends the reloads of its model; its other replicas run as before. Each reload is recorded for later plans when
its replica is asked and when it has ended, because a replica's repr describes it as of the start of its actor.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import ray
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_list, _internal_kv_put

from . import cluster, node
from .budget import FREE
from .lock import HeldLock, LockBusy
from .messages import (
    Action,
    EngineAnswer,
    HttpCall,
    Json,
    Member,
    Place,
    PlannedReload,
    ReloadMember,
    ReloadRequest,
    ReloadState,
    Replica,
    ServedWeights,
    WeightSource,
    seat_of,
)
from .ports import host_port
from .probes import connect_until
from .records import RELOAD, add, remove, why_paused
from .report import KEPT_FAILURE, KV_NAMESPACE, StartFailed, actor_name, first_line, start_failure, utc_now
from .run import PAUSED, Run, Task, outcome_of
from .run_messages import ApplyRequest, Outcome
from .wire import document_of, parse

UNKNOWN_SPEC = "unknown"
"""The spec of a replica in a plan if it is not known; see inventory/reloads.py."""
RELOAD_FAILED, RELOAD_ENDED = "RELOAD_FAILED", "RELOAD_ENDED"
"""Codes of an engine that has not reloaded, and of one that ended because of the reload."""
ANSWER_BYTES, ANSWER_SHOWN = 10_240, 500
ASK_S = 1.0
"""With less time left no engine is asked: if nothing waits for its answer, it may have loaded anything."""
KEPT = b"reloaded:"
"""Prefix of the keys in Ray's table that hold an actor's last reload; the actor id follows."""
Steps = Callable[[str, Mapping[int, Tuple[Any, ...]]], Dict[int, Any]]
"""Calls a method of the seats of the given members, in parallel, and returns their answers; raises StartFailed."""


class Reloading:
    """The reloads of one replica, one at a time, in a thread, so that its actor can answer meanwhile.

    `replica` and `places` describe the replica as it is now; a reload that succeeds changes both.
    """

    def __init__(self, replica: Replica, places: Sequence[Place], steps: Steps) -> None:
        self.replica, self.places, self._steps = replica, list(places), steps
        self._runs: Optional[str] = replica.spec_hash
        self._state = ReloadState()
        self._read = True
        self._busy = threading.Lock()

    def begin(self, request: ReloadRequest) -> None:
        """Start the requested reload, unless another one is running; `state` then describes that one.

        If this reload has failed and no agent has read that yet, the failure is the answer: otherwise a reload that no
        run waits for would be retried forever.
        """
        if self._state.state == "failed" and self._state.spec_hash == request.spec_hash and not self._read:
            return
        if self._busy.acquire(blocking=False):
            self._read = False
            self._state = ReloadState("reloading", request.spec_hash)
            threading.Thread(target=self._run, args=(request,), name="fleetctl-reload", daemon=True).start()

    def state(self) -> Json:
        """Return the state of the latest reload as JSON; empty if there was none."""
        state = self._state
        self._read = state.state != "reloading"
        found: Json = {"state": state.state, "specHash": state.spec_hash}
        ends = {"done": {"restarts": state.restarts}, "failed": {"code": state.code, "reason": state.reason},
                "refused": {}}
        if state.state in ends:
            places = [{"nodeId": place.node_id, "ip": place.ip, "port": place.port, "rank": place.rank,
                       # agents of earlier releases read this port even if it is None
                       "weights": place.weights and {"port": None, **document_of(place.weights)}}
                      for place in state.places]
            found.update(ends[state.state], runs=state.runs, at=state.at, places=places)
        return found if state.state else {}

    def _run(self, request: ReloadRequest) -> None:
        try:
            if self._runs != request.spec_hash and request.runs not in (self._runs, UNKNOWN_SPEC):
                result = ReloadState("refused")
            else:
                if self._runs != request.spec_hash:
                    self._reload(request)
                result = ReloadState("done", restarts=node.restart_count())
        except Exception as error:
            failure = start_failure(error)
            result = ReloadState("failed", code=failure.code, reason=str(failure))
        self._state = result._replace(
            spec_hash=request.spec_hash, runs=self._runs, at=utc_now(), places=tuple(self.places))
        self._busy.release()

    def _reload(self, request: ReloadRequest) -> None:
        deadline = time.monotonic() + request.startup_timeout
        new = changed(self.replica, request)
        fetching = [index for index, member in enumerate(new.members) if member.weights]
        leaders = [index for index in fetching if new.members[index].rank == 0]
        try:
            self._steps("fetch_new", {index: (new.members[index].weights, deadline - time.monotonic())
                                      for index in fetching})
            if deadline - time.monotonic() < ASK_S:
                raise StartFailed(RELOAD_FAILED, "fetching weights used up its startupTimeout: it was not asked")
            self._ask(request, leaders, deadline)
            _internal_kv_put(_key(), json.dumps(document_of(request)).encode(), overwrite=True, namespace=KV_NAMESPACE)
        except Exception:
            with suppress(Exception):  # a dead member has none
                self._steps("drop_new", dict.fromkeys(fetching, ()))
            raise
        for index, weights in self._steps("serve_new", dict.fromkeys(fetching, ())).items():
            self.places[index] = self.places[index]._replace(weights=weights)
        self.replica = new
        self._runs = request.spec_hash

    def _ask(self, request: ReloadRequest, leaders: Sequence[int], deadline: float) -> None:
        """Ask the engines to reload, all or none; liveness does not count meanwhile, on any rank."""
        ranks = range(len(self.replica.members))
        calls, within_s = request.requests or [request.http], deadline - time.monotonic()
        self._steps("hold_liveness", dict.fromkeys(ranks, (within_s + request.startup_timeout,)))
        self._runs = None
        try:
            self._steps("reload_engine", dict.fromkeys(leaders, (calls, within_s)))
        except Exception as error:
            raise self._rolled_back(start_failure(error), calls, leaders, request.startup_timeout) from None
        finally:
            with suppress(Exception):  # the hold also ends at its deadline
                self._steps("hold_liveness", dict.fromkeys(ranks, (0.0,)))

    def _rolled_back(
        self, failure: StartFailed, calls: Sequence[HttpCall], leaders: Sequence[int], within_s: float
    ) -> StartFailed:
        """Let all engines load their former weights again by the same requests; return the failure with the result.

        Some may have loaded the new ones, or be paused. The spec is known again only if all have succeeded.
        """
        if failure.code == RELOAD_ENDED:  # Ray starts it again, with its former weights
            return failure
        try:
            self._steps("roll_back_engine", dict.fromkeys(leaders, (calls, within_s)))
        except Exception as error:
            again = start_failure(error)
            return StartFailed(RELOAD_ENDED if again.code == RELOAD_ENDED else failure.code,
                               f"{failure}; and it did not load its former weights again: {again}", failure.places)
        self._runs = self.replica.spec_hash
        return StartFailed(failure.code, f"{failure}; it has loaded its former weights again", failure.places)


def ask_to_reload(
    call: HttpCall, port: int, hosts: Sequence[str], deadline: float, objection: Callable[[str], Optional[str]], *,
    shown: str,
) -> str:
    """Send the request, with its variables replaced, once, to the first host that listens; returns the answer as text.

    `shown` = the path to show in messages: a variable may be a secret. Raises StartFailed for an answer without
    success, for no answer by `deadline` (monotonic), or if `objection` finds that another process listens there.
    """
    for host in hosts:
        refused = objection(host)
        if refused:
            raise StartFailed(RELOAD_FAILED, refused)
        if time.monotonic() >= deadline:
            raise StartFailed(RELOAD_FAILED, "no time was left to ask its engine")
        connected, succeeded, answer = _send(host, port, call, deadline)
        if connected:
            break
    text = f"{call.method} {shown} on port {port}: {answer}"
    if not succeeded:
        raise StartFailed(RELOAD_FAILED, text)
    return text


def _send(host: str, port: int, call: HttpCall, deadline: float) -> Tuple[bool, bool, str]:
    """Return whether it connected, whether the answer is a success, and the answer as text.

    vLLM and SGLang answer some requests that have failed with status 200 and `{"success": false}`.
    """
    body = json.dumps(call.body).encode() if call.body is not None else None
    headers = {"User-Agent": "fleetctl-reload", "Connection": "close",
               **({"Content-Type": "application/json"} if body else {})}
    try:
        connection = connect_until(deadline, host, port)
    except OSError as error:
        return False, False, error.__class__.__name__
    data = b""
    try:
        connection.request(call.method, call.path, body, headers)
        answer = connection.getresponse()
        with suppress(socket.timeout):  # an endless answer counts by its beginning
            while len(data) < ANSWER_BYTES and (part := answer.read1(ANSWER_BYTES - len(data))):
                data += part
    except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: a path that HTTP cannot carry
        return True, False, error.__class__.__name__
    finally:
        connection.close()
    text = data.decode(errors="replace").strip()
    try:
        said = parse(EngineAnswer, json.loads(text))
    except (ValueError, RecursionError):  # it says nothing of success
        said = EngineAnswer()
    succeeded = 200 <= answer.status < 300 and said.success
    return True, succeeded, f"HTTP {answer.status}{f': {text[:ANSWER_SHOWN]}' if text else ''}"


def changed(replica: Replica, request: ReloadRequest) -> Replica:
    """Return the replica with the spec and weights of a reload."""
    weights = {seat_of(member): member.weights for member in request.members}
    members = tuple(member._replace(weights=weights.get(seat_of(member))) for member in replica.members)
    return replica._replace(spec_hash=request.spec_hash, members=members)


def as_reloaded(replica: Replica) -> Replica:
    """Return the replica of a restarted actor as its last reload left it.

    It no longer refuses cards that were cooling when it was created: they may be usable by now.
    """
    kept: Optional[bytes] = _internal_kv_get(_key(), namespace=KV_NAMESPACE)
    latest = changed(replica, parse(ReloadRequest, json.loads(kept))) if kept else replica
    return latest._replace(members=tuple(member._replace(cooling_cards=()) for member in latest.members))


def forget_dead_actors() -> None:
    """Delete the kept reloads and failures of dead actors; any run that waits for one has read it by then."""
    for prefix in (KEPT, KEPT_FAILURE, FREE):
        for key in _internal_kv_list(prefix, namespace=KV_NAMESPACE):
            if cluster.actor_record(key[len(prefix):].decode()).state == "DEAD":
                _internal_kv_del(key, namespace=KV_NAMESPACE)


def _key() -> bytes:
    return KEPT + str(ray.get_runtime_context().get_actor_id()).encode()


POLL_S = 0.5
MARGIN_S = 120.0
MAX_MESSAGE = 600
MAX_SOURCES = 3
WAITS_TURN = "WAITS_TURN"
NO_RECORD = "the record of it in Ray's table could not be written"
GONE = "it is gone, or another actor has its name"
OLD_ACTOR = ("an earlier fleetctl has started it, and such an actor can send its engine only one request: it runs as "
             "before; use fleetctl replace")
ENDED = "its actor ended meanwhile, and Ray is restarting it"


class ReloadRecord(NamedTuple):
    """What later plans read of a reload. `asked` = its engines were asked and may have loaded anything."""

    model: str
    replica_id: int
    actor_id: str
    spec_hash: str
    node_ids: Sequence[str]
    at: str
    restarts: int
    asked: Optional[bool] = None
    code: Optional[str] = None
    message: Optional[str] = None
    weights: Optional[Sequence[Optional[ServedWeights]]] = None
    fleet: Optional[str] = None
    namespace: Optional[str] = None


class Reloads:
    """The reloads of a request, as `tasks`, and what they share: their lock and sources of weights."""

    def __init__(self, request: ApplyRequest, run: Run) -> None:
        self.run, self._request = run, request
        self.waits = request.wait
        self.tasks: List[ReloadTask] = []
        self.failed: Dict[str, str] = {}
        """By model, the id of the replica whose reload did not succeed."""
        self.busy: Optional[LockBusy] = None
        self._lock: Optional[HeldLock] = None
        self._sources: Dict[str, List[WeightSource]] = {}
        latest: Dict[str, ReloadTask] = {}
        for action in request.plan.actions:
            if action.reload:
                latest[action.model] = ReloadTask(action, action.reload, latest.get(action.model), self)
                self.tasks.append(latest[action.model])

    def take_lock(self) -> None:
        """Take the lock of all reloads of the fleet, once; if another run holds it, `busy` says so."""
        if self._lock is None and self.busy is None:
            try:
                self._lock = self.run.take(f"{self._request.plan.fleet.name}/reload", self._request.holder, 0.0)
            except LockBusy as busy:
                self.busy = busy

    def release_lock(self) -> None:
        """Release the lock if no reload is left."""
        if self._lock is not None and all(task.outcome for task in self.tasks):
            self._lock.release()

    def keep(self, actor_id: str, state: Optional[ReloadRecord]) -> bool:
        """Record the state of a replica's reload, None = remove the record; returns whether that succeeded."""
        fleet, subject = self._request.plan.fleet, f"{actor_id}/{self._request.job}"
        if state is None:
            return remove(RELOAD, subject, fleet.name)
        record = state._replace(fleet=fleet.name, namespace=fleet.namespace)
        return add(RELOAD, subject, document_of(record), fleet.name)

    def why_paused(self, model: str) -> str:
        """Return why a model reloads nothing now: a user has paused it. "" = it may."""
        return why_paused(self._request.plan.fleet.name, self._request.plan.fleet.namespace, model)

    def add_source(self, replica: str, place: Place) -> None:
        """Keep a member that has reloaded as a source for the next replica."""
        weights = place.weights
        if weights and weights.port and cluster.is_at(place.node_id, place.ip):
            source = WeightSource(replica, host_port(place.ip, weights.port), weights.view, weights.whole)
            self._sources.setdefault(weights.artifact, []).append(source)

    def with_sources(self, member: Member) -> ReloadMember:
        """Return a planned member as its actor gets it, with the latest sources before those of the plan."""
        weights = member.weights
        if weights:
            more = self._sources.get(weights.artifact, [])[-MAX_SOURCES:]
            weights = weights._replace(sources=[*more, *weights.sources])
        return ReloadMember(member.group, member.copy, member.rank, weights)


class ReloadTask(Task):
    """One replica's reload: asks its actor to reload, then polls it until the reload has ended.

    `before` = the reload of the same model before it.
    """

    def __init__(self, row: Action, planned: PlannedReload, before: Optional[ReloadTask], shared: Reloads) -> None:
        super().__init__(row.id, row)
        self.row, self._planned, self._before, self._shared = row, planned, before, shared
        self._clock = shared.run.clock
        self._begun_at = self._next = 0.0
        self._handle: Any = None
        self._answer: Any = None
        self._restarts = 0
        self._answered = False

    def may_begin(self) -> bool:
        """Return whether the one before it has ended; a run that does not wait begins only one of each model."""
        if self._before is None:
            return True
        ended = self._before.outcome
        return ended is not None and (self._shared.waits or ended.outcome != "ready")

    @property
    def may_be_left(self) -> bool:
        """Return whether its replica has answered, so that it reloads by itself, or its turn is in a later run."""
        return self._answered if self.begun else self._before is not None

    def at_end(self, interrupted: bool) -> Outcome:
        """Return that it continues by itself, or that it was not begun."""
        if self.begun:
            return self._said("starting", "INTERRUPTED" if interrupted else None, "its reload continues by itself")
        if interrupted:
            return self._said("skipped", "INTERRUPTED", "interrupted: it runs as before")
        return self._said("skipped", WAITS_TURN, "replicas of a model reload one at a time, and this run does not "
                                                 "wait: the next apply continues")

    def step(self) -> None:
        """Continue without waiting."""
        try:
            self.outcome = self._step() if self._handle else self._start()
        except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError):  # old and new weights may not both fit
            self.outcome = self._ended_meanwhile()
        except Exception as error:
            self.outcome = self._failed("AGENT_ERROR", first_line(error), asked=True)
        if self.outcome is not None:
            if self.outcome.outcome != "ready":
                self._shared.failed.setdefault(self.row.model, self.key)
            self._shared.release_lock()

    def _said(self, kind: str, code: Optional[str], message: str, places: Sequence[Place] = ()) -> Outcome:
        seconds = self._clock() - self._begun_at if self._begun_at else 0.0
        return outcome_of(self.row, kind, code, message, places=places, seconds=seconds)

    def _start(self) -> Optional[Outcome]:
        """Find the planned actor and ask it to reload; note that first, so that a plan knows even if this job dies."""
        shared, row = self._shared, self.row
        shared.take_lock()
        if shared.busy is not None:
            why = f"another run is reloading this fleet's replicas: {shared.busy}"
            return self._said("skipped", "LOCK_HELD", why)
        if paused := shared.why_paused(row.model):
            return self._said("blocked", PAUSED, paused)
        if row.model in shared.failed:
            why = f"the reload of {shared.failed[row.model]} before it did not succeed: it runs as before"
            return self._said("skipped", "NOT_BEGUN", why)
        self._begun_at = self._clock()
        shared.run.events.emit("replicaReloading", f"{self.key}: reloading its weights on {', '.join(row.nodes)}; it "
                               "keeps serving", model=row.model, replicaId=row.replica_id)
        handle = None
        with suppress(ValueError):
            handle = ray.get_actor(actor_name(row.model, row.replica_id))
        gone = handle is None or handle._actor_id.hex() != self._planned.actor_id
        if gone or (len(self._planned.requests) > 1 and not hasattr(handle, "reload_in_steps")):
            return self._said("skipped", *(("NOT_FOUND", GONE) if gone else ("NOT_BEGUN", OLD_ACTOR)))
        self._handle, self._restarts = handle, cluster.actor_record(self._planned.actor_id).restarts
        if not self._note(asked=True):
            why = f"{NO_RECORD}, so later plans would not know of the reload: it was not asked to"
            return self._said("failed", RELOAD_FAILED, why)
        self._ask()
        return None

    def _ask(self, request: bool = True) -> None:
        """Ask for the state; `request` = ask for the reload first, because none or a different one was running."""
        row, requests = self.row, self._planned.requests
        if request:
            members = [self._shared.with_sources(member) for member in row.members]
            several = len(requests) > 1
            asked = document_of(ReloadRequest(self._planned.runs, row.spec_hash, requests[0],
                                              row.lifecycle.startup_timeout, members, requests if several else ()))
            (self._handle.reload_in_steps if several else self._handle.reload).remote(asked)
        self._answer = self._handle.reloading.remote()
        self._next = self._clock() + POLL_S

    def _step(self) -> Optional[Outcome]:
        if self._clock() < self._next:
            return None
        done, _ = ray.wait([self._answer], timeout=0)
        if done:
            state = parse(ReloadState, ray.get(self._answer))
            self._answered = True
            if not state.state:  # a new actor; do not ask again, as the reload may have ended its engine
                return self._failed(RELOAD_ENDED, ENDED)
            running = state.state == "reloading"
            if state.spec_hash == self.row.spec_hash and not running:
                return self._ended(state)
            self._ask(request=not running)
        if self._is_late():
            return self._said("starting", "STILL_STARTING", "it continues by itself; the next apply has the result")
        return None

    def _ended(self, state: ReloadState) -> Outcome:
        if state.state == "failed":
            return self._failed(state.code, state.reason, asked=state.runs is None)
        if state.state == "refused":
            self._shared.keep(self._planned.actor_id, None)
            why = "it has reloaded since the plan was made: it runs another spec"
            return self._said("skipped", "SPEC_MOVED", why)
        for place in state.places:
            self._shared.add_source(self.key, place)
        self._restarts = state.restarts
        if not self._note(at=state.at, weights=[place.weights and place.weights._replace(fetched=None)
                                                for place in state.places]):
            why = f"its engine has loaded other weights in place, but {NO_RECORD}: the next apply notes it"
            return self._said("starting", "STILL_STARTING", why)
        return self._said("ready", "RELOADED", "its engine has loaded other weights in place", state.places)

    def _ended_meanwhile(self) -> Optional[Outcome]:
        """Return the result if the actor has ended since it was asked; otherwise ask it for the state again."""
        record = cluster.actor_record(self._planned.actor_id)
        if record.state == "DEAD":
            self._shared.keep(self._planned.actor_id, None)
            return self._said("skipped", "NOT_FOUND", GONE)
        if record.state == "ALIVE" and record.restarts == self._restarts and not self._is_late():
            self._ask(request=False)
            return None
        return self._failed(RELOAD_ENDED, ENDED)

    def _is_late(self) -> bool:
        return self._clock() - self._begun_at > self.row.lifecycle.startup_timeout + MARGIN_S

    def _failed(self, code: str, why: str, asked: bool = False) -> Outcome:
        """Return the result of a failure; `asked` = its engines were asked, so what they have loaded is not known."""
        self._note(asked=asked, code=code, message=why[:MAX_MESSAGE])
        effect = ("its engines were asked and may have loaded the new weights: its spec is not known" if asked
                  else "it keeps running its former spec")
        return self._said("failed", code, f"{why}\n{effect}")

    def _note(
        self, at: Optional[str] = None, *, asked: Optional[bool] = None, code: Optional[str] = None,
        message: Optional[str] = None, weights: Optional[Sequence[Optional[ServedWeights]]] = None,
    ) -> bool:
        row, actor_id = self.row, self._planned.actor_id
        node_ids = list(dict.fromkeys(member.node_id for member in row.members))
        return self._shared.keep(actor_id, ReloadRecord(
            row.model, row.replica_id, actor_id, row.spec_hash, node_ids, at or utc_now(), self._restarts, asked, code,
            message, weights))
