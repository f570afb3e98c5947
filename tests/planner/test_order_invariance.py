"""The order of models, groups, Workers, nodes and documents never changes how much is placed.

The tests compare what the objective counts: per priority the models served, the GPU share and the replicas placed.
The nodes of replicas may differ, since the file's order breaks ties.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import yaml
from oracle.families import FAMILIES, Size, draw_inputs, draw_short
from oracle.optimum import Level
from oracle.question import ask_about
from oracle.reorder import reordered, shuffled
from oracle.verdict import levels_of
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.fleetfile.sources import SourceBytes

pytestmark = pytest.mark.usefixtures("few_trials")
SMALL, BIG, DOCUMENTS = cases(3), cases(1), cases(2)
HEAD = {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}}


def placed(fleet: ResolvedFleet, inventory: Inventory) -> dict[int, Level]:
    return levels_of(plan_for(fleet, inventory), fleet, ask_about(fleet, inventory))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("size", "count"), [("small", SMALL), pytest.param("big", BIG, marks=pytest.mark.slow)],
                         ids=["small", "big"])
def test_reordering_does_not_change_how_much_is_placed(family: str, size: Size, count: int) -> None:
    differ = []
    for seed in range(5000, 5000 + count):
        fleet, inventory = draw_inputs(family, seed, size)
        as_written = placed(fleet, inventory)
        for again in range(2 if count > 1 else 1):
            shuffled = placed(*reordered(fleet, inventory, Random(f"{seed}/{again}")))
            if shuffled != as_written:
                differ.append(f"--family {family} --seed {seed}, {size}: {as_written} or {shuffled}")
    assert differ == []


def documents(fleet: dict[str, Any], parts: int, random: Random) -> tuple[bytes, bytes]:
    """Return one document with all models, and the same models in several documents in another order."""
    whole = {**HEAD, "spec": {"nodes": fleet.get("nodes", []), "models": [_written(one) for one in fleet["models"]]}}
    gangs: list[dict[str, Any]] = [{**HEAD, "spec": {"models": []}} for _ in range(parts)]
    for model in whole["spec"]["models"]:
        random.choice(gangs)["spec"]["models"].insert(0, model)
    gangs[-1]["spec"]["nodes"] = whole["spec"]["nodes"]
    return yaml.safe_dump(whole).encode(), yaml.safe_dump_all(shuffled(gangs, random)).encode()


def _written(short: dict[str, Any]) -> dict[str, Any]:
    """Write a short model in full, as in a fleet file."""
    model = short_fleet({"models": [short]}).models[0]
    workers = [group.model_dump(mode="json", by_alias=True, exclude_unset=True) for group in model.workers]
    for group, parsed in zip(workers, model.workers, strict=True):
        for member, full in zip(group["members"], parsed.members, strict=True):
            claim = full.resources
            member["resources"] = {"gpus": claim.gpus / 10_000, "vram": claim.vram, "cpus": claim.cpus / 10_000,
                                   "memory": claim.memory}
    placement = model.placement.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {"key": model.key, "replicas": model.replicas, "priority": model.priority, "placement": placement,
            "workers": workers}


def load(data: bytes) -> ResolvedFleet:
    loaded = inspect_bytes([SourceBytes("fleet.yaml", data)])
    assert loaded.fleet is not None, loaded.errors
    return loaded.fleet


@pytest.mark.parametrize("family", ["mixed", "groups", "slots", "selectors"])
def test_yaml_documents_may_be_in_any_order(family: str) -> None:
    for seed in range(6000, 6000 + DOCUMENTS):
        fleet, inventory = draw_short(family, seed)
        one, several = documents(fleet, 3, Random(seed))
        read = short_inventory(inventory)
        as_drawn = placed(short_fleet(fleet), read)
        assert placed(load(one), read) == as_drawn
        assert placed(load(several), read) == as_drawn, f"--family {family} --seed {seed}"
