"""Runs `fleetctl` in this process against a `RayStandIn`: the real code except sockets and threads."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from ray_stand_in import RayStandIn

from fleetctl.apply.follow import RunFollower
from fleetctl.cli import entry
from fleetctl.inventory import client as http_client
from fleetctl.inventory import dashboard
from fleetctl.inventory.answer import Answer
from fleetctl.inventory.client import NO_ACCESS, DashboardClient
from fleetctl.render.report import terminal
from fleetctl.workflow import dashboard as workflow_dashboard
from fleetctl.workflow import planning

NO_HEADERS = httpx.Headers()
ADDRESS = "http://127.0.0.1:1"


@dataclass(frozen=True)
class Done:
    """The command line of a finished command, its exit code and its output."""

    line: tuple[str, ...]
    code: int
    out: str
    err: str


class InOrder:
    """A thread pool without threads: requests have the same order in every run."""

    def __init__(self, *_: object, **__: object) -> None:
        return

    def __enter__(self) -> InOrder:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, work: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        return map(work, *arguments)


class CommandLine:
    """Runs commands; a request takes some simulated time, and a wait takes as long as it says.

    `reports` = print tables, which takes a sixth of the total time.
    """

    def __init__(self, world: RayStandIn, patch: pytest.MonkeyPatch, home: Path, *, reports: bool) -> None:
        self._world = world
        for name in list(os.environ):
            if name.startswith(("FLEETCTL_", "RAY_", "GITHUB_")) or name in {"CI", "XDG_CONFIG_HOME"}:
                patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("FLEETCTL_ADDRESS", ADDRESS)
        for module in (http_client, dashboard):
            patch.setattr(module, "ThreadPoolExecutor", InOrder)
        patch.setitem(RunFollower.__init__.__kwdefaults__, "sleep", world.sleep)
        patch.setitem(RunFollower.__init__.__kwdefaults__, "clock", lambda: world.now)
        patch.setattr(workflow_dashboard, "DashboardClient", self.client)
        patch.setattr(planning, "git_facts", lambda *_: None)
        if not reports:
            patch.setattr(terminal, "print_report", lambda *_: None)

    def __call__(self, *words: str | Path) -> Done:
        out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True), io.StringIO()
        line = tuple(str(word) for word in words)
        with redirect_stdout(out), redirect_stderr(err):
            code = entry.run(list(line))
        done = Done(line, code, out.buffer.getvalue().decode(), err.getvalue())  # type: ignore[attr-defined]
        for error in self._world.errors:
            raise error
        assert "a bug in" not in done.err, done
        return done

    def client(self, *_: Any, **__: Any) -> DashboardClient:
        return _DirectClient(self._world)


class _FastAnswer(Answer):
    """An answer without headers and streams, which would take most of the time to create."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status_code, self._content, self.headers = status, body, NO_HEADERS
        self.encoding = "utf-8"


class _DirectClient(DashboardClient):
    """A client whose requests are function calls."""

    def __init__(self, world: RayStandIn) -> None:
        self.base_url, self._access, self._world = ADDRESS, NO_ACCESS, world

    def close(self) -> None:
        return

    def cluster_time(self) -> None:
        return

    def request(self, method: str, path: str, *, params: Mapping[str, str | Sequence[str]] | None = None,
                json: object = None, content: bytes | None = None, headers: Mapping[str, str] | None = None,
                last_bytes: int | None = None, within_s: float | None = None) -> Answer:
        self._world.sleep(0)
        body = content if content is not None else _packed(json)
        query = {key: value if isinstance(value, str) else value[-1] for key, value in (params or {}).items()}
        status, text = self._world.stand_in.answer(method, path, query, body)
        text = text[-last_bytes:] if last_bytes else text
        return _FastAnswer(status, text.encode() if isinstance(text, str) else text)

    def read_entries(self, path: str, within: Sequence[str], params: Mapping[str, str | Sequence[str]],
                     read: Callable[[str, object], Any], *, opening: str = "[", large: bool = False) -> Any:
        other_values: dict[str, Any] = {}
        found = self.request("GET", path, params=params).json()
        for key in within:
            other_values.update({name: value for name, value in found.items() if name != key})
            found = found[key]
        pairs = found.items() if isinstance(found, dict) else (("", value) for value in found)
        return [read(key, value) for key, value in pairs], other_values


def _packed(body: object) -> bytes:
    return json.dumps(body).encode() if body is not None else b""


@contextmanager
def command_line(world: RayStandIn, home: Path, *, reports: bool) -> Iterator[CommandLine]:
    """Yield the command line of a world; afterwards undo all patches."""
    with pytest.MonkeyPatch.context() as patch:
        world.install(patch)
        yield CommandLine(world, patch, home, reports=reports)
