"""The engine's supervisor: a program of its own that makes sure that no process of an engine outlives its replica.

Two guards, one inside the other, each a subreaper with a parent-death signal: actor > outer > inner > engine. Whichever
of actor, outer and inner is killed, the next one up or down notices, and everything below goes, also processes that
called setsid or were orphaned: a subreaper inherits them. Two guards are needed because Ray kills the direct
children of a worker that it ends, which would take a single guard before it could act.

The engine writes into a pipe that the actor made: standard error of both guards, so that what they say of themselves is
in the log, too. The inner guard moves it to the log; after its end the outer guard, or the actor, moves the rest.

Run by its source text, alone, with a configuration {argv, env, cwd, freshDir, log, output, parent}; writes
`{"started": pid}` and `{"exited": status}` lines to standard output. Every engine has two guards, so nothing slow is
imported: `_signal` is `signal` without its enumerations, which would be a third of a start.
"""

from __future__ import annotations

import ctypes
import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, Callable, Dict, List, Optional
else:
    import _signal as signal

GRACE_S = 2.0
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

LOG_BYTES = 64 << 20
"""The disk space of one engine's output, half in `NAME`, half in its predecessor `NAME.1`: hundreds of thousands of
lines, and even a hundred engines that complain in a loop leave room on the disk to which Ray spills its objects."""
PIPE_BYTES = 256 << 10
"""What an engine can write while its guard is away. All pipes of one user share 64 MiB by default."""
READ_BYTES = PIPE_BYTES // 4
STAMPED_END_BYTES = 256 << 10
"""How far back in a log its last stamp is looked for."""
GATHER_S = 0.02
"""An engine that writes line by line wakes its guard this seldom; one that writes a lot is read at once."""


