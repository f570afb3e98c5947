"""The checks and preparations of an eviction to WARM or COLD, before it ends anything. Apply never imports this."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import ray

from . import cluster
from .arguments import in_parts
from .explicit import Job, Outcome, Replica, key_of, report_draining, result
from .failure import Refused, decode_failure
from .mark import warm_name
from .on_nodes import ask_nodes
from .records import mark_ending
from .reload import UNKNOWN_SPEC
from .warm import WarmReplica, actor_options, bytes_by_node
from .weights.store import Entry, cache_root

ANSWER_S = 60.0
SETTLE_S = 5.0
POLL_S = 0.1
STAY_INTERVAL_S = 60.0
"""Interval at which WARM replicas that wait for others are asked to stay."""
NOT_LOCKED = ("Ray's limit for locked memory (ulimit -l) is too low there: the files are read once a minute "
              "to keep them in memory")
CLASSES = ("WarmReplica", "WarmHolder")
PLACE_KEYS = ("group", "copy", "role", "rank", "nodeId", "weights")
UNITS = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def prepare(job: Job, replicas: Sequence[Replica]) -> Dict[str, Outcome]:
    """Return, by actor id, the outcomes of replicas that must not end: they cannot reach the level, or the run stops.

    The WARM replica that was created for such a replica ends.
    """
    refused: Dict[str, Outcome] = {}
    warm = _make_warm(job, replicas, refused) if job.level == "WARM" else {}
    for replica in replicas if job.level == "COLD" else ():
        with _catch_refusal(replica, refused):
            _require_on_disk(job, replica)
    loaded = [replica for replica in replicas if replica["actorId"] in warm and replica["actorId"] not in refused]
    if loaded:
        _drain(job, loaded, warm)
    for replica in loaded:
        with _catch_refusal(replica, refused):
            _require_staying(warm[replica["actorId"]])
    if job.stop.is_set():
        for replica in [replica for replica in replicas if replica["actorId"] not in refused]:
            with _catch_refusal(replica, refused):
                _raise_if_stopped(job)
    _take_back(warm, refused)
    return refused


def _take_back(warm: Mapping[str, Any], refused: Mapping[str, Outcome]) -> None:
    """End the WARM replicas of replicas that stay as they are."""
    for actor_id in warm.keys() & refused.keys():
        ray.kill(warm[actor_id], no_restart=True)


def _drain(job: Job, loaded: Sequence[Replica], warm: Mapping[str, Any]) -> None:
    """Record that the loaded replicas are no longer endpoints, and wait until requests have ended or the run stops."""
    mark_ending(job.name, [key_of(replica) for replica in loaded])
    if job.drain_s:
        report_draining(job.events, job.drain_s)
    deadline = time.monotonic() + job.drain_s
    while True:
        pause_s = max(0.0, min(deadline - time.monotonic(), STAY_INTERVAL_S))
        if job.stop.wait(pause_s) or time.monotonic() >= deadline:
            return
        for actor in warm.values():
            actor.stay.remote()


def _raise_if_stopped(job: Job) -> None:
    if job.stop.is_set():
        raise Refused("INTERRUPTED", "interrupted")


def _require_staying(actor: Any) -> None:
    """Raise Refused if a WARM replica is not up, or about to leave because its eviction takes too long."""
    try:
        ray.get(actor.stay.remote(), timeout=SETTLE_S)
    except ray.exceptions.RayError as error:
        raise Refused("NOT_HELD", f"its weights are no longer in memory: {type(error).__name__}") from None


@contextlib.contextmanager
def _catch_refusal(replica: Replica, refused: Dict[str, Outcome]) -> Iterator[None]:
    try:
        yield
    except Refused as why:
        outcome = "skipped" if why.code == "INTERRUPTED" else "failed"
        refused[replica["actorId"]] = result(replica, outcome, why.code, f"{why}: it stays as it is")


def level_details(job: Job, replica: Replica) -> Mapping[str, Any]:
    """Return the level, message and notes for the outcome of a replica that is gone."""
    if not job.level:
        return {}
    if job.level == "COLD":
        return {"level": "COLD", "message": "its weights stay on the disks of its nodes"}
    try:
        warm = _report(ray.get_actor(warm_name(replica["model"], replica["replicaId"]))._actor_id.hex())
    except (ValueError, Refused):
        return {"message": "its WARM replica is gone, too"}
    sizes = ", ".join(f"{_amount(size)} on {_node_name(job, node_id)}"
                      for node_id, size in bytes_by_node(warm["members"]).items())
    notes = {} if warm["locked"] else {"notes": [NOT_LOCKED]}
    return {"level": "WARM", "message": f"in memory: {sizes}", **notes}


def _report(actor_id: str, replica: Optional[Replica] = None) -> Mapping[str, Any]:
    """Return a replica's description of itself; raises Refused if it was never up, or has no weights.

    Ray keeps the description from its start. `replica` has the spec and weights that it has reloaded since.
    """
    try:
        report: Dict[str, Any] = json.loads(cluster.actor_record(actor_id).report)
    except ValueError:
        raise Refused("NOT_READY", "it was not ready yet, so its weights are not known") from None
    replica = replica or {}
    if replica.get("specHash") == UNKNOWN_SPEC:
        raise Refused("NOT_READY", "it is reloading, or a reload has failed, so its weights are not known")
    served = replica.get("weights", [])
    if any(served) and len(served) == len(report["members"]):
        members = [{**member, "weights": weights} for member, weights in zip(report["members"], served)]
        report.update(members=members, specHash=replica.get("specHash") or report["specHash"])
    if not any(member.get("weights") for member in report["members"]):
        raise Refused("NO_WEIGHTS", "no member of it has `weights` in the fleet file")
    return report


def _make_warm(job: Job, replicas: Sequence[Replica], refused: Dict[str, Outcome]) -> Dict[str, Any]:
    """Create the WARM replicas while the HOT ones keep serving; returns them by the actor id of the HOT one.

    They load one after another, so that each sees how much memory the earlier ones have left.
    """
    wanted: List[Tuple[Replica, Mapping[str, Any], Mapping[str, int]]] = []
    made: Dict[str, Any] = {}
    for replica in replicas:
        with _catch_refusal(replica, refused):
            report = _report(replica["actorId"], replica)
            earlier = _find_earlier_warm(job, replica)
            if earlier is not None:
                made[replica["actorId"]] = earlier
                _await_warm(job, replica, made)
            else:
                wanted.append((replica, report, bytes_by_node(report["members"])))
    held = _held_by_node()
    free = _free_memory([sizes for _, _, sizes in wanted])
    for replica, report, sizes in wanted:
        with _catch_refusal(replica, refused):
            _raise_if_stopped(job)
            _reserve(job, sizes, held, free)
            made[replica["actorId"]] = _create(job, replica, report, sizes)
            _await_warm(job, replica, made)
    return made


def _find_earlier_warm(job: Job, replica: Replica) -> Optional[Any]:
    """Return the WARM replica that an interrupted eviction has created for this replica, if there is one.

    A WARM replica from an earlier life of this id is about to leave; wait for that.
    """
    name, deadline = warm_name(replica["model"], replica["replicaId"]), time.monotonic() + ANSWER_S
    while name in cluster.taken_names():
        with contextlib.suppress(ValueError):
            warm = ray.get_actor(name)
            report = cluster.actor_record(warm._actor_id.hex()).report
            if report and json.loads(report).get("madeFrom") == replica["actorId"]:
                return warm
        _raise_if_stopped(job)
        if time.monotonic() >= deadline:
            raise Refused("NAME_TAKEN", f"{name} already exists")
        time.sleep(POLL_S)
    return None


def _held_by_node() -> "Counter[str]":
    """Return the bytes of WARM weights on each node."""
    held: Counter[str] = Counter()
    for actor in cluster.live_actors():
        if actor.class_name in CLASSES:
            held[actor.address.node_id.hex()] += int(actor.required_resources.get("memory", 0))
    return held


def _free_memory(wanted: Sequence[Mapping[str, int]]) -> Dict[str, float]:
    """Return Ray's free memory by node id; waits a little if it is too small, as Ray reports freed memory late."""
    deadline, needed = time.monotonic() + SETTLE_S, sum(map(Counter, wanted), Counter())
    while True:
        free = {node_id: amounts.get("memory", 0.0) for node_id, amounts in cluster.free_by_node().items()}
        if all(free.get(node_id, 0.0) >= size for node_id, size in needed.items()) or time.monotonic() >= deadline:
            return free
        time.sleep(POLL_S)


