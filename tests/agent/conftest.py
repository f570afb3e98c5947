"""Fixtures of this folder: a mark on all processes of a test's engine; none may outlive the test."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from attempt_stand_in import SimulatedCluster
from engine_run import Run, engine_runs
from marked_processes import end, eventually, marked
from servers import Serve, Server


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start listening processes with `serve(host, port)`; port 0 = a free port."""
    with contextlib.ExitStack() as opened:
        def start(host: str = "127.0.0.1", port: int = 0) -> Server:
            return opened.enter_context(contextlib.closing(Server(host, port)))

        yield start


@pytest.fixture
def mark() -> Iterator[str]:
    """A value for the variable `marked_processes.MARK`; after the test no process with it may be alive."""
    value = uuid.uuid4().hex
    yield value
    try:
        eventually(lambda: not marked(value), "every process of the engine is gone")
    finally:
        for pid in marked(value):
            end(pid)


@pytest.fixture
def run(tmp_path: Path, mark: str) -> Iterator[Run]:
    """Start an actor stand-in with the engine `command`; other keywords are keys of the engine, `order` is the rest."""
    with engine_runs(tmp_path, mark) as runs:
        yield runs


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SimulatedCluster:
    """A simulated cluster for one attempt."""
    return SimulatedCluster(monkeypatch)
