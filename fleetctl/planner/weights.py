"""The weights that the members of a model need, by rank and view, and what nodes fetch before a replica starts there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.documents.fleet import Member, WorkerGroup
from fleetctl.documents.weights import Weights
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.placement.claims import ReplicaShape, replica_shape

if TYPE_CHECKING:
    from fleetctl.planner.sources import Ready

MOST_FETCHES = 4
"""Nodes that one source is planned for in the first wave; it also serves no more at a time."""
_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")


class Fetch(NamedTuple):
    """A fetch of one node for all its members that need it; `near` = the labels that define which nodes are near."""

    node_id: str
    artifact: str
    view: str | None
    near: tuple[str, ...]


def with_sources(weights: Weights, sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the weights of a member in the form of a plan."""
    plain = {"artifact": weights.index, "view": None, **weights.as_json(), "sources": list(sources)}
    del plain["index"]
    return plain


def weights_by_rank(model: ResolvedModel) -> dict[str, list[Weights | None]]:
    """Return the weights of a model by group and rank; empty if no member has any."""
    if not any(member.weights for group in model.workers for member in group.members):
        return {}
    return {group.name: [member.weights for member in by_rank(group)] for group in model.workers}


def by_rank(group: WorkerGroup) -> list[Member]:
    """Return the member of each rank of a group."""
    members = sorted(group.members, key=lambda member: member.role == "Worker")
    return [member for member in members for _ in range(member.count or 1)]


def domain_labels(shapes: Mapping[str, ReplicaShape]) -> tuple[str, ...]:
    """Return the labels by which models define what is near: those of sameLabel, then those of spread."""
    same = [shape.same_label for shape in shapes.values()]
    spread = [shape.spread.label for shape in shapes.values() if shape.spread]
    return tuple(dict.fromkeys(label for label in (*same, *spread) if label))


def variables_of(action: Mapping[str, Any], member: Mapping[str, Any], size: int) -> dict[str, str]:
    """Return the variables of a member that are known before it starts."""
    found = {"MODEL": action["model"], "REPLICA_ID": action["replicaId"], "GROUP": member["group"],
             "COPY": member["copy"], "RANK": member["rank"], "GROUP_SIZE": size}
    return {f"FLEETCTL_{name}": str(value) for name, value in found.items()}


def view_of(weights: Weights, variables: Mapping[str, str]) -> str | None:
    """Return the name of the view that a member with these variables needs; None = all files."""
    from fleetctl.agent.weights.views import read_view, view_id  # few fleets have weights

    view = _expanded(weights.view.model_dump(exclude_none=True), variables) if weights.view else None
    rank, size = int(variables["FLEETCTL_RANK"]), int(variables["FLEETCTL_GROUP_SIZE"])
    return view_id(read_view(view), rank, size, weights.index)


def _expanded(value: Any, variables: Mapping[str, str]) -> Any:  # noqa: ANN401  any JSON value
    """Return a view with its variables expanded as the agent does: `$$` is a dollar sign."""
    if isinstance(value, dict):
        return {key: _expanded(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [_expanded(item, variables) for item in value]
    if not isinstance(value, str):
        return value
    return _REFERENCE.sub(lambda match: "$" if match[1] is None else variables.get(match[1], match[0]), value)


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
