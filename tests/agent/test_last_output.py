"""An engine's log as its actor reads it: the end of the current life, even if the log was rotated in between."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from engine_run import unstamped

from fleetctl.agent.engine import LAST_OUTPUT_BYTES, EngineLog


@pytest.fixture
def log(tmp_path: Path) -> EngineLog:
    return EngineLog(str(tmp_path / "engine.log"))


def write(log: EngineLog, text: str, suffix: str = "") -> None:
    with Path(log.path + suffix).open("a") as file:
        file.write(text)


def test_fleetctls_first_line_creates_a_log_that_others_cannot_read(log: EngineLog) -> None:
    log.begin("main/0 rank 0")
    assert unstamped(Path(log.path)).startswith("fleetctl: starting main/0 rank 0 at 2")
    assert stat.S_IMODE(Path(log.path).stat().st_mode) & ~0o640 == 0


@pytest.mark.parametrize("path", ["/dev/full", "/no/such/folder/engine.log"])
def test_a_log_that_cannot_be_written_is_no_error(path: str) -> None:
    EngineLog(path).begin("main/0 rank 0")


def test_without_a_log_there_is_no_last_output(log: EngineLog) -> None:
    assert log.last_output() == ""


def test_the_last_output_is_of_the_current_life_only(log: EngineLog) -> None:
    write(log, "an earlier life\n")
    log.begin("main/0 rank 0")
    assert log.last_output() == ""
    write(log, "no weights\n")
    assert log.last_output() == "no weights"


@pytest.mark.parametrize("length", range(LAST_OUTPUT_BYTES - 60, LAST_OUTPUT_BYTES + 3, 7))
def test_the_last_output_never_contains_fleetctls_own_line_or_its_end(log: EngineLog, length: int) -> None:
    write(log, "an earlier life\n")
    log.begin("main/0 rank 0")
    write(log, "x" * length)
    assert log.last_output() == "x" * min(length, LAST_OUTPUT_BYTES)


def test_the_last_output_continues_into_the_previous_log(log: EngineLog) -> None:
    write(log, "an earlier life\n", ".1")
    EngineLog(log.path + ".1").begin("main/0 rank 0")
    write(log, "the beginning\n", ".1")
    write(log, "the end\n")
    assert log.last_output() == "the beginning\nthe end"


def test_the_last_output_has_no_stamps(log: EngineLog) -> None:
    log.say("an earlier life")
    log.begin("main/0 rank 0")
    log.say("one")
    write(log, "2026-11-21T04:22:07.123Z#3 two\n2026-11-21T04:22:07.123Z#3 three\n")
    assert log.last_output() == "fleetctl: one\ntwo\nthree"


def test_the_previous_log_is_not_read_if_the_current_one_holds_the_whole_life(log: EngineLog) -> None:
    write(log, "an earlier life\n", ".1")
    log.begin("main/0 rank 0")
    write(log, "the end\n")
    assert log.last_output() == "the end"


@pytest.mark.parametrize(("text", "found"), [
    ("OSError: [Errno 98] Address already in use\n", True),
    ("[Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use\n", True),
    ("Error: listen EADDRINUSE: address already in use :::8000\n", True),
    ("out of memory\n", False),
])
def test_an_address_in_use_is_found_even_far_from_the_end(log: EngineLog, text: str, found: bool) -> None:
    log.begin("main/0 rank 0")
    write(log, text + "traceback\n" * 10_000)
    assert log.says_address_in_use() is found


def test_an_address_in_use_in_an_earlier_life_does_not_count(log: EngineLog) -> None:
    write(log, "Address already in use\n")
    log.begin("main/0 rank 0")
    assert not log.says_address_in_use()
