"""One engine under its supervisor: environment, start, readiness, liveness, end.

Start it from the actor's main thread: the parent-death signal of Linux belongs to a thread, not to a process.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Dict, List, Mapping, Optional

from . import supervisor
from .expand import expand
from .probes import build_check

LAST_WORDS, LAST_WORDS_BYTES = "; last words: ", 2_000
DEFAULT_READY_S = 5.0
LOOPBACK = "127.0.0.1"
LOAD_SUPERVISOR = "import json,sys;config=json.loads(sys.stdin.readline());exec(config['source']);main(config)"
"""An actor gets our code by value, so there is no file of the supervisor on its node to run."""


class StartFailed(Exception):
    """The engine did not become ready; the message holds its last words."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)  # both, so that it survives pickling
        self.code = code

    def __str__(self) -> str:
        return str(self.args[1])


def node_environment() -> Dict[str, str]:
    """Return the node's own environment: that of the raylet, our parent, since Ray changes its workers'."""
    try:
        with open(f"/proc/{os.getppid()}/environ", "rb") as environ:
            pairs = [item.partition(b"=") for item in environ.read().split(b"\0") if b"=" in item]
        node = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    except OSError:
        node = dict(os.environ)
    return {
        name: value
        for name, value in node.items()
        if name != "PYTHONPATH" and not name.startswith(("RAY_", "FLEETCTL_"))
    }


def reserve_port() -> socket.socket:
    """Bind a free port and keep it until the engine starts."""
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("", 0))
    return holder


def adopt_orphans() -> None:
    """Make this actor process a subreaper, so that what a killed supervisor leaves behind comes to us."""
    ctypes.CDLL(None).prctl(supervisor.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class EngineProcess:
    """A running engine. `member` is a member of the plan with its engine; `injected` the FLEETCTL_ variables."""

    def __init__(
        self, member: Mapping[str, Any], injected: Mapping[str, str], visible: str, log: str, port: int,
        address: str = LOOPBACK,
    ) -> None:
        spec = member["engine"]
        self._supervisor_source = member["supervisor"]
        node = node_environment()
        env = dict(node)
        for name, value in spec.get("env", {}).items():
            if isinstance(value, str):
                env[name] = value
            elif value["fromNode"] in node:
                env[name] = node[value["fromNode"]]
            else:
                raise StartFailed("ENV_MISSING", f"{name}: the node has no variable {value['fromNode']}")
        env.update(injected)
        env["CUDA_VISIBLE_DEVICES"] = visible
        self._env = env
        self._log = log
        self._log_start = os.path.getsize(log) if os.path.exists(log) else 0
        self._argv = self._expand_all([*spec["command"], *spec.get("args", [])])
        self._fresh_dir = None if spec.get("workdir") else tempfile.mkdtemp(prefix="fleetctl-engine-")
        self._cwd = spec.get("workdir") or self._fresh_dir
        self._spec = spec
        self._port = port
        self._hosts = tuple(dict.fromkeys((LOOPBACK, address)))
        self.pid: Optional[int] = None
        self.exit_code: Optional[int] = None
        self._started = threading.Event()
        self._ended = threading.Event()
        self._process: Optional[subprocess.Popen[bytes]] = None

    def _expand_all(self, parts: List[str]) -> List[str]:
        try:
            return [expand(part, self._env) for part in parts]
        except KeyError as unknown:
            raise StartFailed("UNRESOLVED_VARIABLE", f"$({unknown.args[0]}) is not a variable of fleetctl") from None

    def start(self) -> None:
        """Start supervisor and engine; must run in the actor's main thread."""
        adopt_orphans()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LOAD_SUPERVISOR, "fleetctl-supervisor"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )
        config = {"argv": self._argv, "env": self._env, "cwd": self._cwd, "freshDir": self._fresh_dir,
                  "log": self._log, "parent": os.getpid(), "source": self._supervisor_source}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(config).encode() + b"\n")
        self._process.stdin.close()
        threading.Thread(target=self._follow, name="fleetctl-engine", daemon=True).start()

    def _follow(self) -> None:
        """Read what the supervisor reports; its silence means that it was killed, and then the engine goes too."""
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            report = json.loads(line)
            self.pid = report.get("started", self.pid)
            self._started.set()
            self.exit_code = report.get("exited", self.exit_code)
        self._process.wait()
        if self.exit_code is None:
            supervisor.kill_tree(os.getpid(), 0)
            self.exit_code = 128 + signal.SIGKILL
        if self._fresh_dir:
            shutil.rmtree(self._fresh_dir, ignore_errors=True)
        self._ended.set()
        self._started.set()

    def ended(self) -> bool:
        """Tell whether the engine has ended; `exit_code` says how."""
        return self._ended.is_set()

    def wait_ended(self, timeout_s: Optional[float] = None) -> bool:
        """Wait for the end."""
        return self._ended.wait(timeout_s)

    def stop(self) -> None:
        """End the engine and everything below it, and wait for that."""
        if self._process is not None and not self.ended():
            self._process.send_signal(signal.SIGTERM)
            if not self._ended.wait(supervisor.GRACE_S + 2):
                supervisor.kill_tree(os.getpid(), 0)

    def last_words(self) -> str:
        """Return the end of what the engine wrote since it was started."""
        try:
            with open(self._log, "rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - LAST_WORDS_BYTES))
                return log.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def how_it_ended(self) -> str:
        """Say how the engine ended, in words."""
        code = self.exit_code or 0
        return f"the engine was ended by signal {code - 128}" if code > 128 else f"the engine exited with code {code}"

    def become_ready(self, deadline: float) -> None:
        """Return once readiness passes; raises StartFailed at the engine's end or at `deadline` (monotonic)."""
        probe = self._spec.get("readiness")
        check = self._build(probe) if probe else None
        period_s = float(probe.get("period", 1)) if probe else DEFAULT_READY_S
        seen: Optional[str] = "not probed yet"
        self._started.wait(max(0.0, deadline - time.monotonic()))  # "alive for 5 s" counts from here
        while True:
            seen = check() if check else seen
            if seen is None and not self.ended():
                return
            if self.wait_ended(min(period_s, max(0.0, deadline - time.monotonic()))):
                raise StartFailed("ENGINE_EXITED", self._with_last_words(self.how_it_ended() + " before it was ready"))
            if check is None:
                return
            if time.monotonic() >= deadline:
                raise StartFailed("STARTUP_TIMEOUT", self._with_last_words(f"not ready in time ({seen})"))

    def watch(self, serving: Optional[threading.Event] = None) -> str:
        """Block until the engine is down, by its own end or by its liveness probe, and return why.

        `serving` = when liveness begins to count; None = at once.
        """
        probe = self._spec.get("liveness")
        if not probe:
            self.wait_ended()
            return self._with_last_words(self.how_it_ended())
        check, failures = self._build(probe), 0
        while not self.wait_ended(float(probe.get("period", 1))):
            seen = check() if serving is None or serving.is_set() else None
            failures = failures + 1 if seen else 0
            if failures >= int(probe.get("failureThreshold", 3)) and not self.ended():
                self.stop()
                return self._with_last_words(f"liveness failed {failures} times in a row ({seen})")
        return self._with_last_words(self.how_it_ended())

    def _build(self, probe: Mapping[str, Any]) -> Any:
        return build_check(probe, self._hosts, self._port, self._env, str(self._cwd),
                           lambda text: self._expand_all([text])[0])

    def _with_last_words(self, reason: str) -> str:
        words = self.last_words()
        return f"{reason}{LAST_WORDS}{words}" if words else f"{reason}; it wrote nothing"
