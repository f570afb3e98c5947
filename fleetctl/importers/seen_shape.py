"""The shape of a replica as it can be seen from outside: groups, copies, members and what they claim. Nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fleetctl.documents.inventory import Replica, ReplicaMember
from fleetctl.importers.authored import authored_resources
from fleetctl.importers.draft import PLACEHOLDER

_DNS_LABEL = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

Copies = Mapping[int, Sequence[ReplicaMember]]
"""The members of each copy of a group."""


def seen_shape(replica: Replica) -> dict[str, Any]:
    """Return `placement` where it shows, and `workers`, as a fleet file has them; the engine's command is left open."""
    groups: dict[str, dict[int, list[ReplicaMember]]] = {}
    for member in replica.members or [ReplicaMember()]:
        groups.setdefault(member.group or "main", {}).setdefault(member.copy_index, []).append(member)
    per_node = max(_ranks_on_a_node(members) for copies in groups.values() for members in copies.values())
    placement = {"placement": {"ranksPerNode": per_node}} if per_node > 1 else {}
    workers = [_group(name, number, copies) for number, (name, copies) in enumerate(groups.items())]
    return {**placement, "workers": workers}


def _group(name: str, number: int, copies: Copies) -> dict[str, Any]:
    several = {"copies": len(copies)} if len(copies) > 1 else {}
    label = name if _DNS_LABEL.fullmatch(name) else f"group-{number}"
    return {"name": label, **several, "members": _members(copies[min(copies)])}


def _members(ranks: Sequence[ReplicaMember]) -> list[dict[str, Any]]:
    """Return the members of one copy by rank: the first leads, Workers that claim the same are one entry."""
    leader, *workers = (_claimed(rank) for rank in sorted(ranks, key=lambda one: one.rank))
    if not workers:
        return [_member({}, leader)]
    members = [_member({"role": "Leader"}, leader)]
    while workers:
        alike = next((count for count, claimed in enumerate(workers) if claimed != workers[0]), len(workers))
        members.append(_member({"role": "Worker", **({"count": alike} if alike > 1 else {})}, workers[0]))
        workers = workers[alike:]
    return members


def _claimed(member: ReplicaMember) -> dict[str, int]:
    amounts = {"gpus": member.gpus, "vram": member.vram, "cpus": member.cpus, "memory": member.memory}
    return {name: amount for name, amount in amounts.items() if amount}


def _member(role: dict[str, Any], claimed: Mapping[str, int]) -> dict[str, Any]:
    resources = {"resources": authored_resources(claimed)} if claimed else {}
    return {**role, **resources, "engine": {"command": [PLACEHOLDER]}}


def _ranks_on_a_node(members: Sequence[ReplicaMember]) -> int:
    nodes = Counter(member.node_id for member in members if member.node_id)
    return max(nodes.values(), default=1)
