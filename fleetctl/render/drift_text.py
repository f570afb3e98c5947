"""Replicas that run, but not as the file says, in words: those that are alike together, what differs, the way on.

Texts are as they came, not yet safe for anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from shlex import quote

from fleetctl.documents.plan import Drift, Plan
from fleetctl.render.place_text import ids_text

OUTDATED = "SPEC_CHANGED"


def alike(drift: Sequence[Drift]) -> list[tuple[str, Drift]]:
    """Return each kind of drift of each model once, with the replicas it is about: `m/0-2`."""
    ids: dict[tuple[object, ...], list[int]] = {}
    first: dict[tuple[object, ...], Drift] = {}
    for one in drift:
        key = one.model, one.code, one.message, None if one.changes is None else tuple(one.changes)
        ids.setdefault(key, []).append(one.replica_id)
        first.setdefault(key, one)
    return [(f"{one.model}/{ids_text(ids[key])}", one) for key, one in first.items()]


def drift_details(drift: Drift, surplus: Collection[str] = ()) -> Iterator[str]:
    """Yield what differs, and the way on; `surplus` = models of which more runs than wanted: none would be replaced."""
    yield from drift.changes or ()
    if drift.code == OUTDATED and drift.model not in surplus:
        replica = quote(f"{drift.model}/{drift.replica_id}")
        yield f"to replace it: fleetctl evict {replica}, then fleetctl apply starts one with the file's spec"


def models_with_surplus(plan: Plan) -> frozenset[str]:
    """Return the models of which more runs than wanted."""
    return frozenset(row.key for row in plan.models if row.surplus)
