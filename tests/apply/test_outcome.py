"""How an apply ended: the rows, and the one exit code that text, JSON and the process share."""

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
AS_WANTED = {"ready", "gone"}


def row(kind: str) -> ReplicaOutcome:
    return ReplicaOutcome.model_validate({"model": "m", "outcome": kind})


@pytest.mark.parametrize("kind", KINDS)
def test_one_replica_that_is_not_ready_makes_the_run_partial(kind: str) -> None:
    assert final_exit_code([row("ready"), row(kind)], interrupted=False) == (0 if kind in AS_WANTED else 3)


@pytest.mark.parametrize("kinds", list(itertools.combinations_with_replacement(KINDS, 3)), ids="-".join)
def test_the_code_is_0_only_if_every_wanted_replica_is_ready(kinds: tuple[str, ...]) -> None:
    assert final_exit_code([row(kind) for kind in kinds], interrupted=False) == (0 if set(kinds) <= AS_WANTED else 3)


def test_a_replica_that_is_not_needed_any_more_is_fine() -> None:
    reached = ReplicaOutcome(model="m", outcome="skipped", code="TARGET_REACHED")
    assert final_exit_code([row("ready"), reached], interrupted=False) == 0
    assert final_exit_code([row("failed"), reached], interrupted=False) == 3
    lost = ReplicaOutcome(model="m", outcome="skipped", code="LOCK_LOST")
    assert final_exit_code([row("ready"), lost], interrupted=False) == 3


@pytest.mark.parametrize("kinds", [[], ["ready"], ["ready", "starting"], ["failed"]])
def test_an_interrupted_run_is_130_whatever_its_outcomes(kinds: list[str]) -> None:
    assert final_exit_code([row(kind) for kind in kinds], interrupted=True) == 130


def test_nothing_wanted_and_nothing_missing_is_fine() -> None:
    assert final_exit_code([], interrupted=False) == 0


def test_blocked_replicas_of_the_plan_are_a_row_with_reason_and_count() -> None:
    plan = small_plan("a")
    [blocked] = [one for one in plan.blocked if one.model == "org/one:1"]
    [told] = [one for one in blocked_outcomes(plan) if one.model == "org/one:1"]
    assert (told.outcome, told.replicas, told.replica_id) == ("blocked", 2, None)
    assert (told.code, told.message) == (blocked.code, blocked.message)


def test_the_result_is_the_agents_summary_or_without_one_the_plans_blocked_replicas() -> None:
    plan = small_plan("a")
    summary = RunSummary.model_validate(
        {"seq": 1, "time": "t", "message": "", "exitCode": 0, "outcomes": [ready("m", 0)]})
    assert all_outcomes(plan, summary) == all_outcomes(None, summary) == summary.outcomes
    assert all_outcomes(plan, None) == blocked_outcomes(plan)
    assert all_outcomes(None, None) == []


def ended(code: int, message: str = "told", **extra: Any) -> RunSummary:
    return RunSummary(seq=1, time="t", message=message, exit_code=code, **extra)


def test_a_lock_that_is_held_names_its_holder_and_how_to_get_past() -> None:
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


def test_a_plan_that_was_used_names_the_job_that_used_it() -> None:
    with pytest.raises(PlanUsed, match="already applied by job j7") as caught:
        raise_if_refused(ended(6, usedBy="j7"))
    assert caught.value.exit_code == 6


def test_an_agent_that_could_not_begin_is_an_error() -> None:
    with pytest.raises(ApplyError, match="no Python interpreter"):
        raise_if_refused(ended(1, "no Python interpreter with ray was found"))


@pytest.mark.parametrize("code", [0, 3])
def test_a_run_that_did_something_was_not_refused(code: int) -> None:
    raise_if_refused(ended(code))


def test_the_client_reads_the_start_scripts_own_summary() -> None:
    from pathlib import Path

    import fleetctl.agent
    from fleetctl.apply.follow import parse_line

    script = Path(fleetctl.agent.__file__).with_name("start.sh").read_text()
    line = next(line for line in script.splitlines() if line.startswith("echo '{"))
    told = parse_line(line.removeprefix("echo '").removesuffix("'"))
    assert isinstance(told, RunSummary)
    with pytest.raises(ApplyError, match="no Python interpreter"):
        raise_if_refused(told)
