"""Only processes with the cluster's mark, and their descendants, are found and ended."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from fleetctl.demo.lifecycle import MARK, end_processes, find_processes
from tests.agent.marked_processes import alive

pytestmark = pytest.mark.slow

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
STUBBORN = [
    sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]
FORGETFUL_PARENT = [
    sys.executable, "-c",
    f"import subprocess, time; subprocess.Popen({STUBBORN!r}, env={{}}, start_new_session=True); time.sleep(60)",
]


@pytest.fixture
def mark() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start(started: list[subprocess.Popen[bytes]], argv: list[str], mark: str | None) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(argv, env={MARK: mark} if mark else {}, stdout=subprocess.PIPE)
    started.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_unmarked_processes_and_processes_of_another_cluster_are_left_alone(
    mark: str, started: list[subprocess.Popen[bytes]]
) -> None:
    marked = start(started, SLEEP, mark)
    others = [start(started, SLEEP, None), start(started, SLEEP, mark + "0")]
    assert end_processes(mark) == 1
    assert marked.wait(timeout=300) != 0
    assert [other.poll() for other in others] == [None, None]


def test_a_child_that_dropped_the_mark_is_found_through_its_parent(
    mark: str, started: list[subprocess.Popen[bytes]]
) -> None:
    start(started, FORGETFUL_PARENT, mark)
    found = find_processes(mark)
    assert len(found) == 2
    assert end_processes(mark) == 2
    assert not any(alive(process.pid) for process in found)


def test_a_process_that_ignores_sigterm_is_killed(mark: str, started: list[subprocess.Popen[bytes]]) -> None:
    process = start(started, STUBBORN, mark)
    end_processes(mark)
    assert process.wait(timeout=300) == -9


def test_without_processes_nothing_is_ended(mark: str) -> None:
    assert end_processes(mark) == 0
