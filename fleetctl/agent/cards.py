"""The member's own look at its cards before it starts an engine: is somebody else's memory on them?

Ray picks the card and knows nothing of memory, so the last word is the driver's. Without `nvidia-smi` nothing is known
and nothing is refused.
"""

from __future__ import annotations

import csv
import subprocess
import time
from typing import Mapping, NamedTuple, Optional, Sequence

MIB = 1 << 20
SETTLE_S = 20.0
"""A card may still be giving memory back when its last engine has just ended."""


class Card(NamedTuple):
    """One card as the driver reports it. Bytes."""

    number: str
    uuid: str
    total: int
    used: int


def read_cards(env: Mapping[str, str]) -> Optional[Sequence[Card]]:
    """Ask the driver for all cards of this host; None when it cannot be asked."""
    query = ["nvidia-smi", "--query-gpu=index,uuid,memory.total,memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, env=dict(env), capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    cards = []
    for row in csv.reader(done.stdout.splitlines(), skipinitialspace=True):
        if len(row) == 4 and row[2].strip().isdigit() and row[3].strip().isdigit():
            cards.append(Card(row[0].strip(), row[1].strip(), int(row[2]) * MIB, int(row[3]) * MIB))
    return cards


def granted(cards: Sequence[Card], visible: str) -> Sequence[Card]:
    """Pick the cards of a CUDA_VISIBLE_DEVICES value, by index or UUID, in its order."""
    wanted = [part.strip() for part in visible.split(",") if part.strip()]
    return [card for part in wanted for card in cards if part in (card.number, card.uuid)]


def objection(cards: Sequence[Card], gpu_share: int, vram_bytes: int) -> Optional[str]:
    """Say what is wrong with starting on `cards`, with the arithmetic, or None.

    A whole card must be clean: not more in use than max(1Gi, 2 % of it). A shared one must have `vram_bytes` free.
    """
    for card in cards:
        free = card.total - card.used
        if free < vram_bytes:
            need = vram_bytes // MIB
            return f"card {card.number} has {free // MIB}Mi of {card.total // MIB}Mi free, {need}Mi are needed"
        if gpu_share >= 10_000 and card.used > max(1 << 30, card.total // 50):
            return f"card {card.number} was granted whole but {card.used // MIB}Mi of it are in use by somebody else"
    return None


def wait_for_clean_cards(visible: str, gpu_share: int, vram_bytes: int, env: Mapping[str, str]) -> Optional[str]:
    """Return None once the granted cards are fit to use, or what is wrong with them after SETTLE_S."""
    if gpu_share == 0:
        return None
    deadline = time.monotonic() + SETTLE_S
    while True:
        cards = read_cards(env)
        found = None if cards is None else objection(granted(cards, visible), gpu_share, vram_bytes)
        if found is None or time.monotonic() >= deadline:
            return found
        time.sleep(2)


def uuids(visible: str, env: Mapping[str, str]) -> Sequence[str]:
    """Return the UUIDs of the granted cards, as far as the driver tells."""
    cards = read_cards(env) if visible else None
    return [card.uuid for card in granted(cards, visible)] if cards else []
