"""Random fleets by family and size. Equal seeds give equal fleets.

Targets demand 80 to 140 % of the cards, so that some replicas do not fit.
"""

from __future__ import annotations

import math
from collections import Counter
from random import Random
from typing import Literal

from short_forms import short_fleet, short_inventory

from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.resolved import ResolvedFleet
from oracle.hard_cases import BLIND, FAMILIES, Short

PlanningInputs = tuple[ResolvedFleet, Inventory]
Size = Literal["tiny", "small", "big", "large"]
"""Tiny: small enough to try everything. Small: 2 to 7 nodes. Big: 10 to 40, up to 200 members. Large: 60 to 120, up to
600: CP-SAT proves most of them."""
MAX_MEMBERS, MAX_REPLICAS = 200, 60
MAX_LARGE = 600


def draw_inputs(family: str, seed: int, size: Size = "small") -> PlanningInputs:
    """Return fleet and inventory number `seed` of a family."""
    fleet, inventory = draw_short(family, seed, size)
    return short_fleet(fleet), short_inventory(inventory)


def draw_short(family: str, seed: int, size: Size = "small") -> tuple[Short, Short]:
    """Return the fleet and the inventory in short form."""
    random = Random(f"{family}/{seed}/{size if size in ('tiny', 'large') else size == 'big'}")
    nodes = random.randint(*{"tiny": (2, 3), "small": (2, 7), "big": (10, 40), "large": (60, 120)}[size])
    fleet, inventory = FAMILIES[family](random, nodes)
    limits = (MAX_LARGE, MAX_LARGE) if size == "large" else (MAX_MEMBERS, MAX_REPLICAS)
    _set_targets(random, fleet["models"], inventory, *limits)
    if size == "tiny":
        live = Counter(replica["model"] for replica in inventory.get("replicas", []))
        fleet["models"] = fleet["models"][:3]
        for model in fleet["models"]:
            model["replicas"] = min(model["replicas"], live[model["key"]] + random.choice([2, 3]))
    return fleet, inventory


def _gpus_of(model: Short) -> float:
    if "workers" in model:
        return sum(group.get("copies", 1) * member.get("count", 1) * member["resources"].get("gpus", 0)
                   for group in model["workers"] for member in group["members"])
    one = model.get("gpus", 0) or (0.5 if model.get("vram") else 0)
    if "gang" in model:
        one = model["gang"].get("gpus", 0) * (1 + model["gang"]["workers"])
    return one * model.get("copies", 1)


def _members_of(model: Short) -> int:
    if "workers" in model:
        return sum(group.get("copies", 1) * member.get("count", 1)
                   for group in model["workers"] for member in group["members"])
    return model.get("copies", 1) * (1 + model["gang"]["workers"] if "gang" in model else 1)


def _set_targets(random: Random, models: list[Short], inventory: Short, most: int, most_replicas: int) -> None:
    """Spread a demand of 80 to 140 % of the cards over the models; `most` members, `most_replicas` of a model."""
    free = sum(node["gpus"] for node in inventory["nodes"]) * random.uniform(0.8, 1.4)
    shares = [random.random() + 0.1 for _ in models]
    members = 0
    live = [replica["model"] for replica in inventory.get("replicas", [])]
    for model, share in zip(models, shares, strict=True):
        part = free * share / sum(shares)
        gpus = _gpus_of(model)
        few = 2 * len(inventory["nodes"]) if _members_of(model) == 1 else 4
        missing = max(1, math.floor(part / gpus + 0.5)) if gpus else random.randint(1, few)
        missing = min(missing, (most - members) // _members_of(model), most_replicas)
        members += max(0, missing) * _members_of(model)
        model["replicas"] = max(0, missing) + live.count(model["key"])


__all__ = ["BLIND", "FAMILIES", "draw_inputs", "draw_short"]
