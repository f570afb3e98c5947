"""Whether it is the engine itself that answers on a port, which was silent before the engine was started."""

from __future__ import annotations

from typing import Dict, Optional

from . import holders, sockets


class PortTaken(Exception):
    """Another process has the engine's port; the message names it."""


class Ownership:
    """Finds whose socket answers. The first answer is examined; after that it is one look at /proc for each.

    An answer also counts when its owner is unknown: where the kernel shows no such socket (an engine in a container
    with its own network) or /proc does not show its process (another user's, or one in a container on this host).
    """

    def __init__(self, port: int, engine: holders.Tree) -> None:
        self._port = port
        self._engine = engine
        self._proof: Dict[str, holders.Holder] = {}
        self._others: Dict[str, holders.Holder] = {}

    def objection(self, host: str) -> Optional[str]:
        """Return None when the engine answers at `host`, or the owner was always unknown; raises PortTaken.

        Of two engines that share a port with SO_REUSEPORT, the one that began first may keep it.
        """
        proof = self._proof.get(host)
        if proof and proof.still():
            return None
        there = {one.link for one in sockets.answering(self._port, host)}
        ours = holders.holders(there, self._engine.processes())
        mine = next(iter(ours.values()), None)
        if mine and len(ours) == len(there):
            self._proof[host] = mine
            return None
        other = self._find_other(there - set(ours))
        if other is None:
            return f"something else answers on port {self._port} than the engine did before" if proof else None
        found = f"port {self._port} is served by {other}, which is not of this engine"
        if mine and mine.began() < other.began():
            return found
        raise PortTaken(found)

    def _find_other(self, links: "set[str]") -> Optional[holders.Holder]:
        """Return a process that holds one of these sockets and is not the engine's, if /proc shows one."""
        for link in links:
            known = self._others.get(link)
            if not (known and known.still()):
                self._others.update(holders.holders({link}, holders.neighbours()))
            known = self._others.get(link)
            if known and known.still() and not self._engine.has(known.pid):
                return known
        return None
