"""Ports of a member: reserved until its engine binds them; a fixed port in use is found before the start."""

from __future__ import annotations

import socket
import time
from typing import Any, Dict, Mapping, Optional, Sequence

from . import holders, sockets

LOOPBACKS = ("127.0.0.1", "::1")


def reserve_port() -> socket.socket:
    """Bind and hold a free port at all addresses, including IPv6 if available.

    The socket never listens, and allows sharing. So Linux gives its port to no process that binds port 0, while an
    engine that binds it with SO_REUSEADDR or SO_REUSEPORT, as servers do, shares it with us.
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
    """Return host and port as one address, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def serving_at(places: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return `address` and `addresses` of an outcome: the leader of each group and copy, or the Standalone member."""
    addresses = [host_port(place["ip"], place["port"]) for place in places if not place.get("rank")]
    return {"address": addresses[0] if addresses else None, **({"addresses": addresses} if len(addresses) > 1 else {})}


def probe_port(probe: Mapping[str, Mapping[str, object]]) -> Optional[int]:
    """Return the fixed port of a probe; None if it uses the member's own port, or no port at all."""
    port = (probe.get("http") or probe.get("tcp") or {}).get("port")
    return int(str(port)) if port else None


def taken_by(port: int, hosts: Sequence[str], timeout_s: float) -> Optional[str]:
    """Return None once no process answers on the port at any of `hosts`; the process that does after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = [listener for host in hosts for listener in sockets.answering(port, host)]
        if not found and not any(_answers(host, port) for host in hosts):
            return None
        if time.monotonic() >= deadline:
            return holders.name_holder(found)
        time.sleep(0.1)


def connect(host: str, port: int, timeout_s: float) -> None:
    """Open and close a connection; raises OSError, also if Linux connects the socket to itself on a free port."""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        if connection.getsockname() == connection.getpeername():
            raise ConnectionRefusedError


def _answers(host: str, port: int) -> bool:
    try:
        connect(host, port, 1)
    except OSError:
        return False
    return True
