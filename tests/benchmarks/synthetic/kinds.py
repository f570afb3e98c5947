"""The kinds of synthetic fleet, by name."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.benchmarks.synthetic.fleet import SyntheticFleet
from tests.benchmarks.synthetic.hostile import fragmented, gangs, selectors, vram
from tests.benchmarks.synthetic.planted import planted, pools, settled

KINDS: dict[str, Callable[[int, int, int, Random], SyntheticFleet]] = {
    "planted": planted,
    "settled": settled,
    "fragmented": fragmented,
    "selectors": selectors,
    "gangs": gangs,
    "vram": vram,
    "pools": lambda nodes, replicas, models, rng: pools(
        models, rng, nodes=nodes // models, replicas=replicas // models),
}


def build(kind: str, nodes: int, replicas: int, models: int, rng: Random) -> SyntheticFleet:
    """Return a fleet of a kind, with the given numbers of models and replicas if the kind allows them."""
    return KINDS[kind](nodes, replicas, models, rng)
