"""Cards from the dashboard's node summary: what NVML sees on a node, in MiB, possibly some seconds old.

That list is made for a user interface, not as an API: every field may be missing, and what is missing is unknown,
never 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetctl.documents.inventory import Gpu
from fleetctl.documents.quantity import SHARE

MIB = 1 << 20


def read_cards(entry: Mapping[str, Any], declared_gpus: int) -> list[Gpu]:
    """Return the cards of one node of the summary; `declared_gpus` in 1/10000 is what the node offers to Ray.

    A node that declares GPUs but shows no cards (no statistics yet, or a vendor Ray cannot measure) gets as many
    cards of unknown kind and memory.
    """
    listed = entry.get("gpus")
    cards = [card for item in (listed if isinstance(listed, list) else []) if (card := _card(item)) is not None]
    if not cards:
        return [Gpu(index=index) for index in range(declared_gpus // SHARE)]
    return sorted(cards, key=lambda card: (card.index, card.uuid or ""))


def _card(item: object) -> Gpu | None:
    if not isinstance(item, dict) or not _whole(item.get("index")):
        return None
    return Gpu(
        index=item["index"], uuid=_text(item.get("uuid")), model=_text(item.get("name")),
        memory_total=_bytes(item.get("memoryTotal"), zero_is_unknown=True),
        memory_used=_bytes(item.get("memoryUsed"), zero_is_unknown=False),
    )


def _bytes(mebibytes: object, *, zero_is_unknown: bool) -> int | None:
    """MiB to bytes; unified-memory parts report no total, and some agents -1."""
    if isinstance(mebibytes, bool) or not isinstance(mebibytes, (int, float)) or not 0 <= mebibytes < 1e12:
        return None
    return None if zero_is_unknown and mebibytes == 0 else int(mebibytes * MIB)


def card_warnings(nodes: Sequence[tuple[str, int, Sequence[Gpu]]]) -> Iterator[str]:
    """Warn of what the cards alone show; `nodes` are (name, declared GPUs in 1/10000, cards), without dead ones."""
    seen: defaultdict[str, list[str]] = defaultdict(list)
    for name, declared, cards in nodes:
        for card in cards:
            if card.uuid:
                seen[card.uuid].append(name)
        if declared and len(cards) != declared // SHARE:
            yield (f"{name} offers {declared / SHARE:g} GPUs to Ray but reports {len(cards)} cards; "
                   "which of them Ray hands out is not known")
    for uuid, names in sorted(seen.items()):
        if len(names) > 1:
            yield f"card {uuid} is reported by {', '.join(sorted(names))}: Ray nodes that share a machine"


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
