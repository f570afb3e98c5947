"""A member's claim as Ray resources. The plan's amounts are in 1/10000 of a GPU or CPU, and in bytes."""

from __future__ import annotations

import math
from typing import Dict

import ray

from .messages import Member

SHARE = 10_000
PRESENCE = 0.001


def claim_of(member: Member) -> Dict[str, float]:
    """Return the member's claim as Ray resources, without zeros."""
    claim = {"GPU": _in_ray(member.gpus), "CPU": _in_ray(member.cpus), "memory": float(member.memory)}
    return {name: amount for name, amount in claim.items() if amount > 0}


def _in_ray(amount: int) -> float:
    """Return 1/10000s as a float that Ray converts back exactly: Ray truncates, and 0.3112 would become 0.3111."""
    exact = amount / SHARE
    return exact if int(exact * SHARE) == amount else math.nextafter(exact, math.inf)


def format_claim(member: Member) -> str:
    """Return the claim as text: `1 GPU, 2 CPU`."""
    return ", ".join(f"{amount:g} {name}" for name, amount in claim_of(member).items()) or "no resources"


def presence_of(node_id: str) -> Dict[str, float]:
    """Return a tiny claim on the marker resource that every node has: a bundle must not be empty."""
    for record in ray.nodes():
        if record["NodeID"] == node_id:
            names = [name for name in record["Resources"] if name.startswith("node:") and "__" not in name]
            return dict.fromkeys(sorted(names)[:1], PRESENCE)
    return {}


def bundle_for(member: Member) -> Dict[str, float]:
    """Return the placement-group bundle of a member."""
    return claim_of(member) or presence_of(member.node_id)


def member_options(member: Member) -> Dict[str, float]:
    """Return the actor options for exactly the member's claim, overriding Ray's defaults."""
    claim = claim_of(member)
    memory = {"memory": member.memory} if member.memory > 0 else {}
    return {"num_cpus": claim.get("CPU", 0), "num_gpus": claim.get("GPU", 0), **memory}
