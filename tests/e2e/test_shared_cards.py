"""Shared cards on a real Ray of nodes with two simulated GPUs each: every planned replica starts.

By itself, Ray fills the first node with shares that no single card has left and waits forever, next to an idle node.
The plan knows which card Ray will pick, so every planned share has a card.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

import pytest
from e2e_world import World, member, model

pytestmark = pytest.mark.ray

TWO = {"fleet.io/node": "in(a, b)"}


def shared(key: str, replicas: int, gpus: float, **more: Any) -> dict[str, Any]:
    return model(key, replicas, member("--plain", gpus=gpus, **more), startupTimeout="240s",
                 schedulingTimeout="120s")


def granted(world: World) -> dict[tuple[str, int], int]:
    """What each card has been granted, in 1/10000, as the replicas report it."""
    cards: dict[tuple[str, int], int] = defaultdict(int)
    for replica in world.replicas():
        for one in replica["members"]:
            for index in one["gpuIndices"]:
                cards[one["nodeId"], index] += min(one["gpus"], 10_000)
    return cards


@pytest.mark.parametrize(("replicas", "gpus"), [(3, 0.6), pytest.param(5, 0.4, marks=pytest.mark.long)])
def test_every_replica_of_one_share_runs(world: World, replicas: int, gpus: float) -> None:
    """One replica more than fits on the cards of the first node, whose free shares add up to enough."""
    world.write(shared("org/shared", replicas, gpus, nodeSelector=TWO))
    done = world.apply_result()
    assert done["exitCode"] == 0
    assert [row["outcome"] for row in done["outcomes"]] == ["ready"] * replicas
    assert {row["state"] for row in world.actors().values()} == {"ALIVE"}
    cards = granted(world)
    assert sum(cards.values()) == replicas * round(gpus * 10_000)
    assert max(cards.values()) <= 10_000


def random_mix(random: Random, replicas: int, prefix: str) -> list[dict[str, Any]]:
    """Models with shared cards and models with whole cards, `replicas` in all."""
    amounts = [random.choice([0.6, 0.4, 0.3, 0.32, 0.5, 0.7, 0.9, 1, 2]) for _ in range(replicas)]
    return [shared(f"{prefix}/of-{gpus}", amounts.count(gpus), gpus) for gpus in dict.fromkeys(amounts)]


@pytest.mark.long
@pytest.mark.parametrize("seed", [1])
def test_every_planned_replica_of_a_random_mix_starts_also_beside_running_replicas(world: World, seed: int) -> None:
    random = Random(f"mix/{seed}")
    models: list[dict[str, Any]] = []
    for prefix, count in (("first", 4), ("second", 5)):
        models = [*models, *random_mix(random, count, prefix)]
        random.shuffle(models)
        world.write(*models)
        promised = {action["id"] for action in world.plan()["actions"]}
        running = set(world.actors())
        done = world.apply_result()
        started = {f"{row['model']}/{row['replicaId']}" for row in done["outcomes"] if row["outcome"] == "ready"}
        assert promised <= started
        assert len(world.actors()) == len(running) + len(promised)
        assert max(granted(world).values()) <= 10_000
    assert promised, "the second round adds replicas"
