"""Checks that the engine itself answers on a port; no process answered there before the engine started."""

from __future__ import annotations

from typing import Dict, Optional

from . import holders, sockets


class PortTaken(Exception):
    """Another process serves the engine's port; the message names it."""


class Ownership:
    """Finds the owner of the socket that answers. After the first answer, each check is one read from /proc.

    An answer also counts if its owner is unknown: the kernel shows no such socket (an engine in a container with its
    own network), or /proc does not show the process (another user's, or one in a container on this host).
    """

    def __init__(self, port: int, engine: holders.Tree) -> None:
        self._port = port
        self._engine = engine
        self._proof: Dict[str, holders.Holder] = {}
        self._others: Dict[str, holders.Holder] = {}

    def objection(self, host: str) -> Optional[str]:
        """Return None if the engine answers at `host`, or the owner was always unknown; raises PortTaken.

        If two engines share a port through SO_REUSEPORT, the one that started first may keep it.
        """
        proof = self._proof.get(host)
        if proof and proof.still():
            return None
        links = {listener.link for listener in sockets.answering(self._port, host)}
        ours = holders.holders(links, self._engine.processes())
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

    def _find_other(self, links: "set[str]") -> Optional[holders.Holder]:
        """Return a process outside the engine that holds one of these sockets, if /proc shows one."""
        for link in links:
            if not (link in self._others and self._others[link].still()):
                self._others.update(holders.holders({link}, holders.visible_processes()))
            known = self._others.get(link)
            if known and known.still() and not self._engine.has(known.pid):
                return known
        return None
