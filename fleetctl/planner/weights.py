"""The weights that the members of a model need, by rank and view, and how long an engine may take to load them.

The size of weights is known once a replica in the cluster has them: a fleet file has only the hash of their index. The
lifecycle of a plan has the whole time, so every part of an apply, and replicas of earlier releases, allow the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from fleetctl.documents.base import span_text
from fleetctl.documents.fleet import Member
from fleetctl.documents.inventory import LIVE_STATES, Inventory, Start
from fleetctl.documents.quantity import SHARE, format_bytes, format_seconds, grouped
from fleetctl.documents.weights import Weights
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.planner.placement.claims import ReplicaShape

MOST_FETCHES = 4
"""Nodes that one source is planned for in the first wave; it also serves no more at a time."""
SLOW = 300 << 20
"""Bytes per second at which an engine loads its weights at the slowest, from a disk or a network share."""
MOST_S = 6 * 3600
"""The most that is added: what an actor says of its weights is a claim."""
FOR_LONGEST = 2
"""How many times the longest known start a start may take by default."""
_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")


class NodeFetch(NamedTuple):
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


def members_by_rank(model: ResolvedModel) -> dict[str, list[Member]]:
    """Return the members of a model by group and rank; empty if none has weights."""
    if not any(member.weights for group in model.workers for member in group.members):
        return {}
    return {group.name: group.by_rank for group in model.workers}


def domain_labels(shapes: Sequence[ReplicaShape]) -> tuple[str, ...]:
    """Return the labels by which models define what is near: those of sameLabel, then those of spread."""
    same = [shape.same_label for shape in shapes]
    spread = [shape.spread.label for shape in shapes if shape.spread]
    return tuple(dict.fromkeys(label for label in (*same, *spread) if label))


def variables_of(action: Mapping[str, Any], member: Mapping[str, Any], gang: Sequence[Member]) -> dict[str, str]:
    """Return the variables of a member that are known before it starts; `gang` = the members of its group by rank."""
    rank = member["rank"]
    ranks = [max(1, member.resources.gpus // SHARE) for member in gang]
    first = sum(ranks[:rank])
    variables = {"MODEL": action["model"], "REPLICA_ID": action["replicaId"], "GROUP": member["group"],
             "COPY": member["copy"], "RANK": rank, "GROUP_SIZE": len(gang),
             "RANKS": ",".join(map(str, range(first, first + ranks[rank])))}
    return {f"FLEETCTL_{name}": str(value) for name, value in variables.items()}


def view_of(weights: Weights, variables: Mapping[str, str]) -> str | None:
    """Return the name of the view that a member with these variables needs; None = all files."""
    from fleetctl.agent.weights.views import read_view, view_id, with_a_pattern_per_rank  # few fleets have weights

    written = with_a_pattern_per_rank(weights.view.model_dump(exclude_none=True)) if weights.view else None
    view = _expanded(written, variables)
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


def with_startup_times(fleet: ResolvedFleet, inventory: Inventory) -> ResolvedFleet:
    """Return the fleet with the startup timeout of each model that does not set one, whole minutes longer for weights.

    Of equal weights the largest part counts that any live replica has. It is never shorter than twice the longest start
    of its spec, else of its model, that is known.
    """
    sizes: dict[str, int] = {}
    for replica in inventory.replicas:
        for member in replica.members if replica.state in LIVE_STATES else ():
            if member.weights:
                sizes[member.weights.artifact] = max(sizes.get(member.weights.artifact, 0), member.weights.bytes or 0)
    starts = grouped((start.model, start) for start in inventory.starts)
    return replace(fleet, models=tuple(model.with_each(partial(_grown, sizes=sizes, starts=starts.get(model.key, ())))
                                       for model in fleet.models)) if sizes or starts else fleet


def _grown(model: ResolvedModel, sizes: Mapping[str, int], starts: Sequence[Start]) -> ResolvedModel:
    if not model.startup_by_default:
        return model
    longest = max((start.seconds for start in own_starts(model, starts)), default=0.0)
    loaded = max((sizes.get(member.weights.index, 0) for group in model.workers for member in group.members
                  if member.weights), default=0)
    for_weights_s = model.startup_timeout_s + _added_s(loaded)
    for_longest_s = min(-(-FOR_LONGEST * longest // 60) * 60, model.startup_timeout_s + MOST_S)
    if for_longest_s > for_weights_s:
        return replace(model, startup_timeout_s=for_longest_s, longest_start_s=longest)
    if for_weights_s == model.startup_timeout_s:
        return model
    return replace(model, startup_timeout_s=for_weights_s, loaded_bytes=loaded)


def own_starts(model: ResolvedModel, starts: Sequence[Start]) -> Sequence[Start]:
    """Return the starts of the model's spec, of all its starts; all, if there is none."""
    return [start for start in starts if model.has_spec(start.spec_hash)] or starts


def _added_s(loaded_bytes: int) -> int:
    return min(MOST_S, loaded_bytes // (SLOW * 60) * 60)


def allowed_text(startup_timeout_s: float, loaded_bytes: int, longest_start_s: float = 0) -> str:
    """Return in words how long a start may take: `allowed 37m: 30m + 140Gi at 300Mi/s`."""
    if longest_start_s:
        longest = span_text(round(longest_start_s))
        return f"allowed {format_seconds(startup_timeout_s)}: {FOR_LONGEST} times the {longest} of its longest start"
    own_s = startup_timeout_s - _added_s(loaded_bytes)
    return (f"allowed {format_seconds(startup_timeout_s)}: {format_seconds(own_s)} + {format_bytes(loaded_bytes)} at "
            f"{format_bytes(SLOW)}/s")


def startup_notes(fleet: ResolvedFleet, inventory: Inventory) -> dict[str, str]:
    """Return how long a start may take, by model, of the models for whose weights or starts that is longer."""
    return {model.key: allowed_text(model.startup_timeout_s, model.loaded_bytes, model.longest_start_s)
            for model in with_startup_times(fleet, inventory).models if model.loaded_bytes or model.longest_start_s}
