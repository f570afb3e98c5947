"""What an eviction to WARM or COLD makes sure of before it ends anything. Apply never imports this."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import ray

from . import cluster
from .arguments import in_parts
from .explicit import Job, Outcome, Replica, key_of, result, say_draining
from .failure import Refused, decode_failure
from .mark import warm_name
from .notes import note
from .on_nodes import ask_nodes
from .reload import UNKNOWN_SPEC
from .warm import WarmReplica, actor_options, bytes_by_node
from .weights.store import Entry, cache_root

ANSWER_S = 60.0
SETTLE_S = 5.0
POLL_S = 0.1
STAY_S = 60.0
"""How often those that wait for others are asked to stay."""
NOT_LOCKED = ("the limit for locked memory (ulimit -l) of Ray is too low there: its files are used once a minute, "
              "so that they stay in memory")
CLASSES = ("WarmReplica", "WarmHolder")
ENDING = "ending"
"""The key of our job's metadata under which it names what ends now; see inventory/notes.py."""
NOTHING: Replica = {}
KEPT = ("group", "copy", "role", "rank", "nodeId", "weights")
UNITS = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def prepare(job: Job, replicas: Sequence[Replica]) -> Dict[str, Outcome]:
    """Return, by actor id, the outcomes of what must not end: it cannot go to its level, or the run is to stop.

    A WARM one that was made for such a replica ends.
    """
    refused: Dict[str, Outcome] = {}
    made = _make_warm(job, replicas, refused) if job.level == "WARM" else {}
    for replica in replicas if job.level == "COLD" else ():
        with _kept_back(replica, refused):
            _require_on_disk(job, replica)
    loaded = [one for one in replicas if one["actorId"] in made and one["actorId"] not in refused]
    if loaded:
        _drain(job, loaded, made)
    for replica in loaded:
        with _kept_back(replica, refused):
            _require_staying(made[replica["actorId"]])
    if job.stop.is_set():
        for replica in [one for one in replicas if one["actorId"] not in refused]:
            with _kept_back(replica, refused):
                _go_on(job)
    _take_back(made, refused)
    return refused


def _take_back(made: Mapping[str, Any], refused: Mapping[str, Outcome]) -> None:
    """End the WARM ones of replicas that stay as they are."""
    for actor_id in made.keys() & refused.keys():
        ray.kill(made[actor_id], no_restart=True)


def _drain(job: Job, loaded: Sequence[Replica], made: Mapping[str, Any]) -> None:
    """Note that these are no endpoints any more, and wait until requests have ended, or the run is to stop."""
    note(job.name, ENDING, json.dumps([key_of(replica) for replica in loaded]))
    if job.drain_s:
        say_draining(job.events, job.drain_s)
    deadline = time.monotonic() + job.drain_s
    while not job.stop.wait(max(0.0, min(deadline - time.monotonic(), STAY_S))) and time.monotonic() < deadline:
        for warm in made.values():
            warm.stay.remote()


def _go_on(job: Job) -> None:
    if job.stop.is_set():
        raise Refused("INTERRUPTED", "interrupted")


def _require_staying(warm: Any) -> None:
    """Raise Refused where a WARM one is not up, or about to leave because its eviction takes so long."""
    try:
        ray.get(warm.stay.remote(), timeout=SETTLE_S)
    except ray.exceptions.RayError as error:
        raise Refused("NOT_HELD", f"its weights are no longer in memory: {type(error).__name__}") from None


@contextlib.contextmanager
def _kept_back(replica: Replica, refused: Dict[str, Outcome]) -> Iterator[None]:
    try:
        yield
    except Refused as why:
        outcome = "skipped" if why.code == "INTERRUPTED" else "failed"
        refused[replica["actorId"]] = result(replica, outcome, why.code, f"{why}: it stays as it is")


