"""Weight files in a node's memory: mapped and locked, so that a later start reads nothing from disk."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
from pathlib import Path
from typing import Any, Iterator, List, Tuple

from ..driver import host_memory
from .index import Index, WeightsError
from .store import Entry

POPULATE_READ = 22
SLICE = 1 << 20
SPARED = 0.1
"""The fraction of a node's memory that stays free for other replicas."""
PAGE_CACHE = {"inactive_file", "active_file"}
OWN_GROUP, GROUPS = "/proc/self/cgroup", "/sys/fs/cgroup"


def require_memory(size: int) -> None:
    """Raise WeightsError if `size` bytes would leave less than a tenth of the node's, or a cgroup's, memory free."""
    for total, free in (host_memory(), *_cgroup_memory()):
        if free < size + total * SPARED:
            raise WeightsError(f"needs {size} bytes of memory; {free} of {total} are free, and a tenth must stay free")


def _cgroup_memory() -> Iterator[Tuple[int, int]]:
    """Yield (limit, free) in bytes of each limited control group, from this process's own up to the root.

    Page cache counts as free.
    """
    for folder in control_groups():
        with contextlib.suppress(OSError, ValueError):  # the root has no limit; a container hides the rest
            limit = int(Path(folder, "memory.max").read_text())
            used = int(Path(folder, "memory.current").read_text())
            stat = map(str.split, Path(folder, "memory.stat").read_text().splitlines())
            yield limit, limit - used + sum(int(size) for kind, size in stat if kind in PAGE_CACHE)


def usable_cores() -> float:
    """Return how many processors this process may use, by its affinity and by the limits of its control groups."""
    found = [float(len(os.sched_getaffinity(0)))]
    for folder in control_groups():
        with contextlib.suppress(OSError, ValueError):
            quota, period = Path(folder, "cpu.max").read_text().split()
            found.append(int(quota) / int(period))
    return min(found)


def control_groups() -> List[str]:
    """Return the folders of this process's control groups, up to the root; none without cgroup v2."""
    try:
        with open(OWN_GROUP, encoding="utf-8") as lines:
            name = next((line[3:].strip().strip("/") for line in lines if line.startswith("0::")), "")
    except OSError:
        return []
    parts = name.split("/") if name else []
    return [os.path.join(GROUPS, *parts[:count]) for count in range(len(parts), -1, -1)]


class InMemory:
    """The files of one entry. `locked` = the kernel keeps them in memory; otherwise call `touch` regularly."""

    def __init__(self, entry: Entry, index: Index) -> None:
        self._libc = _libc()
        self._maps = [self._map(entry.path(file.path), file.size) for file in index.files if file.size]
        with contextlib.suppress(ValueError, OSError):
            limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
        refused = [area for area in self._maps if self._libc.mlock(*area)]  # mlock also loads the pages
        self.locked = not refused
        if not self.locked:
            self.touch()

    def _map(self, path: str, size: int) -> Tuple[int, int]:
        with open(path, "rb") as file:
            address = self._libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        if address == ctypes.c_void_p(-1).value:
            raise WeightsError(f"{path} cannot be mapped: {os.strerror(ctypes.get_errno())}")
        return int(address), size

    def touch(self) -> None:
        """Read every page, so that all are in memory and other pages are evicted first."""
        for address, size in self._maps:
            if self._libc.madvise(address, size, POPULATE_READ):  # fails before Linux 5.14
                for at in range(0, size, SLICE):
                    ctypes.string_at(address + at, min(SLICE, size - at))


def _libc() -> Any:
    """Load the C library, whose calls release the GIL. Python's own mmap does not expose its address."""
    libc = ctypes.CDLL(None, use_errno=True)
    area = (ctypes.c_void_p, ctypes.c_size_t)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (*area, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    libc.mlock.argtypes, libc.madvise.argtypes = area, (*area, ctypes.c_int)
    return libc
