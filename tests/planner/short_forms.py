"""Builds fleets and inventories from short forms, so that a case file contains only what matters to it.

Short forms (amounts as in a fleet file): a node has `name`, `gpus` (how many cards), `vram` (memory of each; absent =
unknown), `reported` (how many of them the cluster reports), `cpus`, `memory`, `labels`, `state`, `measured`
{card: bytes}, `share` {card: 0..1}, `processes` {card: as in the inventory}, `unified`, `used` {GPU, CPU, memory}, the
notes `cordon` and `slots`, and `joined`, `uncordoned`: how long ago, such as 5m. A replica has `model`, `id`, `node` or
`nodes`, `gpus`, `vram`, `cpus`, `memory`, `cards`, `uuids`, `slot`, `state`, `fleet`, `hash`, `variant`, `restarts`,
`ready` (how long ago). A failure has `model`, `hash`, `node` or `nodes`, `ago`, and perhaps `code`, `message`,
`uuids`, `indices`. A start has `model`, `hash`, `node` or `nodes`, `seconds`, `ago`, and perhaps `artifact`, `weights`,
`bytes`. A model has `key`, `replicas`, `surge`, `labels`, and either `workers` in full or `gpus`, `vram`, `cpus`,
`memory`, `selector`, `copies`, `gang: {gpus, vram, workers, ...}` in short; or `variants`, each with a `name`, perhaps
`min` and `max`, and one of these.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from fleetctl.documents.fleet import Cluster, NodePolicy, Placement, Policy, Restart, WorkerGroup
from fleetctl.documents.inventory import Failure, Gpu, Inventory, Node, Replica
from fleetctl.documents.plan import Plan
from fleetctl.documents.position import Position
from fleetctl.documents.quantity import parse_bytes, parse_cpus, parse_duration, parse_gpus
from fleetctl.documents.selector import parse_label_selector
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel, engine_hash, in_variants
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.planner.plan import make_plan

FLEET = "lab"
ENGINE = {"command": ["serve"]}
RESOURCES = ("gpus", "vram", "cpus", "memory")


def short_node(node: dict[str, Any]) -> Node:
    """Return a node from its short form; its id is its name."""
    count, memory = int(node.get("gpus", 0)), node.get("vram")
    cards = [
        Gpu(index=index, uuid=f"GPU-{node['name']}-{index}", memory_total=_bytes(memory) or None,
            memory_used=_bytes(node.get("measured", {}).get(index)), share=node.get("share", {}).get(index),
            processes=node.get("processes", {}).get(index, []), unified=node.get("unified", False))
        for index in range(node.get("reported", count))
    ]
    if "reported" in node and not cards:
        cards = [Gpu(index=index) for index in range(count)]
    missing = count - node.get("reported", count)
    total = {"GPU": count, "CPU": node.get("cpus", 64), "memory": parse_bytes(node.get("memory", "512Gi"))}
    used = node.get("used")
    return Node.model_validate({
        "id": node.get("id", node["name"]), "name": node["name"], "state": node.get("state", "ALIVE"),
        "labels": node.get("labels", {}), "gpus": cards if memory is not None else [],
        "unreportedCards": missing, "cordon": node.get("cordon"), "slots": node.get("slots"),
        "startedAt": before(node.get("joined")), "uncordonedAt": before(node.get("uncordoned")),
        "resources": {"total": total, "used": None if used is None else {**used, "memory": _bytes(used.get("memory"))}},
    })


def _bytes(value: Any) -> int:
    return 0 if value is None else parse_bytes(value)


def short_replica(replica: dict[str, Any]) -> Replica:
    """Return a live replica from its short form; `fleet` absent = ours, null = no mark."""
    nodes = replica.get("nodes", [replica["node"]] if "node" in replica else [])
    members = [
        {"group": replica.get("group", "main"), "copy": 0, "rank": rank, "nodeId": node,
         "role": "Standalone" if len(nodes) == 1 else ("Worker" if rank else "Leader"),
         "gpus": parse_gpus(replica.get("gpus", 1)), "vram": _bytes(replica.get("vram")),
         "cpus": parse_cpus(replica.get("cpus", 0)), "memory": _bytes(replica.get("memory")),
         "gpuIndices": replica.get("cards", []), "gpuUuids": replica.get("uuids", []), "slot": replica.get("slot")}
        for rank, node in enumerate(nodes)
    ]
    return Replica.model_validate({
        "model": replica["model"], "replicaId": replica.get("id"), "foreignId": replica.get("foreign"),
        "state": replica.get("state", "ALIVE"), "fleet": replica.get("fleet", FLEET), "members": members,
        "specHash": replica.get("hash"), "variant": replica.get("variant"),
        "level": replica.get("level", "HOT"), "restarts": replica.get("restarts", 0),
        **{key: replica[key] for key in (
            "restartMax", "restartsUsed", "since", "error", "notReadySince", "notReadyReason") if key in replica},
        "constructed": replica.get("constructed", True), "readyAt": before(replica.get("ready")),
    })


def short_failure(failure: dict[str, Any]) -> Failure:
    """Return a failure from its short form."""
    nodes = failure.get("nodes", [failure["node"]] if "node" in failure else [])
    return Failure(model=failure["model"], replica_id=failure.get("id", 0), fleet=FLEET, spec_hash=failure.get("hash"),
                   node_ids=nodes, gpu_uuids=failure.get("uuids", []),
                   gpu_indices=failure.get("indices", []), code=failure.get("code", "ENGINE_EXITED"),
                   message=failure.get("message", "CUDA out of memory"), at=before(failure.get("ago")))


def before(ago: str | None) -> str | None:
    """Return the time `ago` before the inventory was read, or None for None."""
    if ago is None:
        return None
    at = datetime(2026, 1, 1, tzinfo=timezone.utc) - timedelta(seconds=parse_duration(ago))
    return at.isoformat().replace("+00:00", "Z")


def short_inventory(short: dict[str, Any]) -> Inventory:
    """Return an inventory from its short form."""
    return Inventory.model_validate({
        "observedAt": "2026-01-01T00:00:00Z", "source": "test", "complete": short.get("complete", True),
        "warnings": short.get("warnings", []), "cluster": {"sessionId": short.get("session", "s1")},
        "nodes": [short_node(node) for node in short.get("nodes", [])],
        "replicas": [short_replica(replica) for replica in short.get("replicas", [])],
        "failures": [short_failure(failure) for failure in short.get("failures", [])],
        "successes": [{"model": one["model"], "specHash": one["hash"], "nodeIds": [one["node"]],
                       "at": before(one["ago"])} for one in short.get("successes", [])],
        "starts": [{"model": one["model"], "specHash": one.get("hash"), "seconds": one["seconds"],
                    "nodeIds": one.get("nodes", [one["node"]] if "node" in one else []), "at": before(one["ago"]),
                    **{key: one[key] for key in ("artifact", "weights", "bytes") if key in one}}
                   for one in short.get("starts", [])],
        "pauses": [{"fleet": FLEET, **one, "since": before(one["since"])} for one in short.get("pauses", [])],
    })


def short_model(model: dict[str, Any], line: int = 1) -> ResolvedModel:
    """Return a resolved model from its short form."""
    if "variants" in model:
        shared = {key: value for key, value in model.items() if key != "variants"}
        variants = [replace(short_model({**shared, **one}, line), variant=one["name"], least=one.get("min", 0),
                            most=one.get("max")) for one in model["variants"]]
        return in_variants(variants, variants[0].source)
    groups = model.get("workers") or [_short_group(model)]
    for group in groups:
        for member in group["members"]:
            member.setdefault("engine", ENGINE)
    placed = {key: model[key] for key in ("sameLabel", "ranksPerNode", "spread") if key in model}
    shape = json.dumps([groups, placed], sort_keys=True)
    workers, placement = tuple(map(WorkerGroup.model_validate, groups)), Placement.model_validate(placed)
    return ResolvedModel(
        key=model["key"], replicas=model["replicas"], priority=model.get("priority", 0), startup_timeout_s=900,
        scheduling_timeout_s=30, restart=Restart(), placement=placement, workers=workers,
        spec_hash=model.get("hash", hashlib.sha256(shape.encode()).hexdigest()[:16]),
        source=Position(file="fleet.yaml", line=line, column=3), labels=model.get("labels", {}),
        surge=model.get("surge", 0), engine_hash=engine_hash(workers, placement),
    )


def _short_group(model: dict[str, Any]) -> dict[str, Any]:
    gang = model.get("gang")
    one = _short_member(gang or model, "Leader" if gang else "Standalone")
    members = [one, {**_short_member(gang, "Worker"), "count": gang["workers"]}] if gang else [one]
    return {"name": "main", "copies": model.get("copies", 1), "members": members}


def _short_member(short: dict[str, Any], role: str) -> dict[str, Any]:
    resources = {key: short[key] for key in RESOURCES if key in short}
    return {"role": role, "resources": resources, "nodeSelector": short.get("selector", {})}


def short_fleet(short: dict[str, Any]) -> ResolvedFleet:
    """Return a fleet from its short form."""
    return ResolvedFleet(
        name=short.get("name", FLEET), cluster=Cluster.model_validate({"grow": short.get("grow", [])}), files=(),
        policies=tuple(NodePolicy.model_validate(policy) for policy in short.get("nodes", [])),
        models=tuple(short_model(model, line) for line, model in enumerate(short.get("models", []), start=1)),
        policy=Policy.model_validate(short.get("policy", {})),
    )


def plan_for(fleet: ResolvedFleet, inventory: Inventory, **options: Any) -> Plan:
    """Plan with fixed cluster facts."""
    if "selector" in options:
        options["selector"] = parse_label_selector(options["selector"])
    return make_plan(fleet, inventory, PlanOptions(**options), PlanFacts(tool_version="test"))
