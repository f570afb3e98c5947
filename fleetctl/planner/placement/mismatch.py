"""Names the label or value that no live node has, with the nearest spelling that one has."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from fleetctl.documents.selector import parse_requirement
from fleetctl.planner.placement.claims import Selector
from fleetctl.planner.placement.ledger import LedgerNode

MAX_VALUES = 5


def explain_mismatch(selector: Selector, nodes: Sequence[LedgerNode]) -> str:
    """Say which part of a selector no node satisfies, or that no single node satisfies all of it."""
    alive = [node for node in nodes if node.state != "DEAD"]
    for key, expression in selector:
        requirement = parse_requirement(expression)
        if any(requirement.allows(node.labels.get(key)) for node in alive):
            continue
        values = sorted({node.labels[key] for node in alive if key in node.labels})
        if not values:
            return f"no node has the label {key}{nearest(key, label_keys(alive))}"
        asked = " ".join(sorted(requirement.values))
        return f"no node has {key}={expression}{nearest(asked, values)}; found: {_some(values)}"
    return f"no single node has all of {', '.join(f'{key}={value}' for key, value in selector)}"


def label_keys(nodes: Sequence[LedgerNode]) -> list[str]:
    """Return every label key that a node has."""
    return sorted({key for node in nodes for key in node.labels})


def nearest(word: str, words: Sequence[str]) -> str:
    """Return ` (did you mean ...?)` with the nearest of `words`, or nothing."""
    near = get_close_matches(word, words, n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def _some(values: Sequence[str]) -> str:
    more = f" and {len(values) - MAX_VALUES} more" if len(values) > MAX_VALUES else ""
    return ", ".join(values[:MAX_VALUES]) + more
