"""The packer's placement problem for a small fleet in the short forms of short_forms."""

from __future__ import annotations

from typing import Any

from short_forms import short_fleet, short_inventory

from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.live import sort_out
from fleetctl.planner.placement.claims import replica_shape
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.ledger.ledger import Ledger, open_ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.objective import Level, score
from fleetctl.planner.placement.problem import Problem, state_problem
from fleetctl.planner.placement.realize import PackingLayout, realize
from fleetctl.planner.variants import counted_shapes, demands_of, shapes_of


def stated(fleet: ResolvedFleet, inventory: Inventory) -> Problem:
    """Return the problem a plan for `fleet` on `inventory` solves."""
    shapes = {model.key: replica_shape(model) for model in fleet.models}
    state = sort_out(inventory, fleet.name, shapes)
    live = {key: len(model.live) for key, model in state.models.items()}
    demands = [Demand(shapes[key], max(0, model.replicas - live[key]), live[key], model.priority, place)
               for place, model in enumerate(fleet.models) if (key := model.key)]
    return state_problem(demands, open_ledger(inventory, fleet.policies, state, shapes))


def stated_demands(fleet: ResolvedFleet, inventory: Inventory) -> tuple[list[Demand], Ledger]:
    """Return the demands of a fleet of models with variants, and its ledger, before anything is placed."""
    shapes = shapes_of(fleet, inventory)
    counted = counted_shapes(shapes)
    state = sort_out(inventory, fleet.name, counted)
    demands = [demand for place, model in enumerate(fleet.models)
               for demand in demands_of(model, state.models[model.key], shapes[model.key], place)]
    return demands, open_ledger(inventory, fleet.policies, state, counted)


def problem_of(models: list[dict[str, Any]], nodes: list[dict[str, Any]], **more: Any) -> Problem:
    """Return the problem of models and nodes in short form; `policies` and `replicas` as in a case file."""
    fleet = short_fleet({"models": [{"key": f"m{place}", **model} for place, model in enumerate(models)],
                         "nodes": more.get("policies", [])})
    named = [{"name": f"n{place:02}", **node} for place, node in enumerate(nodes)]
    return stated(fleet, short_inventory({"nodes": named, "replicas": more.get("replicas", [])}))


def realized(problem: Problem, layout: PackingLayout) -> tuple[Level, ...]:
    """Return the levels a layout reaches on the ledger."""
    mark = problem.ledger.mark()
    placed = realize(problem, layout, Placer(problem.ledger))
    problem.ledger.undo(mark)
    return score(placed, [demand for one in problem.demands for demand in one.demands], 0, 0)[0]
