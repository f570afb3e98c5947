"""Readiness and liveness probes: http, tcp and exec. None = healthy, else a few words on what was seen."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
from typing import Any, Callable, Mapping, Optional, Sequence

BODY_BYTES = 10_240
Check = Callable[[], Optional[str]]


def http_check(host: str, port: int, path: str, timeout_s: float) -> Optional[str]:
    """GET `path`; 200 to 399 is healthy, as for a Kubernetes probe."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"User-Agent": "fleetctl-probe", "Connection": "close"})
        answer = connection.getresponse()
        status = answer.status
        answer.read(BODY_BYTES)  # to hang up on an unread answer would be a reset, of which engines complain
    except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: a path that is no text for HTTP
        return f"GET {path} on port {port}: {error.__class__.__name__}"
    finally:
        connection.close()
    return None if 200 <= status < 400 else f"GET {path} on port {port}: HTTP {status}"


def tcp_check(host: str, port: int, timeout_s: float) -> Optional[str]:
    """Open and close a connection."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except OSError as error:
        return f"connect to port {port}: {error.__class__.__name__}"
    return None


def exec_check(argv: Sequence[str], env: Mapping[str, str], cwd: str, timeout_s: float) -> Optional[str]:
    """Run a command in the engine's environment; exit 0 is healthy."""
    try:
        process = subprocess.Popen(
            list(argv), env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )
    except OSError as error:
        return f"{argv[0]}: {error.strerror}"
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its session is its own, so this is all of it
        process.wait()
        return f"{argv[0]}: no answer in {timeout_s:g} s"
    return None if code == 0 else f"{argv[0]}: exit code {code}"


def first_answer(hosts: Sequence[str], ask: Callable[[str], Optional[str]]) -> Optional[str]:
    """Ask at each host until one is healthy: an engine may listen on loopback alone, or on the node's address alone."""
    seen: Optional[str] = None
    for host in hosts:
        seen = ask(host)
        if seen is None:
            return None
    return seen


def build_check(
    probe: Mapping[str, Any], hosts: Sequence[str], port: int, env: Mapping[str, str], cwd: str,
    expand: Callable[[str], str],
) -> Check:
    """Return the check a probe of the plan describes; its port defaults to the member's own, at any of `hosts`."""
    timeout_s = float(probe.get("timeout", 5))
    if "http" in probe:
        path, web_port = str(probe["http"].get("path", "/")), int(probe["http"].get("port") or port)
        return lambda: first_answer(hosts, lambda host: http_check(host, web_port, path, timeout_s))
    if "tcp" in probe:
        tcp_port = int(probe["tcp"].get("port") or port)
        return lambda: first_answer(hosts, lambda host: tcp_check(host, tcp_port, timeout_s))
    argv = [expand(part) for part in probe["exec"]["command"]]
    return lambda: exec_check(argv, env, cwd, timeout_s)
