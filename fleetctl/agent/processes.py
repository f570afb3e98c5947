"""Details of a process from /proc: its name, user and start time, and the replica whose engine it belongs to."""

from __future__ import annotations

import os
import pwd
import time
from typing import Collection, Dict, Iterator, Optional, Tuple

from .supervisor import has_ended, stat_of

FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's name for the PID namespace of the host."""
MAX_NAMED = 3
COUNTERS = "/proc/vmstat"
Process = Tuple[int, int]
"""The pid and start of a process: the pid may have been reused."""


def oom_kills() -> int:
    """Return how many processes this host's kernel has killed for lack of memory; 0 if it does not say."""
    try:
        with open(COUNTERS) as counters:
            return next((int(line.split()[1]) for line in counters if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0


def users_text(pids: Collection[int]) -> str:
    """Return ` by process 4242 (python3, user ana, since ...)` for the users of a card's memory; empty if unknown."""
    named = [name_process(pid) for pid in sorted(pids)[:MAX_NAMED]]
    more = f" and {len(pids) - MAX_NAMED} more" if len(pids) > MAX_NAMED else ""
    return f" by {', '.join(named)}{more}" if named else ""


def name_process(pid: int) -> str:
    """Return a process by its host pid, with its command, user, start time and replica if they are known.

    The driver reports host pids; in a container such a pid is another process, or none. Arguments are omitted: they
    may contain secrets.
    """
    try:
        if os.readlink("/proc/self/ns/pid") != FIRST_NAMESPACE:
            return f"process {pid}"
        known = [command_of(pid), f"user {_user(os.stat(f'/proc/{pid}').st_uid)}", f"since {_began(pid)}"]
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({', '.join([*known, *filter(None, [_engine_of(pid)])])})"


def command_of(pid: int) -> str:
    """Return the short name of a process's command; raises OSError for one that has ended."""
    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
        return comm.read().strip()


def is_called(pid: int, name: str) -> Optional[bool]:
    """Return whether a process by its host pid has this name; None = it cannot be told.

    A name is that of the process itself or of one word of its command line, with or without a path: `Xorg`,
    `vllm.model_executor.model_loader.weight_cache.daemon`.
    """
    try:
        if os.readlink("/proc/self/ns/pid") != FIRST_NAMESPACE:
            return None
        with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
            words = [os.fsdecode(word) for word in cmdline.read().split(b"\0")]
        return name in {command_of(pid), *words, *map(os.path.basename, words)}
    except OSError:
        return None


def environment_of(pid: int) -> Dict[bytes, bytes]:
    """Return the initial environment of a process; empty if it has ended, or belongs to another user."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return dict(item.partition(b"=")[::2] for item in environ.read().split(b"\0") if b"=" in item)
    except OSError:
        return {}


def parent_and_start(pid: int) -> Tuple[int, int]:
    """Return a process's parent, and its start time in clock ticks since boot; zeros if it has ended."""
    fields = stat_of(pid)
    return (int(fields[1]), int(fields[19])) if fields else (0, 0)


def is_running(process: Process) -> bool:
    """Return whether a process still runs."""
    fields = stat_of(process[0])
    return bool(fields) and int(fields[19]) == process[1] and not has_ended(fields)


def ancestors(pid: int) -> Iterator[int]:
    """Yield the ancestors of a process, from its parent upward."""
    while pid > 1:
        pid = parent_and_start(pid)[0]
        yield pid


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _began(pid: int) -> str:
    ticks = parent_and_start(pid)[1]
    if not ticks:
        raise ProcessLookupError(pid)
    with open("/proc/stat", encoding="ascii") as stat:
        booted = next(int(line.split()[1]) for line in stat if line.startswith("btime"))
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(booted + ticks / os.sysconf("SC_CLK_TCK")))


def _engine_of(pid: int) -> Optional[str]:
    """Return the replica to whose engine the process belongs, or None; /proc tells only the process's own user."""
    environ = environment_of(pid)
    model, replica_id = (environ.get(name, b"").decode(errors="replace")
                         for name in (b"FLEETCTL_MODEL", b"FLEETCTL_REPLICA_ID"))
    return f"an engine of {model}/{replica_id}" if model and replica_id else None
