"""`drain`: which replicas leave a node, how many replacements they need elsewhere, and which of them may end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from fleetctl.documents.inventory import (
    STARTING_STATES,
    Cordon,
    Inventory,
    Node,
    Replica,
    ReplicaMember,
    dead_node_ids,
    is_live,
    serves,
)
from fleetctl.documents.plan import Action
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.fleetfile.resolved import ResolvedFleet


@dataclass(frozen=True, slots=True)
class Draining:
    """A node to drain; `before` is the inventory before the drain began."""

    loaded: LoadedFleet
    before: Inventory
    node: Node

    @property
    def fleet(self) -> ResolvedFleet:
        """The fleet whose replicas leave."""
        return self.loaded.sound()

    def on_node(self) -> list[Replica]:
        """Return all live replicas with a member on the node, of any fleet."""
        dead = dead_node_ids(self.before)
        return [replica for replica in self.before.replicas
                if is_live(replica, dead) and any(member.node_id == self.node.id for member in replica.members)]

    def warm(self) -> list[Replica]:
        """Return the WARM replicas on the node, of any fleet: no drain moves them."""
        return [replica for replica in self.before.replicas
                if replica.level == "WARM" and any(member.node_id == self.node.id for member in replica.members)]

    def staying(self) -> list[Replica]:
        """Return the replicas on the node that a drain of this fleet leaves alone."""
        leaving = self.leaving()
        return [replica for replica in self.on_node() if replica not in leaving]

    def leaving(self) -> list[Replica]:
        """Return the replicas on the node whose model is in the fleet file: they can be replaced."""
        keys = {model.key for model in self.fleet.models}
        return [replica for replica in self.on_node() if _is_of(self.fleet, replica) and replica.model in keys]

    def with_replacements(self) -> LoadedFleet:
        """Return the fleet with targets that keep min(target, live) replicas of each model beside the leaving ones."""
        live, leaving = Counter(_live(self.fleet, self.before)), Counter(replica.model for replica in self.leaving())
        changed = {
            model.key: replace(model, surge=0, replicas=max(
                live[model.key], min(model.replicas, live[model.key]) + leaving[model.key]))
            for model in self.fleet.models if leaving[model.key]}
        return replace(self.loaded, fleet=self.fleet.only_creating(changed))

    def cordoned(self, inventory: Inventory, cordon: Cordon) -> Inventory:
        """Return the inventory with the node cordoned."""
        nodes = [node.model_copy(update={"cordon": cordon}) if node.id == self.node.id else node
                 for node in inventory.nodes]
        return inventory.model_copy(update={"nodes": nodes})

    def may_end(self, now: Inventory) -> tuple[list[Replica], list[Replica]]:
        """Return which of the leaving replicas may end `now`, and which must stay.

        Of each model min(target, before) stay live, and min(target, ready before) stay ready.
        """
        dead = dead_node_ids(now)
        agreed = {(replica.model, replica.replica_id, replica.actor_id) for replica in self.leaving()}
        remaining = [replica for replica in now.replicas
                     if (replica.model, replica.replica_id, replica.actor_id) in agreed and _is_of(self.fleet, replica)
                     and is_live(replica, dead)]
        spare, spare_ready = self._spare(now, ready=False), self._spare(now, ready=True)
        end, stay = list[Replica](), list[Replica]()
        for replica in sorted(remaining, key=serves):
            counts = (spare, spare_ready) if serves(replica) else (spare,)
            if all(count[replica.model] > 0 for count in counts):
                end.append(replica)
                for count in counts:
                    count[replica.model] -= 1
            else:
                stay.append(replica)
        return end, stay

    def foreseen(self, actions: Iterable[Action]) -> tuple[list[Replica], list[Replica]]:
        """Return what `may_end` will once all that the actions create, and all that starts elsewhere, is ready."""
        leaving = self.leaving()
        then = [one.model_copy(update={"state": "ALIVE"})
                if one.state in STARTING_STATES and one not in leaving else one for one in self.before.replicas]
        then += [Replica(model=one.model, replica_id=one.replica_id, fleet=self.fleet.name,
                         members=[ReplicaMember(node_id=member.node_id) for member in one.members]) for one in actions]
        return self.may_end(self.before.model_copy(update={"replicas": then}))

    def _spare(self, now: Inventory, *, ready: bool) -> Counter[str]:
        """Return the number of replicas of each model beyond those that must stay."""
        spare = Counter(_live(self.fleet, now, ready=ready))
        spare.subtract(self.least(ready=ready))
        return spare

    def least(self, *, ready: bool = True) -> dict[str, int]:
        """Return the number of replicas of each model that must stay: min(target, before)."""
        before = Counter(_live(self.fleet, self.before, ready=ready))
        return {model.key: min(model.replicas, before[model.key]) for model in self.fleet.models}


def _is_of(fleet: ResolvedFleet, replica: Replica) -> bool:
    return replica.fleet == fleet.name and replica.replica_id is not None


def _live(fleet: ResolvedFleet, seen: Inventory, *, ready: bool = False) -> Iterator[str]:
    """Yield the model of each live replica of the fleet, or only of each ready one."""
    dead = dead_node_ids(seen)
    yield from (replica.model for replica in seen.replicas
                if _is_of(fleet, replica) and is_live(replica, dead) and (serves(replica) or not ready))
