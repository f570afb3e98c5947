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
from oracle.question import Question, ask_about

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


def draw_variants(family: str, seed: int) -> tuple[ResolvedFleet, Inventory]:
    """Return fleet and inventory number `seed` of a family, with variants."""
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
    plain = short_fleet({**fleet, "models": []})
    return replace(plain, models=tuple(models)), short_inventory(inventory)


def _varied(variants: list[ResolvedModel]) -> ResolvedModel:
    return replace(variants[0], variant="", least=0, most=None, variants=tuple(variants))


def judge_variants(family: str, seed: int, *, deterministic_time: float = 2.0) -> Packed:
    """Pack a fleet with variants, and compare with the optimum."""
    fleet, inventory = draw_variants(family, seed)
    question = ask_about(fleet, inventory)
    demands, ledger = stated_demands(fleet, inventory)
    fresh = ledger.copied()
    packing = pack(demands, Placer(ledger), expected=[Expected(one.shape, one.missing, one.missing + one.live)
                                                      for one in demands if not one.variant])
    best = best_possible(question, deterministic_time=deterministic_time)
    reached = _reached(packing.placed, question)
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


def complaints_about_plan(family: str, seed: int, best: Optimum) -> list[str]:
    """Return what is wrong with the plan of a fleet: broken rules, or not the optimum."""
    fleet, inventory = draw_variants(family, seed)
    plan = plan_for(fleet, inventory)
    try:
        check_plan(plan, fleet, inventory)
    except AssertionError as broken:
        return [f"{family} {seed}: a rule is broken: {broken}".splitlines()[0]]
    names = {model.key: [one.variant for one in model.alternatives] for model in fleet.models}
    counts = Counter((one.model, names[one.model].index(one.variant or "")) for one in plan.actions)
    question = replace(ask_about(fleet, inventory), as_planned=True)
    only_minimums = any(ask.together is not None and ask.together > ask.target for ask in question.asks)
    if only_minimums:
        best = best_possible(question, deterministic_time=2.0)
    reached = _vector(counts, question)
    if only_minimums and plan.certificate.status == "feasible" and reached < best.vector:
        return []
    return [] if reached == best.vector or not best.proven or family in BLIND else [
        f"{family} {seed}: {reached} of {best.vector}"]


def _reached(placed: list[Placed], question: Question) -> tuple[int, ...]:
    return _vector(Counter((one.demand.shape.key, one.demand.variant) for one in placed), question)


def _vector(counts: Counter[tuple[str, int]], question: Question) -> tuple[int, ...]:
    made = [(ask, sum(counts[key, ask.variant] for key in ask.keys)) for ask in question.asks if len(ask.keys) == 1]
    levels = {priority: level_of(made, priority) for priority in question.priorities}
    varied = any(ask.variant for ask, _ in made)
    cost = (sum(ask.units * count for ask, count in made), sum(ask.variant * count for ask, count in made))
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
