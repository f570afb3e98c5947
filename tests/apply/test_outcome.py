"""How an apply ended: the rows, and the one exit code that text, JSON and the process share."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
from cluster_stand_in import ready
from small_plans import small_plan

from fleetctl.apply.outcome import all_outcomes, blocked_outcomes, final_exit_code
from fleetctl.documents.events import Outcome, ReplicaOutcome, RunSummary

KINDS: tuple[Outcome, ...] = get_args(Outcome)


def row(kind: str) -> ReplicaOutcome:
    return ReplicaOutcome.model_validate({"model": "m", "outcome": kind})


@pytest.mark.parametrize("kind", KINDS)
def test_one_replica_that_is_not_ready_makes_it_partial(kind: str) -> None:
    assert final_exit_code([row("ready"), row(kind)]) == (0 if kind == "ready" else 3)


@pytest.mark.parametrize("kinds", list(itertools.combinations_with_replacement(KINDS, 3)), ids="-".join)
def test_only_when_every_wanted_replica_is_ready_the_code_is_0(kinds: tuple[str, ...]) -> None:
    assert final_exit_code([row(kind) for kind in kinds]) == (0 if set(kinds) == {"ready"} else 3)


def test_nothing_wanted_and_nothing_missing_is_fine() -> None:
    assert final_exit_code([]) == 0


def test_what_the_plan_has_blocked_is_a_row_with_its_reason_and_count() -> None:
    plan = small_plan("a")
    [blocked] = [one for one in plan.blocked if one.model == "org/one:1"]
    [told] = [one for one in blocked_outcomes(plan) if one.model == "org/one:1"]
    assert (told.outcome, told.replicas, told.replica_id) == ("blocked", 2, None)
    assert (told.code, told.message) == (blocked.code, blocked.message)


def test_the_agents_summary_is_the_whole_result_and_without_one_the_plans_blocked_are() -> None:
    plan = small_plan("a")
    summary = RunSummary.model_validate({"seq": 1, "time": "t", "message": "", "exitCode": 0, "outcomes": [ready("m", 0)]})
    assert all_outcomes(plan, summary) == all_outcomes(None, summary) == summary.outcomes
    assert all_outcomes(plan, None) == blocked_outcomes(plan)
    assert all_outcomes(None, None) == []
