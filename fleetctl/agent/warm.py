"""A WARM replica: the detached actor `WarmReplica:<key>:<id>`. It keeps an evicted replica's weights in memory.

It claims memory and no card, serves its weights to other nodes, and loads them again if Ray restarts it. It ends itself
once the replica with the same id is ready. Apply never imports this.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import node
from .failure import encode_failure
from .mark import actor_name, compact, utc_now
from .messages import FailedStart, Mark, Place, ServedWeights, WarmCopy, seat_of
from .model_files import note_wrong, session_secret
from .weights.check import BackgroundCheck
from .weights.fetch import on_disk
from .weights.index import WeightsError
from .weights.memory import InMemory, require_memory
from .weights.serve import Source, serve_weights
from .weights.store import cache_root
from .wire import document_of, from_parts, parse

POLL_S = 1.0
TOUCH_S = 60.0
ABANDONED_S = 600.0
"""If the replica that it was made from has not ended after this time, the eviction counts as abandoned."""
BACKOFF_S = 1.0


def bytes_by_node(places: Sequence[Place]) -> Dict[str, int]:
    """Return the members' bytes of weights on each node; weights that members of a node share count once."""
    entries = {(place.node_id, place.weights.artifact, place.weights.view): place.weights.bytes
               for place in places if place.weights}
    sizes: Dict[str, int] = {}
    for (node_id, _, _), size in entries.items():
        sizes[node_id] = sizes.get(node_id, 0) + size
    return sizes


def actor_options(node_id: str, size: int) -> Dict[str, Any]:
    """Return the options of an actor that claims `size` bytes of memory on a node, and nothing else."""
    return {"num_cpus": 0, "num_gpus": 0, **({"memory": size} if size else {}),
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}


class WarmHolder:
    """Holds and serves the weights of some members in this node's memory.

    A gang has one such actor on each further node. The gang's WarmReplica owns these actors, so they end with it.
    """

    def __init__(self, places: Sequence[Any]) -> None:
        self._files: List[InMemory] = []
        self._places = [parse(Place, place) for place in places]
        try:
            self._hold_all()
        except (WeightsError, OSError) as error:
            why = FailedStart("NOT_HELD", f"could not load the weights into memory: {error}")
            raise RuntimeError(encode_failure(why)) from None
        self._locked = all(file.locked for file in self._files)
        if not self._locked:
            threading.Thread(target=self._touch, name="fleetctl-touch", daemon=True).start()

    def _hold_all(self) -> None:
        root, secret = cache_root(), session_secret()
        ip = ray.util.get_node_ip_address()
        require_memory(sum(bytes_by_node(self._places).values()))
        served: Dict[Tuple[str, Optional[str]], ServedWeights] = {}
        for index, place in enumerate(self._places):
            if place.weights:
                key = place.weights.artifact, place.weights.view
                served[key] = served.get(key) or self._hold(root, secret, ip, place.weights)
                self._places[index] = place._replace(ip=ip, weights=served[key])

    def _hold(self, root: str, secret: bytes, ip: str, wanted: ServedWeights) -> ServedWeights:
        got = on_disk(root, wanted.artifact, wanted.view)
        self._files.append(InMemory(got.entry, got.held))
        source = Source(root, got, secret)
        _, served = serve_weights(source, ip, wanted.ports)
        # nothing is fetched again here: the next start does that
        check = BackgroundCheck(lambda: source.checked(own=False), source.verified, lambda _: None, note_wrong)
        source.on_report = check.request
        check.start()
        return served

    def _touch(self) -> None:
        while True:
            time.sleep(TOUCH_S)
            for file in self._files:
                file.touch()

    def report(self) -> Tuple[List[Any], bool]:
        """Return the documents of its members' places, and whether all files are locked in memory."""
        return [document_of(place) for place in self._places], self._locked


