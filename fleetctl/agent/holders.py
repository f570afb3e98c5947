"""The processes that hold a socket, from /proc, which hides the sockets of other users' processes."""

from __future__ import annotations

import os
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import supervisor
from .processes import ancestors, command_of, parent_and_start
from .sockets import Listener, listeners, packed


class Holder(NamedTuple):
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


def holders(links: Set[str], pids: Iterable[int]) -> Dict[str, Holder]:
    """Return the holder of each socket among `pids`, if /proc shows it; stops once all are found."""
    found: Dict[str, Holder] = {}
    for pid in pids if links else ():
        if len(found) == len(links):
            break
        for path in _descriptors(pid):
            link = _read_link(path)
            if link in links:
                found.setdefault(str(link), Holder(pid, path, str(link)))
    return found


def _descriptors(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    try:
        yield from (f"{folder}/{entry}" for entry in os.listdir(folder))
    except OSError:
        return


class Tree:
    """The descendants of a process."""

    def __init__(self, root: int) -> None:
        self._root = root

    def processes(self) -> List[int]:
        """Return the pids of all descendants, parents before their children."""
        return supervisor.descendants(self._root)

    def has(self, pid: int) -> bool:
        """Return whether a process is a descendant, judged by its ancestors, which is reliable."""
        return self._root in ancestors(pid)


def visible_processes() -> Iterator[int]:
    """Yield the processes in our own PID namespace: none that run in a container on this host."""
    own = _read_link("/proc/self/ns/pid")
    for entry in os.listdir("/proc"):
        if entry.isdigit() and _read_link(f"/proc/{entry}/ns/pid") == own:
            yield int(entry)


def name_holder(found: Sequence[Listener]) -> str:
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
