"""A fleet file of the live fleet: each model with its number of live replicas, in the shape of the newest.

A plan of the file creates nothing and blocks nothing. The cluster does not store shapes; they come from the logs of
the applies that created the replicas. If no log has the shape, or a value was masked, the file says so, and such
replicas show as drift until a person has filled in the missing part.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from fleetctl.apply.history import Recorded, SpecOf
from fleetctl.documents.inventory import LIVE_STATES, Inventory, Replica, dead_node_ids, is_live, is_lost
from fleetctl.documents.quantity import some
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.importers.draft import Draft, Loss
from fleetctl.importers.live_model import recorded_model, seen_model
from fleetctl.planner.complete import require_complete

NOT_KNOWN = ("The cluster does not know node policies (caps, reserves, cordons), spec.policy, spec.defaults, or the "
             "labels, update, serving and cold of models: write them again.")
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
        model, losses = recorded_model(key, len(replicas), known) if known else (None, [])
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
    return {key: sorted(found[key], key=lambda one: one.replica_id or 0) for key in sorted(found)}


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