def prctl(option: int, value: int) -> None:
    """Call prctl(2); failures are ignored: there is nothing better to do."""
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def descendants(root: int) -> List[int]:
    """Return the pids of all living processes below `root`, zombies left out, from /proc."""
    children: Dict[int, List[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open("/proc/" + entry + "/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] not in (b"Z", b"X"):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found.extend(below)
        todo.extend(below)
    return found


def signal_all(pids: List[int], number: int) -> None:
    """Send a signal to each of `pids`; one that has gone meanwhile is fine."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue


def reap() -> Dict[int, int]:
    """Collect every child that has ended: pid -> wait status."""
    ended: Dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except OSError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def kill_tree(root: int, grace_s: float, meanwhile: Callable[[], None]) -> None:
    """End everything below `root`: SIGTERM, then SIGKILL after `grace_s`, until nothing is left (10 s at most)."""
    signal_all(descendants(root), signal.SIGTERM)
    begun = time.monotonic()
    while time.monotonic() - begun < grace_s + 10:
        meanwhile()
        reap()
        left = descendants(root)
        if not left:
            break
        if time.monotonic() - begun >= grace_s:
            signal_all(left, signal.SIGKILL)
        time.sleep(0.02)
    meanwhile()


def open_log(path: str) -> int:
    """Open an engine's log to append to it. It is for its owner and group: an engine may write what is secret."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)


class Stamps:
    """The stamp of each line in a log, `2026-11-21T04:22:07.123Z#41 `: its time, and how many lines were before.

    All lines that come at once have the same stamp: that costs little, and a reader can count from there.
    """

    def __init__(self, log: int) -> None:
        """Continue where an open log ends."""
        size = os.fstat(log).st_size
        end = os.pread(log, STAMPED_END_BYTES, max(0, size - STAMPED_END_BYTES)) if size else b""
        self.within = end[-1:] not in (b"", b"\n")
        self.lines = 0
        for line in reversed(end.split(b"\n")):
            number, space, _ = line[25:45].partition(b" ")
            if line[23:25] == b"Z#" and space and number.isdigit():
                stamp = line[:25] + number + space
                self.lines = int(number) + end.count(b"\n" + stamp) + end.startswith(stamp)
                break

    def put(self, data: bytes) -> bytes:
        """Return `data` with a stamp before each line that begins in it."""
        now = time.time()
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)).encode()
        stamp = b"%b.%03dZ#%d " % (second, now % 1 * 1000, self.lines)
        first, ended = b"" if self.within else stamp, data.endswith(b"\n")
        inner = data.count(b"\n") - ended
        self.lines += inner + (not self.within)
        self.within = not ended
        return first + data.replace(b"\n", b"\n" + stamp, inner)


class Output:
    """An engine's output on its way from the pipe to its log. Nothing that is wrong with the log reaches the engine."""

    def __init__(self, pipe: int, path: str) -> None:
        os.set_blocking(pipe, False)
        self.pipe = pipe
        self._path = path
        self._log = -1
        self._stamps: Optional[Stamps] = None
        self._size = 0
        self._lost = 0
        self._why = ""

    def take(self) -> int:
        """Move what has been written to the log; return how many bytes that were."""
        try:
            data = left = os.read(self.pipe, READ_BYTES)
        except OSError:  # nothing there
            return 0
        try:
            stamps = self._opened()
            if self._lost:
                said = b"\nfleetctl: %d bytes of output are missing: %s\n" % (self._lost, self._why.encode())
                self._write(self._with_room(stamps.put(said)))
                self._lost = 0
            left = self._with_room(stamps.put(data))
            while left:
                left = left[self._write(left):]
        except OSError as error:  # a full disk costs output, not the replica
            self._lost += min(len(left), len(data))
            self._why = str(error.strerror)
            if self._stamps:
                self._stamps.within = True
        return len(data)

    def drain(self) -> None:
        """Move all that is there, within bounds: something may still be writing."""
        for _ in range(64):
            if not self.take():
                return

    def _write(self, data: bytes) -> int:
        written = os.write(self._log, data)
        self._size += written
        return written

    def _opened(self) -> Stamps:
        if self._log < 0:
            self._log = open_log(self._path)
            self._size = os.fstat(self._log).st_size
        self._stamps = self._stamps or Stamps(self._log)
        return self._stamps

    def _with_room(self, data: bytes) -> bytes:
        """Return `data` once the log has room for it."""
        if self._size + len(data) > LOG_BYTES // 2:
            self._rotate()
        return data

    def _rotate(self) -> None:
        """Begin a new log; the one before becomes `NAME.1`, in place of an older one."""
        try:
            os.replace(self._path, self._path + ".1")
            os.close(self._log)
            self._log = -1
            self._log = open_log(self._path)
        except OSError:
            if self._log < 0:
                raise
            os.ftruncate(self._log, 0)  # it cannot be renamed: then the newest is what counts
        self._size = 0


def become_guard(parent: int) -> int:
    """Adopt orphans, hear of the parent's death, and return a file descriptor that wakes on signals."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if os.getppid() != parent:  # it died before the parent-death signal was in place
        os.kill(os.getpid(), signal.SIGTERM)
    return reader


def guard(child: int, reader: int, output: Output, pipes: List[int]) -> int:
    """Wait until `child` ends or SIGTERM comes, then end everything below; return its wait status, or 15.

    Output is moved as it comes where `pipes` names its pipe, else at the end alone.
    """
    status = None
    while status is None:
        woken = select.select([reader, *pipes], [], [], 30)[0]
        if output.pipe in woken and output.take() < READ_BYTES:
            select.select([reader], [], [], GATHER_S)
        try:
            received = os.read(reader, 512)
        except OSError:
            received = b""
        status = reap().get(child)
        if status is None and signal.SIGTERM in received:
            status = signal.SIGTERM
    kill_tree(os.getpid(), GRACE_S, output.drain)
    return int(status)


def exit_like(status: int) -> None:
    """Exit with the code of the wait status: the code itself, or 128 + signal."""
    os._exit(128 + (status & 0x7F) if status & 0x7F else status >> 8)


def run_engine(config: Dict[str, Any]) -> None:
    """Become the engine; the engine's log says why a command cannot start."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # signals may have been ignored where Ray was started
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # everything else that is open closes with exec
    try:
        os.chdir(config["cwd"])
    except OSError as error:
        os.write(2, ("fleetctl: cannot use the working directory %s: %s\n" % (config["cwd"], error.strerror)).encode())
        os._exit(126)
    try:
        os.execvpe(config["argv"][0], config["argv"], config["env"])
    except OSError as error:
        os.write(2, ("fleetctl: cannot start %s: %s\n" % (config["argv"][0], error.strerror)).encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def remove_fresh_dir(config: Dict[str, Any]) -> None:
    """Remove the engine's own working directory: its maker may be gone by now."""
    if config.get("freshDir"):
        import shutil  # only now: it is slow to import

        shutil.rmtree(config["freshDir"], ignore_errors=True)


def run_inner(config: Dict[str, Any], parent: int, output: Output) -> None:
    """The inner guard: starts the engine, says which process it is, and moves its output."""
    reader = become_guard(parent)
    engine = os.fork()
    if engine == 0:
        run_engine(config)
    os.write(1, b'{"started": %d}\n' % engine)
    status = guard(engine, reader, output, [output.pipe])
    if os.getppid() != parent:  # else the outer guard removes it: a probe in it would fail until the end is known
        remove_fresh_dir(config)
    exit_like(status)


def main(config: Dict[str, Any]) -> None:
    """The outer guard: starts the inner one and reports how it ended."""
    outer = os.getpid()
    os.set_inheritable(config["output"], False)
    output = Output(config["output"], config["log"])
    reader = become_guard(config["parent"])
    inner = os.fork()
    if inner == 0:
        run_inner(config, outer, output)
    status = guard(inner, reader, output, [])
    remove_fresh_dir(config)
    try:
        os.write(1, b'{"exited": %d}\n' % (128 + (status & 0x7F) if status & 0x7F else status >> 8))
    finally:
        exit_like(status)
