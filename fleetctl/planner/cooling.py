"""What a plan makes of the breaker: how many replicas of a model it may create, on which nodes, and why no more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleetctl.documents.inventory import STARTING_STATES, Inventory
from fleetctl.documents.plan import Blocked
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.breaker import find_cooled, usable_nodes
from fleetctl.planner.failures import cooling_text
from fleetctl.planner.live import ModelState
from fleetctl.planner.placement.claims import LEFT_OUT_LABEL, leaving_out
from fleetctl.planner.placement.demand import Demand

CODE, NODE_CODE = "COOLING_DOWN", "NODE_COOLING"
ADVICE = "it is tried again then; at once with --ignore-cooldown, or when its spec has changed"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the breaker leaves of the demands of one plan, all by their place in the fleet file.

    `most` = the most new replicas, where there is a limit; `why` = the reason to give; `left_out` = ids of nodes.
    """

    most: Mapping[int, int] = field(default_factory=dict)
    why: Mapping[int, str] = field(default_factory=dict)
    left_out: Mapping[int, frozenset[str]] = field(default_factory=dict)
    closed: Mapping[str, str] = field(default_factory=dict)
    """Why nodes take nothing new, by their ids."""

    @property
    def method(self) -> str:
        """Return why a certificate counts no more new replicas."""
        return "what cools down waits" if self.most else ""

    def labelled(self, inventory: Inventory) -> Inventory:
        """Return the inventory with a label on each node for the models that leave it out."""
        if not self.left_out:
            return inventory
        labels: dict[str, dict[str, str]] = {}
        for place, node_ids in self.left_out.items():
            for node_id in node_ids:
                labels.setdefault(node_id, {})[f"{LEFT_OUT_LABEL}{place}"] = "yes"
        return inventory.model_copy(update={"nodes": [
            node.model_copy(update={"labels": {**node.labels, **labels[node.id]}}) if node.id in labels else node
            for node in inventory.nodes]})

    def narrowed(self, demand: Demand) -> Demand:
        """Return a demand whose replicas do not go on the nodes that its model leaves out."""
        left_out = demand.place in self.left_out
        return replace(demand, shape=leaving_out(demand.shape, demand.place)) if left_out else demand

    def allowed(self, demands: Iterable[Demand]) -> list[Demand]:
        """Return the demands with as many replicas as may be tried."""
        return [replace(one, missing=min(one.missing, self.most[one.place])) if one.place in self.most else one
                for one in demands]

    def waiting(self, key: str, replicas: int, place: int) -> Blocked:
        """Return replicas that are not tried."""
        return Blocked(model=key, replicas=replicas, code=CODE, message=self.why[place], no_remedy=ADVICE)

    def explained(self, blocked: Blocked, place: int) -> Blocked:
        """Return what found no room, with the breaker's reason where it leaves out a node that might have had some."""
        if place not in self.left_out or not any(reason.code == NODE_CODE for reason in blocked.reasons):
            return blocked
        if blocked.code != NODE_CODE:
            return blocked.model_copy(update={"message": f"{blocked.message}; {self.why[place]}"})
        return blocked.model_copy(update={"code": CODE, "message": self.why[place], "no_remedy": ADVICE})


def find_limits(
    fleet: ResolvedFleet, inventory: Inventory, demands: Sequence[Demand], states: Mapping[str, ModelState]
) -> Limits:
    """Return what the breaker leaves of the demands.

    A node whose time is over takes one replica: of a model that lacks just one, or that has no other node.
    """
    cooled = find_cooled(fleet, inventory)
    if not cooled:
        return Limits()
    most, why, left_out = dict[int, int](), dict[int, str](), dict[int, frozenset[str]]()
    closed = {node_id: one for node_id, one in cooled.nodes.items() if not one.over}
    again = {node_id: one for node_id, one in cooled.nodes.items() if one.over}
    taken = {member.node_id or "" for state in states.values() for replica in state.live
             if replica.state in STARTING_STATES for member in replica.members}
    for demand in sorted(demands, key=lambda one: (-one.priority, one.place)):
        key, model = demand.shape.key, fleet.models[demand.place]
        cooling, nodes = cooled.models.get(key), {**cooled.left_out.get(key, {}), **again}
        if cooling is not None:
            starting = any(model.has_spec(one.spec_hash) and one.state in STARTING_STATES for one in states[key].live)
            most[demand.place], why[demand.place] = int(cooling.over and not starting), cooling_text(cooling, inventory)
        lacks = min(demand.missing, most.get(demand.place, demand.missing))
        if not nodes or not lacks:
            continue
        elsewhere = {node.id for node in usable_nodes(model, inventory.nodes)} - nodes.keys() - closed.keys()
        tried = {node_id for node_id, one in nodes.items() if one.over and (lacks == 1 or not elsewhere)} - taken
        taken |= tried
        left_out[demand.place] = frozenset(nodes.keys() - tried)
        why.setdefault(demand.place, cooling_text(next(iter(nodes.values())), inventory))
        if tried and not elsewhere:
            most[demand.place] = 1
    return Limits(most, why, left_out, {node_id: cooling_text(one, inventory) for node_id, one in closed.items()})