class WarmReplica:
    """One WARM replica. `parts` = its WarmCopy: its fleet and id, its members' places, and the HOT one's actor id."""

    def __init__(self, *parts: bytes) -> None:
        self._replica = replica = from_parts(WarmCopy, parts)
        self._places: List[Place] = []
        self._ready_refs: Dict[str, ray.ObjectRef[bool]] = {}
        self._since = time.monotonic()
        self._leave_lock, self._leaving = threading.Lock(), False
        if node.was_restarted():
            node.back_off(BACKOFF_S, node.restart_count())
        sizes = bytes_by_node(replica.members)
        own_node = ray.get_runtime_context().get_node_id()
        others = {node_id: [document_of(place) for place in replica.members if place.node_id == node_id]
                  for node_id in sizes if node_id != own_node}
        self._holders = [ray.remote(WarmHolder).options(**actor_options(node_id, sizes[node_id])).remote(their_places)
                         for node_id, their_places in others.items()]
        local = WarmHolder([document_of(place) for place in replica.members if place.node_id not in others])
        reports = [local.report(), *ray.get([holder.report.remote() for holder in self._holders])]
        self._locked = all(locked for _, locked in reports)
        held = [parse(Place, place) for their_places, _ in reports for place in their_places]
        found = {seat_of(place): place for place in held}
        self._places = [found[seat_of(place)]._replace(memory=sizes.pop(place.node_id, 0))
                        for place in replica.members]
        self._ready_at = utc_now()
        self._since = time.monotonic()
        threading.Thread(target=self._watch, name="fleetctl-watch", daemon=True).start()

    def _watch(self) -> None:
        """End once the HOT replica of this id is ready; a failed check is repeated."""
        while True:
            time.sleep(POLL_S)
            try:
                ray.get([holder.report.remote() for holder in self._holders])
                if self._leave_if_unneeded():
                    return
            except (ray.exceptions.ActorDiedError, ray.exceptions.OutOfMemoryError):
                os._exit(1)  # a holder has ended: Ray restarts this actor and creates new ones
            except Exception:  # Ray's head does not answer; it may be back later
                continue

    def _leave_if_unneeded(self) -> bool:
        """End this actor if it is no longer needed; returns whether it does."""
        with self._leave_lock:
            self._leaving = self._is_unneeded(time.monotonic() - self._since)
            if self._leaving:
                ray.get_runtime_context().current_actor.leave.remote()
        return self._leaving

    def _is_unneeded(self, waited_s: float) -> bool:
        """Return whether a HOT replica of this id is ready, or the eviction that created this one was abandoned."""
        try:
            hot = ray.get_actor(actor_name(self._replica.model, self._replica.replica_id))
        except ValueError:
            return False
        actor_id = hot._actor_id.hex()
        if actor_id == self._replica.made_from:
            return waited_s >= ABANDONED_S
        if actor_id not in self._ready_refs:
            self._ready_refs = {actor_id: hot.__ray_ready__.remote()}  # answered once its constructor has returned
        try:
            return bool(ray.get(self._ready_refs[actor_id], timeout=POLL_S))
        except ray.exceptions.GetTimeoutError:
            return False
        except ray.exceptions.RayError:  # it is down; Ray may restart it
            self._ready_refs.clear()
            return False

    def stay(self) -> None:
        """Restart the wait for the replica that it was made from; raises RuntimeError if it is already leaving."""
        with self._leave_lock:
            if self._leaving:
                raise RuntimeError("it is leaving")
            self._since = time.monotonic()

    def leave(self) -> None:
        """End this actor permanently, which frees its memory."""
        ray.actor.exit_actor()

    def __repr__(self) -> str:
        """Return the replica's description. Ray also asks for it after the constructor has raised."""
        replica = self._replica
        if not self._places:
            return f"WarmReplica of {replica.model}/{replica.replica_id}"
        return compact(document_of(Mark(
            level="WARM", fleet=replica.fleet, namespace=replica.namespace, spec_hash=replica.spec_hash,
            made_from=replica.made_from, ready_at=self._ready_at, locked=self._locked, members=self._places)))
