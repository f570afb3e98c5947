"""Ports of a member: kept until its engine has them, and told apart from those that somebody else serves."""

from __future__ import annotations

import socket
import time
from typing import Callable, Dict, Iterable, Mapping, Optional, Sequence

from . import holders, sockets

LOOPBACKS = ("127.0.0.1", "::1")
SETTLE_S = 10.0
"""A port may still be in the hands of an engine that is just being ended: that takes its grace, and a moment."""


def reserve_port() -> socket.socket:
    """Bind a free port, at all addresses, IPv6 too where there is IPv6, and keep it.

    The socket never listens and lets others share: so Linux gives its port to nobody who asks for any port, and an
    engine that asks for this one and sets SO_REUSEADDR or SO_REUSEPORT, as servers do, binds it beside us.
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
    """Return host and port as one address; an IPv6 host stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def probe_port(probe: Mapping[str, Mapping[str, object]]) -> Optional[int]:
    """Return the port that a probe names itself; None when it asks the member's own port, or no port at all."""
    port = (probe.get("http") or probe.get("tcp") or {}).get("port")
    return int(str(port)) if port else None


def taken_by(port: int, hosts: Sequence[str], patience_s: float = SETTLE_S) -> Optional[str]:
    """Return None once nobody answers on the port at any of `hosts`, or who does so still after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while True:
        there = [one for host in hosts for one in sockets.answering(port, host)]
        if not there and not any(_answers(host, port) for host in hosts):
            return None
        if time.monotonic() >= deadline:
            return holders.who(there)
        time.sleep(0.1)


def connect(host: str, port: int, timeout_s: float) -> None:
    """Open and close a connection; raises OSError. One with ourselves, which Linux may make of a free port, is none."""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        if connection.getsockname() == connection.getpeername():
            raise ConnectionRefusedError


def _answers(host: str, port: int) -> bool:
    try:
        connect(host, port, 1)
    except OSError:
        return False
    return True


class Ownership:
    """Tells whether it is the engine that answers on a port which was silent before the engine was started.

    The first answer is looked into; after that it is one look at /proc for each, as long as the same process listens.
    """

    def __init__(self, port: int, processes: Callable[[], Iterable[int]]) -> None:
        self._port = port
        self._processes = processes
        self._proof: Dict[str, holders.Holder] = {}
        self._others: Dict[str, holders.Holder] = {}

    def objection(self, host: str) -> Optional[str]:
        """Return None when the engine answers at `host`, or when that cannot be told and never could."""
        proof = self._proof.get(host)
        if proof and proof.still():
            return None
        there = {one.link for one in sockets.answering(self._port, host)}
        ours = holders.holders(there, self._processes())
        if ours and len(ours) == len(there):
            self._proof[host] = next(iter(ours.values()))
            return None
        for link in there - set(ours):
            if not (link in self._others and self._others[link].still()):
                self._others.update(holders.holders({link}, holders.neighbours()))
            if link in self._others:
                return f"port {self._port} is served by {self._others[link]}, which is not of this engine"
        return f"the engine no longer listens on port {self._port}, but something else answers there" if proof else None
