"""Update in place: the engine of a running replica loads other weights on an HTTP request. This ends nothing.

Each member fetches the new weights into a separate folder; then the engines of rank 0 get the request; then all members
serve the new weights. From the first request until all engines have loaded the new or, after a failure, their former
weights, the replica's spec is unknown: any later reload asks the engines.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

import ray
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_list, _internal_kv_put

from . import cluster, node
from .budget import FREE
from .engine import RELOAD_ENDED, RELOAD_FAILED
from .failure import KEPT_FAILURE, KV_NAMESPACE, StartFailed, start_failure
from .mark import utc_now
from .messages import HttpCall, Json, Place, ReloadRequest, ReloadState, Replica, seat_of
from .wire import document_of, parse

UNKNOWN_SPEC = "unknown"
"""The spec of a replica in a plan if it is not known; see inventory/reloads.py."""
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
