"""Processes from /proc: name, user, start time, the replica whose engine one belongs to, and its container.

Also container runtimes as the agent sees them: an engine whose image is missing, and the images of a node. An engine in
a container is any other command line here. Which image it names, the client knows.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import time
from typing import Collection, Dict, Iterator, Mapping, Optional, Sequence, Set, Tuple

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


MISSING = "IMAGE_MISSING"
"""The code of an engine whose image is not on its node, so that it never ran there."""
OWN_ERRORS = (125, 255)
"""Exit codes of a runtime that could not start a container: of podman, docker and nerdctl; of apptainer."""
_SAYS_MISSING = re.compile(
    r"^(?:error|docker|nerdctl|fatal|time=.*level=fatal).*(?:"
    r"image not known|no such image|manifest unknown|pull access denied|initializing source"
    r"|errors? occurred while pulling|did not resolve to an alias|error pulling image|unable to (?:find|pull) image"
    r"|could not open image|image \S+ not found|(?:reading|fetching) manifest|failed to resolve reference)"
    r"|^unable to find image .* locally", re.IGNORECASE | re.MULTILINE)
"""What podman, docker, nerdctl and apptainer write if the image is not on the node, nor can be pulled."""
_CONTAINER_ID = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)
ANSWER_S = 20.0


def image_is_missing(exit_code: int, output: str) -> bool:
    """Return whether a runtime ended because it found no image, from its exit code and its output."""
    return exit_code in OWN_ERRORS and bool(_SAYS_MISSING.search(output))


def lacks_image(runtime: str, reference: str, environ: Mapping[str, str]) -> Optional[str]:
    """Return why a node certainly lacks an image, or None. `environ` = the environment of engines.

    A file or folder is looked up. Otherwise the runtime is asked, by its own name and with no options but the
    reference: a fleet file chooses no program that an examination runs.
    """
    if reference.startswith("/"):
        return None if os.path.exists(reference) else f"there is no {reference}"
    program = shutil.which(runtime, path=environ.get("PATH", os.defpath))
    if not program:  # a need of its own
        return None
    asked = ["image", "exists"] if runtime == "podman" else ["image", "inspect", "--format", "found"]
    try:
        done = subprocess.run([program, *asked, "--", reference], env=dict(environ), stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    no_image = runtime == "podman" or re.search(rb"no such (?:image|object)", done.stderr, re.IGNORECASE)
    return f"{runtime} has no image {reference}" if done.returncode == 1 and no_image else None


def container_of(pid: int) -> str:
    """Return the id of the container of a process, shortened as runtimes do; empty if its cgroup does not name one."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as groups:
            found = _CONTAINER_ID.search(groups.read())
    except OSError:
        return ""
    return found[1][:12] if found else ""


def in_other_namespaces(names: Sequence[bytes]) -> Iterator[int]:
    """Yield the processes in other PID namespaces that have one of these variables, the first of each container.

    Those of a container inside that container, and of other users unless we are root, are not visible or readable.
    """
    own = namespace_of("self", "pid")
    found: Set[int] = set()
    for pid in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        namespace = namespace_of(str(pid), "pid")
        if namespace not in ("", own) and not found.intersection(ancestors(pid)):
            environ = environment_of(pid)
            if any(name in environ for name in names):
                found.add(pid)
                yield pid


def namespace_of(pid: str, kind: str) -> str:
    """Return the namespace of a kind, such as pid or mnt, that a process is in; empty if that is not visible."""
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return ""
