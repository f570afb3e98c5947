"""WARM: a replica's weights stay in the memory of its nodes after its eviction.

A WARM replica is the detached actor `WarmReplica:<key>:<id>`. It claims memory and no card, serves its weights to other
nodes, and loads them again if Ray restarts it. It ends itself once the replica with the same id is ready.

`Demotion` has the checks and preparations of an eviction to WARM or COLD, before it ends anything. Apply never imports
this.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from typing import Any, Dict, Generator, Iterator, List, Mapping, Optional, Sequence, Tuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import cluster, node
from .ending import Drain
from .messages import FailedStart, Mark, Place, ServedWeights, WarmCopy, seat_of
from .model_files import note_wrong, session_secret
from .on_nodes import Asked
from .records import mark_ending
from .reload import UNKNOWN_SPEC
from .report import Refused, actor_name, compact, decode_failure, encode_failure, read_mark, utc_now, warm_name
from .run import Run, outcome_of
from .run_messages import ExplicitRequest, Outcome, Target, WarmNode
from .weights.check import BackgroundCheck
from .weights.fetch import on_disk
from .weights.index import WeightsError
from .weights.memory import InMemory, require_memory
from .weights.serve import Source, serve_weights
from .weights.store import Entry, cache_root
from .wire import document_of, from_parts, in_parts, parse

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
            variant=replica.variant, made_from=replica.made_from, ready_at=self._ready_at, locked=self._locked,
            members=self._places)))


ANSWER_S = 60.0
SETTLE_S = 5.0
STAY_INTERVAL_S = 60.0
"""Interval at which WARM replicas that wait for others are asked to stay."""
NOT_LOCKED = ("Ray's limit for locked memory (ulimit -l) is too low there: the files are read once a minute "
              "to keep them in memory")
CLASSES = ("WarmReplica", "WarmHolder")
UNITS = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))

Handle = Any
"""Ray's handle of an actor."""
Steps = Generator[None, None, None]
"""Work that yields where it waits."""


