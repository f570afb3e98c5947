"""The cause of an engine's end: cases in `causes/`: the text, or its beginning, `---`, and the output."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.agent.cause import (
    CAUSE_CHARACTERS,
    LOGGED,
    MAX_LINES,
    RAISED,
    REACTION,
    Cause,
    CauseFinder,
    as_shown,
    first_of,
)

CASES = sorted(Path(__file__).with_name("causes").glob("*.txt"))
BAR = "Loading: 10%|#    | 1/9\rLoading:  90%|####| 8/9\rdone\x1b[K"


def found(text: str, recent_s: float | None = None, block: int = 1 << 20) -> Cause | None:
    finder, data = CauseFinder(), text.encode()
    while data:
        end = (data.find(b"\n", block - 1) + 1) or len(data)
        finder.add(data[:end])
        data = data[end:]
    return finder.cause(recent_s)


def stamped(*lines: tuple[str, str]) -> str:
    """Return lines of a log, each with its time of day."""
    return "".join(f"2025-11-27T{at}.000Z#{number} {line}\n" for number, (at, line) in enumerate(lines))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_cause_is_the_first_error_of_the_process_that_failed_first(path: Path) -> None:
    expected, _, output = path.read_bytes().decode().partition("\n---\n")
    for block in (1 << 20, 1):
        cause = found(output, block=block)
        assert (cause.text if cause else "").startswith(expected), cause
        assert bool(cause) == bool(expected)


def test_stamps_do_not_hide_errors_and_give_their_times() -> None:
    cause = found(stamped(("07:00:00", "Traceback (most recent call last):"), ("07:00:01", '  File "a.py"'),
                          ("07:00:02", "ValueError: no"), ("07:00:03", "Killed")))
    assert cause == Cause("ValueError: no", RAISED, "2025-11-27T07:00:00.000")


def test_of_an_engine_that_was_ready_only_the_last_errors_count() -> None:
    old = ("07:00:00", "ERROR:    the prompt of request 7 is too long")
    new = ("09:00:00", "ERROR:    CUDA driver has gone")
    end = ("09:00:30", "INFO:     Finished server process [1]")
    cause = found(stamped(old, new, end), recent_s=60)
    assert cause is not None
    assert cause.text == "CUDA driver has gone"
    assert found(stamped(old, end), recent_s=60) is None


def test_an_exception_outweighs_an_earlier_line_of_a_logger_and_a_reaction_counts_only_alone() -> None:
    raised = "ERROR: no plugin\nTraceback (most recent call last):\nOSError: gone\n"
    assert found(raised) == Cause("OSError: gone", RAISED)
    assert found("ERROR: worker 1 died unexpectedly\nERROR: no plugin\n") == Cause("no plugin", LOGGED)
    assert found("ERROR: worker 1 died unexpectedly\n") == Cause("worker 1 died unexpectedly", REACTION)


def test_a_flood_of_errors_is_not_read_to_its_end_and_a_long_error_is_cut() -> None:
    finder = CauseFinder()
    for _ in range(MAX_LINES // 1_000 + 2):
        finder.add(b"ERROR: no prompt\n" * 1_000)
    finder.add(b"Traceback (most recent call last):\nValueError: late\n")
    assert finder.cause() == Cause("no prompt", LOGGED)
    cause = found("ERROR: " + "x" * 9_999 + "\n")
    assert cause is not None
    assert len(cause.text) == CAUSE_CHARACTERS


@pytest.mark.parametrize(("written", "shown"), [
    (BAR, "done"),
    ("abcdef\rxy", "xycdef"),
    ("\x1b[31mred\x1b[0m\r\nplain", "red\nplain"),
    ("\x1b]0;title\x07text", "text"),
    ("a\r\nb\r\n", "a\nb\n"),
    ("50%\r\x1b[2K100%", "100%"),
])
def test_output_is_shown_as_on_a_terminal(written: str, shown: str) -> None:
    assert as_shown(written) == shown


def test_in_a_gang_the_earliest_of_the_heaviest_errors_is_the_cause() -> None:
    lost, oom, late = Cause("peer lost", REACTION, "1"), Cause("out of memory", RAISED, "2"), Cause("x", RAISED, "3")
    assert first_of([lost, late, None, oom]) == 3
    assert first_of([None, lost]) == 1
    assert first_of([None, None]) is None
