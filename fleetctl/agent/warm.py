"""A WARM replica: the detached actor `WarmReplica:<key>:<id>`. It keeps an evicted replica's weights in memory.

It claims memory and no card, serves its weights to other nodes, and loads them again if Ray restarts it. It ends itself
once the replica with the same id is ready. Apply never imports this.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import node
from .arguments import from_parts
from .cold import note_wrong
from .failure import encode_failure
from .mark import MARK_VERSION, actor_name, compact, seat_of, utc_now
from .model_files import session_secret
from .weights.check import BackgroundCheck, Held
from .weights.fetch import on_disk
from .weights.index import WeightsError
from .weights.memory import InMemory, require_memory
from .weights.serve import Source, serve_weights
from .weights.store import Entry, cache_root

POLL_S = 1.0
TOUCH_S = 60.0
ABANDONED_S = 600.0
"""If the replica that it was made from has not ended after this time, the eviction counts as abandoned."""
BACKOFF = {"restartBackoff": 1}

Place = Mapping[str, Any]


def bytes_by_node(places: Sequence[Place]) -> Dict[str, int]:
    """Return the members' bytes of weights on each node; weights that members of a node share count once."""
    entries = {(place["nodeId"], place["weights"]["artifact"], place["weights"]["view"]): place["weights"]["bytes"]
               for place in places if place.get("weights")}
    sizes: Dict[str, int] = {}
    for (node_id, _, _), size in entries.items():
        sizes[node_id] = sizes.get(node_id, 0) + int(size)
    return sizes


def actor_options(node_id: str, size: int) -> Dict[str, Any]:
    """Return the options of an actor that claims `size` bytes of memory on a node, and nothing else."""
    return {"num_cpus": 0, "num_gpus": 0, **({"memory": size} if size else {}),
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}


class WarmHolder:
    """Holds and serves the weights of some members in this node's memory.

    A gang has one such actor on each further node. The gang's WarmReplica owns these actors, so they end with it.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._files: List[InMemory] = []
        self._places: List[Dict[str, Any]] = []
        try:
            self._hold_all(places)
        except (WeightsError, OSError) as error:
            raise RuntimeError(encode_failure("NOT_HELD", f"could not load the weights into memory: {error}")) from None
        self._locked = all(file.locked for file in self._files)
        if not self._locked:
            threading.Thread(target=self._touch, name="fleetctl-touch", daemon=True).start()

    def _hold_all(self, places: Sequence[Place]) -> None:
        root, secret = cache_root(), session_secret()
        ip = ray.util.get_node_ip_address()
        require_memory(sum(bytes_by_node(places).values()))
        served: Dict[Tuple[str, Optional[str]], Dict[str, Any]] = {}
        for place in places:
            if place.get("weights"):
                key = place["weights"]["artifact"], place["weights"]["view"]
                served[key] = served.get(key) or self._hold(root, secret, ip, *key, place["weights"].get("ports"))
                place = {**place, "ip": ip, "weights": served[key]}
            self._places.append(dict(place))

    def _hold(self, root: str, secret: bytes, ip: str, artifact: str, view: Optional[str],
              ports: Optional[str]) -> Dict[str, Any]:
        got = on_disk(root, artifact, view)
        self._files.append(InMemory(got.entry, got.held))
        source = Source(root, got, secret)
        _, at = serve_weights(source, ip, ports)

        def held() -> List[Held]:  # nothing is fetched again here: the next start does that
            source.remove_wrong()
            whole = [Held(Entry(root, artifact, None), got.artifact, own=False)] if got.whole and view else []
            return [Held(got.entry, got.held, own=False), *whole, *source.views()]

        check = BackgroundCheck(held, source.verified, lambda _: None, note_wrong)
        source.on_report = check.request
        check.start()
        since = source.verified.since(got.entry, got.held)
        return {"artifact": artifact, "view": view, "whole": got.whole is not None, **at,
                "bytes": got.held.size, **({"verified": since} if since else {})}

    def _touch(self) -> None:
        while True:
            time.sleep(TOUCH_S)
            for file in self._files:
                file.touch()

    def report(self) -> Tuple[List[Dict[str, Any]], bool]:
        """Return the places of its members, and whether all files are locked in memory."""
        return self._places, self._locked


class WarmReplica:
    """One WARM replica. `parts` = its fleet and id, its members' places, and `madeFrom`, the HOT one's actor id."""

    def __init__(self, *parts: bytes) -> None:
        self._replica = replica = from_parts(parts)
        self._places: List[Dict[str, Any]] = []
        self._ready_refs: Dict[str, Any] = {}
        self._since = time.monotonic()
        self._leave_lock, self._leaving = threading.Lock(), False
        if node.was_restarted():
            node.back_off(BACKOFF)
        places, sizes = replica["members"], bytes_by_node(replica["members"])
        own_node = ray.get_runtime_context().get_node_id()
        others = {node_id: [place for place in places if place["nodeId"] == node_id] for node_id in sizes
                  if node_id != own_node}
        self._holders = [ray.remote(WarmHolder).options(**actor_options(node_id, sizes[node_id])).remote(their_places)
                         for node_id, their_places in others.items()]
        local = WarmHolder([place for place in places if place["nodeId"] not in others])
        reports = [local.report(), *ray.get([holder.report.remote() for holder in self._holders])]
        self._locked = all(locked for _, locked in reports)
        found = {seat_of(place): place for held_places, _ in reports for place in held_places}
        self._places = [{**found[seat_of(place)], "memory": sizes.pop(place["nodeId"], 0)} for place in places]
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
            hot = ray.get_actor(actor_name(self._replica["model"], self._replica["replicaId"]))
        except ValueError:
            return False
        actor_id = hot._actor_id.hex()
        if actor_id == self._replica["madeFrom"]:
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
        if not self._places:
            return f"WarmReplica of {self._replica['model']}/{self._replica['replicaId']}"
        origin = {key: self._replica[key] for key in ("fleet", "namespace", "specHash", "madeFrom")}
        return compact({"v": MARK_VERSION, "level": "WARM", **origin, "readyAt": self._ready_at,
                        "locked": self._locked, "members": self._places})
