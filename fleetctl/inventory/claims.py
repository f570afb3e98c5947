"""What Ray has granted, in integers: GPU and CPU in 1/10000, memory in bytes. Sums of integers are exact."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.documents.inventory import Amounts
from fleetctl.documents.quantity import SHARE

_IN_GROUP = re.compile(r"(GPU|CPU|memory)_group_[0-9a-f]{36}")
"""Ray's name for a resource taken out of a placement group, any bundle of it: GPU_group_<group id>."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An amount on one node: `gpus` and `cpus` in 1/10000, `memory` in bytes."""

    gpus: int = 0
    cpus: int = 0
    memory: int = 0

    def __add__(self, other: Claim) -> Claim:
        return Claim(self.gpus + other.gpus, self.cpus + other.cpus, self.memory + other.memory)

    def less(self, other: Claim) -> Claim:
        """Return what is left when `other` is taken away; never below zero."""
        return Claim(max(0, self.gpus - other.gpus), max(0, self.cpus - other.cpus),
                     max(0, self.memory - other.memory))

    def as_amounts(self) -> Amounts:
        """Return it in Ray's units, as the inventory document has it."""
        return Amounts(gpu=self.gpus / SHARE, cpu=self.cpus / SHARE, memory=self.memory)


def claim_of_amounts(amounts: Amounts) -> Claim:
    """Return amounts in Ray's units as a claim."""
    return Claim(_share(amounts.gpu), _share(amounts.cpu), amounts.memory)


def read_claim(resources: object) -> Claim:
    """Return what a Ray resource mapping claims from its node itself; other resources are left out."""
    if not isinstance(resources, Mapping):
        return Claim()
    return Claim(_share(resources.get("GPU")), _share(resources.get("CPU")), round(_number(resources.get("memory"))))


def read_claim_in_group(resources: object) -> Claim:
    """Return what an actor takes out of its placement group, whose bundles hold it already.

    The dashboard's own list has it under plain names, as if it were the node's.
    """
    if not isinstance(resources, Mapping):
        return Claim()
    grouped = {match[1]: amount for name, amount in resources.items() if (match := _IN_GROUP.fullmatch(str(name)))}
    return read_claim(grouped or resources)


def _share(value: object) -> int:
    return round(_number(value) * SHARE)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e18:
        return 0.0
    return float(value)
