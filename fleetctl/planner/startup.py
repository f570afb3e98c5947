"""How long an engine may take to become ready: longer for large weights, if the file leaves that to the default.

The size of weights is known once a replica in the cluster has them: a fleet file has only the hash of their index. The
lifecycle of a plan has the whole time, so every part of an apply, and replicas of earlier releases, allow the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fleetctl.documents.inventory import LIVE_STATES, Inventory
from fleetctl.documents.quantity import format_bytes, format_seconds
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel

SLOW = 300 << 20
"""Bytes per second at which an engine loads its weights at the slowest, from a disk or a network share."""
MOST_S = 6 * 3600
"""The most that is added: what an actor says of its weights is a claim."""


def with_startup_times(fleet: ResolvedFleet, inventory: Inventory) -> ResolvedFleet:
    """Return the fleet with the startup timeout of each model that does not set one, whole minutes longer for weights.

    Of equal weights the largest part counts that any live replica has.
    """
    sizes: dict[str, int] = {}
    for replica in inventory.replicas:
        for member in replica.members if replica.state in LIVE_STATES else ():
            if member.weights:
                sizes[member.weights.artifact] = max(sizes.get(member.weights.artifact, 0), member.weights.bytes or 0)
    return replace(fleet, models=tuple(_grown(model, sizes) for model in fleet.models)) if sizes else fleet


def _grown(model: ResolvedModel, sizes: Mapping[str, int]) -> ResolvedModel:
    if not model.startup_by_default:
        return model
    loaded = max((sizes.get(member.weights.index, 0) for group in model.workers for member in group.members
                  if member.weights), default=0)
    if not (added_s := _added_s(loaded)):
        return model
    return replace(model, startup_timeout_s=model.startup_timeout_s + added_s, loaded_bytes=loaded)


def _added_s(loaded_bytes: int) -> int:
    return min(MOST_S, loaded_bytes // (SLOW * 60) * 60)


def allowed_text(startup_timeout_s: float, loaded_bytes: int) -> str:
    """Return in words how long a start may take: `allowed 37m: 30m + 140Gi at 300Mi/s`."""
    own_s = startup_timeout_s - _added_s(loaded_bytes)
    return (f"allowed {format_seconds(startup_timeout_s)}: {format_seconds(own_s)} + {format_bytes(loaded_bytes)} at "
            f"{format_bytes(SLOW)}/s")


def startup_notes(fleet: ResolvedFleet, inventory: Inventory) -> dict[str, str]:
    """Return how long a start may take, by model, of the models for whose weights that is longer."""
    return {model.key: allowed_text(model.startup_timeout_s, model.loaded_bytes)
            for model in with_startup_times(fleet, inventory).models if model.loaded_bytes}
