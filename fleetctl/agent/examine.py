"""Examine: check every node for the doctor: what engines need, orphaned engines, disks, cards. Claims nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import shutil
import stat
import tempfile
import time
from typing import Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import node, ports, processes
from .driver import NO_DRIVER, CardReport, query_driver
from .leftovers import find_orphans, mark_of
from .lock import left_locks
from .node import expand, node_environment
from .node_request import Rounds, report_silence
from .on_nodes import report_answers
from .ports import LOOPBACKS, taken_by
from .run_messages import EventStream, ExamineRequest, Need, Orphan

RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
SHARED, RDMA, STANDING = "/dev/shm", "/dev/infiniband", "/proc/{}/oom_score_adj"
SEGMENTS = ("psm_", "sem.mp-", "sem.loky-", "torch_", "nccl-", "cuda.shm.", "vllm", "sglang")
"""How the names of the shared memory begin that engines' libraries make; a model that somebody keeps there has none."""
NEW_S = 60.0
"""Newer segments may be on their way from one process to another."""
Problem = Optional[Tuple[str, str]]
"""Code and message of a need that is not met."""


class Unmet(NamedTuple):
    """A need that a node does not meet."""

    kind: str
    value: str
    path: Optional[str]
    code: str
    message: str


class Disk(NamedTuple):
    """A path's file system: the space in all and available to us, in bytes, and its device number."""

    path: str
    total: int
    free: int
    device: int


class FailedCard(NamedTuple):
    """A card that has failed itself, with a code of a member that refuses it; `uuid` empty = not known."""

    number: str
    uuid: str
    code: str
    message: str


class Limits(NamedTuple):
    """What an engine has on a node; None = no limit. `nice` and `oom_score_adj` = how much worse than the raylet's."""

    nice: int
    oom_score_adj: int
    open_files: Optional[int]
    locked_memory: Optional[int]
    rdma: bool


class Segment(NamedTuple):
    """Shared memory of this user that no process has open: its name in /dev/shm, and its size in bytes."""

    name: str
    size: int


class SharedMemory(NamedTuple):
    """A node's /dev/shm, in bytes, and what ended processes of usual libraries have left there."""

    total: int
    free: int
    left: Sequence[Segment]


class Examined(NamedTuple):
    """The findings about a node; `driver` = why its driver tells nothing, or not of all cards."""

    unmet: Sequence[Unmet]
    orphans: Sequence[Orphan]
    disks: Sequence[Disk]
    limits: Limits
    shared_memory: SharedMemory
    cards: Sequence[FailedCard] = ()
    driver: str = ""


def run_examine(request: ExamineRequest, events: EventStream) -> int:
    """Examine every node of the request, and read Ray's table for abandoned locks."""
    events.begin(request)
    rounds = Rounds()
    silent = report_answers(examine_node, request, events, "nodeExamined", "examined")
    events.emit("locksLeft", "abandoned locks", locks=left_locks())
    if rounds.are_over():
        report_silence(events)
    return events.end(0, f"{len(request.nodes) - silent} of {len(request.nodes)} nodes answered")


def examine_node(needs: Sequence[Need]) -> Examined:
    """Return the findings about the node on which this runs."""
    cards = query_driver(node_environment())
    return Examined(unmet_needs(needs, node_environment()), find_orphans(),
                    [disk(path) for path in dict.fromkeys((node.log_path(""), tempfile.gettempdir()))],
                    limits(), shared_memory(), failed_cards(cards),
                    cards.trouble if cards.trouble and cards.trouble != NO_DRIVER else "")


def failed_cards(answer: CardReport) -> List[FailedCard]:
    """Return the cards that have failed themselves, as the driver tells."""
    lost = [FailedCard(number, "", "CARD_LOST", f"the driver counts it and cannot open it ({why})")
            for number, why in answer.lost.items()]
    return [*lost, *(FailedCard(card.number, card.uuid, "CARD_FAULTY", f"it has {card.fault}")
                     for card in answer.cards if card.fault)]


def disk(path: str) -> Disk:
    """Return the file system of a path."""
    usage = shutil.disk_usage(path)
    return Disk(path, usage.total, usage.free, os.stat(path).st_dev)


