"""Ports of a member: reserved until its engine binds them, and whose process answers there, before and after.

The kernel lists the listening TCP sockets in our network namespace, and /proc the processes that hold them. Netlink
lists only these, in 0.2 ms. If it does not answer, as in some sandboxes, all sockets are read from /proc/net, which
takes 13 ms for 700 sockets on a 2-core machine. /proc hides the sockets of other users' processes.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import supervisor
from .processes import ancestors, command_of, parent_and_start

TABLES = {socket.AF_INET: "/proc/net/tcp", socket.AF_INET6: "/proc/net/tcp6"}
ANY_V4, ANY_V6, MAPPED = bytes(4), bytes(16), bytes(10) + b"\xff\xff"
LISTEN = 10
SOCK_DIAG, BY_FAMILY, REQUEST_A_DUMP, DONE = 4, 20, 0x301, 3
HEADER, HEADER_BYTES = "=IHHII", 16  # not a compiled Struct, which cannot be pickled
TIMEOUT_S = 5.0


class ListeningSocket(NamedTuple):
    """A socket in state LISTEN: its packed local address, its port, and its link text in /proc/PID/fd."""

    address: bytes
    port: int
    link: str

    def answers_at(self, host: bytes) -> bool:
        """Return whether a connection to a packed address may reach this socket; IPv6-only ones count for IPv4 too."""
        return self.address in (ANY_V6, host, MAPPED + host) or (self.address == ANY_V4 and len(host) == 4)


def listeners(port: Optional[int] = None) -> List[ListeningSocket]:
    """Return the listening sockets, all or those on one port."""
    found: List[ListeningSocket] = []
    for family in TABLES:
        try:
            found.extend(_ask_kernel(family, port or 0))
        except OSError:
            found.extend(_read_table(family))
    return [listener for listener in found if port in (None, listener.port)]


def _ask_kernel(family: int, port: int) -> List[ListeningSocket]:
    """Dump the listening sockets of one family through netlink (sock_diag(7)); raises OSError."""
    query = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 1 << LISTEN) + port.to_bytes(2, "big") + bytes(46)
    found: List[ListeningSocket] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
        kernel.settimeout(TIMEOUT_S)
        kernel.send(struct.pack(HEADER, HEADER_BYTES + len(query), BY_FAMILY, REQUEST_A_DUMP, 1, 0) + query)
        while True:
            for kind, answer in _messages(kernel.recv(1 << 16)):
                if kind == DONE:
                    return found
                if kind != BY_FAMILY:
                    raise OSError(f"netlink answered with a message of type {kind}")
                address = answer[8:12] if answer[0] == socket.AF_INET else answer[8:24]
                inode = int.from_bytes(answer[68:72], sys.byteorder)
                found.append(ListeningSocket(address, int.from_bytes(answer[4:6], "big"), f"socket:[{inode}]"))


def _messages(data: bytes) -> Iterator["tuple[int, bytes]"]:
    while len(data) >= HEADER_BYTES:
        size, kind = struct.unpack_from(HEADER, data)[:2]
        yield kind, data[HEADER_BYTES:size]
        data = data[(size + 3) & ~3:]


def _read_table(family: socket.AddressFamily) -> Iterator[ListeningSocket]:
    try:
        with open(TABLES[family], "rb") as lines:
            rows = [line.decode("ascii").split() for line in lines if b" %02X " % LISTEN in line]
    except OSError:
        return
    for row in rows:
        address, _, port = row[1].partition(":")
        if int(row[3], 16) == LISTEN:
            words = (int(address[at:at + 8], 16) for at in range(0, len(address), 8))
            yield ListeningSocket(b"".join(struct.pack("=I", word) for word in words), int(port, 16),
                                  f"socket:[{row[9]}]")


def packed(host: str) -> Optional[bytes]:
    """Return an address in the kernel's binary form; None for text that is not an address."""
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.partition("%")[0])
    except OSError:
        return None


