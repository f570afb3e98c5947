"""The same fleet and inventory in another order that does not change their meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from fleetctl.documents.fleet import WorkerGroup
from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.resolved import ResolvedFleet

Item = TypeVar("Item")


def reordered(fleet: ResolvedFleet, inventory: Inventory, random: Random) -> tuple[ResolvedFleet, Inventory]:
    """Shuffle models, groups, members, nodes, cards and replicas, but not node policies: later ones win."""
    models = []
    for model in shuffled(fleet.models, random):
        groups = [_shuffled_members(group, random) for group in shuffled(model.workers, random)]
        models.append(replace(model, workers=tuple(groups)))
    nodes = [node.model_copy(update={"gpus": shuffled(node.gpus, random)}) for node in inventory.nodes]
    update = {"nodes": shuffled(nodes, random), "replicas": shuffled(inventory.replicas, random)}
    return replace(fleet, models=tuple(models)), inventory.model_copy(update=update)


def shuffled(items: Sequence[Item], random: Random) -> list[Item]:
    """Return the items in a random order."""
    return random.sample(list(items), len(items))


def _shuffled_members(group: WorkerGroup, random: Random) -> WorkerGroup:
    return group.model_copy(update={"members": shuffled(group.members, random)})
