"""Rules over one model: group names, size, impossible placements, and settings without effect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from pydantic_core import PydanticCustomError

from fleetctl.documents.nearest import nearest
from fleetctl.documents.quantity import count_of, parse_bytes
from fleetctl.documents.selector import NODE_ID_LABEL
from fleetctl.fleetfile.flags import fixed_port
from fleetctl.fleetfile.raw import Raw, repeated
from fleetctl.fleetfile.rules_group import (
    MAX_MEMBERS_PER_REPLICA,
    check_cards,
    check_group,
    is_gang,
    members_per_copy,
    role_of,
    whole,
)
from fleetctl.fleetfile.rules_reference import check_references
from fleetctl.fleetfile.rules_weights import check_weights
from fleetctl.problem import Problem

FEW_BYTES = 1 << 20


def check_model(model: Raw) -> Iterator[Problem]:
    """Yield the problems of one model beyond the types of its values."""
    groups = list(model.items("workers"))
    for first, group in repeated(groups, "name"):
        message = f'duplicate group name "{group.text("name")}"; the first is at {first.at("name")}'
        yield group.problem("FL041", message, key="name")
    for group in groups:
        yield from check_group(group)
        for member in group.items("members"):
            yield from check_references(member)
            yield from check_weights(group, member)
            yield from _few_bytes(member.child("resources"))
            engine = member.child("engine")
            if role_of(member) == "Worker" and engine.get("readiness") is not None:
                yield engine.problem("FL060", "a Worker's readiness is never used: a gang is ready when its Leader is",
                                     key="readiness", on_key=True)
            yield from _fixed_ports(model, group, engine)
        yield from check_cards(model, group)
    yield from _size(model, groups)
    yield from _serving(model, groups)
    yield from _cold(model, groups)
    yield from _placement(model, groups)


def _few_bytes(resources: Raw) -> Iterator[Problem]:
    """Warn about an amount below FEW_BYTES: a number without a unit is bytes, and GiB were probably meant."""
    for key in ("vram", "memory"):
        written = resources.get(key) or 0
        with suppress(PydanticCustomError):  # an invalid quantity is a problem of its own
            if 0 < (count := parse_bytes(written)) < FEW_BYTES:
                yield resources.problem("FL069", f"{key} is only {count_of(count, 'byte')}", key=key,
                                        suggestion=f"{written}Gi" if str(written).isdigit() else None)


def _size(model: Raw, groups: list[Raw]) -> Iterator[Problem]:
    members = sum(whole(group.get("copies")) * members_per_copy(group) for group in groups)
    if members > MAX_MEMBERS_PER_REPLICA:
        yield model.problem("FL054", f"one replica would have {members} members", key="workers", on_key=True,
                            allowed=f"at most {MAX_MEMBERS_PER_REPLICA}")


def _cold(model: Raw, groups: list[Raw]) -> Iterator[Problem]:
    if model.get("cold") is not None and groups and not any(
            member.get("weights") for group in groups for member in group.items("members")):
        yield model.problem("FL083", "no member of this model has weights, so there is nothing to keep on disk",
                            key="cold", on_key=True)


def _serving(model: Raw, groups: list[Raw]) -> Iterator[Problem]:
    names = [name for group in groups if (name := group.text("name"))]
    serving = model.child("serving")
    for _, name in serving.texts("groups"):
        if name not in names:
            yield serving.problem("FL059", f'this model has no group "{name}"', key="groups",
                                  allowed=", ".join(names), suggestion=nearest(name, names))


def _placement(model: Raw, groups: list[Raw]) -> Iterator[Problem]:
    placement = model.child("placement")
    gangs = [group for group in groups if is_gang(group)]
    bound = placement.child("sameLabel")
    several = sum(whole(group.get("copies")) for group in groups) > 1
    as_one = several and bound.text("scope") == "replica"
    if groups and not gangs:
        for key in ("ranksPerNode",) if as_one else ("sameLabel", "ranksPerNode"):
            if placement.get(key) is not None:
                allowed = "sameLabel with scope: replica, to keep all groups together"
                yield placement.problem("FL061", f"{key} has no effect: no group of this model is a gang", key=key,
                                        on_key=True, allowed=allowed if several and key == "sameLabel" else None)
    if (placement.text("sameLabel") or bound.text("label")) == NODE_ID_LABEL:
        yield from _one_node(placement, gangs)


def _one_node(placement: Raw, gangs: list[Raw]) -> Iterator[Problem]:
    ranks = placement.get("ranksPerNode")
    limit = ranks if isinstance(ranks, int) and ranks > 0 else 1
    size = max((members_per_copy(gang) for gang in gangs), default=0)
    if size > limit:
        yield placement.problem(
            "FL053", f"a gang of {size} must be on one node, but ranksPerNode allows only {limit} of its ranks there",
            key="sameLabel", allowed=f"ranksPerNode: {size}, or another label")


def _fixed_ports(model: Raw, group: Raw, engine: Raw) -> Iterator[Problem]:
    """Warn about a port that is the same for every replica, in a probe or else a flag: replicas may share a node."""
    if max(whole(model.get("replicas")), whole(group.get("copies"))) < 2:
        return
    probes = [engine.child(kind).child(way) for kind in ("readiness", "liveness") for way in ("http", "tcp")]
    ports = [(port, (*probe.path, "port")) for probe in probes
             if isinstance(port := probe.get("port"), int) and 0 < port < 65536]
    flag = fixed_port(engine)
    for port, path in ports or ([flag] if flag else []):
        yield engine.document.problem(
            "FL065", path, f"port {port} is fixed, so a second replica on the same node fails",
            allowed="$(FLEETCTL_PORT) for the engine and no port in the probe, or one replica per node "
                    "(maxReplicasPerModel: 1)")
