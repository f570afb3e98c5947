"""Ports of a member: reserved until its engine binds them, and whose process answers there, before and after."""

from __future__ import annotations

import socket
import time
from typing import Dict, Optional, Sequence, Set

from . import sockets

LOOPBACKS = ("127.0.0.1", "::1")
LEADER = "LEADER"
"""The gang's port on its leader; the names of an engine's further ports have no capital letters."""


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


def port_variable(name: str) -> str:
    """Return the variable with an engine's port of this name."""
    return f"FLEETCTL_PORT_{name.upper().replace('-', '_')}"


def host_port(host: str, port: int) -> str:
    """Return host and port as one address, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def taken_by(port: int, hosts: Sequence[str], timeout_s: float) -> Optional[str]:
    """Return None once no process answers on the port at any of `hosts`; the process that does after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = [listener for host in hosts for listener in sockets.answering(port, host)]
        if not found and not any(_answers(host, port) for host in hosts):
            return None
        if time.monotonic() >= deadline:
            return sockets.name_holder(found)
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


class PortTaken(Exception):
    """Another process serves the engine's port; the message names it."""


class Ownership:
    """Whether the engine itself answers on a port; no process answered there before the engine started.

    It finds the owner of the socket that answers. After the first answer, each check is one read from /proc.

    An answer also counts if its owner is unknown: the kernel shows no such socket (an engine in a container with its
    own network), or /proc does not show the process (another user's, or one in a container on this host).
    """

    def __init__(self, port: int, engine: sockets.Tree) -> None:
        self._port = port
        self._engine = engine
        self._proof: Dict[str, sockets.Holder] = {}
        self._others: Dict[str, sockets.Holder] = {}

    def objection(self, host: str) -> Optional[str]:
        """Return None if the engine answers at `host`, or the owner was always unknown; raises PortTaken.

        If two engines share a port through SO_REUSEPORT, the one that started first may keep it.
        """
        proof = self._proof.get(host)
        if proof and proof.still():
            return None
        links = {listener.link for listener in sockets.answering(self._port, host)}
        ours = sockets.holders(links, self._engine.processes())
        own = next(iter(ours.values()), None)
        if own and len(ours) == len(links):
            self._proof[host] = own
            return None
        other = self._find_other(links - set(ours))
        if other is None:
            return f"the process that answers on port {self._port} is no longer the engine" if proof else None
        text = f"port {self._port} is served by {other}, which does not belong to this engine"
        if own and own.began() < other.began():
            return text
        raise PortTaken(text)

    def _find_other(self, links: Set[str]) -> Optional[sockets.Holder]:
        """Return a process outside the engine that holds one of these sockets, if /proc shows one."""
        for link in links:
            if not (link in self._others and self._others[link].still()):
                self._others.update(sockets.holders({link}, sockets.visible_processes()))
            known = self._others.get(link)
            if known and known.still() and not self._engine.has(known.pid):
                return known
        return None
