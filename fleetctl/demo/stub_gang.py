"""How the stub engines of a gang find each other: rank 0 listens, the other ranks join and keep the connection open.

One line of text each way ("rank 2", "joined"); a rank is a member as long as its connection lasts. Real engines do the
same with the store of NCCL or Gloo. Standard library only.
"""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

RETRY_S = 0.2


@dataclass
class Gang:
    """One rank's view of its gang. `joined` = on rank 0 the ranks that have joined, on others only the rank itself."""

    rank: int = 0
    size: int = 1
    leader: tuple[str, int] = ("127.0.0.1", 0)
    host: str = "127.0.0.1"
    joined: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def from_environment(cls, env: Mapping[str, str], host: str) -> Gang:
        """Read rank, size and leader from the variables that fleetctl injects; a single engine is a gang of one."""
        return cls(
            rank=int(env.get("FLEETCTL_RANK", "0")),
            size=int(env.get("FLEETCTL_GROUP_SIZE", "1")),
            leader=(env.get("FLEETCTL_LEADER_ADDRESS", "127.0.0.1"), int(env.get("FLEETCTL_LEADER_PORT") or 0)),
            host=host)

    def missing(self) -> list[int]:
        """Return the ranks this one still waits for: on rank 0 the absent others, on others rank 0."""
        with self._lock:
            if self.rank == 0:
                return sorted(set(range(1, self.size)) - self.joined)
            return [] if self.rank in self.joined else [0]

    def start(self, on_lost: Callable[[str], object]) -> None:
        """Listen or join; `on_lost` gets the reason if a rank leaves. Raises OSError if rank 0 cannot listen."""
        if self.size == 1:
            return
        if self.rank == 0:
            server = _Rendezvous((self.host, self.leader[1]), _Join)
            server.gang, server.on_lost = self, on_lost
            threading.Thread(target=server.serve_forever, name="rendezvous", daemon=True).start()
        else:
            threading.Thread(target=self._join, args=(on_lost,), name="join", daemon=True).start()

    def enter(self, rank: int) -> bool:
        """Record that a rank has joined; returns False if it is not in the gang, or has joined before."""
        with self._lock:
            accepted = rank not in self.joined and 0 < rank < self.size
            if accepted:
                self.joined.add(rank)
            return accepted

    def leave(self, rank: int) -> None:
        """Record that a rank has left."""
        with self._lock:
            self.joined.discard(rank)

    def _join(self, on_lost: Callable[[str], object]) -> None:
        while True:
            try:
                connection = socket.create_connection(self.leader, timeout=5)
            except OSError:
                time.sleep(RETRY_S)
                continue
            with connection:
                connection.settimeout(None)
                connection.sendall(f"rank {self.rank}\n".encode())
                if _receive(connection):  # rank 0 has accepted this rank
                    self.enter(self.rank)
                    while _receive(connection):
                        pass
                    on_lost(f"rank {self.rank} lost the leader at {self.leader[0]}:{self.leader[1]}")
                    return
            time.sleep(RETRY_S)


def _receive(connection: socket.socket) -> bytes:
    """Wait for data; returns nothing once the connection is closed or broken."""
    try:
        return connection.recv(64)
    except OSError:
        return b""


class _Rendezvous(socketserver.ThreadingTCPServer):
    """The server on rank 0."""

    daemon_threads = True
    allow_reuse_address = True
    gang: Gang
    on_lost: Callable[[str], object]


class _Join(socketserver.StreamRequestHandler):
    """The connection of one rank."""

    def handle(self) -> None:
        """Accept the rank, and wait until it leaves."""
        server = cast("_Rendezvous", self.server)
        word, _, number = self.rfile.readline(64).decode(errors="replace").strip().partition(" ")
        if word != "rank" or not number.isdigit() or not server.gang.enter(int(number)):
            return
        rank = int(number)
        self.wfile.write(b"joined\n")
        while _receive(self.connection):
            pass
        server.gang.leave(rank)
        server.on_lost(f"rank {rank} has ended; the gang cannot serve")
