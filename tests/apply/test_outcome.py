"""The end of an apply: the outcomes, and the one exit code that text, JSON and the process share."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest
from cluster_stand_in import ready
from small_plans import small_plan

from fleetctl.apply.outcome import all_outcomes, blocked_outcomes, final_exit_code, raise_if_refused
from fleetctl.documents.events import Outcome, ReplicaOutcome, RunSummary
from fleetctl.errors import ApplyError, LockHeld, PlanUsed

KINDS: tuple[Outcome, ...] = get_args(Outcome)
SUCCESSFUL = {"ready", "gone"}


def row(kind: str) -> ReplicaOutcome:
    return ReplicaOutcome.model_validate({"model": "m", "outcome": kind})


@pytest.mark.parametrize("kinds", list(itertools.combinations_with_replacement(KINDS, 3)), ids="-".join)
def test_the_exit_code_is_0_only_if_every_replica_is_ready_or_gone(kinds: tuple[str, ...]) -> None:
    assert final_exit_code([row(kind) for kind in kinds], interrupted=False) == (0 if set(kinds) <= SUCCESSFUL else 3)


def test_a_replica_beyond_the_target_does_not_make_a_run_partial() -> None:
    reached = ReplicaOutcome(model="m", outcome="skipped", code="TARGET_REACHED")
    assert final_exit_code([row("ready"), reached], interrupted=False) == 0
    assert final_exit_code([row("failed"), reached], interrupted=False) == 3
    lost = ReplicaOutcome(model="m", outcome="skipped", code="LOCK_LOST")
    assert final_exit_code([row("ready"), lost], interrupted=False) == 3


@pytest.mark.parametrize("kinds", [[], ["ready"], ["ready", "starting"], ["failed"]])
def test_an_interrupted_run_is_130_whatever_its_outcomes(kinds: list[str]) -> None:
    assert final_exit_code([row(kind) for kind in kinds], interrupted=True) == 130


def test_a_run_without_replicas_is_exit_code_0() -> None:
    assert final_exit_code([], interrupted=False) == 0


def test_blocked_replicas_of_the_plan_are_a_row_with_reason_and_count() -> None:
    plan = small_plan("a")
    [blocked] = [one for one in plan.blocked if one.model == "org/one:1"]
    [parsed] = [one for one in blocked_outcomes(plan) if one.model == "org/one:1"]
    assert (parsed.outcome, parsed.replicas, parsed.replica_id) == ("blocked", 2, None)
    assert (parsed.code, parsed.message) == (blocked.code, blocked.message)


def test_the_result_is_the_agents_summary_or_without_one_the_plans_blocked_replicas() -> None:
    plan = small_plan("a")
    summary = RunSummary.model_validate(
        {"seq": 1, "time": "t", "message": "", "exitCode": 0, "outcomes": [ready("m", 0)]})
    assert all_outcomes(plan, summary) == all_outcomes(None, summary) == summary.outcomes
    assert all_outcomes(plan, None) == blocked_outcomes(plan)
    assert all_outcomes(None, None) == []


def ended(code: int, message: str = "told", **extra: Any) -> RunSummary:
    return RunSummary(seq=1, time="t", message=message, exit_code=code, **extra)


def test_a_held_lock_is_reported_with_its_holder_and_the_ways_to_proceed() -> None:
    with pytest.raises(LockHeld, match="told, started by bob@ci") as caught:
        raise_if_refused(ended(5, holder={"job": "fleetctl-apply-9", "who": "bob@ci"}))
    hint = caught.value.hint or ""
    assert all(way in hint for way in ("--lock-timeout", "--attach fleetctl-apply-9", "fleetctl stop fleetctl-apply-9"))
    assert caught.value.exit_code == 5


def test_a_held_lock_with_an_unknown_holder_is_reported_too() -> None:
    with pytest.raises(LockHeld, match=r"^told$") as caught:
        raise_if_refused(ended(5))
    assert "  " not in (caught.value.hint or "")
    assert "--attach`" in (caught.value.hint or "")


def test_a_used_plan_is_reported_with_the_job_that_used_it() -> None:
    with pytest.raises(PlanUsed, match="already applied by job j7") as caught:
        raise_if_refused(ended(6, usedBy="j7"))
    assert caught.value.exit_code == 6


def test_an_agent_that_could_not_start_is_an_error() -> None:
    with pytest.raises(ApplyError, match="no Python interpreter"):
        raise_if_refused(ended(1, "no Python interpreter with ray was found"))


@pytest.mark.parametrize("code", [0, 3])
def test_a_run_that_created_or_tried_replicas_is_not_a_refusal(code: int) -> None:
    raise_if_refused(ended(code))


def test_the_client_can_read_the_start_scripts_own_summary() -> None:
    from pathlib import Path

    import fleetctl.agent
    from fleetctl.apply.follow import parse_line

    script = Path(fleetctl.agent.__file__).with_name("start.sh").read_text()
    line = next(line for line in script.splitlines() if line.startswith("echo '{"))
    parsed = parse_line(line.removeprefix("echo '").removesuffix("'"))
    assert isinstance(parsed, RunSummary)
    with pytest.raises(ApplyError, match="no Python interpreter"):
        raise_if_refused(parsed)
