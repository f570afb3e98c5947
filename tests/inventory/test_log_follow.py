"""Lines of a log: their numbers wherever the log is cut, and the new ones among them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stamped import stamped

from fleetctl.agent import supervisor
from fleetctl.inventory.log_follow import Line, after, lines_of

CHUNKS = st.lists(st.sampled_from([b"\n", b"a\n", b"a\na\na\n", b"a", b"a\n\na", b"b\nb\n"]), min_size=1, max_size=12)


@given(CHUNKS, st.data())
def test_numbers_and_news_are_exact_wherever_a_log_is_cut(chunks: list[bytes], data: st.DataObject) -> None:
    """By the guard's stamps, which distinguish equal lines."""
    stamps = supervisor.Stamps.__new__(supervisor.Stamps)
    stamps.lines, stamps.mid_line = 0, False
    written = b"".join(map(stamps.put, chunks)).removesuffix(b"\n")
    texts = b"".join(chunks).removesuffix(b"\n").split(b"\n")
    cut = data.draw(st.integers(0, len(texts) - 1))
    end = b"\n".join(written.split(b"\n")[cut:])
    lines, exact = lines_of(end, whole=cut == 0)
    if exact:
        assert [(line.number, line.text) for line in lines] == list(enumerate(texts[cut:], start=cut + 1))
    read = data.draw(st.integers(1, len(texts)))
    known, _ = lines_of(b"\n".join(written.split(b"\n")[:read]), whole=True)
    if exact:
        new, missing = after(known[-3:], lines)
        assert [line.number for line in new] == list(range(max(cut, read) + 1, len(texts) + 1))
        assert missing == (max(0, cut - read) if new else 0)


def test_a_line_without_a_stamp_has_the_time_of_the_one_before() -> None:
    text = "older\n" + stamped((5, "five"), (3, "the clock was set back")) + "of an earlier agent\n"
    lines, exact = lines_of(text.encode(), whole=True)
    assert exact
    assert [(line.time[17:19], line.number) for line in lines] == [("", None), ("05", 1), ("05", 2), ("05", None)]


def test_a_number_that_begins_again_loses_and_repeats_nothing() -> None:
    """Two guards may briefly write at the same time, or a huge line may hide the last stamp."""
    before = lines_of(stamped((1, "a"), (2, "b"), before=70).encode(), whole=False)[0]
    both = stamped((1, "a"), (2, "b"), before=70) + stamped((3, "c"), (3, "d"))
    lines = lines_of(both.encode(), whole=False)[0]
    new, missing = after(before, lines)
    assert ([line.text for line in new], missing) == ([b"c", b"d"], 0)
    assert after(new, lines) == ([], 0)


@pytest.mark.parametrize(("known", "lines", "new"), [
    ("abc", "bcde", "de"), ("abc", "abc", ""), ("c", "abcd", "d"), ("ab", "b", ""), ("ab", "", ""),
])
def test_without_stamps_new_lines_follow_the_last_ones(known: str, lines: str, new: str) -> None:
    found, missing = after([Line("", None, text.encode()) for text in known],
                           [Line("", None, text.encode()) for text in lines])
    assert (b"".join(line.text for line in found).decode(), missing) == (new, 0)


def test_without_stamps_the_number_of_missing_lines_is_unknown() -> None:
    lines = [Line("", None, b"x")]
    assert after([Line("", None, b"a")], lines) == (lines, None)


def test_following_a_log_continues_after_the_last_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(stamped((1, "a"), (2, "b")))
    log = supervisor.open_log(str(path))
    os.write(log, supervisor.Stamps(log).put(b"c\n"))
    os.close(log)
    assert [line.number for line in lines_of(path.read_bytes(), whole=True)[0]] == [1, 2, 3]
