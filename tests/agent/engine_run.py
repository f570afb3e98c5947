"""Run an engine as an actor does, in a process that stands in for the actor."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from marked_processes import MARK, children, eventually

from fleetctl.agent.guarded import supervisor_source
from fleetctl.demo.lifecycle import free_port

STAND_IN = Path(__file__).with_name("actor_stand_in.py")
SOURCE = supervisor_source()
RAYLET = ("sh", "-c", '"$@"; exit $?', "raylet")
DUMP_ENV = (sys.executable, "-I", "-S", "-c", "import json, os; print(json.dumps(dict(os.environ)))")
INJECTED = {"CUDA_VISIBLE_DEVICES": "0,3", "FLEETCTL_RANK": "0"}
ENDS: dict[str, Any] = {"aliveFor": 60.0}
"""The order for an engine without a probe that ends by itself: it is not ready before, however slow its end is."""


def unstamped(log: Path) -> str:
    """Return the text of a log without its stamps; empty if there is no log yet."""
    if not log.exists():
        return ""
    text = log.read_bytes().decode(errors="surrogateescape")
    return re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z#\d+ ", "", text, flags=re.MULTILINE)


class ActorStandIn:
    """A running actor stand-in; `read_report` returns its next report."""

    def __init__(self, process: subprocess.Popen[str], log: Path, temp: Path) -> None:
        self.process = process
        self.log = log
        self.temp = temp

    def read_report(self, *kinds: str) -> Any:
        """Return the content of the next report of one of `kinds`; skips other reports."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            report = json.loads(line)
            if set(kinds) & set(report):
                return report if len(report) > 1 else next(iter(report.values()))
        raise AssertionError(f"the stand-in ended without {kinds}")

    def written(self) -> str:
        """Return the engine's output: its log without fleetctl's own lines."""
        return "".join(line for line in unstamped(self.log).splitlines(True) if not line.startswith("fleetctl: "))

    def fresh_folders(self) -> list[str]:
        """Return the working directories that were made for engines and still exist."""
        walked = os.walk(self.temp)  # rglob fails if a folder is being removed
        return sorted(str(Path(parent, name).relative_to(self.temp)) for parent, folders, _ in walked
                      for name in folders if name.startswith("fleetctl-engine-"))


Run = Callable[..., ActorStandIn]


@contextlib.contextmanager
def engine_runs(tmp_path: Path, mark: str) -> Iterator[Run]:
    """Start an actor stand-in with the engine `command`; other keywords are keys of the engine, `order` is the rest."""
    started: list[ActorStandIn] = []
    temp = tmp_path / "temp"
    temp.mkdir()

    def start(*command: str, node: dict[str, str] | None = None, order: dict[str, Any] | None = None,
              **engine: Any) -> ActorStandIn:
        env = {"PATH": os.environ["PATH"], "TMPDIR": str(temp), "XDG_CACHE_HOME": str(temp / "cache"),
               "PYTHONPATH": os.pathsep.join(sys.path), "RAY_ADDRESS": "10.0.0.1:6379", "FLEETCTL_FLEET": "another",
               MARK: mark, **(node or {})}
        for kind in {"readiness", "liveness"} & engine.keys():
            engine[kind].setdefault("timeout", 60.0)  # a busy machine is no failure of a probe
        log = tmp_path / "engine.log"
        member = {"supervisor": SOURCE, "engine": {"command": list(command), **engine}, "node": "node-a",
                  "nodeId": "id-a", "group": "main", "copy": 0, "role": "Standalone", "rank": 0}
        process = subprocess.Popen([*RAYLET, sys.executable, str(STAND_IN)], env=env, text=True, start_new_session=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(json.dumps({
                "member": member, "injected": INJECTED, "log": str(log), "startupTimeout": 60, "aliveFor": 1.0,
                **(order or {})}) + "\n")
        started.append(ActorStandIn(process, log, temp))
        return started[-1]

    yield start
    for actor in started:
        for pid in [*children(actor.process.pid), actor.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        actor.process.wait(300)
        assert actor.process.stdout is not None
        actor.process.stdout.close()


SERVER = """\
import http.server, os, socketserver, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204 if self.path == "/health" and os.path.exists("healthy") else 503)
        self.end_headers()
    def log_message(self, *_):
        pass
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = "--share" in sys.argv
print("loading", flush=True)
Server((sys.argv[1], int(sys.argv[2])), Health).serve_forever()
"""
"""Serves at the host and port of its arguments; healthy once its folder has a file `healthy`."""


def server(host: str = "127.0.0.1", port: str = "$(FLEETCTL_PORT)", *flags: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", SERVER, host, port, *(flags or ("--share",)))


class EngineLike:
    """The door of a running engine_like.py at `port`."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, method: str = "GET") -> tuple[int, str]:
        """Return status and body of an answer; raises OSError if nothing serves."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def state(self) -> dict[str, Any]:
        """Return its /state."""
        return dict(json.loads(self.ask("/state")[1]))

    def be(self, **what: object) -> None:
        """Let it be so: health, waiting, done, exit, kill."""
        self.ask(f"/be?{urlencode(what)}", "POST")

    def await_serving(self) -> None:
        """Return once it serves."""

        def serves() -> bool:
            try:
                return self.ask("/state")[0] == 200
            except OSError:
                return False

        eventually(serves, "the engine serves")

    @contextlib.contextmanager
    def working(self) -> Iterator[Callable[[], tuple[int, str]]]:
        """Let a request run; yields a function that lets it be done, and returns its answer."""
        answers: list[tuple[int, str]] = []

        def ask() -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                answers.append(self.ask("/work"))

        thread = threading.Thread(target=ask)
        thread.start()
        eventually(lambda: self.state()["running"], "the request runs")

        def answer() -> tuple[int, str]:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.be(done=1)
            thread.join(60)
            return answers[0]

        try:
            yield answer
        finally:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.be(done=1)
            thread.join(60)


def engine_like(*flags: str, port: int = 0) -> tuple[tuple[str, ...], EngineLike]:
    """Return the command of engine_like.py on a free port, and its door."""
    port = port or free_port()
    program = Path(__file__).with_name("engine_like.py")
    return (sys.executable, "-I", "-S", str(program), "--port", str(port), *flags), EngineLike(port)
