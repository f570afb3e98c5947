"""`demo up` and `demo down`: start the keeper of a local Ray, and end all processes of the cluster in any state.

Linux only: it reads /proc. A process belongs to the cluster if its environment has the cluster's mark, a random word,
or if it descends from such a process. Processes are identified by pid and start time, so neither a reused pid nor
another Ray on the machine is ever hit.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fleetctl.demo.home import ClusterState, DemoHome, without_other_clusters
from fleetctl.errors import FleetctlError

START_TIMEOUT_S = 240.0
LONGEST_CAUSE = 300
BASE_URL = "http://127.0.0.1:"

Say = Callable[[str], None]
MARK = "DEMO_CLUSTER_MARK"
GRACE_S = 3.0
POLL_S = 0.05


def running(home: DemoHome) -> ClusterState | None:
    """Return the demo cluster that is up, or None."""
    state = home.read()
    if state is None or not state.ready:
        return None
    return state if state.keeper_pid in {process.pid for process in find_processes(state.mark)} else None


def start_cluster(home: DemoHome, env: Mapping[str, str], python: str, say: Say) -> tuple[ClusterState, bool]:
    """Start the demo cluster unless it is up; return its state and whether it was started now.

    `say` gets the name of each node as it comes up. Processes of an earlier cluster are ended first.

    Raises FleetctlError if Ray is not installed or does not come up, and then leaves nothing behind.
    """
    if find_spec("ray") is None:
        raise FleetctlError("the demo needs Ray, which is not installed here", hint="pip install 'ray[default]'")
    with home.locked():
        if (state := running(home)) is not None:
            return state, False
        _end(home)
        home.prepare(python)
        try:
            return _start(home, env, python, say), True
        except BaseException:
            _end(home)
            raise


def stop_cluster(home: DemoHome) -> int:
    """End every process of the demo cluster and remove its files; return how many processes there were."""
    if not home.path.exists():
        return 0
    with home.locked():
        return _end(home)


def left_in(env: Mapping[str, str], home: DemoHome) -> list[str]:
    """Return the variables of `env` that point to the demo cluster of `home`, whether it is up or down."""
    if env.get("RAY_AUTH_TOKEN_PATH") != str(home.token_file):
        return []
    address = ["FLEETCTL_ADDRESS"] if env.get("FLEETCTL_ADDRESS", "").startswith(BASE_URL) else []
    return [*address, *(name for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH") if name in env)]


def client_environment(home: DemoHome, state: ClusterState) -> dict[str, str]:
    """Return the variables with which fleetctl and Ray find the demo cluster."""
    return {"FLEETCTL_ADDRESS": state.address, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(home.token_file)}


def _end(home: DemoHome) -> int:
    state = home.read()
    ended = end_processes(state.mark) if state else 0
    home.clear()
    return ended


def _start(home: DemoHome, env: Mapping[str, str], python: str, say: Say) -> ClusterState:
    state = ClusterState(secrets.token_hex(16), 0, f"{BASE_URL}{free_port()}")
    home.write(state)  # before any process has the mark: after a kill in between, all of them can still be found
    with home.log.open("w") as log:
        keeper = subprocess.Popen(
            [python, "-m", "fleetctl.demo.cluster", str(home.path)],
            env=_keeper_environment(home, env, state), cwd=home.path,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    return _wait_until_ready(home, keeper, say)


def _keeper_environment(home: DemoHome, env: Mapping[str, str], state: ClusterState) -> dict[str, str]:
    """Return the user's environment with the settings of another Ray replaced by those of a private, light one."""
    return {
        **without_other_clusters(env),
        MARK: state.mark,
        "PATH": f"{home.launchers}{os.pathsep}{env.get('PATH', os.defpath)}",
        "RAY_TMPDIR": str(home.path),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(home.token_file),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_metrics_collection": "0",  # otherwise each process measures itself, for no reader
        "RAY_event_stats": "0",
        "RAY_enable_worker_prestart": "0",
        "RAY_prestart_worker_first_driver": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "SPT_NOENV": "1",  # Ray renames its worker processes; this keeps the mark readable in /proc
    }


def _wait_until_ready(home: DemoHome, keeper: subprocess.Popen[bytes], say: Say) -> ClusterState:
    reported = 0
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        ended = keeper.poll() is not None
        state = home.read()
        for name in state.nodes_up[reported:] if state else ():
            say(name)
            reported += 1
        if state and state.ready and not ended:
            return state
        if ended:
            raise _did_not_start(home, "Ray did not start")
        time.sleep(POLL_S)
    raise _did_not_start(home, f"Ray was not up after {START_TIMEOUT_S:.0f} s")


def _did_not_start(home: DemoHome, message: str) -> FleetctlError:
    """Return the error, with the last line of Ray's output: a traceback ends with its cause."""
    lines = [line.strip() for line in home.log.read_text(errors="replace").splitlines() if line.strip()]
    cause = f": {lines[-1][:LONGEST_CAUSE]}" if lines else ""
    return FleetctlError(f"{message}{cause}", hint="most often the machine is too busy or has too little memory: try "
                         f"again when it is idle; Ray's output is in {home.log}")


def free_port() -> int:
    """Return a free port below the kernel's range for outgoing connections, as the caller only listens seconds later.

    A Ray agent whose port has been taken in the meantime stays up without starting jobs.
    """
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port


@dataclass(frozen=True, slots=True)
class Process:
    """One process of this machine; `started` is in clock ticks since boot."""

    pid: int
    started: int


def find_processes(mark: str) -> set[Process]:
    """Return all processes of the cluster with this mark."""
    needle = f"{MARK}={mark}".encode()
    parents = _parents()
    marked = {process for process in parents if needle in _environment(process.pid)}
    return _with_descendants(marked, parents)


def end_processes(mark: str) -> int:
    """End every process of the cluster, by SIGTERM and after GRACE_S by SIGKILL; return how many there were."""
    seen: set[Process] = set()
    deadline = time.monotonic() + GRACE_S
    while running_now := find_processes(mark) | (seen & _parents().keys()):
        if time.monotonic() >= deadline:
            _signal(running_now, signal.SIGKILL)
        else:
            _signal(running_now - seen, signal.SIGTERM)
        seen |= running_now
        time.sleep(POLL_S)
    return len(seen)


def _parents() -> dict[Process, int]:
    """Return every running process with its parent's pid, without zombies."""
    parents: dict[Process, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):  # the process has just ended
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[Process(int(folder.name), int(fields[19]))] = int(fields[1])
    return parents


def _environment(pid: int) -> list[bytes]:
    """Return the environment a process was started with; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


def _with_descendants(roots: set[Process], parents: dict[Process, int]) -> set[Process]:
    family = set(roots)
    while True:
        pids = {process.pid for process in family}
        children = {process for process, parent in parents.items() if parent in pids} - family
        if not children:
            return family
        family |= children


def _signal(processes: Iterable[Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
