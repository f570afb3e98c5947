"""A synthetic fleet and its nodes, and both as files: a fleet file and an inventory snapshot.

Amounts are those of the documents: GPUs and CPUs in 1/10000, bytes for memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

CARD = 10_000
GIB = 1 << 30
MIB = 1 << 20
FLEET = "synthetic"
OBSERVED = "2026-03-04T12:00:00Z"


@dataclass(frozen=True, slots=True)
class Member:
    """Equal members of a model's one group; `vram` per card."""

    gpus: int
    vram: int
    cpus: int
    memory: int
    role: str = "Standalone"
    count: int = 1


@dataclass(slots=True)
class Model:
    """One model of the fleet file. `live` of its replicas run, the others are missing."""

    key: str
    replicas: int
    members: tuple[Member, ...]
    selector: dict[str, str] = field(default_factory=dict)
    same_label: str | None = None
    live: int = 0
    spec_hash: str | None = None


@dataclass(slots=True)
class Host:
    """One node; `cards` = the memory of each card in bytes."""

    name: str
    labels: dict[str, str]
    cards: tuple[int, ...]
    accelerator: str
    cpus: int = 192
    memory: int = 2048 * GIB

    @property
    def id(self) -> str:
        """The Ray node id; as with real ids, its order differs from that of the names."""
        return f"{hash_of(self.name):056x}"


@dataclass(slots=True)
class Held:
    """A running replica of `fleet`, foreign if None. One member, on cards `cards` of one host."""

    model: str
    replica_id: int
    host: int
    member: Member
    cards: tuple[int, ...]
    slot: int
    fleet: str | None = FLEET
    spec_hash: str | None = None


@dataclass(slots=True)
class SyntheticFleet:
    """A fleet, its nodes and running replicas; all missing replicas can be placed."""

    kind: str
    hosts: list[Host]
    models: list[Model]
    held: list[Held] = field(default_factory=list)

    @property
    def planted(self) -> int:
        """The number of missing replicas; a perfect plan places all of them."""
        return sum(model.replicas - model.live for model in self.models)


def hash_of(text: str) -> int:
    """Return a hash that depends only on the text (FNV-1a)."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value


def fleet_yaml(fleet: SyntheticFleet) -> str:
    """Return the fleet as a fleet file."""
    head = f"apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {{name: {FLEET}}}\nspec:\n  models:\n"
    return head + "".join(_model_yaml(model) for model in fleet.models)


def _model_yaml(model: Model) -> str:
    lines = [f"  - key: {model.key}", f"    replicas: {model.replicas}"]
    if model.same_label:
        lines.append(f"    placement: {{sameLabel: {model.same_label}}}")
    lines += ["    workers:", "    - name: main", "      members:"]
    for member in model.members:
        lines += _member_yaml(member, model.selector)
    return "\n".join(lines) + "\n"


def _member_yaml(member: Member, selector: dict[str, str]) -> Iterable[str]:
    yield f"      - role: {member.role}"
    if member.role == "Worker":
        yield f"        count: {member.count}"
    claims = {"gpus": _number(member.gpus), "cpus": _number(member.cpus), "vram": f"{member.vram // MIB}Mi",
              "memory": f"{member.memory // MIB}Mi"}
    amounts = {"gpus": member.gpus, "cpus": member.cpus, "vram": member.vram, "memory": member.memory}
    yield f"        resources: {{{', '.join(f'{name}: {text}' for name, text in claims.items() if amounts[name])}}}"
    if selector:
        yield f"        nodeSelector: {json.dumps(selector)}"
    yield "        engine:"
    yield "          command: [vllm, serve, some-org/some-model]"
    yield '          args: [--port, $(FLEETCTL_PORT), --max-model-len, "4096", --dtype, bfloat16]'
    yield '          env: {HF_HUB_OFFLINE: "1", HF_TOKEN: {fromNode: HF_TOKEN}}'
    if member.role != "Worker":
        yield "          readiness: {http: {path: /health}}"


def _number(amount: int) -> str:
    return f"{amount / CARD:g}"


def inventory_json(fleet: SyntheticFleet) -> str:
    """Return the nodes and running replicas as `fleetctl inventory --format json` writes them."""
    used: dict[int, list[Held]] = {}
    for held in fleet.held:
        used.setdefault(held.host, []).append(held)
    document = {
        "formatVersion": "1.0", "kind": "Inventory", "observedAt": OBSERVED, "source": "http://ray-head:8265",
        "complete": True, "warnings": [],
        "cluster": {"address": "http://ray-head:8265", "rayVersion": "2.60.0", "sessionId": "session_synthetic"},
        "nodes": [_node(host, used.get(number, [])) for number, host in enumerate(fleet.hosts)],
        "replicas": [_replica(held, fleet.hosts[held.host]) for held in fleet.held],
    }
    return json.dumps(document, indent=2) + "\n"


def _node(host: Host, held: list[Held]) -> dict[str, Any]:
    share, memory = [0] * len(host.cards), [0] * len(host.cards)
    for one in held:
        for card in one.cards:
            share[card] += min(one.member.gpus, CARD)
            memory[card] += one.member.vram
    total = {"GPU": float(len(host.cards)), "CPU": float(host.cpus), "memory": host.memory}
    used = {"GPU": sum(share) / CARD, "CPU": sum(one.member.cpus for one in held) / CARD,
            "memory": sum(one.member.memory for one in held)}
    return {
        "id": host.id, "name": host.name, "ip": "10.0.0.1", "state": "ALIVE",
        "labels": {"ray.io/accelerator-type": host.accelerator, **host.labels},
        "resources": {"total": total, "used": used},
        "gpus": [{"index": card, "uuid": uuid_of(host, card), "model": f"NVIDIA {host.accelerator}",
                  "memoryTotal": size, "memoryUsed": memory[card], "share": share[card] / CARD}
                 for card, size in enumerate(host.cards)],
    }


def uuid_of(host: Host, card: int) -> str:
    """Return a card's UUID."""
    text = f"{hash_of(f'{host.name}/{card}'):016x}"
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:]}-0000-{card:012x}"


def _replica(held: Held, host: Host) -> dict[str, Any]:
    member = held.member
    return {
        "model": held.model, "replicaId": held.replica_id, "foreignId": None, "level": "HOT", "state": "ALIVE",
        "fleet": held.fleet, "specHash": held.spec_hash,
        "actorId": f"{hash_of(f'{held.model}:{held.replica_id}'):032x}",
        "members": [{
            "group": "main", "copy": 0, "role": "Standalone", "rank": 0, "slot": held.slot, "nodeId": host.id,
            "gpus": member.gpus, "vram": member.vram, "cpus": member.cpus, "memory": member.memory,
            "gpuIndices": list(held.cards), "gpuUuids": [uuid_of(host, card) for card in held.cards],
            "address": "10.0.0.1", "port": 20000 + held.slot,
        }],
        "error": None,
    }
