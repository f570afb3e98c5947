"""A fleet file of the live fleet: each model with its number of live replicas, in the shape of the newest.

A plan of the file creates nothing and blocks nothing. The cluster does not store shapes; they come from the logs of
the applies that created the replicas. If no log has the shape, or a value was masked, the file says so, and such
replicas show as drift until a person has filled in the missing part.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from fleetctl.apply.history import Recorded, SpecOf
from fleetctl.documents.base import DNS_LABEL
from fleetctl.documents.inventory import LIVE_STATES, Inventory, Replica, ReplicaMember, dead_node_ids, is_live, is_lost
from fleetctl.documents.mask import COMMAND_LINE, MASK, variable_for
from fleetctl.documents.quantity import AUTO, count_of, some
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.importers.draft import (
    PLACEHOLDER,
    Draft,
    DraftModel,
    Loss,
    authored_lifecycle,
    authored_resources,
    authored_workers,
    bytes_text,
)
from fleetctl.importers.write import problems_of, write_draft
from fleetctl.planner.options import require_complete

NOT_KNOWN = ("The cluster does not know node policies (caps, reserves, cordons), spec.policy, spec.defaults, or the "
             "labels, model, update, serving and cold of models: write them again.")
MAX_NAMED = 5
"""The number of nodes named in a message."""


def live_replicas(inventory: Inventory) -> list[Replica]:
    """Return the replicas of all fleets that count as live, in the order of the inventory."""
    dead = dead_node_ids(inventory)
    return [replica for replica in inventory.replicas
            if replica.fleet is not None and replica.replica_id is not None and is_live(replica, dead)]


def choose_fleet(inventory: Inventory, wanted: str | None) -> str:
    """Return the fleet to import: `wanted`, or the only one that runs.

    Raises FleetctlError if no replica of it runs, UsageError if there are several to choose from, and InventoryError if
    the inventory is not complete.
    """
    require_complete(inventory)
    fleets = sorted({replica.fleet for replica in live_replicas(inventory) if replica.fleet})
    if wanted in fleets or (wanted is None and len(fleets) == 1):
        return wanted or fleets[0]
    listed = ", ".join(fleets)
    if wanted is None and fleets:
        raise UsageError(f"several fleets run here: {listed}", hint="choose one with --fleet")
    raise FleetctlError(f"no replica of {f'fleet {wanted}' if wanted else 'any fleet'} runs here",
                        hint=f"fleets that run here: {listed}" if fleets else "`fleetctl status` lists what runs")


def wanted_specs(inventory: Inventory, fleet: str) -> dict[SpecOf, None]:
    """Return the models and spec hashes whose shapes are needed, in a fixed order."""
    newest = {key: replicas[-1].spec_hash for key, replicas in _by_model(inventory, fleet).items()}
    return {(key, spec_hash): None for key, spec_hash in newest.items() if spec_hash}


def live_draft(inventory: Inventory, fleet: str, recorded: Mapping[SpecOf, Recorded], namespace: str) -> Draft:
    """Return the fleet as a draft of its file; `recorded` = the result of `find_recorded` for `wanted_specs`."""
    draft = Draft(fleet, f"what ran at {inventory.observed_at}, read from {inventory.source}", notes=[NOT_KNOWN])
    address = {"address": inventory.cluster.address} if inventory.cluster.address else {}
    draft.cluster = {**address, "namespace": namespace}
    for key, replicas in _by_model(inventory, fleet).items():
        known = recorded.get((key, replicas[-1].spec_hash or ""))
        model, losses = recorded_model(key, replicas, known) if known else (None, [])
        if model is None:
            model, losses = seen_model(key, replicas)
        if model is None:
            draft.losses.append(Loss(None, key, f"{len(replicas)} live, but they do not make a valid model"))
            continue
        draft.models.append(model)
        draft.losses += [*losses, *other_specs(key, replicas), *crowded(key, replicas, inventory)]
    draft.losses += left_out(inventory, fleet)
    others = Counter(replica.fleet for replica in live_replicas(inventory) if replica.fleet != fleet)
    listed = ", ".join(f"{name} ({count})" for name, count in sorted(others.items()))
    draft.notes += [f"Other fleets run here; import them with --fleet: {listed}."] if others else []
    return draft


def _by_model(inventory: Inventory, fleet: str) -> dict[str, list[Replica]]:
    """Return the live replicas of a fleet by model; models are sorted by name, replicas by id, the newest last."""
    found: defaultdict[str, list[Replica]] = defaultdict(list)
    for replica in live_replicas(inventory):
        if replica.fleet == fleet:
            found[replica.model].append(replica)
    return {key: sorted(found[key], key=lambda replica: replica.replica_id or 0) for key in sorted(found)}


def other_specs(key: str, replicas: Sequence[Replica]) -> Iterator[Loss]:
    """Report the replicas whose spec differs from that of the newest, which is the last."""
    others: defaultdict[str, list[str]] = defaultdict(list)
    for replica in replicas:
        if replica.spec_hash != replicas[-1].spec_hash:
            others[f"spec {replica.spec_hash}" if replica.spec_hash else "an unknown spec"].append(
                str(replica.replica_id))
    for spec, ids in sorted(others.items()):
        message = (f"replica {ids[0]} runs {spec}, not that of the newest, and shows as drift" if len(ids) == 1 else
                   f"replicas {', '.join(ids)} run {spec}, not that of the newest, and show as drift")
        yield Loss(None, key, message, "lost", key)


def crowded(key: str, replicas: Sequence[Replica], inventory: Inventory) -> Iterator[Loss]:
    """Report a cap that must have been raised: by default a model without GPUs has one replica per node."""
    if any(member.gpus or member.vram for replica in replicas for member in replica.members):
        return
    names = {node.id: node.name for node in inventory.nodes}
    on_node = Counter(node_id for replica in replicas
                      for node_id in {member.node_id for member in replica.members if member.node_id})
    several = sorted((names.get(node_id, node_id), count) for node_id, count in on_node.items() if count > 1)
    if several:
        shown = some([f"{count} on {name}" for name, count in several], MAX_NAMED)
        yield Loss(None, key, f"several replicas without GPUs share a node ({shown}): set maxReplicasPerModel in "
                   "spec.nodes; until then some of them show as drift", "todo", key)


def left_out(inventory: Inventory, fleet: str) -> Iterator[Loss]:
    """Report what is left out: lost replicas of this fleet, replicas that are not HOT, and replicas of no fleet."""
    dead = dead_node_ids(inventory)
    foreign: Counter[str] = Counter()
    for replica in inventory.replicas:
        name = f"{replica.model}/{replica.replica_id}"
        if replica.state not in LIVE_STATES:
            continue
        if replica.fleet is None or replica.replica_id is None:
            foreign[replica.model] += 1
        elif replica.fleet == fleet and is_lost(replica, dead):
            yield Loss(None, name, "not counted: its node is dead")
        elif replica.fleet == fleet and replica.level != "HOT":
            yield Loss(None, name, f"not counted: it is {replica.level}, and only HOT replicas count")
    for model, count in sorted(foreign.items()):
        yield Loss(None, model, f"not imported: {count} {'runs' if count == 1 else 'run'} outside any fleet and "
                   f"{'uses' if count == 1 else 'use'} capacity")


def recorded_model(key: str, replicas: Sequence[Replica], known: Recorded) -> tuple[DraftModel | None, list[Loss]]:
    """Return a model in its recorded shape; None if the record is damaged and does not make a valid model."""
    recorded = known.model
    try:
        value = {"key": key, "replicas": len(replicas), **authored_lifecycle(recorded.lifecycle, recorded.priority)}
        if placement := known.shape.get("placement"):
            value["placement"] = dict(placement)
        value["workers"] = authored_workers(known.shape)
        losses = [] if known.whole else list(_unmask(key, value["workers"]))
        losses += _counted(key, value["workers"], replicas[-1])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, StopIteration):
        return None, []
    wanted = f", which wanted {count_of(recorded.wanted, 'replica')}" if recorded.wanted != len(replicas) else ""
    model = DraftModel(value, notes=(f"as recorded by {known.job}{wanted}",))
    return (model, losses) if _is_valid(model) else (None, [])


def _unmask(key: str, workers: list[dict[str, Any]]) -> Iterator[Loss]:
    """Remove masked values from a model's environments and arguments, and report their names."""
    for number, group in enumerate(workers):
        for index, member in enumerate(group["members"]):
            at = ("workers", number, "members", index, "engine")
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


