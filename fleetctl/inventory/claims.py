"""Ray's grants, in integers: GPU and CPU in 1/10000, memory in bytes. Sums of integers are exact.

Ray's own sums cover actors, tasks and placement groups. The dashboard has them as text for its pages: `3.0/4.0 GPU`,
and with placement groups `0.5/4.0 GPU (0.5 used of 2.0 reserved in placement groups)`. The first number counts only the
used part of a reservation, so the rest is added here. Memory is rounded to two decimals of its unit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from fleetctl.documents.inventory import MAX_NODE_CPUS, MAX_NODE_GPUS, Amounts, Node
from fleetctl.documents.quantity import MAX_BYTES, SHARE
from fleetctl.inventory.json_values import object_of

MAX_SHOWN = 40
_IN_GROUP = re.compile(r"(GPU|CPU|memory)_group_[0-9a-f]{36}")
"""Ray's name for a resource taken from any bundle of a placement group: GPU_group_<group id>."""
_AMOUNT = r"([0-9.e+-]+)(B|KiB|MiB|GiB|TiB)?"
_LINE = re.compile(rf"{_AMOUNT}/{_AMOUNT} (GPU|CPU|memory)(?: \({_AMOUNT} used of {_AMOUNT} reserved .*\))?")
_UNITS = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_ROUNDED_TO = 0.005
MOST: Mapping[str, int] = {"GPU": MAX_NODE_GPUS, "CPU": MAX_NODE_CPUS, "memory": MAX_BYTES}
"""The most that one node can have of each resource. Any program can start a node that claims to have more."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An amount on one node: `gpus` and `cpus` in 1/10000, `memory` in bytes."""

    gpus: int = 0
    cpus: int = 0
    memory: int = 0

    def __add__(self, other: Claim) -> Claim:
        return Claim(self.gpus + other.gpus, self.cpus + other.cpus, self.memory + other.memory)

    def less(self, other: Claim) -> Claim:
        """Return the claim minus `other`, never below zero."""
        return Claim(max(0, self.gpus - other.gpus), max(0, self.cpus - other.cpus),
                     max(0, self.memory - other.memory))

    def as_amounts(self) -> Amounts:
        """Return the claim in Ray's units, as in the inventory document; no node has more than its limits."""
        return Amounts(gpu=min(self.gpus / SHARE, MOST["GPU"]), cpu=min(self.cpus / SHARE, MOST["CPU"]),
                       memory=min(self.memory, MOST["memory"]))


def claim_of_amounts(amounts: Amounts) -> Claim:
    """Return amounts in Ray's units as a claim."""
    return Claim(round(amounts.gpu * SHARE), round(amounts.cpu * SHARE), amounts.memory)


def read_claim(resources: object) -> Claim:
    """Return the claim of a Ray resource mapping on its node itself; other resources are left out.

    An amount that is none counts as 0, and one above MOST as MOST.
    """
    gpus, cpus, memory = (_number(object_of(resources).get(name), most) for name, most in MOST.items())
    return Claim(round(gpus * SHARE), round(cpus * SHARE), round(memory))


def odd_amounts(resources: object) -> list[str]:
    """Return the amounts in a Ray resource mapping that no node can have, as in `GPU: 1e+305 (0 to 1024)`."""
    found = ((name, object_of(resources).get(name), most) for name, most in MOST.items())
    return [f"{name}: {str(value)[:MAX_SHOWN]} (0 to {most})" for name, value, most in found
            if value is not None and not (_is_number(value) and 0 <= value <= most)]


def read_claim_in_group(resources: object) -> Claim:
    """Return the claim of an actor on its placement group, whose bundles already claim it from the node.

    The dashboard's own list has plain names, as if the actor took it from the node.
    """
    grouped = {match[1]: amount for name, amount in object_of(resources).items()
               if (match := _IN_GROUP.fullmatch(str(name)))}
    return read_claim(grouped or resources)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: object, most: float) -> float:
    return float(min(value, most)) if _is_number(value) and value >= 0 else 0.0


@dataclass(frozen=True, slots=True)
class RaySum:
    """The grants of one node. The memory in `used` is exact to within `memory_error` bytes."""

    used: Claim
    memory_error: int = 0

    def at_least(self, listed: Claim) -> Claim:
        """Return the use: per resource the sum, or the lists' claim if it is larger or differs only by rounding."""
        near = abs(self.used.memory - listed.memory) <= self.memory_error
        return Claim(max(self.used.gpus, listed.gpus), max(self.used.cpus, listed.cpus),
                     listed.memory if near else max(self.used.memory, listed.memory))


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent's view from inside the cluster: free amounts by node id, and the draining nodes.

    The dashboard shows both late or not at all.
    """

    free: Mapping[str, Claim] = field(default_factory=dict)
    draining: frozenset[str] = frozenset()

    def sums(self, nodes: Sequence[Node]) -> Mapping[str, RaySum]:
        """Return the use of each node that the agent has seen."""
        return {node.id: RaySum(claim_of_amounts(node.resources.total).less(self.free[node.id]))
                for node in nodes if node.id in self.free}


def read_sums(listed: object) -> Mapping[str, RaySum]:
    """Return Ray's sums by node id from `nodeLogicalResources`, without nodes whose text cannot be parsed."""
    return {node_id: ray_sum for node_id, text in object_of(listed).items() if (ray_sum := read_sum(text)) is not None}


def read_sum(text: object) -> RaySum | None:
    """Return the sum of one node, or None if its text is not in Ray's format."""
    amounts: dict[str, tuple[float, float]] = {}
    for line in text.splitlines() if isinstance(text, str) else ():
        match = _LINE.fullmatch(line.strip())
        if match is None:
            continue
        try:
            used, _, inside, reserved = (_amount(match, group) for group in (1, 3, 6, 8))
        except ValueError:
            return None
        amounts[match[5]] = used[0] + reserved[0] - inside[0], used[1] + reserved[1] + inside[1]
    if not amounts:
        return None
    none = 0.0, 0.0
    memory, error = amounts.get("memory", none)
    gpus, cpus = (round(amounts.get(name, none)[0] * SHARE) for name in ("GPU", "CPU"))
    return RaySum(Claim(max(0, gpus), max(0, cpus), max(0, round(memory))), round(error))


def _amount(match: re.Match[str], group: int) -> tuple[float, float]:
    """Return a number of the line, in bytes or units, and its rounding error; 0 if the number is absent."""
    if match[group] is None:
        return 0.0, 0.0
    unit = match[group + 1]
    rounded = _ROUNDED_TO * _UNITS[unit] if unit not in (None, "B") else 0.0
    number = float(match[group]) * _UNITS[unit]
    if not abs(number) <= MAX_BYTES:
        raise ValueError("too large")
    return number, rounded