class Demotion:
    """The replicas of one eviction on their way to a level.

    `refused` = by actor id, the outcomes of those that must not end.
    """

    def __init__(self, request: ExplicitRequest, run: Run) -> None:
        self._request, self._run = request, run
        self._warm: Dict[str, Handle] = {}  # the WARM replicas, by the actor id of the HOT one
        self._held: Counter[str] = Counter()  # bytes of WARM weights by node id
        self.refused: Dict[str, Outcome] = {}

    def prepare(self, targets: Sequence[Target]) -> Steps:
        """Refuse the replicas that cannot reach the level, and all of them if the run stops.

        The WARM replica that was created for a refused one ends.
        """
        if self._request.level == "WARM":
            yield from self._make_warm(targets)
        for target in targets if self._request.level == "COLD" else ():
            with self._catch_refusal(target):
                yield from self._require_on_disk(target)
        loaded = [target for target in targets if target.actor_id in self._warm.keys() - self.refused.keys()]
        if loaded:
            yield from self._drain(loaded)
        for target in loaded:
            with self._catch_refusal(target):
                yield from self._require_staying(self._warm[target.actor_id])
        for target in targets:
            if target.actor_id not in self.refused:
                with self._catch_refusal(target):
                    self._raise_if_stopped()
        self._take_back()

    def gone(self, target: Target) -> Outcome:
        """Return the outcome of a replica that is gone: its level, and what is left of it."""
        if not self._request.level:
            return outcome_of(target, "gone")
        if self._request.level == "COLD":
            return outcome_of(target, "gone", message="its weights stay on the disks of its nodes", level="COLD")
        try:
            warm = _mark_of(ray.get_actor(warm_name(target.model, target.replica_id))._actor_id.hex())
        except (ValueError, Refused):
            return outcome_of(target, "gone", message="its WARM replica is gone, too")
        sizes = ", ".join(f"{_amount(size)} on {self._node_name(node_id)}"
                          for node_id, size in bytes_by_node(warm.members).items())
        return outcome_of(target, "gone", message=f"in memory: {sizes}", level="WARM",
                          notes=() if warm.locked else (NOT_LOCKED,))

    def _take_back(self) -> None:
        """End the WARM replicas of replicas that stay as they are."""
        for actor_id in self._warm.keys() & self.refused.keys():
            ray.kill(self._warm[actor_id], no_restart=True)

    def _drain(self, loaded: Sequence[Target]) -> Steps:
        """Record that the loaded replicas are no endpoints; wait until requests have ended or the run stops."""
        mark_ending(self._request.job, [target.key for target in loaded])
        asked, drain = self._run.clock(), Drain(loaded, self._request.drain, self._run)
        while not drain.is_over() and not self._run.stop.is_set():
            asked = self._ask_to_stay(asked)
            yield

    def _ask_to_stay(self, asked: float) -> float:
        """Ask all WARM replicas to stay if the last time was long ago: each leaves if its eviction seems abandoned.

        Returns when they were last asked.
        """
        now = self._run.clock()
        if now < asked + STAY_INTERVAL_S:
            return asked
        for warm in self._warm.values():
            warm.stay.remote()
        return now

    def _raise_if_stopped(self) -> None:
        if self._run.stop.is_set():
            raise Refused("INTERRUPTED", "interrupted")

    @contextmanager
    def _catch_refusal(self, target: Target) -> Iterator[None]:
        try:
            yield
        except Refused as why:
            kind = "skipped" if why.code == "INTERRUPTED" else "failed"
            self.refused[target.actor_id] = outcome_of(target, kind, why.code, f"{why}: it stays as it is")

    def _make_warm(self, targets: Sequence[Target]) -> Steps:
        """Create the WARM replicas while the HOT ones keep serving.

        They load one after another, so that each sees how much memory the earlier ones have left.
        """
        loads: List[Tuple[Target, Mark, Mapping[str, int]]] = []
        for target in targets:
            with self._catch_refusal(target):
                mark = _mark_of(target.actor_id, target)
                earlier = yield from self._find_earlier_warm(target)
                if earlier is not None:
                    self._warm[target.actor_id] = earlier
                    yield from self._await_warm(target)
                else:
                    loads.append((target, mark, bytes_by_node(mark.members)))
        for actor in cluster.live_actors():
            if actor.class_name in CLASSES:
                self._held[actor.address.node_id.hex()] += int(actor.required_resources.get("memory", 0))
        begun, needed = self._run.clock(), sum((Counter(sizes) for _, _, sizes in loads), Counter())
        while True:
            free = {node_id: amounts.get("memory", 0.0) for node_id, amounts in cluster.free_by_node().items()}
            enough = all(free.get(node_id, 0.0) >= size for node_id, size in needed.items())
            if enough or self._run.clock() >= begun + SETTLE_S:  # Ray reports freed memory late
                break
            yield
        for target, mark, sizes in loads:
            with self._catch_refusal(target):
                self._raise_if_stopped()
                self._reserve(sizes, free)
                self._warm[target.actor_id] = self._create(target, mark, sizes)
                yield from self._await_warm(target)

    def _find_earlier_warm(self, target: Target) -> Generator[None, None, Optional[Handle]]:
        """Return the WARM replica that an interrupted eviction has created for this replica, if there is one.

        A WARM replica from an earlier life of this id is about to leave; wait for that.
        """
        name, begun = warm_name(target.model, target.replica_id), self._run.clock()
        while name in cluster.taken_names():
            with suppress(ValueError):
                warm = ray.get_actor(name)
                mark = read_mark(cluster.actor_record(warm._actor_id.hex()).report)
                if mark is not None and mark.made_from == target.actor_id:
                    return warm
            self._raise_if_stopped()
            if self._run.clock() >= begun + ANSWER_S:
                raise Refused("NAME_TAKEN", f"{name} already exists")
            yield
        return None

    def _reserve(self, sizes: Mapping[str, int], free: Dict[str, float]) -> None:
        """Reserve the bytes in each node's WARM budget and in its `free` memory; raises Refused, and then none is."""
        for node_id, size in sizes.items():
            limit = self._request.warm.get(node_id, WarmNode()).bytes
            if limit is not None and self._held[node_id] + size > limit:
                raise Refused("WARM_BUDGET", f"{self._node_name(node_id)} may have {_amount(limit)} of weights WARM: "
                                             f"{_amount(self._held[node_id])} are, {_amount(size)} more needed")
            available = free.get(node_id, 0.0)
            if available < size:
                raise Refused("NO_MEMORY", f"{self._node_name(node_id)} has {_amount(available)} of Ray's memory free, "
                                           f"{_amount(size)} needed")
        for node_id, size in sizes.items():
            self._held[node_id] += size
            free[node_id] -= size

    def _create(self, target: Target, mark: Mark, sizes: Mapping[str, int]) -> Handle:
        """Create the WARM replica of a replica; `sizes` = its bytes by node id."""
        first = mark.members[0].node_id
        self._run.events.emit("replicaWarming", f"{target.key}: its weights are being loaded into memory",
                              model=target.model, replicaId=target.replica_id)
        # a WARM replica has no claim, port or card of the HOT one
        places = [Place(group=place.group, copy=place.copy, role=place.role, rank=place.rank, node_id=place.node_id,
                        ip=place.ip, weights=place.weights) for place in mark.members]
        return ray.remote(WarmReplica).options(
            name=warm_name(target.model, target.replica_id), lifetime="detached", max_restarts=-1,
            **actor_options(first, sizes.get(first, 0)),
        ).remote(*in_parts(WarmCopy(target.model, target.replica_id, mark.fleet, mark.namespace, mark.spec_hash,
                                    target.actor_id, places, mark.variant)))

    def _await_warm(self, target: Target) -> Steps:
        """Return when the WARM replica of a replica is up; raises Refused if it cannot be, or the run stops."""
        actor_id = self._warm[target.actor_id]._actor_id.hex()
        begun = asked = self._run.clock()
        while True:
            record = cluster.actor_record(actor_id)
            if record.is_up:
                return
            if record.state == "DEAD" and record.death:
                failure = decode_failure(record.death)
                raise Refused(failure.code, failure.message)
            self._raise_if_stopped()
            if self._run.clock() >= begun + target.startup_timeout:
                raise Refused("NOT_HELD", f"its weights were not in memory within {target.startup_timeout:g} s")
            asked = self._ask_to_stay(asked)
            yield

    def _require_staying(self, warm: Handle) -> Steps:
        """Raise Refused if a WARM replica is not up, or about to leave because its eviction takes too long."""
        begun, asked = self._run.clock(), warm.stay.remote()
        while not ray.wait([asked], timeout=0)[0] and self._run.clock() < begun + SETTLE_S:
            yield
        try:
            ray.get(asked, timeout=0)
        except ray.exceptions.RayError as error:
            raise Refused("NOT_HELD", f"its weights are no longer in memory: {type(error).__name__}") from None

    def _require_on_disk(self, target: Target) -> Steps:
        """Raise Refused if the weights of a replica are not complete on the disks of its nodes."""
        entries: Dict[str, List[Tuple[str, Optional[str]]]] = {}
        for place in _mark_of(target.actor_id, target).members:
            if place.weights:
                entries.setdefault(place.node_id, []).append((place.weights.artifact, place.weights.view))
        asked = [Asked(incomplete_here, node_id, wanted, ANSWER_S) for node_id, wanted in entries.items()]
        for task in asked:
            while (answer := task.answer()) is None:
                yield
            why = answer.trouble or ", ".join(answer.content or [])
            if why:
                name = self._node_name(answer.node_id)
                raise Refused("NOT_ON_DISK", f"its weights are not complete on {name}: {why}")

    def _node_name(self, node_id: str) -> str:
        return self._request.warm.get(node_id, WarmNode()).name or node_id[:8]