def answering(port: int, host: str) -> Sequence[ListeningSocket]:
    """Return the sockets that answer at host and port: those bound to exactly that address, else the wildcard ones."""
    address = packed(host)
    found = [listener for listener in listeners(port) if listener.answers_at(address)] if address else []
    exact = [listener for listener in found if listener.address not in (ANY_V4, ANY_V6)]
    return exact or [listener for listener in found if listener.address == ANY_V4] or found


class SocketHolder(NamedTuple):
    """A process that has a socket open. `path` = the link in /proc to the socket, for as long as it is open."""

    pid: int
    path: str
    link: str

    def still(self) -> bool:
        """Return whether the process still has the socket open."""
        return _read_link(self.path) == self.link

    def began(self) -> Tuple[int, int]:
        """Return a unique key that orders processes by their start."""
        return parent_and_start(self.pid)[1], self.pid

    def __str__(self) -> str:
        try:
            return f"{command_of(self.pid)} (process {self.pid})"
        except OSError:
            return f"process {self.pid}"


def _read_link(path: str) -> Optional[str]:
    try:
        return os.readlink(path)
    except OSError:
        return None


def holders(links: Set[str], pids: Iterable[int]) -> Dict[str, SocketHolder]:
    """Return the holder of each socket among `pids`, if /proc shows it; stops once all are found."""
    found: Dict[str, SocketHolder] = {}
    for pid in pids if links else ():
        if len(found) == len(links):
            break
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for descriptor in descriptors:
            path = f"/proc/{pid}/fd/{descriptor}"
            link = _read_link(path)
            if link in links:
                found.setdefault(str(link), SocketHolder(pid, path, str(link)))
    return found


class Tree:
    """The descendants of a process."""

    def __init__(self, root: int) -> None:
        self._root = root

    def processes(self) -> List[int]:
        """Return the pids of all descendants, parents before their children."""
        return list(supervisor.descendants(self._root))

    def has(self, pid: int) -> bool:
        """Return whether a process is a descendant, judged by its ancestors, which is reliable."""
        return self._root in ancestors(pid)


def visible_processes() -> Iterator[int]:
    """Yield the processes in our own PID namespace: none that run in a container on this host."""
    own = _read_link("/proc/self/ns/pid")
    for entry in os.listdir("/proc"):
        if entry.isdigit() and _read_link(f"/proc/{entry}/ns/pid") == own:
            yield int(entry)


def name_holder(found: Sequence[ListeningSocket]) -> str:
    """Return the process that holds one of these sockets, for a message."""
    for holder in holders({listener.link for listener in found}, visible_processes()).values():
        return str(holder)
    return "a process that /proc does not show"


def ports_of(pids: Iterable[int], host: str) -> Set[int]:
    """Return the ports on which these processes answer at `host`."""
    address = packed(host)
    if not address:
        return set()
    reachable = {listener.link: listener.port for listener in listeners() if listener.answers_at(address)}
    return {reachable[link] for link in holders(set(reachable), pids)}


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
        found = [listener for host in hosts for listener in answering(port, host)]
        if not found and not any(_answers(host, port) for host in hosts):
            return None
        if time.monotonic() >= deadline:
            return name_holder(found)
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

    def __init__(self, port: int, engine: Tree) -> None:
        self._port = port
        self._engine = engine
        self._proof: Dict[str, SocketHolder] = {}
        self._others: Dict[str, SocketHolder] = {}

    def objection(self, host: str) -> Optional[str]:
        """Return None if the engine answers at `host`, or the owner was always unknown; raises PortTaken.

        If two engines share a port through SO_REUSEPORT, the one that started first may keep it.
        """
        proof = self._proof.get(host)
        if proof and proof.still():
            return None
        links = {listener.link for listener in answering(self._port, host)}
        ours = holders(links, self._engine.processes())
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

    def _find_other(self, links: Set[str]) -> Optional[SocketHolder]:
        """Return a process outside the engine that holds one of these sockets, if /proc shows one."""
        for link in links:
            if not (link in self._others and self._others[link].still()):
                self._others.update(holders({link}, visible_processes()))
            known = self._others.get(link)
            if known and known.still() and not self._engine.has(known.pid):
                return known
        return None
