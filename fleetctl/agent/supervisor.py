"""The engine's supervisor: a separate program which ensures that no process of an engine outlives its replica.

Two nested guards, each a subreaper with a parent-death signal: actor > outer > inner > engine. If the actor or a guard
is killed, a neighbor in this chain notices and ends everything below it, including processes that called setsid or were
orphaned: a subreaper inherits them. One guard is not enough: when Ray ends a worker it kills the worker's direct
children, so a single guard would die before it could act.

An actor's process that hangs does not end, even when Ray has ended the actor: Ray asks the process once to exit. So the
outer guard expects a byte from it every few seconds, and when none comes asks Ray's table about the actor.

The engine writes to a pipe that the actor created. It is also the standard error of both guards, so their own errors
reach the log. The inner guard moves the output to the log; after its end the outer guard, or the actor, moves the rest.

It runs from its source text alone, which includes that of own_files.py, and writes the lines `started PID` and `exited
STATUS` to standard output. Every engine has two guards, so there are no slow imports: `_signal` is `signal` without its
enumerations, which would take a third of the start time.
"""

from __future__ import annotations

import ctypes
import os
import select
import time

from .own_files import open_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Callable, Dict, List, Optional
else:
    import _signal as signal

GRACE_S = 2.0
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

LOG_BYTES = 64 << 20
"""Disk space for one engine's output, half in `NAME` and half in its predecessor `NAME.1`: hundreds of thousands of
lines. Even a hundred engines that log errors in a loop leave room on the disk to which Ray spills objects."""
PIPE_BYTES = 256 << 10
"""How much an engine can write while its guard is busy or being replaced. A user's pipes share 64 MiB by default."""
READ_BYTES = PIPE_BYTES // 4
STAMPED_END_BYTES = 256 << 10
"""How far back in a log to search for its last stamp."""
BEAT_S = 5.0
"""How often the actor's process writes a byte to the outer guard: one that hangs does not."""
SILENT_S = 20.0
"""Without a byte for this time, Ray's table is asked about the actor. A process may also just be busy."""
ASK_EVERY_S = 30.0
ASK_WITHIN_S = 60
GONE = 71
"""Exit code of the question if Ray's table has an answer, and by that this process is no longer the actor's."""
GATHER_S = 0.02
"""Minimum interval between wake-ups by an engine that writes line by line; bulk output is read immediately."""


