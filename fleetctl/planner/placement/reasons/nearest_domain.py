"""Of the values of a label in one of which a whole replica must be: the one that comes nearest to holding it."""

from __future__ import annotations

from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.ledger.domains import Domain
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.reasons.node_table import NodeTable

MOST_TRIED = 64
"""Values that are tried, those with most GPUs free."""


def nearest_domain(shape: ReplicaShape, placer: Placer, table: NodeTable) -> Domain | None:
    """Return the domain in which most members of a replica find a place; None where no node that is alive has one.

    Of equal ones the one with most GPUs free.
    """
    domains = [domain for domain in placer.domains(shape.same_label or "").with_room(0, 1)
               if table.alive[list(domain.nodes)].any()]
    return max(reversed(domains[-MOST_TRIED:]), key=lambda domain: _placed(shape, placer, domain), default=None)


def _placed(shape: ReplicaShape, placer: Placer, domain: Domain) -> int:
    """Return how many members find a place, part by part. The ledger is left as it was."""
    mark, touched = placer.ledger.mark(), frozenset[int]()
    count = 0
    for group in shape.groups:
        for copy in range(group.copies):
            nodes = placer.place_gang(shape, list(group.seats(copy)), touched, domain) or {}
            touched |= frozenset(nodes.values())
            count += len(nodes)
    placer.ledger.undo(mark)
    return count


def parts_text(shape: ReplicaShape) -> str:
    """Return the groups of a replica in words: `prefill and 2 copies of decode`."""
    *most, last = [f"{group.copies} copies of {group.name}" if group.copies > 1 else group.name
                   for group in shape.groups]
    return f"{', '.join(most)} and {last}" if most else last
