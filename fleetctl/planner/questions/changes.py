"""Hypothetical changes: lose or cordon nodes, add nodes, scale a model. Each turns a scenario into another.

Nothing is done for real. They apply in a fixed order (add, lose, cordon, scale), not in that of the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace

from fleetctl.documents.answers import Change
from fleetctl.documents.fleet import MAX_REPLICAS, NodePolicy
from fleetctl.documents.inventory import LIVE_STATES, Inventory, Node, Replica, dead_node_ids, is_lost
from fleetctl.documents.names import did_you_mean, with_key
from fleetctl.documents.quantity import grouped, number_in, some
from fleetctl.documents.selector import matches, split_commas
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.planner.placement.occupants import without_members
from fleetctl.planner.questions.new_node import new_nodes
from fleetctl.planner.questions.scenario import Scenario
from fleetctl.planner.questions.shape_syntax import find_node, selector_of

CORDON_LABEL = "fleet.io/what-if-cordon"
"""A label on hypothetically cordoned nodes, so that one policy covers nodes given by name or selector."""

_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes to try, as typed: each tuple holds the values of one flag."""

    lose: tuple[str, ...] = ()
    cordon: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    scale: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lose or self.cordon or self.add or self.scale)


Step = Callable[[Scenario, str], tuple[Scenario, Change]]


def changed(scenario: Scenario, changes: Changes) -> tuple[Scenario, list[Change]]:
    """Return the scenario after all changes, and each change in words.

    Raises UsageError for unknown names and invalid shapes or numbers.
    """
    steps: list[tuple[Step, tuple[str, ...]]] = [
        (_add, changes.add), (_lose, changes.lose), (_cordon, changes.cordon), (_scale, changes.scale),
    ]
    made: list[Change] = []
    for step, texts in steps:
        for text in texts:
            scenario, change = step(scenario, text)
            made.append(change)
    return scenario, made


def _add(scenario: Scenario, text: str) -> tuple[Scenario, Change]:
    nodes, words = new_nodes(text, scenario.inventory)
    inventory = scenario.inventory.model_copy(update={"nodes": [*scenario.inventory.nodes, *nodes]})
    change = Change(op="addNode", about=text, message=f"adds {words}", nodes=[node.name for node in nodes])
    return replace(scenario, inventory=inventory), change


def _lose(scenario: Scenario, text: str) -> tuple[Scenario, Change]:
    chosen = _chosen(scenario, text, "--lose-node")
    already = " (already dead)" if all(node.state == "DEAD" for node in chosen) else ""
    names = sorted(node.name for node in chosen)
    change = Change(op="loseNode", about=text, message=f"loses {_named(names)}{already}", nodes=names)
    return replace(scenario, inventory=without_nodes(scenario.inventory, {node.id for node in chosen})), change


def _cordon(scenario: Scenario, text: str) -> tuple[Scenario, Change]:
    chosen = _chosen(scenario, text, "--cordon")
    ids = {node.id for node in chosen}
    names = sorted(node.name for node in chosen)
    nodes = [node.model_copy(update={"labels": {**node.labels, CORDON_LABEL: "yes"}}) if node.id in ids else node
             for node in scenario.inventory.nodes]
    policies = tuple(policy for policy in scenario.fleet.policies if CORDON_LABEL not in policy.selector)
    fleet = replace(scenario.fleet, policies=(*policies, NodePolicy(selector={CORDON_LABEL: "yes"}, cordon=True)))
    change = Change(op="cordon", about=text, message=f"cordons {_named(names)}", nodes=names)
    inventory = scenario.inventory.model_copy(update={"nodes": nodes})
    return replace(scenario, fleet=fleet, inventory=inventory), change


def _chosen(scenario: Scenario, text: str, flag: str) -> list[Node]:
    """Return the nodes that a name or a selector matches; raises FleetctlError if there are none."""
    if "=" not in text:
        return [find_node(text, scenario.inventory, flag)]
    selector = dict(selector_of(part, flag) for part in split_commas(text))
    found = [node for node in scenario.inventory.nodes if matches(selector, node.all_labels)]
    if not found:
        labels = {f"{key}={value}" for node in scenario.inventory.nodes for key, value in node.labels.items()}
        raise FleetctlError(f"{flag} {text}: no node has these labels", hint=did_you_mean(text, labels))
    return found


def _named(names: list[str]) -> str:
    return f"{f'{len(names)} nodes: ' if len(names) > _EXAMPLES else ''}{some(names, _EXAMPLES)}"


def _scale(scenario: Scenario, text: str) -> tuple[Scenario, Change]:
    key, _, number = text.rpartition("=")
    wanted = number_in(number)
    if not key or wanted is None or wanted > MAX_REPLICAS:
        raise UsageError(f"--scale {text}: expected MODEL=N",
                         hint=f"N is the wanted number of replicas, from 0 to {MAX_REPLICAS}")
    models = {model.key: model for model in scenario.fleet.models}
    key = with_key(key, models)
    if key not in models:
        raise FleetctlError(f"--scale {key}: the fleet file has no such model", hint=did_you_mean(key, models))
    before = models[key].replicas
    scaled = tuple(model.with_changes(replicas=wanted) if model.key == key else model
                   for model in scenario.fleet.models)
    change = Change(op="scale", about=text, message=f"wants {wanted} instead of {before} replicas of {key}")
    return replace(scenario, fleet=replace(scenario.fleet, models=scaled)), change


def without_nodes(inventory: Inventory, lost: Set[str]) -> Inventory:
    """Return the inventory as if the nodes with these ids had died; their replicas stay listed, and are lost."""
    dead = dead_node_ids(inventory)  # replicas that are lost already hold nothing that could be freed
    ended = [one for one in inventory.replicas
             if one.fleet is not None and one.state in LIVE_STATES and not is_lost(one, dead)
             and any(member.node_id in lost for member in one.members)]
    freed = grouped((member.node_id, member) for replica in ended for member in replica.members
                    if member.node_id is not None and member.node_id not in lost)
    nodes = [node.model_copy(update={"state": "DEAD"}) if node.id in lost
             else without_members(node, freed.get(node.id, ()), sure=False) for node in inventory.nodes]
    return inventory.model_copy(update={"nodes": nodes})


def without_replica(inventory: Inventory, gone: Replica) -> Inventory:
    """Return the inventory as if this live replica had been ended."""
    nodes = [without_members(node, [member for member in gone.members if member.node_id == node.id], sure=False)
             for node in inventory.nodes]
    return inventory.model_copy(update={"nodes": nodes, "replicas": [one for one in inventory.replicas
                                                                     if one is not gone]})