def prctl(option: int, value: int) -> None:
    """Call prctl(2); failures are ignored, as there is no alternative."""
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def descendants(root: int) -> List[int]:
    """Return the pids of all processes below `root` from /proc, without zombies."""
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
    """Send a signal to each of `pids`; ignores processes that have ended."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue


def reap() -> Dict[int, int]:
    """Reap every child that has ended; returns pid -> wait status."""
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
    """End all processes below `root`: SIGTERM, then SIGKILL after `grace_s`, for at most 10 s more."""
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
    """Open an engine's log for appending. Only owner and group can read it: an engine may write secrets.

    Anyone can write to its folder, and its name is known beforehand: what is not a file of ours is never written to.
    """
    aside: List[str] = []
    log = open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640, aside)
    for name in aside:
        was = os.path.basename(name).encode(errors="backslashreplace")
        os.write(log, Stamps(log).put(b"fleetctl: the name of this log was taken by something that is not a file of "
                                      b"this user; it is now %s\n" % was))
    return log


class Stamps:
    """The stamps of the lines in a log, such as `2026-11-21T04:22:07.123Z#41 `: time, and number of lines before.

    All lines of one read have the same stamp: that is cheap, and a reader can count on from it.
    """

    def __init__(self, log: int) -> None:
        """Continue from the end of an open log."""
        size = os.fstat(log).st_size
        end = os.pread(log, STAMPED_END_BYTES, max(0, size - STAMPED_END_BYTES)) if size else b""
        self.mid_line = end[-1:] not in (b"", b"\n")
        self.lines = 0
        for line in reversed(end.split(b"\n")):
            number, space, _ = line[25:45].partition(b" ")
            if line[23:25] == b"Z#" and space and number.isdigit():
                stamp = line[:25] + number + space
                self.lines = int(number) + end.count(b"\n" + stamp) + end.startswith(stamp)
                break

    def put(self, data: bytes) -> bytes:
        """Return `data` with a stamp before each line that starts in it."""
        now = time.time()
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)).encode()
        stamp = b"%b.%03dZ#%d " % (second, now % 1 * 1000, self.lines)
        first, ended = b"" if self.mid_line else stamp, data.endswith(b"\n")
        inner = data.count(b"\n") - ended
        self.lines += inner + (not self.mid_line)
        self.mid_line = not ended
        return first + data.replace(b"\n", b"\n" + stamp, inner)


class Output:
    """Moves an engine's output from the pipe to its log. Trouble with the log never affects the engine."""

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
        """Move available output, up to READ_BYTES, to the log; returns the number of bytes."""
        try:
            data = left = os.read(self.pipe, READ_BYTES)
        except OSError:  # the pipe is empty
            return 0
        try:
            stamps = self._opened()
            if self._lost:
                notice = b"\nfleetctl: %d bytes of output are missing: %s\n" % (self._lost, self._why.encode())
                self._write(self._with_room(stamps.put(notice)))
                self._lost = 0
            left = self._with_room(stamps.put(data))
            while left:
                left = left[self._write(left):]
        except OSError as error:  # a full disk loses output, not the replica
            self._lost += min(len(left), len(data))
            self._why = str(error.strerror)
            if self._stamps:
                self._stamps.mid_line = True
        return len(data)

    def drain(self) -> None:
        """Move all available output, up to a limit: a process may still be writing."""
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
        """Return `data` after making room for it in the log."""
        if self._size + len(data) > LOG_BYTES // 2:
            self._rotate()
        return data

    def _rotate(self) -> None:
        """Start a new log; the current one replaces `NAME.1`."""
        try:
            os.replace(self._path, self._path + ".1")
            os.close(self._log)
            self._log = -1
            self._log = open_log(self._path)
        except OSError:
            if self._log < 0:
                raise
            os.ftruncate(self._log, 0)  # it cannot be renamed, so keep only the newest output
        self._size = 0


def become_guard(parent: int) -> int:
    """Adopt orphans, request a signal at the parent's death, and return a file descriptor that wakes on signals."""
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


class Actor:
    """The actor's process as the outer guard sees it: whether it hangs, and whether Ray's table still has it.

    `question` = the command that asks the table. It is a program of its own, as the guard has no connection to Ray.
    """

    def __init__(self, pid: int, question: List[str]) -> None:
        os.set_blocking(0, False)
        self.pid, self.beats, self.is_gone = pid, [0], False
        self._question, self._asking = question, 0
        self._heard = self._asked = time.monotonic()

    def look(self, ended: Dict[int, int]) -> bool:
        """Take the actor's bytes, and ask if it is time; return whether the actor is gone. `ended` = as from `reap`."""
        now = time.monotonic()
        try:
            beat = os.read(0, 512)
        except OSError:  # there is none now
            beat = None
        if beat:
            self._heard = now
        elif beat == b"":  # none will come
            self.beats = []
        if self._asking in ended:
            self.is_gone, self._asking = ended[self._asking] == GONE << 8, 0
        elif self._question and not self._asking and now >= max(self._heard + SILENT_S, self._asked + ASK_EVERY_S):
            self._asked, self._asking = now, os.fork()
            if self._asking == 0:
                self._ask()
        return self.is_gone

    def _ask(self) -> None:
        """Become the question, for a limited time."""
        signal.alarm(ASK_WITHIN_S)
        for number in (0, 1, 2):  # not the guard's reports, and not the engine's log
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        try:
            os.execv(self._question[0], self._question)
        finally:
            os._exit(1)

    def end(self) -> None:
        """End its process, which hangs: Ray keeps its cards until then."""
        if os.getppid() == self.pid:
            os.kill(self.pid, signal.SIGKILL)


