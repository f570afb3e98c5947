"""The weights of a model that nodes fetch before a replica starts there, and their sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.documents.fleet import Member
from fleetctl.documents.weights import Weights
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.placement.claims import replica_shape
from fleetctl.planner.weights import (
    MOST_FETCHES,
    Fetch,
    by_rank,
    domain_labels,
    variables_of,
    view_of,
    with_sources,
)

if TYPE_CHECKING:
    from fleetctl.planner.sources import Ready


class Part(NamedTuple):
    """One artifact of a model: the view to fetch, and a member that needs it, with the variables it would have."""

    weights: Weights
    view: str | None
    member: Member
    variables: Mapping[str, str]


def parts_of(model: ResolvedModel) -> list[Part]:
    """Return each artifact of a model once; an artifact of which different views are needed is fetched whole."""
    found: dict[str, Part] = {}
    for part in _all_parts(model):
        first = found.setdefault(part.weights.index, part)
        if first.view != part.view:
            whole = first.weights.model_copy(update={"view": None})
            found[part.weights.index] = first._replace(weights=whole, view=None)
    return list(found.values())


def _all_parts(model: ResolvedModel) -> Iterator[Part]:
    for group in model.workers:
        ranks = by_rank(group)
        for rank, member in enumerate(ranks):
            if not member.weights:
                continue
            for copy, replica in product(range(min(group.copies, 2)), range(2)):
                variables = variables_of({"model": model.key, "replicaId": replica},
                                         {"group": group.name, "copy": copy, "rank": rank}, len(ranks))
                yield Part(member.weights, view_of(member.weights, variables), member, variables)


def orders_for(
    model: ResolvedModel, nodes: Mapping[str, Sequence[Part]], ready: Ready
) -> dict[str, list[dict[str, Any]]]:
    """Return the fetches for the agent, by node id.

    At most as many nodes fetch at a time as one source may serve, so sources are chosen for that many at once.
    """
    from fleetctl.planner.sources import sources_for  # NumPy

    orders, todo = dict[str, list[dict[str, Any]]](), list(nodes.items())
    near = domain_labels({"": replica_shape(model)})
    for begin in range(0, len(todo), MOST_FETCHES):
        batch = todo[begin:begin + MOST_FETCHES]
        fetches = {(node_id, part.weights.index): Fetch(node_id, part.weights.index, part.view, near)
                   for node_id, parts in batch for part in parts}
        chosen = sources_for(list(fetches.values()), ready)
        for node_id, parts in batch:
            orders[node_id] = [{
                "weights": with_sources(part.weights, chosen[fetches[node_id, part.weights.index]]),
                "engine": {"env": part.member.engine.as_json()["env"]}, "variables": dict(part.variables),
            } for part in parts]
    return orders
