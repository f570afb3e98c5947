"""The test's connection to the keeper's Ray, and the processes of engines that a test looks for."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MARK = "E2E_MARK"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_event_stats": "0",
         "RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0",
         "RAY_memory_monitor_refresh_ms": "0", "RAY_enable_metrics_collection": "0",
         "RAY_task_events_report_interval_ms": "0",
         "REPORTER_UPDATE_INTERVAL_MS": "20000", "SCAN_EVENT_DIR_INTERVAL_SECONDS": "3600",
         "METRICS_RECORD_INTERVAL_S": "3600"}
"""Without these, Ray's metrics would be half of an idle cluster's load, and Ray would start workers in advance."""
OTHER_RAY = "FLEETCTL_TEST_RAY_PYTHON"
"""A Python with another version of Ray to run the cluster with; the client needs no Ray."""
OWN_NAMESPACE = ("unshare", "--user", "--map-current-user", "--mount", "--keep-caps")
"""For a keeper that is not root: in a user namespace it may give nodes mounts of their own. Its user stays the same."""


class RayCluster:
    """A real Ray of several raylets on this machine; its methods are the keeper's."""

    def __init__(self, process: subprocess.Popen[bytes], reader: Any, writer: Any, session: Path) -> None:
        self._process, self._reader, self._writer = process, reader, writer
        self.session = session
        self._turn = threading.Lock()  # one pipe: a test's threads ask one after the other
        self.address: str = self._answer()

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            with self._turn:
                self._writer.write(json.dumps([verb, arguments]) + "\n")
                self._writer.flush()
                return self._answer()

        return call

    def _answer(self) -> Any:
        line = self._reader.readline()
        if not line:
            raise RuntimeError(f"the Ray keeper ended with code {self._process.wait(300)}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["ok"]


@contextmanager
def running_cluster(tmp: Path, keeper: str = "ray_keeper.py") -> Iterator[RayCluster]:
    """Start a head without GPUs. The test adds nodes, or with another keeper Ray's autoscaler does."""
    to_keeper, from_keeper = os.pipe(), os.pipe()
    session = tempfile.mkdtemp(prefix="ray-")  # a socket's path may have 107 characters, and pytest's paths are long
    env = {**os.environ, **QUIET, "RAY_TMPDIR": session, "RAY_AUTH_MODE": "disabled", "RAY_ENABLE_AUTO_CONNECT": "0",
           "HOME": str(tmp)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, each job would compile the agent again
    with (tmp / "keeper.log").open("wb") as log:
        python = os.environ.get(OTHER_RAY) or sys.executable
        own = OWN_NAMESPACE if may_mount_in_its_own() else ()
        process = subprocess.Popen(
            [*own, python, str(HERE / keeper), str(to_keeper[0]), str(from_keeper[1])],
            pass_fds=(to_keeper[0], from_keeper[1]), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env,
            start_new_session=True)
    os.close(to_keeper[0])
    os.close(from_keeper[1])
    try:
        with os.fdopen(to_keeper[1], "w") as writer, os.fdopen(from_keeper[0]) as reader:
            yield RayCluster(process, reader, writer, Path(session))
        process.wait(300)
    finally:
        if process.poll() is None:
            for pid in (*tree_of(process.pid), process.pid):
                end(pid)
            process.wait(300)
        shutil.rmtree(session, ignore_errors=True)


def may_mount_in_its_own() -> bool:
    """Return whether this user is not root, and the system lets it have a user namespace."""
    if os.geteuid() == 0:
        return False
    try:
        return subprocess.run([*OWN_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def tree_of(root: int) -> list[int]:
    """All descendants of process `root`."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def engine_pids(mark: str) -> list[int]:
    """All processes, except zombies, with `mark` in their environment: an engine and its children."""
    needle, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if needle in (entry / "environ").read_bytes().split(b"\0") and state_of(int(entry.name)) not in "ZX":
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return sorted(found)


def state_of(pid: int) -> str:
    return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]


def parent_of(pid: int) -> int:
    return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])


def eventually(check: Callable[[], Any], what: str, timeout_s: float = 180.0) -> Any:
    """Return the first true result of `check`; the generous timeout only keeps a failure from hanging."""
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()
        answer = check()
        if answer:
            return answer
        ended = time.monotonic()
        if ended >= deadline:
            raise AssertionError(f"did not happen within {timeout_s:g} s: {what}")
        time.sleep(min(1.0, max(0.2, 5 * (ended - began))))  # running a command or listing all processes takes CPU time
