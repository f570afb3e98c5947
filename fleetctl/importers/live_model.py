"""One model of a live fleet, in the shape recorded by an apply or else in the visible shape of its newest replica."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from fleetctl.apply.history import Recorded
from fleetctl.documents.fleet import DNS_LABEL
from fleetctl.documents.inventory import Replica, ReplicaMember
from fleetctl.documents.mask import COMMAND_LINE, MASK, variable_for
from fleetctl.documents.quantity import count_of
from fleetctl.importers.authored import authored_lifecycle, authored_resources, authored_workers
from fleetctl.importers.draft import PLACEHOLDER, Draft, DraftModel, Loss
from fleetctl.importers.write import problems_of, write_draft

Copies = Mapping[int, Sequence[ReplicaMember]]
"""The members of each copy of a group."""


def recorded_model(key: str, replicas: int, known: Recorded) -> tuple[DraftModel | None, list[Loss]]:
    """Return a model in its recorded shape; None if the record is damaged and does not make a valid model."""
    recorded = known.model
    try:
        value = {"key": key, "replicas": replicas, **authored_lifecycle(recorded.lifecycle, recorded.priority)}
        if placement := known.shape.get("placement"):
            value["placement"] = dict(placement)
        value["workers"] = authored_workers(known.shape)
        losses = [] if known.whole else list(_unmask(key, value["workers"]))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None, []
    wanted = f", which wanted {count_of(recorded.wanted, 'replica')}" if recorded.wanted != replicas else ""
    model = DraftModel(value, notes=(f"as recorded by {known.job}{wanted}",))
    return (model, losses) if _is_valid(model) else (None, [])


def _unmask(key: str, workers: list[dict[str, Any]]) -> Iterator[Loss]:
    """Remove masked values from a model's environments and arguments, and report their names."""
    for number, group in enumerate(workers):
        for place, member in enumerate(group["members"]):
            at = ("workers", number, "members", place, "engine")
            if names := _refer_to_secrets(member["engine"]):
                message = (f"{count_of(len(names), 'secret')} in arguments unknown to the cluster, now variables "
                           f"of the node: {', '.join(names)}; replicas show as drift")
                yield Loss(None, key, message, "todo", key, (*at, "args"))
            env = member["engine"].get("env", {})
            hidden = [name for name, text in env.items() if text == MASK]
            if not hidden:
                continue
            member["engine"]["env"] = {name: text for name, text in env.items() if text != MASK}
            message = (f"{count_of(len(hidden), 'env value')} unknown to the cluster: {', '.join(hidden)}; until set, "
                       "replicas show as drift")
            yield Loss(None, key, message, "todo", key, (*at, "env"))


def _refer_to_secrets(engine: dict[str, Any]) -> list[str]:
    """Replace each masked part of the command line by a variable that the node must have; returns their names."""
    names: dict[str, None] = {}
    before = ""
    for key in COMMAND_LINE:
        for at, word in enumerate(engine.get(key, ())):
            if MASK in word:
                name = variable_for(word.partition("=")[0] if "=" in word else before)
                engine[key][at] = word.replace(MASK, f"$({name})")
                names[name] = None
            before = word
    if names:
        engine["env"] = {**engine.get("env", {}), **{name: {"fromNode": name} for name in names}}
    return list(names)


def seen_model(key: str, replicas: Sequence[Replica]) -> tuple[DraftModel | None, list[Loss]]:
    """Return a model without its engine; None if it would not be valid, because of its key or for lack of a claim."""
    newest = replicas[-1]
    model = DraftModel({"key": key, "replicas": len(replicas), **seen_shape(newest)})
    if not _is_valid(model):
        return None, []
    spec = f"spec {newest.spec_hash}" if newest.spec_hash else "its spec"
    message = (f"no apply log on this cluster has {spec}: this shape is what the cluster shows of replica "
               f"{newest.replica_id}; fill in its commands, selectors, probes and timeouts, which are not known; until "
               "then its replicas show as drift")
    return model, [Loss(None, key, message, "todo", key)]


def _is_valid(model: DraftModel) -> bool:
    """Return whether a fleet file with only this model loads: data from a cluster may break any rule."""
    return not problems_of(write_draft(Draft("alone", "", models=[model])), "")


def seen_shape(replica: Replica) -> dict[str, Any]:
    """Return `workers`, with a placeholder as the command, and `placement` if ranks share a node."""
    groups: dict[str, dict[int, list[ReplicaMember]]] = {}
    for member in replica.members or [ReplicaMember()]:
        groups.setdefault(member.group or "main", {}).setdefault(member.copy_index, []).append(member)
    per_node = max(max(Counter(one.node_id for one in members if one.node_id).values(), default=1)
                   for copies in groups.values() for members in copies.values())
    placement = {"placement": {"ranksPerNode": per_node}} if per_node > 1 else {}
    workers = [_group(name, number, copies) for number, (name, copies) in enumerate(groups.items())]
    return {**placement, "workers": workers}


def _group(name: str, number: int, copies: Copies) -> dict[str, Any]:
    several = {"copies": len(copies)} if len(copies) > 1 else {}
    label = name if re.fullmatch(DNS_LABEL, name) else f"group-{number}"
    return {"name": label, **several, "members": _members(copies[min(copies)])}


def _members(ranks: Sequence[ReplicaMember]) -> list[dict[str, Any]]:
    """Return the members of one copy by rank: the first is the Leader, and equal consecutive Workers are one entry."""
    leader, *workers = (_claimed(rank) for rank in sorted(ranks, key=lambda one: one.rank))
    if not workers:
        return [_member({}, leader)]
    counted = ((claimed, len(list(alike))) for claimed, alike in groupby(workers))
    return [_member({"role": "Leader"}, leader),
            *(_member({"role": "Worker", **({"count": count} if count > 1 else {})}, claimed)
              for claimed, count in counted)]


def _claimed(member: ReplicaMember) -> dict[str, int]:
    amounts = {"gpus": member.gpus, "vram": member.vram, "cpus": member.cpus, "memory": member.memory}
    return {name: amount for name, amount in amounts.items() if amount}


def _member(role: dict[str, Any], claimed: Mapping[str, int]) -> dict[str, Any]:
    resources = {"resources": authored_resources(claimed)} if claimed else {}
    return {**role, **resources, "engine": {"command": [PLACEHOLDER]}}