def at_level(job: Job, replica: Replica) -> Mapping[str, Any]:
    """Return what the outcome of a replica that is gone says beside that."""
    if not job.level:
        return {}
    if job.level == "COLD":
        return {"level": "COLD", "message": "its weights stay on the disks of its nodes"}
    try:
        warm = _report(ray.get_actor(warm_name(replica["model"], replica["replicaId"]))._actor_id.hex())
    except (ValueError, Refused):
        return {"message": "its WARM one is gone, too"}
    sizes = ", ".join(f"{_amount(size)} on {_node(job, node_id)}"
                      for node_id, size in bytes_by_node(warm["members"]).items())
    notes = {} if warm["locked"] else {"notes": [NOT_LOCKED]}
    return {"level": "WARM", "message": f"in memory: {sizes}", **notes}


def _report(actor_id: str, replica: Replica = NOTHING) -> Mapping[str, Any]:
    """Return what a replica says of itself; raises Refused where it was never up, or names no weights.

    Ray keeps that as it was at its start. `replica` has the spec and the weights that it has been updated to since.
    """
    try:
        report: Dict[str, Any] = json.loads(cluster.actor_record(actor_id).report)
    except ValueError:
        raise Refused("NOT_READY", "it was not ready yet, so its weights are not known") from None
    if replica.get("specHash") == UNKNOWN_SPEC:
        raise Refused("NOT_READY", "it reloads, or a reload has failed: which weights it has is not known")
    served = replica.get("weights", [])
    if any(served) and len(served) == len(report["members"]):
        members = [{**member, "weights": weights} for member, weights in zip(report["members"], served)]
        report.update(members=members, specHash=replica.get("specHash") or report["specHash"])
    if not any(member.get("weights") for member in report["members"]):
        raise Refused("NO_WEIGHTS", "no member of it has `weights` in the fleet file")
    return report


def _make_warm(job: Job, replicas: Sequence[Replica], refused: Dict[str, Outcome]) -> Dict[str, Any]:
    """Create the WARM ones beside the replicas, which go on serving; returns those that were made, by actor id.

    They load one after another: each finds out how much memory the ones before it have left.
    """
    wanted: List[Tuple[Replica, Mapping[str, Any], Mapping[str, int]]] = []
    made: Dict[str, Any] = {}
    for replica in replicas:
        with _kept_back(replica, refused):
            report = _report(replica["actorId"], replica)
            begun = _begun_before(job, replica)
            if begun is not None:
                made[replica["actorId"]] = begun
                _await_warm(job, replica, made)
            else:
                wanted.append((replica, report, bytes_by_node(report["members"])))
    held = _held_by_node()
    free = _free_memory([sizes for _, _, sizes in wanted])
    for replica, report, sizes in wanted:
        with _kept_back(replica, refused):
            _go_on(job)
            _take(job, sizes, held, free)
            made[replica["actorId"]] = _create(job, replica, report, sizes)
            _await_warm(job, replica, made)
    return made


def _begun_before(job: Job, replica: Replica) -> Optional[Any]:
    """Return the WARM one that an eviction which was broken off has made of this very replica.

    One of an earlier life of this id is about to leave, and is waited for.
    """
    name, deadline = warm_name(replica["model"], replica["replicaId"]), time.monotonic() + ANSWER_S
    while name in cluster.taken_names():
        with contextlib.suppress(ValueError):
            warm = ray.get_actor(name)
            report = cluster.actor_record(warm._actor_id.hex()).report
            if report and json.loads(report).get("madeFrom") == replica["actorId"]:
                return warm
        _go_on(job)
        if time.monotonic() >= deadline:
            raise Refused("NAME_TAKEN", f"{name} exists already")
        time.sleep(POLL_S)
    return None


def _held_by_node() -> "Counter[str]":
    """Return how many bytes are WARM on each node."""
    held: Counter[str] = Counter()
    for actor in cluster.live_actors():
        if actor.class_name in CLASSES:
            held[actor.address.node_id.hex()] += int(actor.required_resources.get("memory", 0))
    return held


def _free_memory(wanted: Sequence[Mapping[str, int]]) -> Dict[str, float]:
    """Return Ray's free memory by node; what was given back is reported late, so too little is waited for."""
    deadline, needed = time.monotonic() + SETTLE_S, sum(map(Counter, wanted), Counter())
    while True:
        free = {node_id: amounts.get("memory", 0.0) for node_id, amounts in cluster.free_by_node().items()}
        if all(free.get(node_id, 0.0) >= size for node_id, size in needed.items()) or time.monotonic() >= deadline:
            return free
        time.sleep(POLL_S)


