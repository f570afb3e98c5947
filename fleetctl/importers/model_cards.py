"""How many of which cards a model needs, guessed from its name: for a first fleet file, which a person corrects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from fleetctl.documents.inventory import Inventory
from fleetctl.documents.selector import ACCELERATOR_LABEL

GIB = 1 << 30
USABLE, ROOM = 0.9, 1.2
"""The part of a card that an engine takes, and the weights with room for a cache of tokens, as a multiple of them."""

_SIZE = re.compile(r"(?<![A-Za-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)([BM])(?![A-Za-z0-9])", re.IGNORECASE)
_WIDTHS = ((0.5, re.compile(r"awq|gptq|int4|[^a-z]?4bit|w4a16|nvfp4|mxfp4", re.IGNORECASE)),
           (1.0, re.compile(r"fp8|int8|8bit|w8a8", re.IGNORECASE)))


@dataclass(frozen=True, slots=True)
class CardKind:
    """Cards of one kind: Ray's name of it and its memory in bytes, None = unknown; the most that one node has."""

    accelerator: str | None
    memory: int | None
    on_one_node: int


@dataclass(frozen=True, slots=True)
class Need:
    """The cards that one replica claims. `vram` = bytes on each, None = unknown; `fits` False = on no single node."""

    kind: CardKind
    gpus: int
    vram: int | None
    fits: bool = True


USUAL = CardKind(None, 80 * GIB, 8)
"""The cards that are assumed where no cluster is known."""


def card_kinds(inventory: Inventory) -> list[CardKind]:
    """Return the kinds of cards on live nodes, the smallest first."""
    most: dict[tuple[str | None, int | None], int] = {}
    for node in inventory.nodes:
        count = int(node.resources.total.gpu)
        if node.state == "ALIVE" and count:
            sizes = [gpu.memory_total for gpu in node.gpus if gpu.memory_total]
            kind = (node.labels.get(ACCELERATOR_LABEL), min(sizes) if sizes else None)
            most[kind] = max(count, most.get(kind, 0))
    # cards that report no memory yet say nothing where others do
    known = {kind: count for kind, count in most.items() if kind[1]} or most
    return sorted((CardKind(*kind, count) for kind, count in known.items()),
                  key=lambda kind: (kind.memory or 0, kind.accelerator or ""))


def weights_bytes(model: str) -> int | None:
    """Return the bytes of a model's weights, from the sizes in its name: 8B, 8x7B, 0.5B-AWQ; None without one."""
    name = model.rpartition("/")[2]
    sizes = [int(times or 1) * float(number) * (1e9 if unit in "bB" else 1e6)
             for times, number, unit in _SIZE.findall(name)]
    width = next((width for width, pattern in _WIDTHS if pattern.search(name)), 2.0)
    return ceil(max(sizes) * width) if sizes else None


def choose_cards(weights: int | None, kinds: Sequence[CardKind]) -> Need:
    """Return the fewest cards that hold the model, a power of two on one node, of the smallest of the `kinds`."""
    if weights is None:
        return Need(kinds[0], 1, None)
    counts = [1 << power for power in range(max(kind.on_one_node for kind in kinds).bit_length())]
    for gpus in counts:
        for kind in kinds:
            if gpus <= kind.on_one_node and _per_card(weights, gpus) <= USABLE * (kind.memory or float("inf")):
                return Need(kind, gpus, _per_card(weights, gpus) if kind.memory else None)
    largest = max(kinds, key=lambda kind: (kind.memory or 0) * kind.on_one_node)
    vram = _per_card(weights, largest.on_one_node) if largest.memory else None
    return Need(largest, largest.on_one_node, vram, fits=False)


def _per_card(weights: int, gpus: int) -> int:
    return ceil(weights * ROOM / gpus / GIB) * GIB
