"""Fixtures of this folder: a mark on all processes of a test's engine, none of which may be left."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from attempt_stand_in import Here
from engine_run import Run, engine_runs
from left_behind import end, eventually, marked
from servers import Serve, Server


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start processes that listen, as `serve(host, port)`; 0 = a free one."""
    with contextlib.ExitStack() as opened:
        def serving(host: str = "127.0.0.1", port: int = 0) -> Server:
            return opened.enter_context(contextlib.closing(Server(host, port)))

        yield serving


@pytest.fixture
def mark() -> Iterator[str]:
    """A value for the variable `left_behind.MARK`; when the test is over nothing that carries it may live."""
    value = uuid.uuid4().hex
    yield value
    try:
        eventually(lambda: not marked(value), "every process of the engine is gone", timeout_s=15)
    finally:
        for pid in marked(value):
            end(pid)


@pytest.fixture
def run(tmp_path: Path, mark: str) -> Iterator[Run]:
    """Start an actor stand-in whose engine is `command`; keywords are keys of the engine, `order` is the rest."""
    with engine_runs(tmp_path, mark) as runs:
        yield runs


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    """A simulated cluster for one attempt."""
    return Here(monkeypatch)
