"""The codes of a single node that cannot take a member, and what stops a node from being asked at all."""

from __future__ import annotations

CLOSEST_FIRST = (
    "INSUFFICIENT_MEMORY", "INSUFFICIENT_CPU", "INSUFFICIENT_VRAM", "CARD_MEMORY_UNKNOWN", "CARD_IN_USE",
    "INSUFFICIENT_GPU", "SLOTS_FULL", "SPREAD_FULL", "CORDONED", "NODE_DRAINING", "NODE_SELECTOR_MISMATCH", "NO_NODES",
)
"""Those nearest to success first. In arrays a code is its place in here."""

(MEMORY, CPU, VRAM, CARD_UNKNOWN, CARD_IN_USE, GPU, SLOTS, SPREAD, CORDONED, DRAINING, MISMATCH, NO_NODES) = range(
    len(CLOSEST_FIRST))
"""From SLOTS on it does not matter what the node has: it may not be used, or not for this."""

FITS = -1
"""In arrays: nothing stops this node."""

IN_WORDS = {
    "INSUFFICIENT_MEMORY": "short of memory", "INSUFFICIENT_CPU": "short of CPUs", "INSUFFICIENT_GPU": "short of GPUs",
    "INSUFFICIENT_VRAM": "short of VRAM", "CARD_MEMORY_UNKNOWN": "with cards of unknown memory",
    "CARD_IN_USE": "with cards in use", "SLOTS_FULL": "without a free slot",
    "SPREAD_FULL": "beyond the limit of the spread", "CORDONED": "cordoned",
    "NODE_DRAINING": "draining", "NODE_SELECTOR_MISMATCH": "not selected",
}
"""How nodes of one code are called in a sentence."""