def _counted(key: str, workers: list[dict[str, Any]], replica: Replica) -> Iterator[Loss]:
    """Replace each `vram: auto` by what a replica claims, as no record describes its model; reports them."""
    for number, group in enumerate(workers):
        for index, member in enumerate(group["members"]):
            resources, role = member.get("resources", {}), member.get("role", "Standalone")
            if resources.get("vram") == AUTO:
                resources["vram"] = bytes_text(next(
                    seen.vram for seen in replica.members if (seen.group, seen.role) == (group["name"], role)))
                yield Loss(None, key, "vram: auto needs `model`, which the cluster does not know: this is the claim of "
                           f"replica {replica.replica_id}; until both are set, replicas show as drift", "todo", key,
                           ("workers", number, "members", index, "resources", "vram"))


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
    per_node = max(max(Counter(member.node_id for member in members if member.node_id).values(), default=1)
                   for copies in groups.values() for members in copies.values())
    placement = {"placement": {"ranksPerNode": per_node}} if per_node > 1 else {}
    return {**placement, "workers": [
        {"name": name if re.fullmatch(DNS_LABEL, name) else f"group-{number}",
         **({"copies": len(copies)} if len(copies) > 1 else {}), "members": _members(copies[min(copies)])}
        for number, (name, copies) in enumerate(groups.items())]}


def _members(ranks: Sequence[ReplicaMember]) -> list[dict[str, Any]]:
    """Return the members of one copy by rank: the first is the Leader, and equal consecutive Workers are one entry."""
    leader, *workers = ({name: amount for name, amount in (
        ("gpus", member.gpus), ("vram", member.vram), ("cpus", member.cpus), ("memory", member.memory)) if amount}
        for member in sorted(ranks, key=lambda member: member.rank))
    if not workers:
        return [_member({}, leader)]
    counted = ((claimed, len(list(alike))) for claimed, alike in groupby(workers))
    return [_member({"role": "Leader"}, leader),
            *(_member({"role": "Worker", **({"count": count} if count > 1 else {})}, claimed)
              for claimed, count in counted)]


def _member(role: dict[str, Any], claimed: Mapping[str, int]) -> dict[str, Any]:
    resources = {"resources": authored_resources(claimed)} if claimed else {}
    return {**role, **resources, "engine": {"command": [PLACEHOLDER]}}
