"""Scenarios with new nodes that `spec.cluster.grow` may add, and a plan's waiting replicas placed on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from fleetctl.documents.plan import Plan
from fleetctl.planner.growth import living, next_node
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.greedy import pack_greedily
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.occupants import Occupant
from fleetctl.planner.placement.problem import state_problem
from fleetctl.planner.questions.new_node import new_names
from fleetctl.planner.questions.scenario import Scenario, take_members


def most_new(scenario: Scenario) -> dict[str, int]:
    """Return how many nodes of each type may be added."""
    return {kind.name: max(0, kind.max - len(living(scenario.inventory, kind))) for kind in scenario.fleet.cluster.grow}


def with_new_nodes(scenario: Scenario, counts: Mapping[str, int]) -> Scenario:
    """Return the scenario with `counts` empty nodes of each type, named `new-<type>-<n>`."""
    nodes = []
    for kind in scenario.fleet.cluster.grow:
        like = next_node(kind, living(scenario.inventory, kind))
        nodes += [like.model_copy(update={"id": name, "name": name})
                  for name in islice(new_names(scenario.inventory, f"new-{kind.name}"), counts.get(kind.name, 0))]
    inventory = scenario.inventory.model_copy(update={"nodes": [*scenario.inventory.nodes, *nodes]})
    return replace(scenario, inventory=inventory)


def take_waiting(scenario: Scenario, plan: Plan, ledger: Ledger) -> list[Occupant]:
    """Take the plan's waiting replicas from a ledger that has new nodes and the plan; returns them with their cards."""
    waiting = {row.model: row.on_new_nodes for row in plan.blocked if row.on_new_nodes}
    created, shapes, state = Counter(action.model for action in plan.starts), scenario.shapes(), scenario.sorted_out()
    demands = [Demand(shapes[model.key], waiting[model.key], len(state.models[model.key].live) + created[model.key],
                      model.priority, place)
               for place, model in enumerate(scenario.fleet.models) if model.key in waiting]
    if not demands:
        return []
    mark = ledger.mark()
    placed = pack_greedily(state_problem(demands, ledger), Placer(ledger))
    ledger.undo(mark)
    ids = {key: islice(state.models[key].new_ids(created[key] + missing), created[key], None)
           for key, missing in waiting.items()}
    return [take_members(one.demand.shape.key, next(ids[one.demand.shape.key]),
                         [(new.node, new.seat.claim, new.gpus) for new in one.assignments], ledger) for one in placed]
