"""The events of a run: one JSON object per line, numbered without gaps, whichever thread writes them."""

from __future__ import annotations

import errno
import io
import json
import re
import sys
import threading
from typing import Any

import pytest

from fleetctl.agent.run_messages import EVENT_VERSION, EventStream
from fleetctl.apply.follow import parse_line
from fleetctl.documents.base import FORMAT_VERSION


def test_an_event_is_one_line_with_the_fields_every_reader_knows(capsys: pytest.CaptureFixture[str]) -> None:
    EventStream().emit("replicaReady", "m/0: ready\non a", level="info", model="m", replicaId=0)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    event = json.loads(out)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.pop("time"))
    assert event == {"seq": 0, "type": "replicaReady", "level": "info", "message": "m/0: ready\non a", "model": "m",
                     "replicaId": 0}


def test_numbers_have_no_gaps_and_lines_are_whole_with_many_writers(capsys: pytest.CaptureFixture[str]) -> None:
    events, together = EventStream(), threading.Barrier(8)

    def write(number: int) -> None:
        together.wait(30)
        for _ in range(50):
            events.emit("progress", "x" * number * 100)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(400))


class Disk(io.RawIOBase):
    """A file on a disk with `room` bytes left."""

    def __init__(self) -> None:
        self.held, self.room = b"", 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        taken = bytes(data)[:self.room]
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.held, self.room = self.held + taken, self.room - len(taken)
        return len(taken)


def test_a_run_continues_while_the_disk_of_its_log_is_full_and_writes_again_once_there_is_room(
        monkeypatch: pytest.MonkeyPatch) -> None:
    disk, events = Disk(), EventStream()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(disk), "ascii"))
    for disk.room in (1000, 50, *[0] * 100):
        events.emit("progress", "x" * 200)
    disk.room = 1_000_000
    events.emit("runSummary", "1 of 1 ready", outcomes=[], exitCode=0)
    read = [event for event in map(parse_line, disk.held.decode().splitlines()) if event]
    assert (read[0].seq, read[-1].seq, read[-1].type) == (0, 102, "runSummary")


@pytest.mark.parametrize("words", ["a\u2028b", "a\u2029b", "a\x85b", "a\x0bb\x0cc", "\ud800", "\N{SNOWMAN}", "a\r\nb"])
def test_unusual_engine_output_breaks_no_line(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An engine may print anything, and the job's standard output may have any encoding."""
    EventStream().emit("replicaFailed", words)
    out = capsys.readouterr().out
    assert out.isascii()
    assert len(out.splitlines()) == 1
    assert json.loads(out)["message"] == words


def test_the_client_can_read_the_agents_events(capsys: pytest.CaptureFixture[str]) -> None:
    EventStream().emit("runSummary", "1 of 1 ready", outcomes=[{"model": "m", "replicaId": 0, "outcome": "ready",
                                                               "nodes": ["a"], "message": ""}], exitCode=0)
    summary = parse_line(capsys.readouterr().out.rstrip("\n"))
    assert summary is not None
    assert summary.type == "runSummary"


def test_the_agents_events_are_of_the_version_the_client_knows() -> None:
    assert EVENT_VERSION == FORMAT_VERSION
