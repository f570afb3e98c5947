"""The kinds of synthetic world, by name."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.benchmarks.synthetic.hostile import fragmented, gangs, selectors, vram
from tests.benchmarks.synthetic.planted import planted, pools, settled
from tests.benchmarks.synthetic.world import World

KINDS: dict[str, Callable[[int, int, int, Random], World]] = {
    "planted": planted,
    "settled": settled,
    "fragmented": fragmented,
    "selectors": selectors,
    "gangs": gangs,
    "vram": vram,
    "pools": lambda nodes, replicas, models, rng: pools(
        models, rng, nodes=nodes // models, replicas=replicas // models),
}


def build(kind: str, nodes: int, replicas: int, models: int, rng: Random) -> World:
    """Return a world of a kind; the numbers of models and replicas are kept where the kind allows it."""
    return KINDS[kind](nodes, replicas, models, rng)