def guard(child: int, reader: int, output: Output, pipes: List[int], actor: Optional[Actor] = None) -> int:
    """Wait until `child` ends, SIGTERM arrives or the `actor` is gone, then end everything below.

    Returns the child's wait status, or SIGTERM. Output is moved as it arrives if `pipes` contains its pipe, otherwise
    only at the end.
    """
    status = None
    while status is None:
        woken = select.select([reader, *pipes, *(actor.beats if actor else ())], [], [], BEAT_S if actor else 30)[0]
        if output.pipe in woken and output.take() < READ_BYTES:
            select.select([reader], [], [], GATHER_S)
        try:
            received = os.read(reader, 512)
        except OSError:
            received = b""
        ended = reap()
        status = ended.get(child)
        if status is None and (signal.SIGTERM in received or (actor and actor.look(ended))):
            status = signal.SIGTERM
    kill_tree(os.getpid(), GRACE_S, output.drain)
    return int(status)


def exit_like(status: int) -> None:
    """Exit with the code of a wait status, or with 128 + its signal."""
    os._exit(128 + (status & 0x7F) if status & 0x7F else status >> 8)


class Engine:
    """An engine's command, environment and working directory; `fresh_dir` = its own, removed at the end."""

    def __init__(self, argv: List[str], env: Dict[str, str], cwd: str, fresh_dir: Optional[str]) -> None:
        self.argv, self.env, self.cwd, self.fresh_dir = argv, env, cwd, fresh_dir


def run_engine(engine: Engine) -> None:
    """Become the engine; if its command cannot start, the log says why."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # Ray may have been started with some signals ignored
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # exec closes all other open files
    try:
        os.chdir(engine.cwd)
    except OSError as error:
        os.write(2, ("fleetctl: cannot use the working directory %s: %s\n" % (engine.cwd, error.strerror)).encode())
        os._exit(126)
    try:
        os.execvpe(engine.argv[0], engine.argv, engine.env)
    except OSError as error:
        os.write(2, ("fleetctl: cannot start %s: %s\n" % (engine.argv[0], error.strerror)).encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def remove_fresh_dir(engine: Engine) -> None:
    """Remove the engine's own working directory, if it has one: the actor that created it may be gone."""
    if engine.fresh_dir:
        import shutil  # here, because it is slow to import

        shutil.rmtree(engine.fresh_dir, ignore_errors=True)


def run_inner(engine: Engine, parent: int, output: Output) -> None:
    """The inner guard: starts the engine, reports its pid, and moves its output."""
    reader = become_guard(parent)
    pid = os.fork()
    if pid == 0:
        run_engine(engine)
    os.write(1, b"started %d\n" % pid)
    status = guard(pid, reader, output, [output.pipe])
    if os.getppid() != parent:  # else the outer guard removes it later: a probe may still run in that directory
        remove_fresh_dir(engine)
    exit_like(status)


def main(argv: List[str], env: Dict[str, str], cwd: str, fresh_dir: Optional[str], log: str, output_pipe: int,
         parent: int, question: List[str]) -> None:
    """The outer guard: starts the inner one and reports its exit status. `parent` = the pid of the actor."""
    engine, outer = Engine(argv, env, cwd, fresh_dir), os.getpid()
    os.set_inheritable(output_pipe, False)
    output = Output(output_pipe, log)
    reader = become_guard(parent)
    inner = os.fork()
    if inner == 0:
        run_inner(engine, outer, output)
    actor = Actor(parent, question)
    status = guard(inner, reader, output, [], actor)
    remove_fresh_dir(engine)
    if actor.is_gone:
        os.write(2, b"fleetctl: Ray has ended its actor, whose process hangs: this ended both\n")
        output.drain()
        actor.end()
    try:
        os.write(1, b"exited %d\n" % (128 + (status & 0x7F) if status & 0x7F else status >> 8))
    finally:
        exit_like(status)
