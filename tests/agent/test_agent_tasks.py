"""A run and its tasks: turns, errors, an interrupt, exit codes; and what an outcome says."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.agent import run as run_module
from fleetctl.agent.lock import Interrupted, LockBusy
from fleetctl.agent.messages import GotWeights, Place, ServedWeights
from fleetctl.agent.run import OnNodes, Run, RunEnded, Steps, Task, outcome_of
from fleetctl.agent.run_messages import EventStream, Holder, Outcome, PrefetchRequest

REQUEST = PrefetchRequest({}, 1.0, 1, "job-1", "1.2")


class Counted(Task):
    """Waits for `waits` rounds, and then is ready, or fails with `error`; begins after `before`."""

    def __init__(self, key: str, waits: int = 0, error: str = "", before: Counted | None = None) -> None:
        super().__init__(key, OnNodes(key, ["a"]))
        self.waits, self.error, self.before, self.steps_taken = waits, error, before, 0

    def may_begin(self) -> bool:
        return self.before is None or self.before.outcome is not None

    def steps(self) -> Steps:
        for _ in range(self.waits):
            self.steps_taken += 1
            yield
        if self.error:
            raise OSError(self.error)
        return outcome_of(self.subject, "ready")

    def at_end(self, interrupted: bool) -> Outcome:
        return outcome_of(self.subject, "starting" if self.begun else "skipped", f"interrupted={interrupted}")


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "POLL_S", 0.0)
    monkeypatch.setattr(run_module, "signal", SimpleNamespace(signal=lambda *_: None, SIGTERM=15))


def run_of(*tasks: Task) -> Run:
    run = Run(REQUEST, EventStream())
    run.tasks += tasks
    return run


def summary(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    last: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return last


def test_all_tasks_are_stepped_in_one_loop_and_each_has_its_own_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [Counted("a", 3), Counted("b", 1, "no Ray\nand more"), Counted("c")]
    assert run_of(*tasks).carry_out() == 3
    last = summary(capsys)
    assert [(row["model"], row["outcome"], row.get("code"), row["message"]) for row in last["outcomes"]] == [
        ("a", "ready", None, ""), ("b", "failed", "AGENT_ERROR", "OSError: no Ray"), ("c", "ready", None, "")]
    assert (last["message"], last["exitCode"], last["interrupted"]) == ("2 of 3 done", 3, False)


def test_a_task_begins_when_its_turn_has_come() -> None:
    first = Counted("a", 2)
    second = Counted("b", 1, before=first)
    ended = []
    for found in (run := run_of(first, second)).rounds():
        ended.append(([task.key for task in found], second.steps_taken))
        if second.outcome:
            break
    assert ended == [([], 0), ([], 0), (["a"], 1), (["b"], 1)]
    assert run.tasks == [first, second]


def test_an_interrupted_run_steps_nothing_more_and_reports_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    class Stopping(Counted):
        def steps(self) -> Steps:
            run.stop.set()  # what SIGTERM does
            yield from super().steps()
            return outcome_of(self.subject, "ready")

    tasks = [Counted("a"), Stopping("b", 5), Counted("c"), Counted("d")]
    run = run_of(*tasks)
    assert run.carry_out() == 3
    last = summary(capsys)
    assert [(row["model"], row["outcome"], row.get("code")) for row in last["outcomes"]] == [
        ("a", "ready", None), ("b", "starting", "interrupted=True"), ("c", "skipped", "interrupted=True"),
        ("d", "skipped", "interrupted=True")]
    assert last["interrupted"] is True


@pytest.mark.parametrize(("why", "code", "fields"), [
    (LockBusy("lab", Holder("job-0")), 5, {"message": "the lock of fleet lab is held by job job-0"}),
    (Interrupted(), 3, {"message": "interrupted before anything was begun", "interrupted": True}),
    (RunEnded(6, "it was used", usedBy="job-0"), 6, {"message": "it was used", "usedBy": "job-0"}),
])
def test_a_run_that_may_begin_nothing_ends_with_the_reason(
    capsys: pytest.CaptureFixture[str], why: Exception, code: int, fields: dict[str, Any]
) -> None:
    class Refused(Run):
        def begin(self) -> None:
            raise why

        def work(self) -> None:
            raise AssertionError

    assert Refused(REQUEST, EventStream()).carry_out() == code
    last = summary(capsys)
    assert {key: last[key] for key in fields} == fields
    assert (last["exitCode"], last["outcomes"]) == (code, [])


def test_an_outcome_has_the_address_of_each_serving_member_and_sums_what_all_members_fetched() -> None:
    def place(rank: int, port: int | None, *fetched: GotWeights) -> Place:
        weights = [ServedWeights("a" * 64, None, fetched=got) for got in fetched]
        return Place(rank=rank, ip="fe80::1", port=port, weights=weights[0] if weights else None)

    small = GotWeights("peer", "m/1 on b", 10, 3.0, 5, ("m/2: gone", "m/3: slow"))
    large = GotWeights("origin", "/models", 90, 2.0, 0, ("m/2: gone",))
    found = outcome_of(OnNodes("m", ["a", "b"]), "ready", places=[
        place(0, 8000, small), place(1, 8001, large), place(0, 8002), place(0, None)], notes=["words"], seconds=1.239)
    assert (found.address, found.addresses) == ("[fe80::1]:8000", ["[fe80::1]:8000", "[fe80::1]:8002"])
    assert found.weights == GotWeights("origin", "/models", 100, 3.0, 5)
    assert (found.notes, found.seconds) == (["words", "m/2: gone", "m/3: slow"], 1.24)
    alone = outcome_of(OnNodes("m", ["a"]), "ready", places=[place(0, 8000)])
    assert (alone.address, alone.addresses, alone.weights, alone.notes) == ("[fe80::1]:8000", None, None, None)
