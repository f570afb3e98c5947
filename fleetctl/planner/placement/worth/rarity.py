"""How rare a node is: few others share its value of a label, or have cards as large.

Nobody has asked for what is rare there yet; who does so later has little choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from fleetctl.planner.placement.ledger.ledger import Ledger

STEPS = 4


def rarities(ledger: Ledger) -> list[int]:
    """Return how rare each node is, from 0 (most are like it) to STEPS; closed nodes are 0.

    A label counts where its values group nodes, so that names of hosts do not; against its most common value.
    """
    open_nodes = [place for place, node in enumerate(ledger.nodes) if node.open]
    counts: dict[str, Counter[str]] = {}
    for place in open_nodes:
        for key, value in ledger.nodes[place].labels.items():
            counts.setdefault(key, Counter())[value] += 1
    groups = {key: by_value for key, by_value in counts.items() if 1 < len(by_value) <= len(open_nodes) // 2}
    memory = [max((card.memory or 0 for card in ledger.offer(place).cards), default=0) for place in open_nodes]
    as_large = _counts_from_above(memory)
    result = [0] * len(ledger.nodes)
    for place, size in zip(open_nodes, memory, strict=True):
        common = min(as_large[size] / len(open_nodes), _commonness(ledger.nodes[place].labels, groups))
        result[place] = round(STEPS * (1 - common))
    return result


def _commonness(labels: Mapping[str, str], groups: Mapping[str, Counter[str]]) -> float:
    return min((by_value[labels[key]] / max(by_value.values()) for key, by_value in groups.items() if key in labels),
               default=1.0)


def _counts_from_above(sizes: list[int]) -> dict[int, int]:
    """Return, for each size, how many are at least as large."""
    counts, seen = dict[int, int](), 0
    for size, count in sorted(Counter(sizes).items(), reverse=True):
        seen += count
        counts[size] = seen
    return counts
