"""Quality of plans by family: `python -m tests.planner.oracle.survey --seed 1 --count 50`.

Prints for every family how often the plan equals the optimum, how often its certificate says optimal, and the worst
ratio; then the worst fleets, each to be looked at again with `--family F --seed S --count 1 --show`. `--without TIER`
switches a tier of the packer off: one that changes no line has to go.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from random import Random

from short_forms import plan_for

from oracle.exhaustive import TooLarge
from oracle.families import FAMILIES, Size, draw_inputs, draw_short
from oracle.judge import Judged, judge
from oracle.optimum import Level
from oracle.question import ask_about
from oracle.reorder import reordered
from oracle.tiers import TIERS, without
from oracle.verdict import levels_of

HEAD = (f"{'family':11} {'fleets':>5} {'proven':>6} {'equal':>6} {'claimed':>7} {'loose':>6} {'<97%':>6} {'worst':>6} "
        f"{'plan ms':>8} {'max':>6} {'cpsat':>6} {'wrong':>6}  first difference of the worst plan")
LEGEND = """
proven: the oracle proved its optimum.  equal: plan = optimum.  claimed: the certificate says optimal.
loose: the plan is optimal, and its certificate does not say so.  <97%: below 97 % at the first difference.
plan ms, max, cpsat: milliseconds of the processor.
wrong: rules broken, claims that are not true, or a bound below the truth (listed below).
"""


def line(family: str, judged: Sequence[Judged]) -> str:
    """Sum up one family."""
    count = len(judged)
    worst = min(judged, key=lambda one: one.verdict.ratio)
    cpsat_s = sum(one.oracle_s for one in judged)
    loose = sum(one.equal and one.best.proven and not one.claims_optimal for one in judged)
    return (f"{family:11} {count:6} {sum(one.best.proven for one in judged):6} {sum(one.equal for one in judged):6} "
            f"{sum(one.claims_optimal for one in judged):7} {loose:6} {sum(one.below_floor for one in judged):6} "
            f"{worst.verdict.ratio:6.3f} {1000 * sum(one.plan_s for one in judged) / count:8.1f} "
            f"{1000 * max(one.plan_s for one in judged):6.0f} {1000 * cpsat_s / count:6.1f} "
            f"{sum(bool(one.wrong) for one in judged):6}  {worst.verdict.where}")


def show(family: str, seed: int, *, size: Size, judged: Judged) -> None:
    """Print a fleet in short form, its plan and the optimum."""
    fleet, inventory = draw_short(family, seed, size)
    for what in (inventory["nodes"], inventory.get("replicas", []), fleet.get("nodes", [])):
        for one in what:
            print(" ", json.dumps(one))
    new = Counter(action.model for action in judged.plan.actions)
    for model in fleet["models"]:
        print(f"  {json.dumps(model)} placed {new[model['key']]}")
    inputs = draw_inputs(family, seed, size)
    placed = levels_of(judged.plan, inputs[0], ask_about(*inputs))
    print("  plan   ", {priority: tuple(level) for priority, level in placed.items()})
    print("  optimum", {priority: tuple(level) for priority, level in judged.best.levels.items()},
          "proven" if judged.best.proven else "the best found")
    print("  claims ", judged.plan.certificate.model_dump())


def differences(family: str, seed: int, judged: Judged, *, times: int, size: Size) -> list[str]:
    """Return each shuffle of models, groups, members or nodes that changes how much is placed."""
    fleet, inventory = draw_inputs(family, seed, size)
    as_written = levels_of(judged.plan, fleet, judged.question)
    found = []
    for again in range(times):
        other = reordered(fleet, inventory, Random(f"{seed}/{again}"))
        placed = levels_of(plan_for(*other), other[0], ask_about(*other))
        if placed != as_written:
            found.append(f"{judged.name} (shuffle {again}): {_short(as_written)} or {_short(placed)}")
    return found


def _short(levels: dict[int, Level]) -> dict[int, tuple[int, int, int]]:
    return {priority: (level.served, level.units, level.replicas) for priority, level in levels.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Quality of plans by family.")
    parser.add_argument("--seed", type=int, default=1, help="first seed of each family")
    parser.add_argument("--count", type=int, default=50, help="fleets per family")
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="only this family (again for more)")
    parser.add_argument("--big", dest="size", action="store_const", const="big", default="small",
                        help="fleets of 10 to 40 nodes instead of 2 to 7")
    parser.add_argument("--large", dest="size", action="store_const", const="large",
                        help="fleets of 60 to 120 nodes, not all of which CP-SAT can prove")
    parser.add_argument("--tiny", dest="size", action="store_const", const="tiny",
                        help="fleets of 2 or 3 nodes, held against every order and choice instead of CP-SAT")
    parser.add_argument("--budget", type=float, default=2.0, help="CP-SAT's deterministic time per solve")
    parser.add_argument("--worst", type=int, default=5, help="how many of the worst fleets to list")
    parser.add_argument("--reorder", type=int, default=0, help="plan each fleet N more times, in another order")
    parser.add_argument("--show", action="store_true", help="print every fleet, its plan and the optimum")
    parser.add_argument("--without", choices=sorted(TIERS), help="switch a tier of the packer off")
    options = parser.parse_args()
    with without(options.without):
        survey(options)


def survey(options: argparse.Namespace) -> None:
    """Judge the selected fleets and print the results."""
    print(HEAD, flush=True)
    everyone: list[Judged] = []
    unequal: list[str] = []
    for family in options.family or FAMILIES:
        judged = []
        for seed in range(options.seed, options.seed + options.count):
            with suppress(TooLarge):
                judged.append(judge(family, seed, options.size, deterministic_time=options.budget))
                unequal += differences(family, seed, judged[-1], times=options.reorder, size=options.size)
                if options.show:
                    show(family, seed, size=options.size, judged=judged[-1])
        if judged:
            print(line(family, judged), flush=True)
        everyone += judged
    sum_up(everyone, unequal, options.worst)


def sum_up(everyone: Sequence[Judged], unequal: Sequence[str], worst: int) -> None:
    """Print the sum over all families, the worst fleets, and everything wrong."""
    print(line("all", everyone))
    print(LEGEND)
    for one in sorted(everyone, key=lambda one: one.verdict.ratio)[:worst]:
        if one.verdict.ratio < 1:
            print(f"  {one.verdict.ratio:.3f}  {one.name}: {one.verdict.where}")
    for one in everyone:
        for wrong in one.wrong:
            print(f"  WRONG  {one.name}: {wrong}")
    for difference in unequal:
        print(f"  ORDER  {difference}")



if __name__ == "__main__":
    main()
