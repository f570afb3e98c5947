"""Judge one plan against the optimum of its fleet: a list of broken rules and false claims."""

from __future__ import annotations

import time
from dataclasses import dataclass

from checker import check_plan
from short_forms import plan_for

from fleetctl.documents.plan import Plan
from oracle.exhaustive import try_everything
from oracle.families import BLIND, Size, draw_inputs
from oracle.optimum import Optimum, best_possible
from oracle.question import Question, ask_about
from oracle.verdict import Verdict, compare, everything

FLOOR = 0.97
"""The least share of the optimum that a plan must reach at the first difference."""


@dataclass(frozen=True)
class Judged:
    """The result for one fleet. `wrong` = broken rules and false claims; seconds are processor time."""

    name: str
    question: Question
    plan: Plan
    best: Optimum
    verdict: Verdict
    wrong: tuple[str, ...]
    plan_s: float
    oracle_s: float

    @property
    def equal(self) -> bool:
        return not self.verdict.where

    @property
    def claims_optimal(self) -> bool:
        return self.plan.certificate.status == "optimal"

    @property
    def below_floor(self) -> bool:
        return self.verdict.ratio < FLOOR


def judge(family: str, seed: int, size: Size = "small", *, deterministic_time: float = 2.0) -> Judged:
    """Compare the plan of a fleet with the optimum; for a tiny fleet with every order and choice of nodes.

    Raises TooLarge if a tiny fleet has too many of those.
    """
    fleet, inventory = draw_inputs(family, seed, size)
    question = ask_about(fleet, inventory)
    truth = try_everything(question) if size == "tiny" else None
    start = time.process_time()
    plan = plan_for(fleet, inventory)
    planned = time.process_time()
    best = truth or (best_possible(question, deterministic_time=deterministic_time) if plan.blocked
                     else everything(question))
    done = time.process_time()
    verdict = compare(plan, fleet, question, best)
    wrong = _false_claims(plan, best, verdict, exact=size == "tiny" or family not in BLIND)
    try:
        check_plan(plan, fleet, inventory)
    except AssertionError as broken:
        wrong.append(f"a rule is broken: {broken}".splitlines()[0])
    name = f"--family {family} --seed {seed}{'' if size == 'small' else f' --{size}'}"
    return Judged(name, question, plan, best, verdict, tuple(wrong), planned - start, done - planned)


def _false_claims(plan: Plan, best: Optimum, verdict: Verdict, *, exact: bool) -> list[str]:
    """Return the false claims; if the oracle is not `exact`, its optimum is only an upper bound."""
    wrong = []
    certificate = plan.certificate
    if certificate.upper_bound < len(plan.actions):
        wrong.append(f"the bound {certificate.upper_bound} is below the plan's own {len(plan.actions)}")
    if verdict.ratio > 1 and best.proven:
        wrong.append(f"better than the optimum, so one of the two is wrong: {verdict.where}")
    if exact and certificate.status == "optimal" and verdict.ratio < 1:
        wrong.append(f"claims to be optimal, but is not: {verdict.where}")
    if exact and certificate.upper_bound < best.replicas:
        wrong.append(f"the bound {certificate.upper_bound} is below the optimum's {best.replicas} replicas")
    return wrong