def _take(job: Job, sizes: Mapping[str, int], held: "Counter[str]", free: Dict[str, float]) -> None:
    """Take the bytes from what may be WARM on each node, and from its free memory; raises Refused, and takes none."""
    for node_id, size in sizes.items():
        most = job.warm.get(node_id, {}).get("bytes")
        if most is not None and held[node_id] + size > most:
            raise Refused("WARM_BUDGET", f"{_node(job, node_id)} may have {_amount(most)} of weights WARM: "
                                          f"{_amount(held[node_id])} are, {_amount(size)} more needed")
        left = free.get(node_id, 0.0)
        if left < size:
            raise Refused("NO_MEMORY", f"{_node(job, node_id)} has {_amount(left)} of Ray's memory free, "
                                        f"{_amount(size)} needed")
    for node_id, size in sizes.items():
        held[node_id] += size
        free[node_id] -= size


def _create(job: Job, replica: Replica, report: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """Create the WARM one of a replica, which has these bytes on each node."""
    places = [{key: place[key] for key in KEPT if key in place} for place in report["members"]]
    first = places[0]["nodeId"]
    job.events.emit("replicaWarming", f"{key_of(replica)}: its weights are being loaded into memory",
                    model=replica["model"], replicaId=replica["replicaId"])
    return ray.remote(WarmReplica).options(
        name=warm_name(replica["model"], replica["replicaId"]), lifetime="detached", max_restarts=-1,
        **actor_options(first, sizes.get(first, 0)),
    ).remote(*in_parts({**{key: report[key] for key in ("fleet", "namespace", "specHash")}, "model": replica["model"],
                        "replicaId": replica["replicaId"], "madeFrom": replica["actorId"], "members": places}))


def _await_warm(job: Job, replica: Replica, made: Mapping[str, Any]) -> None:
    """Return when the WARM one of a replica is up; raises Refused when it cannot be, or the run is to stop.

    All that were `made` are asked to stay meanwhile: each leaves by itself when its eviction seems broken off.
    """
    warm, begun = made[replica["actorId"]], time.monotonic()
    asked, deadline = begun, begun + float(replica["startupTimeout"])
    while True:
        record = cluster.actor_record(warm._actor_id.hex())
        if record.state == "ALIVE" and record.report:
            return
        if record.state == "DEAD" and record.death:
            raise Refused(*decode_failure(record.death))
        _go_on(job)
        if time.monotonic() >= deadline:
            raise Refused("NOT_HELD", f"its weights were not in memory within {replica['startupTimeout']:g} s")
        if time.monotonic() >= asked + STAY_S:
            asked = time.monotonic()
            for other in made.values():
                other.stay.remote()
        time.sleep(POLL_S)


def _require_on_disk(job: Job, replica: Replica) -> None:
    """Raise Refused where the weights of a replica are not complete on the disks of its nodes."""
    entries: Dict[str, List[Any]] = {}
    for place in _report(replica["actorId"], replica)["members"]:
        if place.get("weights"):
            entries.setdefault(place["nodeId"], []).append((place["weights"]["artifact"], place["weights"]["view"]))
    for answer in ask_nodes(incomplete_here, entries, ANSWER_S):
        why = answer.trouble or ", ".join(answer.content)
        if why:
            raise Refused("NOT_ON_DISK", f"its weights are not complete on {_node(job, answer.node_id)}: {why}")


def incomplete_here(entries: Sequence[Any]) -> List[str]:
    """Return the folders of this node that lack files of the entries; runs there."""
    found = [Entry(cache_root(), artifact, view) for artifact, view in entries]
    return [entry.folder for entry in found if entry.index() is None]


def _node(job: Job, node_id: str) -> str:
    return str(job.warm.get(node_id, {}).get("name", node_id[:8]))


def _amount(size: float) -> str:
    """Show bytes in the form that clients use, such as 20Gi or 1.50Mi."""
    unit, one = next(((unit, one) for unit, one in UNITS if size >= one), ("", 1))
    return f"{int(size) // one}{unit}" if int(size) % one == 0 else f"{size / one:.2f}{unit}"
