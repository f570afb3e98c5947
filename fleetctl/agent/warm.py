"""A WARM replica: the detached actor `WarmReplica:<key>:<id>`. It keeps in memory what an evicted one had on its disks.

It claims memory and no card, serves what it holds to other nodes, and is WARM again whenever Ray restarts it. It ends
itself when the replica of the same id is ready. Apply never imports this.
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
from .failure import encode_failure
from .mark import MARK_VERSION, actor_name, compact, seat_of, utc_now
from .model_files import session_secret
from .weights.fetch import on_disk
from .weights.index import WeightsError
from .weights.memory import InMemory, require_memory
from .weights.serve import Source, WeightsServer
from .weights.store import cache_root

POLL_S = 1.0
TOUCH_S = 60.0
HALFWAY_S = 600.0
"""How long it waits for the replica that it was made from to end, before it takes that eviction as broken off."""
BACKOFF = {"restartBackoff": 1}

Place = Mapping[str, Any]


def bytes_by_node(places: Sequence[Place]) -> Dict[str, int]:
    """Return how many bytes of weights the members have on each node; what members of a node share counts once."""
    entries = {(place["nodeId"], place["weights"]["artifact"], place["weights"]["view"]): place["weights"]["bytes"]
               for place in places if place.get("weights")}
    sizes: Dict[str, int] = {}
    for (node_id, _, _), size in entries.items():
        sizes[node_id] = sizes.get(node_id, 0) + int(size)
    return sizes


def actor_options(node_id: str, size: int) -> Dict[str, Any]:
    """Return the options of an actor that holds so many bytes on a node, and nothing else."""
    return {"num_cpus": 0, "num_gpus": 0, **({"memory": size} if size else {}),
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}


class WarmHolder:
    """The weights of some members in this node's memory, and served.

    A gang has one as an actor on each further node, which ends with the gang's own actor: that owns it.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._files: List[InMemory] = []
        self._places: List[Dict[str, Any]] = []
        try:
            self._hold_all(places)
        except (WeightsError, OSError) as error:
            raise RuntimeError(encode_failure("NOT_HELD", f"the weights are not in memory: {error}")) from None
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
                served[key] = served.get(key) or self._hold(root, secret, ip, *key)
                place = {**place, "ip": ip, "weights": served[key]}
            self._places.append(dict(place))

    def _hold(self, root: str, secret: bytes, ip: str, artifact: str, view: Optional[str]) -> Dict[str, Any]:
        got = on_disk(root, artifact, view)
        self._files.append(InMemory(got.entry, got.held))
        server = WeightsServer(Source(root, got, secret), ip)
        server.start()
        return {"artifact": artifact, "view": view, "whole": got.whole is not None, "port": server.port,
                "bytes": got.held.size}

    def _touch(self) -> None:
        while True:
            time.sleep(TOUCH_S)
            for file in self._files:
                file.touch()

    def report(self) -> Tuple[List[Dict[str, Any]], bool]:
        """Return the places of its members, and whether all is locked."""
        return self._places, self._locked


class WarmReplica:
    """One WARM replica. `parts` hold whose it is, its members' places, and `madeFrom`, the actor that it was HOT as."""

    def __init__(self, *parts: bytes) -> None:
        self._replica = replica = from_parts(parts)
        self._places: List[Dict[str, Any]] = []
        self._asked: Dict[str, Any] = {}
        self._since = time.monotonic()
        self._turn, self._leaving = threading.Lock(), False
        if node.was_restarted():
            node.back_off(BACKOFF)
        places, sizes = replica["members"], bytes_by_node(replica["members"])
        here = ray.get_runtime_context().get_node_id()
        apart = {node_id: [place for place in places if place["nodeId"] == node_id] for node_id in sizes
                 if node_id != here}
        self._holders = [ray.remote(WarmHolder).options(**actor_options(node_id, sizes[node_id])).remote(mine)
                         for node_id, mine in apart.items()]
        held = WarmHolder([place for place in places if place["nodeId"] not in apart])
        reports = [held.report(), *ray.get([holder.report.remote() for holder in self._holders])]
        self._locked = all(locked for _, locked in reports)
        found = {seat_of(place): place for places_there, _ in reports for place in places_there}
        self._places = [{**found[seat_of(place)], "memory": sizes.pop(place["nodeId"], 0)} for place in places]
        self._ready_at = utc_now()
        self._since = time.monotonic()
        threading.Thread(target=self._watch, name="fleetctl-watch", daemon=True).start()

    def _watch(self) -> None:
        """End when the HOT replica of this id is ready; what could not be asked is asked again."""
        while True:
            time.sleep(POLL_S)
            try:
                ray.get([holder.report.remote() for holder in self._holders])
                if self._leaves():
                    return
            except (ray.exceptions.ActorDiedError, ray.exceptions.OutOfMemoryError):
                os._exit(1)  # a holder has ended: Ray restarts all of it
            except Exception:  # the cluster's head does not answer: it may be back later
                continue

    def _leaves(self) -> bool:
        """Return whether it is not needed, and ends itself then."""
        with self._turn:
            self._leaving = self._not_needed(time.monotonic() - self._since)
            if self._leaving:
                ray.get_runtime_context().current_actor.leave.remote()
        return self._leaving

    def _not_needed(self, waited_s: float) -> bool:
        """Return whether there is a HOT one of this id that is ready, or the one that was to end has not."""
        try:
            hot = ray.get_actor(actor_name(self._replica["model"], self._replica["replicaId"]))
        except ValueError:
            return False
        actor_id = hot._actor_id.hex()
        if actor_id == self._replica["madeFrom"]:
            return waited_s >= HALFWAY_S
        if actor_id not in self._asked:
            self._asked = {actor_id: hot.__ray_ready__.remote()}  # answered when its constructor has returned
        try:
            return bool(ray.get(self._asked[actor_id], timeout=POLL_S))
        except ray.exceptions.GetTimeoutError:
            return False
        except ray.exceptions.RayError:  # it is down: Ray may start it again
            self._asked.clear()
            return False

    def stay(self) -> None:
        """Begin the time again that it waits for the replica that it was made from; raises where it leaves already."""
        with self._turn:
            if self._leaving:
                raise RuntimeError("it leaves")
            self._since = time.monotonic()

    def leave(self) -> None:
        """End this actor permanently, and with it what it holds."""
        ray.actor.exit_actor()

    def __repr__(self) -> str:
        """Return its description. Ray also asks for it when the constructor has raised."""
        if not self._places:
            return f"WarmReplica of {self._replica['model']}/{self._replica['replicaId']}"
        whose = {key: self._replica[key] for key in ("fleet", "namespace", "specHash", "madeFrom")}
        return compact({"v": MARK_VERSION, "level": "WARM", **whose, "readyAt": self._ready_at,
                        "locked": self._locked, "members": self._places})