def _reserve(job: Job, sizes: Mapping[str, int], held: "Counter[str]", free: Dict[str, float]) -> None:
    """Reserve the bytes in each node's WARM budget and free memory; raises Refused, and then reserves nothing."""
    for node_id, size in sizes.items():
        most = job.warm.get(node_id, {}).get("bytes")
        if most is not None and held[node_id] + size > most:
            raise Refused("WARM_BUDGET", f"{_node_name(job, node_id)} may have {_amount(most)} of weights WARM: "
                                          f"{_amount(held[node_id])} are, {_amount(size)} more needed")
        available = free.get(node_id, 0.0)
        if available < size:
            raise Refused("NO_MEMORY", f"{_node_name(job, node_id)} has {_amount(available)} of Ray's memory free, "
                                        f"{_amount(size)} needed")
    for node_id, size in sizes.items():
        held[node_id] += size
        free[node_id] -= size


def _create(job: Job, replica: Replica, report: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """Create the WARM replica of a replica; `sizes` = its bytes on each node."""
    places = [{key: place[key] for key in PLACE_KEYS if key in place} for place in report["members"]]
    first = places[0]["nodeId"]
    job.events.emit("replicaWarming", f"{key_of(replica)}: its weights are being loaded into memory",
                    model=replica["model"], replicaId=replica["replicaId"])
    return ray.remote(WarmReplica).options(
        name=warm_name(replica["model"], replica["replicaId"]), lifetime="detached", max_restarts=-1,
        **actor_options(first, sizes.get(first, 0)),
    ).remote(*in_parts({**{key: report[key] for key in ("fleet", "namespace", "specHash")}, "model": replica["model"],
                        "replicaId": replica["replicaId"], "madeFrom": replica["actorId"], "members": places}))


def _await_warm(job: Job, replica: Replica, made: Mapping[str, Any]) -> None:
    """Return when the WARM replica of a replica is up; raises Refused if it cannot be, or the run stops.

    Meanwhile all WARM replicas in `made` are asked to stay: each leaves if its eviction seems abandoned.
    """
    warm, begun = made[replica["actorId"]], time.monotonic()
    asked, deadline = begun, begun + float(replica["startupTimeout"])
    while True:
        record = cluster.actor_record(warm._actor_id.hex())
        if record.state == "ALIVE" and record.report:
            return
        if record.state == "DEAD" and record.death:
            raise Refused(*decode_failure(record.death))
        _raise_if_stopped(job)
        if time.monotonic() >= deadline:
            raise Refused("NOT_HELD", f"its weights were not in memory within {replica['startupTimeout']:g} s")
        if time.monotonic() >= asked + STAY_INTERVAL_S:
            asked = time.monotonic()
            for other in made.values():
                other.stay.remote()
        time.sleep(POLL_S)


def _require_on_disk(job: Job, replica: Replica) -> None:
    """Raise Refused if the weights of a replica are not complete on the disks of its nodes."""
    entries: Dict[str, List[Any]] = {}
    for place in _report(replica["actorId"], replica)["members"]:
        if place.get("weights"):
            entries.setdefault(place["nodeId"], []).append((place["weights"]["artifact"], place["weights"]["view"]))
    for answer in ask_nodes(incomplete_here, entries, ANSWER_S):
        why = answer.trouble or ", ".join(answer.content)
        if why:
            raise Refused("NOT_ON_DISK", f"its weights are not complete on {_node_name(job, answer.node_id)}: {why}")


def incomplete_here(entries: Sequence[Any]) -> List[str]:
    """Return the folders of incomplete entries on the node on which this runs."""
    found = [Entry(cache_root(), artifact, view) for artifact, view in entries]
    return [entry.folder for entry in found if entry.index() is None]


def _node_name(job: Job, node_id: str) -> str:
    return str(job.warm.get(node_id, {}).get("name", node_id[:8]))


def _amount(size: float) -> str:
    """Return bytes as text in the clients' form, such as 20Gi or 1.50Mi."""
    unit, factor = next(((unit, factor) for unit, factor in UNITS if size >= factor), ("", 1))
    return f"{int(size) // factor}{unit}" if int(size) % factor == 0 else f"{size / factor:.2f}{unit}"