def incomplete_here(entries: Sequence[Tuple[str, Optional[str]]]) -> List[str]:
    """Return the folders of incomplete entries on the node on which this runs."""
    found = [Entry(cache_root(), artifact, view) for artifact, view in entries]
    return [entry.folder for entry in found if entry.index() is None]


def _mark_of(actor_id: str, target: Optional[Target] = None) -> Mark:
    """Return a replica's description of itself; raises Refused if it was never up, or has no weights.

    Ray keeps the description from its start. `target` has the spec and weights that it has reloaded since.
    """
    mark = read_mark(cluster.actor_record(actor_id).report)
    if mark is None:
        raise Refused("NOT_READY", "it was not ready yet, so its weights are not known")
    if target is not None and target.spec_hash == UNKNOWN_SPEC:
        raise Refused("NOT_READY", "it is reloading, or a reload has failed, so its weights are not known")
    if target is not None and any(target.weights) and len(target.weights) == len(mark.members):
        members = [place._replace(weights=weights) for place, weights in zip(mark.members, target.weights)]
        mark = mark._replace(members=members, spec_hash=target.spec_hash or mark.spec_hash)
    if not any(place.weights for place in mark.members):
        raise Refused("NO_WEIGHTS", "no member of it has `weights` in the fleet file")
    return mark


def _amount(size: float) -> str:
    """Return bytes as text in the clients' form, such as 20Gi or 1.50Mi."""
    unit, factor = next(((unit, factor) for unit, factor in UNITS if size >= factor), ("", 1))
    return f"{int(size) // factor}{unit}" if int(size) % factor == 0 else f"{size / factor:.2f}{unit}"
