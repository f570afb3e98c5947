"""Ports of a member: kept until its engine has them; a fixed port in use is found before the start."""

from __future__ import annotations

import socket
import time
from typing import Any, Dict, Mapping, Optional, Sequence

from . import holders, sockets

LOOPBACKS = ("127.0.0.1", "::1")


def reserve_port() -> socket.socket:
    """Bind a free port, at all addresses, IPv6 too where there is IPv6, and keep it.

    The socket never listens and lets others share: so Linux gives its port to no process that binds port 0, and
    an engine that binds this port with SO_REUSEADDR or SO_REUSEPORT, as servers do, shares it with us.
    """
    try:
        return _bind(socket.AF_INET6)
    except OSError:
        return _bind(socket.AF_INET)


def _bind(family: socket.AddressFamily) -> socket.socket:
    holder = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("", 0))
    except OSError:
        holder.close()
        raise
    return holder


def host_port(host: str, port: int) -> str:
    """Return host and port as one address; an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def serving_at(places: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return for an outcome where a replica answers: at its leader's of each group and copy, or a Standalone's."""
    found = [host_port(one["ip"], one["port"]) for one in places if not one.get("rank")]
    return {"address": found[0] if found else None, **({"addresses": found} if len(found) > 1 else {})}


def probe_port(probe: Mapping[str, Mapping[str, object]]) -> Optional[int]:
    """Return the port that a probe names itself; None when it asks the member's own port, or no port at all."""
    port = (probe.get("http") or probe.get("tcp") or {}).get("port")
    return int(str(port)) if port else None


def taken_by(port: int, hosts: Sequence[str], patience_s: float) -> Optional[str]:
    """Return None once no process answers on the port at any of `hosts`; after `patience_s`, the one that does."""
    deadline = time.monotonic() + patience_s
    while True:
        there = [one for host in hosts for one in sockets.answering(port, host)]
        if not there and not any(_answers(host, port) for host in hosts):
            return None
        if time.monotonic() >= deadline:
            return holders.name_holder(there)
        time.sleep(0.1)


def connect(host: str, port: int, timeout_s: float) -> None:
    """Open and close a connection; raises OSError, also for one with itself, which Linux may make on a free port."""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        if connection.getsockname() == connection.getpeername():
            raise ConnectionRefusedError


def _answers(host: str, port: int) -> bool:
    try:
        connect(host, port, 1)
    except OSError:
        return False
    return True