def limits() -> Limits:
    """Return the limits of an engine here: it takes the raylet's standing where that is allowed, and ours elsewhere."""
    with node.node_priority():
        nice = os.getpriority(os.PRIO_PROCESS, 0) - os.getpriority(os.PRIO_PROCESS, os.getppid())
    before = _read(STANDING.format("self"))
    node.share_memory_standing()
    standing = int(_read(STANDING.format("self")) or 0) - int(_read(STANDING.format(os.getppid())) or 0)
    with contextlib.suppress(OSError), open(STANDING.format("self"), "w") as own:
        own.write(before)
    return Limits(nice, standing, _limit(resource.RLIMIT_NOFILE), _limit(resource.RLIMIT_MEMLOCK), os.path.isdir(RDMA))


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="ascii") as text:
        return text.read()
    return ""


def _limit(kind: int) -> Optional[int]:
    soft = resource.getrlimit(kind)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def shared_memory(folder: str = SHARED) -> SharedMemory:
    """Return the state of /dev/shm; all zero if there is none."""
    try:
        usage = shutil.disk_usage(folder)
        names = sorted(os.listdir(folder))
    except OSError:
        return SharedMemory(0, 0, ())
    found = (left_segment(os.path.join(folder, name)) for name in names if name.startswith(SEGMENTS))
    return SharedMemory(usage.total, usage.free, [segment for segment in found if segment])


def left_segment(path: str) -> Optional[Segment]:
    """Return a segment that nothing has open or mapped, also in a container on this host: only then Linux leases it."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return None
        if time.time() - status.st_mtime < NEW_S:
            return None
        fcntl.fcntl(opened, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        return Segment(os.path.basename(path), status.st_size)
    except OSError:
        return None
    finally:
        os.close(opened)


def unmet_needs(needs: Sequence[Need], environ: Mapping[str, str]) -> List[Unmet]:
    """Return the unmet needs; `environ` = the environment of engines."""
    checks: Mapping[str, Callable[[Need], Problem]] = {
        "command": lambda need: command(need.value, expand(need.path or "$(PATH)", {"PATH": os.defpath, **environ})),
        "variable": lambda need: variable(need.value, environ), "workdir": lambda need: workdir(need.value),
        "port": lambda need: port(int(need.value)),
        "image": lambda need: image(need.path or "", need.value, environ)}
    problems = ((need, checks[need.kind](need)) for need in needs)
    return [Unmet(*need, *problem) for need, problem in problems if problem]


def command(name: str, path: str) -> Problem:
    """Look up a command as the engine's start does."""
    if "/" in name and not name.startswith("/"):  # depends on the working directory
        return None
    if shutil.which(name, path=path):
        return None
    problem = "is not an executable file there" if name.startswith("/") else f"is not on its PATH ({path})"
    return "COMMAND_MISSING", f"{name} {problem}"


def variable(name: str, environ: Mapping[str, str]) -> Problem:
    """Check that the variable of a `fromNode` exists."""
    return None if name in environ else ("VARIABLE_MISSING", f"the node has no variable {name}")


def image(runtime: str, reference: str, environ: Mapping[str, str]) -> Problem:
    """Check that the image of an engine in a container is on the node."""
    lacking = processes.lacks_image(runtime, reference, environ)
    return (processes.MISSING, lacking) if lacking else None


def workdir(folder: str) -> Problem:
    """Check that the engine can enter its working directory."""
    if os.path.isdir(folder) and os.access(folder, os.X_OK):
        return None
    return "WORKDIR_MISSING", f"{folder} is not a folder that this user can enter"


def port(number: int) -> Problem:
    """Check that a fixed port is free or held by an engine of ours, and that Linux gives it to no other process."""
    links = {listener.link for host in LOOPBACKS for listener in ports.answering(number, host)}
    if any(mark_of(holder.pid) for holder in ports.holders(links, ports.visible_processes()).values()):
        return None
    taken = taken_by(number, LOOPBACKS, 0)
    if taken:
        return "PORT_TAKEN", f"port {number} is in use by {taken}"
    low, high = outgoing_range()
    if low <= number <= high:
        return "PORT_IN_RANGE", (f"Linux may give port {number} to an outgoing connection ({low} to {high}) before the"
                                 " engine binds it")
    return None


def outgoing_range() -> Tuple[int, int]:
    """Return the first and last port that Linux assigns to outgoing connections and to binds of port 0."""
    try:
        with open(RANGE, encoding="ascii") as text:
            low, high = map(int, text.read().split())
    except (OSError, ValueError):
        return 0, -1
    return low, high
