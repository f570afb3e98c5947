"""A fleet file from what runs: for each model as many replicas as are live, in the shape the cluster still knows.

A plan of the file creates nothing and blocks nothing. Shapes are not written on the cluster; they come from the logs of
the applies that created the replicas. Where no log has the shape, or a value was masked, the file says so, and such
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

NOT_KNOWN = ("The cluster does not know node policies, spec.policy, spec.defaults, or labels, update, serving and cold "
             "of models: caps, reserves, cordons, thresholds, quotas and these have to be written again.")
NAMED = 5
"""How many nodes are named."""


def live_replicas(inventory: Inventory) -> list[Replica]:
    """Return the replicas of all fleets that count as live, in the order of the inventory."""
    dead = dead_node_ids(inventory)
    return [replica for replica in inventory.replicas
            if replica.fleet is not None and replica.replica_id is not None and is_live(replica, dead)]


def choose_fleet(inventory: Inventory, wanted: str | None) -> str:
    """Return the fleet to import: the one asked for, or the only one there is.

    Raises FleetctlError when none of it runs, UsageError when there are several to choose from, and InventoryError when
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
                        hint=f"these do: {listed}" if fleets else "`fleetctl status` lists what runs")


def wanted_specs(inventory: Inventory, fleet: str) -> dict[SpecOf, None]:
    """Return the models and spec hashes whose shapes are needed, in a fixed order."""
    newest = {key: replicas[-1].spec_hash for key, replicas in _by_model(inventory, fleet).items()}
    return {(key, spec_hash): None for key, spec_hash in newest.items() if spec_hash}


def live_draft(inventory: Inventory, fleet: str, recorded: Mapping[SpecOf, Recorded], namespace: str) -> Draft:
    """Return the fleet as a draft of its file; `recorded` is what `find_recorded` finds of `wanted_specs`."""
    draft = Draft(fleet, f"what ran at {inventory.observed_at}, read from {inventory.source}", notes=[NOT_KNOWN])
    address = {"address": inventory.cluster.address} if inventory.cluster.address else {}
    draft.cluster = {**address, "namespace": namespace}
    for key, replicas in _by_model(inventory, fleet).items():
        known = recorded.get((key, replicas[-1].spec_hash or ""))
        model, losses = recorded_model(key, len(replicas), known) if known else (None, [])
        if model is None:
            model, losses = seen_model(key, replicas)
        if model is None:
            draft.losses.append(Loss(None, key, f"{len(replicas)} live, but what is visible of it is not a model"))
            continue
        draft.models.append(model)
        draft.losses += [*losses, *other_specs(key, replicas), *crowded(key, replicas, inventory)]
    draft.losses += left_out(inventory, fleet)
    others = Counter(replica.fleet for replica in live_replicas(inventory) if replica.fleet != fleet)
    listed = ", ".join(f"{name} ({count})" for name, count in sorted(others.items()))
    draft.notes += [f"Other fleets run here, too; --fleet imports one of them: {listed}."] if others else []
    return draft


def _by_model(inventory: Inventory, fleet: str) -> dict[str, list[Replica]]:
    """Return the live replicas of a fleet by model, models by name, replicas by id: the newest is the last."""
    found: defaultdict[str, list[Replica]] = defaultdict(list)
    for replica in live_replicas(inventory):
        if replica.fleet == fleet:
            found[replica.model].append(replica)
    return {key: sorted(found[key], key=lambda one: one.replica_id or 0) for key in sorted(found)}


def other_specs(key: str, replicas: Sequence[Replica]) -> Iterator[Loss]:
    """Name the replicas that run another spec than the newest one, which is the last."""
    others: defaultdict[str, list[str]] = defaultdict(list)
    for replica in replicas:
        if replica.spec_hash != replicas[-1].spec_hash:
            others[f"spec {replica.spec_hash}" if replica.spec_hash else "an unknown spec"].append(
                str(replica.replica_id))
    for spec, ids in sorted(others.items()):
        who = f"replica {ids[0]} runs" if len(ids) == 1 else f"replicas {', '.join(ids)} run"
        yield Loss(None, key, f"{who} {spec}, which is not that of the newest one, and show as drift", "lost", key)


def crowded(key: str, replicas: Sequence[Replica], inventory: Inventory) -> Iterator[Loss]:
    """Name a cap that must have been raised: without a policy, a model without GPUs has one replica on a node."""
    if any(member.gpus or member.vram for replica in replicas for member in replica.members):
        return
    names = {node.id: node.name for node in inventory.nodes}
    on_node = Counter(node_id for replica in replicas
                      for node_id in {member.node_id for member in replica.members if member.node_id})
    several = sorted((names.get(node_id, node_id), count) for node_id, count in on_node.items() if count > 1)
    if several:
        shown = some([f"{count} on {name}" for name, count in several], NAMED)
        yield Loss(None, key, f"several replicas share a node ({shown}), which needs a maxReplicasPerModel in "
                   "spec.nodes where no GPU is claimed; until then some show as drift", "todo", key)


def left_out(inventory: Inventory, fleet: str) -> Iterator[Loss]:
    """Name what is not in the file: lost replicas of this fleet, those that are not HOT, and what no fleet owns."""
    dead = dead_node_ids(inventory)
    foreign: Counter[str] = Counter()
    for replica in inventory.replicas:
        name = f"{replica.model}/{replica.replica_id}"
        if replica.state not in LIVE_STATES:
            continue
        if replica.fleet is None or replica.replica_id is None:
            foreign[replica.model] += 1
        elif replica.fleet == fleet and is_lost(replica, dead):
            yield Loss(None, name, "its node is dead: not counted")
        elif replica.fleet == fleet and replica.level != "HOT":
            yield Loss(None, name, f"it is {replica.level}, and only HOT replicas count")
    for model, count in sorted(foreign.items()):
        yield Loss(None, model, f"{count} {'runs' if count == 1 else 'run'} without a fleet's mark: capacity in use, "
                   "not imported")
