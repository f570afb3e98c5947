"""Random fleets of models with up to four variants, and what a packing or a plan of one reaches, against the optimum.

A fleet of any family gets variants: each model keeps its shape as the first one, and gets those of other models.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from checker import check_plan
from short_forms import plan_for, short_fleet, short_inventory, short_model
from stated import stated_demands

from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.planner.placement.demand import Demand, Expected, Placed
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.pack import Packing, pack
from oracle.families import BLIND, draw_short
from oracle.optimum import Optimum, best_possible, level_of
from oracle.question import Question, Want, ask_about

Short = dict[str, Any]
OF_MODEL = ("key", "replicas", "priority", "spread")
MOST_VARIANTS = 4


@dataclass(frozen=True)
class Packed:
    """A packing of a fleet with variants. `reached` and `best` = the vectors; `wrong` = broken rules, false claims."""

    name: str
    packing: Packing
    reached: tuple[int, ...]
    best: Optimum
    wrong: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return self.reached == self.best.vector


def draw_variants(family: str, seed: int, *, priced: bool = False) -> tuple[ResolvedFleet, Inventory]:
    """Return fleet and inventory number `seed` of a family, with variants; `priced` = most nodes have a price."""
    fleet, inventory = draw_short(family, seed, "small")
    random = Random(f"variants/{family}/{seed}")
    shapes = [{name: value for name, value in model.items() if name not in OF_MODEL} for model in fleet["models"]]
    models = []
    for model, own in zip(fleet["models"], shapes, strict=True):
        others = [shape for shape in shapes if shape != own]
        drawn = [own, *random.sample(others, min(len(others), random.randint(0, MOST_VARIANTS - 1)))]
        limits = [random.choice([(0, None), (0, None), (1, None), (2, None), (0, 1), (0, 2), (0, 4), (1, 1), (1, 2)])
                  for _ in drawn]
        if all(most is not None for _, most in limits) and sum(most or 0 for _, most in limits) < model["replicas"]:
            limits[0] = limits[0][0], None
        of_model = {name: value for name, value in model.items() if name in OF_MODEL}
        models.append(_varied([replace(short_model({**of_model, **shape}), variant=f"v{place}", least=least, most=most)
                               for place, (shape, (least, most)) in enumerate(zip(drawn, limits, strict=True))]))
    plain = short_fleet({**fleet, "models": [], "nodes": [*fleet.get("nodes", []), *(
        _prices(Random(f"prices/{family}/{seed}"), inventory["nodes"]) if priced else ())]})
    return replace(plain, models=tuple(models)), short_inventory(inventory)


def _prices(random: Random, nodes: list[Short]) -> list[Short]:
    """Return prices of nodes, by node: few that are equal, round and odd ones; of one fleet in eight some have none."""
    drawn = random.choice([(1, 2), (0, 1, 3), (1, 2.5, 4, 8), (0.526, 3.06, 12.24, 21.957642, 55.04)])
    return [{"selector": {"ray.io/node-id": node["name"]}, "price": random.choice(drawn)} for node in nodes
            if random.random() < random.choice([1, 1, 1, 1, 1, 1, 1, 0.7])]


def _varied(variants: list[ResolvedModel]) -> ResolvedModel:
    return replace(variants[0], variant="", least=0, most=None, variants=tuple(variants))


def judge_variants(family: str, seed: int, *, priced: bool = False, deterministic_time: float = 2.0) -> Packed:
    """Pack a fleet with variants, and compare with the optimum."""
    fleet, inventory = draw_variants(family, seed, priced=priced)
    question = ask_about(fleet, inventory)
    demands, ledger = stated_demands(fleet, inventory)
    fresh = ledger.copied()
    packing = pack(demands, Placer(ledger), expected=[Expected(one.shape, one.missing, one.missing + one.live)
                                                      for one in demands if not one.variant])
    best = best_possible(question, deterministic_time=deterministic_time)
    reached = _reached(packing.placed, question, [node.id for node in ledger.nodes])
    wrong = _broken(packing.placed, demands, Placer(fresh))
    exact = family not in BLIND
    of_levels = slice(0, 3 * len(question.priorities))
    if packing.bound < len(packing.placed):
        wrong.append(f"the bound {packing.bound} is below the {len(packing.placed)} placed")
    if exact and best.proven and reached > best.vector:
        wrong.append(f"better than the optimum, so one of the two is wrong: {reached} and {best.vector}")
    if exact and packing.bound == len(packing.placed) and reached[of_levels] < best.vector[of_levels]:
        wrong.append(f"claims to be optimal, but is not: {reached} of {best.vector}")
    if exact and packing.bound < best.replicas:
        wrong.append(f"the bound {packing.bound} is below the optimum's {best.replicas} replicas")
    return Packed(f"{family} {seed}", packing, reached, best, tuple(wrong))


def complaints_about_plan(family: str, seed: int, best: Optimum, *, priced: bool = False) -> list[str]:
    """Return what is wrong with the plan of a fleet: broken rules, or not the optimum."""
    fleet, inventory = draw_variants(family, seed, priced=priced)
    plan = plan_for(fleet, inventory)
    try:
        check_plan(plan, fleet, inventory)
    except AssertionError as broken:
        return [f"{family} {seed}: a rule is broken: {broken}".splitlines()[0]]
    names = {model.key: [one.variant for one in model.alternatives] for model in fleet.models}
    counts = Counter((one.model, names[one.model].index(one.variant or "")) for one in plan.actions)
    question = ask_about(fleet, inventory)
    models = {model.key: model for model in fleet.models}
    price = 0
    for action in plan.actions:
        place = names[action.model].index(action.variant or "")
        claims = _claims_of(models[action.model].alternatives[place])
        price += _price(question, action.model, place, [
            (claims[member.group, member.rank], member.node_id) for member in action.members])
    reached = _vector(counts, question, price)
    return [] if reached == best.vector or not best.proven or family in BLIND else [
        f"{family} {seed}: {reached} of {best.vector}"]


def _reached(placed: list[Placed], question: Question, nodes: list[str]) -> tuple[int, ...]:
    price = 0
    for demand, assignments in placed:
        price += _price(question, demand.shape.key, demand.variant, [
            (Want(*seat.claim, seat.selector.labels), nodes[node]) for seat, node, _, _ in assignments])
    return _vector(Counter((one.demand.shape.key, one.demand.variant) for one in placed), question, price)


def _price(question: Question, model: str, variant: int, members: list[tuple[Want, str]]) -> int:
    """Return what one replica costs; 0 if prices do not decide there."""
    priced = any(ask.priced for ask in question.asks if ask.keys == (model,) and ask.variant == variant)
    return sum(question.price.get(member, 0) for member in members) if priced else 0


def _claims_of(model: ResolvedModel) -> dict[tuple[str, int], Want]:
    """Return the claims of a model's members by group and rank."""
    found = {}
    for group in model.workers:
        ranked = sorted(group.members, key=lambda member: member.role == "Worker")
        for rank, member in enumerate(one for one in ranked for _ in range(one.count or 1)):
            claim = member.resources
            found[group.name, rank] = Want(claim.gpus, claim.vram, claim.cpus, claim.memory,
                                           tuple(sorted(member.node_selector.items())))
    return found


