"""Names the label or value that no live node has, with the nearest spelling that one has."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence

import numpy as np

from fleetctl.documents.nearest import nearest
from fleetctl.documents.selector import parse_requirement
from fleetctl.planner.placement.claims import Selector
from fleetctl.planner.placement.reasons.node_table import NodeTable
from fleetctl.planner.placement.reasons.words import nodes

MAX_VALUES = 5
DID_YOU_MEAN = "did you mean"
UNKNOWN_LABEL = "no node has the label"
MAX_COMPARED = 100
"""Of more words than this, only those beside it in the alphabet are compared: node names may be 10,000."""


def explain_mismatch(selector: Selector, table: NodeTable) -> str:
    """Say which part of a selector no node satisfies, or how many nodes satisfy each part where none has all."""
    counts: list[tuple[str, int]] = []
    for key, expression in selector:
        allowed = int((table.allowed_by(key, expression) & table.alive).sum())
        if not allowed:
            return _nobody(key, expression, table)
        counts.append((f"{key}={expression}", allowed))
    each = ", ".join(f"{nodes(allowed)} with {part}" for part, allowed in counts)
    return f"no single node has all of {', '.join(part for part, _ in counts)} ({each})"


def _nobody(key: str, expression: str, table: NodeTable) -> str:
    column = table.column(key)
    values = [column.values[code] for code in np.unique(column.codes[table.alive]) if code >= 0]
    if not values:
        return f"{UNKNOWN_LABEL} {key}{meant(key, table.label_keys)}"
    asked = " ".join(sorted(parse_requirement(expression).values))
    return f"no node has {key}={expression}{meant(asked, values)}; found: {_some(values)}"


def meant(word: str, words: Sequence[str]) -> str:
    """Return ` (did you mean ...?)` with the nearest of `words` (in order of the alphabet), or nothing."""
    if len(words) > MAX_COMPARED:
        start = max(0, bisect(words, word) - MAX_COMPARED // 2)
        words = words[start: start + MAX_COMPARED]
    near = nearest(word, words)
    return f" ({DID_YOU_MEAN} {near}?)" if near else ""


def _some(values: Sequence[str]) -> str:
    more = f" and {len(values) - MAX_VALUES} more" if len(values) > MAX_VALUES else ""
    return ", ".join(values[:MAX_VALUES]) + more
