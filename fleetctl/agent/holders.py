"""Which processes hold a socket, from /proc, which does not show the sockets of other users' processes."""

from __future__ import annotations

import os
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import supervisor
from .processes import above, command_of, parent_and_start
from .sockets import Listener, listeners, packed


class Holder(NamedTuple):
    """A process that has a socket open. `path` is where /proc shows it, for as long as it does."""

    pid: int
    path: str
    link: str

    def still(self) -> bool:
        """Return whether it still has the socket open."""
        return _read_link(self.path) == self.link

    def began(self) -> Tuple[int, int]:
        """Return a key that orders processes by their start; never the same for two."""
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
    """Return who of `pids` holds which of the sockets, as far as /proc shows it; stops when all are found."""
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
    """The processes below another one."""

    def __init__(self, root: int) -> None:
        self._root = root

    def processes(self) -> List[int]:
        """Return them, parents before their children."""
        return supervisor.descendants(self._root)

    def has(self, pid: int) -> bool:
        """Return for sure whether a process is one of them, by its parents."""
        return self._root in above(pid)


def neighbours() -> Iterator[int]:
    """Yield the processes that see the same processes as we do: not those in a container on this host."""
    own = _read_link("/proc/self/ns/pid")
    for entry in os.listdir("/proc"):
        if entry.isdigit() and _read_link(f"/proc/{entry}/ns/pid") == own:
            yield int(entry)


def name_holder(found: Sequence[Listener]) -> str:
    """Return the process that holds one of these sockets, for a message."""
    for holder in holders({one.link for one in found}, neighbours()).values():
        return str(holder)
    return "a process that /proc does not show"


def ports_of(pids: Iterable[int], host: str) -> Set[int]:
    """Return the ports on which these processes answer at `host`."""
    address = packed(host)
    reachable = {one.link: one.port for one in listeners() if one.answers_at(address)} if address else {}
    return {reachable[link] for link in holders(set(reachable), pids)}