def _vector(counts: Counter[tuple[str, int]], question: Question, price: int) -> tuple[int, ...]:
    made = [(ask, sum(counts[key, ask.variant] for key in ask.keys)) for ask in question.asks if len(ask.keys) == 1]
    levels = {priority: level_of(made, priority) for priority in question.priorities}
    varied = any(ask.variant for ask, _ in made)
    cost = (sum(ask.units * count for ask, count in made), price, sum(ask.variant * count for ask, count in made))
    return Optimum(levels, proven=False, cost=cost if varied else ()).vector


def _broken(placed: list[Placed], demands: list[Demand], placer: Placer) -> list[str]:
    """Return the broken rules: a replica that the ledger refuses, or more replicas than a model or variant may get."""
    wrong = [f"{one.demand.shape.key}: not taken again" for one in placed
             if placer.take_at(one.demand.shape, one.seats) is None]
    of_model, of_variant = Counter(one.demand.place for one in placed), Counter(one.demand.option for one in placed)
    wrong += [f"{one.shape.key}: {of_model[one.place]} of {one.missing}" for one in demands
              if of_model[one.place] > one.missing]
    return wrong + [f"{one.shape.key}/{one.variant}: {of_variant[one.option]} of {one.most}" for one in demands
                    if one.most is not None and of_variant[one.option] > one.most]
