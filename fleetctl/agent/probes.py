"""Readiness and liveness probes: http, tcp and exec. None = healthy, else a short reason."""

from __future__ import annotations

import http.client
import math
import os
import signal
import socket
import subprocess
import time
from contextlib import closing, suppress
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Sequence

from .guarded import FRESH
from .messages import Probe
from .node import expand, node_priority
from .ports import Ownership, Tree, connect

BODY_BYTES = 10_240
FIRST_PAUSE_S, LONGER = 0.05, 1.25
"""So readiness is detected after at most 1.25 times the engine's start time. A probe costs a millisecond or two."""
Check = Callable[[], Optional[str]]
NO_LISTENER = ("ConnectionRefusedError", " OSError")
"""How a reason ends if no process listens, or this host does not have the address."""


class DeadlineSocket(socket.socket):
    """A socket that receives until `deadline` (monotonic): a plain timeout restarts with each byte.

    `idle_s` = how long it waits for the next byte at most.
    """

    deadline = idle_s = math.inf

    def recv_into(self, *arguments: Any) -> int:
        """Receive within the remaining time; raises socket.timeout."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")
        self.settimeout(min(left, self.idle_s))
        return super().recv_into(*arguments)


def connect_until(deadline: float, host: str, port: int) -> http.client.HTTPConnection:
    """Return a connection with a deadline (monotonic) for the whole answer, however slowly it arrives.

    At the deadline it raises socket.timeout, an OSError. Raises OSError if it cannot connect.
    """
    connection = http.client.HTTPConnection(host, port, timeout=max(0.001, deadline - time.monotonic()))
    connection.connect()
    connection.sock = DeadlineSocket(fileno=connection.sock.detach())
    connection.sock.settimeout(connection.timeout)
    connection.sock.deadline = deadline
    return connection


def http_check(host: str, port: int, path: str, timeout_s: float) -> Optional[str]:
    """GET `path`; a status of 200 to 399 within the timeout is healthy, as for a Kubernetes probe."""
    try:
        with closing(connect_until(time.monotonic() + timeout_s, host, port)) as connection:
            connection.request("GET", path, headers={"User-Agent": "fleetctl-probe", "Connection": "close"})
            answer = connection.getresponse()
            status = answer.status
            answer.read(BODY_BYTES)  # closing with unread data resets the connection, which engines log as an error
    except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: a path that HTTP cannot carry
        return f"GET {path} on port {port}: {error.__class__.__name__}"
    return None if 200 <= status < 400 else f"GET {path} on port {port}: HTTP {status}"


def tcp_check(host: str, port: int, timeout_s: float) -> Optional[str]:
    """Open and close a connection."""
    try:
        connect(host, port, timeout_s)
    except OSError as error:
        return f"connect to port {port}: {error.__class__.__name__}"
    return None


def exec_check(argv: Sequence[str], env: Mapping[str, str], cwd: str, timeout_s: float) -> Optional[str]:
    """Run a command in the engine's environment, at its niceness; exit 0 is healthy."""
    try:
        with node_priority():
            process = subprocess.Popen(
                list(argv), env=dict(env), cwd=_entered(cwd), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        return f"{argv[0]}: {error.strerror}"
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the command has its own session, so this kills all of it
        process.wait()
        with suppress(ChildProcessError):
            while True:  # an actor is a subreaper, so it has inherited the command's own children
                os.waitpid(-process.pid, 0)
        return f"{argv[0]}: no answer in {timeout_s:g} s"
    return None if code == 0 else f"{argv[0]}: exit code {code}"


def _entered(folder: str) -> str:
    """Return a folder that a probe can enter: that it has gone says nothing about the engine.

    One that we made for the engine is made again, instead of another / is used.
    """
    with suppress(OSError):
        if os.path.basename(folder).startswith(FRESH):
            os.makedirs(folder, 0o700, exist_ok=True)
    return folder if os.access(folder, os.X_OK) else "/"


def first_answer(hosts: Sequence[str], ask: Callable[[str], Optional[str]], owner: Ownership) -> Optional[str]:
    """Probe each host until a process answers: an engine may listen on loopback only, or not on loopback.

    The answer, healthy or not, must come from the engine; raises PortTaken.
    """
    first: Optional[str] = None
    for host in hosts:
        found = ask(host)
        if not (found and found.endswith(NO_LISTENER)):
            return owner.objection(host) or found
        first = first or found
    return first


class Probed(NamedTuple):
    """What is probed: the engine's processes, where it may answer, and its environment and folder.

    `port` = the one to ask; an answer counts only from a process of the engine, or of an unknown owner: see Ownership.
    """

    hosts: Sequence[str]
    port: int
    engine: Tree
    env: Mapping[str, str]
    cwd: str

    def answer(self, ask: Callable[[str], Optional[str]]) -> Optional[str]:
        """Return the first answer of a host on the port; raises PortTaken."""
        return first_answer(self.hosts, ask, Ownership(self.port, self.engine))


def _http(probe: Probe, at: Probed) -> Check:
    path = probe.http.path if probe.http else "/"
    return lambda: at.answer(lambda host: http_check(host, at.port, path, probe.timeout))


def _tcp(probe: Probe, at: Probed) -> Check:
    return lambda: at.answer(lambda host: tcp_check(host, at.port, probe.timeout))


def _exec(probe: Probe, at: Probed) -> Check:
    argv = expand(probe.exec_.command if probe.exec_ else (), at.env)
    return lambda: exec_check(argv, at.env, at.cwd, probe.timeout)


CHECKS: Mapping[str, Callable[[Probe, Probed], Check]] = {"http": _http, "tcp": _tcp, "exec_": _exec}
"""How each kind of probe is checked, by its field in `Probe`; one whose fields include `port` asks a port."""


def build_check(
    probe: Probe, hosts: Sequence[str], port: int, engine: Tree, env: Mapping[str, str], cwd: str
) -> Check:
    """Return the check for a probe; `port` = the member's own, which it asks if it names none, at any of `hosts`."""
    return CHECKS[probe.kind](probe, Probed(hosts, probe.port or port, engine, env, cwd))


def pauses(period_s: float) -> Iterator[float]:
    """Yield the pauses between readiness probes: short ones first, each a little longer, then `period_s`."""
    pause_s = FIRST_PAUSE_S
    while pause_s < period_s:
        yield pause_s
        pause_s *= LONGER
    while True:
        yield period_s
