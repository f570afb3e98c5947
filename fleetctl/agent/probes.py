"""Readiness and liveness probes: http, tcp and exec. None = healthy, else a few words on what was seen."""

from __future__ import annotations

import http.client
import socket
import subprocess
from typing import Any, Callable, Mapping, Optional, Sequence

Check = Callable[[], Optional[str]]


def http_check(host: str, port: int, path: str, timeout_s: float) -> Optional[str]:
    """GET `path`; 200 to 399 is healthy, as for a Kubernetes probe."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"User-Agent": "fleetctl-probe"})
        status = connection.getresponse().status
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
        done = subprocess.run(
            list(argv), env=dict(env), cwd=cwd, timeout=timeout_s, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{argv[0]}: no answer in {timeout_s:g} s"
    except OSError as error:
        return f"{argv[0]}: {error.strerror}"
    return None if done.returncode == 0 else f"{argv[0]}: exit code {done.returncode}"


def build_check(
    probe: Mapping[str, Any], port: int, env: Mapping[str, str], cwd: str, expand: Callable[[str], str]
) -> Check:
    """Return the check a probe of the plan describes; its port defaults to the member's own."""
    timeout_s = float(probe.get("timeout", 5))
    if "http" in probe:
        path = str(probe["http"].get("path", "/"))
        return lambda: http_check("127.0.0.1", int(probe["http"].get("port") or port), path, timeout_s)
    if "tcp" in probe:
        return lambda: tcp_check("127.0.0.1", int(probe["tcp"].get("port") or port), timeout_s)
    argv = [expand(part) for part in probe["exec"]["command"]]
    return lambda: exec_check(argv, env, cwd, timeout_s)
