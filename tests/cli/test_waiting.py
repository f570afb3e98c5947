"""An apply says something at least every ten seconds: with a clock that the test moves."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import pytest

from fleetctl.cli import waiting
from fleetctl.cli.apply_run import ApplyOutput, CollectedOutput
from fleetctl.cli.waiting import SILENT_S, Waiting
from fleetctl.documents.events import Event, RunSummary
from fleetctl.errors import ApplyError, UsageError


class Said:
    """What was said, and the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[tuple[float, str, dict[str, Any]]] = []
        self.waiting = Waiting(lambda message, fields: self.lines.append((self.now, message, fields)), lambda: self.now)

    def pass_(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.25
            self.waiting.tick()


@pytest.fixture
def said() -> Said:
    return Said()


def event(kind: str, **fields: Any) -> Event:
    return Event(seq=0, time="t", type=kind, message=kind, **fields)


def test_nothing_is_said_while_others_speak(said: Said) -> None:
    for _ in range(20):
        said.pass_(SILENT_S - 0.25)
        said.waiting.learn(event("progress"))
    assert said.lines == []


def test_a_silent_run_is_never_silent_for_ten_seconds(said: Said) -> None:
    said.pass_(60)
    times = [at for at, *_ in said.lines]
    assert max(later - earlier for earlier, later in zip([0.0, *times], times, strict=False)) < 10
    assert said.lines[0][1:] == ("waiting for the plan to be made, 9 s so far", {"awaits": "plan", "seconds": 9.0})


def test_each_stage_is_named(said: Said) -> None:
    def line() -> tuple[str, dict[str, Any]]:
        said.pass_(SILENT_S)
        _, message, fields = said.lines[-1]
        return message.removeprefix("waiting for ").rpartition(", ")[0], fields

    said.waiting.now("agent", "the agent of job j to begin", "j")
    assert line() == ("the agent of job j to begin", {"awaits": "agent", "seconds": 9.0, "job": "j"})
    said.waiting.learn(event("version", job="j"))
    assert line()[0] == "the lock of its fleet"
    said.waiting.learn(event("lockWaiting", holder={"job": "k"}))
    assert line()[0] == "the lock of its fleet, which job k holds"
    said.waiting.learn(event("lockAcquired"))
    assert line()[0] == "the rest of the plan"
    for number in range(7):
        said.waiting.learn(event("replicaCreated", model="m", replicaId=number))
    said.waiting.learn(event("replicaReady", model="m", replicaId=0))
    text, fields = line()
    assert text == "6 replicas to be ready: m/1, m/2, m/3, m/4, m/5 and 1 more"
    assert (fields["awaits"], fields["replicas"]) == ("replicas", ["m/1", "m/2", "m/3", "m/4", "m/5"])
    said.waiting.learn(event("replanWanted"))
    assert line()[0] == "another plan"
    said.waiting.learn(event("replanned"))
    assert line()[1]["awaits"] == "replicas"
    said.waiting.learn(event("runSummary"))
    assert line()[0] == "a last look at the cluster"


@pytest.mark.parametrize("holder", [None, "text", {}, {"job": None}])
def test_a_holder_that_is_not_named_is_another_run(said: Said, holder: object) -> None:
    said.waiting.learn(event("lockWaiting", holder=holder))
    said.pass_(SILENT_S)
    assert "which another run holds" in said.lines[-1][1]


def test_nothing_is_said_after_the_end(said: Said) -> None:
    said.waiting.end()
    said.pass_(60)
    assert said.lines == []


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SILENT_S", 0.05)
    monkeypatch.setattr(waiting, "TICK_S", 0.01)


@pytest.mark.usefixtures("soon")
def test_a_stream_that_waits_begins_with_its_version_and_ends_with_its_summary(
    capsys: pytest.CaptureFixture[str]
) -> None:
    output, seen = ApplyOutput("jsonl"), threading.Event()
    shown = output.waiting._say
    output.waiting._say = lambda *about: (shown(*about), seen.set())  # type: ignore[assignment,func-returns-value]

    def run() -> None:
        output.waiting.now("agent", "the agent of job j to begin", "j")
        with output.ends_with_summary():
            assert seen.wait(30)
            output.relay(event("version", job="j"))
            output.relay(event("lockAcquired"))
            raise ApplyError("lost")

    with pytest.raises(ApplyError):
        run()
    lines = lines_of(capsys)
    kinds = [line["type"] for line in lines]
    assert (kinds[0], kinds[1], kinds[-1]) == ("version", "waiting", "runSummary")
    assert (lines[0]["job"], lines[1]["awaits"], lines[1]["job"]) == ("j", "agent", "j")
    assert kinds.count("version") == kinds.count("runSummary") == 1
    assert [line["seq"] for line in lines] == sorted({line["seq"] for line in lines})


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("chosen", ["table", "json"])
def test_to_a_pipe_the_other_formats_say_it_on_standard_error(chosen: Any, capsys: pytest.CaptureFixture[str]) -> None:
    output, seen = ApplyOutput(chosen), threading.Event()
    shown = output.waiting._say
    output.waiting._say = lambda *about: (shown(*about), seen.set())  # type: ignore[assignment,func-returns-value]
    with output.ends_with_summary():
        assert seen.wait(30)
    captured = capsys.readouterr()
    assert re.search(r"waiting for the plan to be made, \d+ s so far", captured.err)
    assert captured.out == ""


def test_a_usage_error_after_a_line_has_a_summary_too(capsys: pytest.CaptureFixture[str]) -> None:
    def run(*, waits: bool) -> None:
        output = ApplyOutput("jsonl")
        with output.ends_with_summary():
            if waits:
                output._show_waiting("waiting", {"awaits": "plan"})
            raise UsageError("no such model")

    with pytest.raises(UsageError):
        run(waits=False)
    assert lines_of(capsys) == []
    with pytest.raises(UsageError):
        run(waits=True)
    assert [line["type"] for line in lines_of(capsys)] == ["version", "waiting", "runSummary"]


def test_no_line_follows_the_summary(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    output = ApplyOutput("jsonl")
    output.finish(RunSummary(seq=1, time="t", message="", exit_code=0))
    monkeypatch.setattr(waiting, "SILENT_S", 0.0)
    output.waiting.tick()
    assert lines_of(capsys)[-1]["type"] == "runSummary"


def test_a_step_of_a_larger_verb_leaves_the_end_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ApplyOutput("jsonl")
    step = CollectedOutput(None, whole)  # type: ignore[arg-type]
    said: list[str] = []
    whole.waiting._say = lambda message, _: said.append(message)
    step.finish(RunSummary(seq=1, time="t", message="", exit_code=0))
    monkeypatch.setattr(waiting, "SILENT_S", 0.0)
    whole.waiting.tick()
    assert len(said) == 1
