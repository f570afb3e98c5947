"""The engine's supervisor: a separate program which ensures that no process of an engine outlives its replica.

Two nested guards, each a subreaper with a parent-death signal: actor > outer > inner > engine. If the actor or a guard
is killed, a neighbor in this chain notices and ends everything below it, including processes that called setsid or were
orphaned: a subreaper inherits them. One guard is not enough: when Ray ends a worker it kills the worker's direct
children, so a single guard would die before it could act.

The end is that of a container: SIGTERM, or the engine's own stop signal, once, from the inner guard to the engine's
first process alone, since many engines take a second one as "now". It has the engine's grace period to answer what it
was asked. What it leaves behind then gets SIGTERM, and SIGKILL when the period is over, but not within ALONE_S. A guard
ends its engine within the period at SIGTERM, and within ALONE_S at HURRY, which it gets when its parent dies.

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
    from typing import Callable, Dict, Iterable, List, Optional, Tuple
else:
    import _signal as signal

ALONE_S = 2.0
"""The period of an engine whose actor or guard is gone, as others are offered its cards by then; and the least that the
processes have which its first process leaves behind."""
KILL_S = 10.0
"""How long to go on killing: a process that waits for a device may not end."""
LATE_S = 1.0
"""How much longer the outer guard waits for the inner one than that may take, before it acts itself."""
HURRY = signal.SIGUSR1
NEVER = float("inf")
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


def stat_of(pid: int) -> List[bytes]:
    """Return the fields of /proc/PID/stat from the third, the state, on; empty if the process is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stat:
            return stat.read().rpartition(b")")[2].split()
    except OSError:
        return []


def has_ended(fields: List[bytes]) -> bool:
    """Return whether a process with these fields has ended.

    One whose first thread has ended looks like a zombie, but until its last one ends, it runs and keeps its children.
    """
    return fields[0] in (b"Z", b"X") and int(fields[17]) <= 1


def descendants(root: int) -> Dict[int, int]:
    """Return the parents of all processes below `root` by their pids, from /proc, without those that have ended."""
    children: Dict[int, List[int]] = {}
    ended = set()
    for entry in os.listdir("/proc"):
        fields = stat_of(int(entry)) if entry.isdigit() else []
        if fields:
            children.setdefault(int(fields[1]), []).append(int(entry))
            if has_ended(fields):
                ended.add(int(entry))
    found: Dict[int, int] = {}
    todo = [root]
    while todo:
        parent = todo.pop()
        below = children.get(parent, [])
        found.update({pid: parent for pid in below if pid not in ended})
        todo.extend(below)
    return found


def signal_all(pids: Iterable[int], number: int) -> None:
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


def has_children() -> bool:
    """Return whether this process has a child, or adopts one soon: reading /proc may miss what is adopted meanwhile."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_tree(root: int, deadline: float, meanwhile: Callable[[], None], first: int = 0) -> None:
    """End all processes below `root`: SIGTERM from the top down, and SIGKILL after `deadline` (monotonic) and ALONE_S.

    Only children of `root` get SIGTERM, once, except `first`. It adopts what they leave behind, which gets it then: so
    an engine that a shell started ends its own processes in its own order.
    """
    now, pause_s = time.monotonic(), 0.02
    told = {first}
    deadline = max(deadline, now + ALONE_S)
    while now < deadline + KILL_S:
        meanwhile()
        reap()
        left = descendants(root)
        if not left and not has_children():
            break
        now = time.monotonic()
        if now >= deadline:
            signal_all(left, signal.SIGKILL)
        new = [pid for pid, parent in left.items() if parent == root and pid not in told]
        signal_all(new, signal.SIGTERM)
        told.update(new)
        pause_s = 0.02 if new or now >= deadline else min(0.5, pause_s * 1.2)
        time.sleep(max(0.02, min(pause_s, deadline - now)))
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
    """Adopt orphans, request HURRY at the parent's death, and return a file descriptor that wakes on signals."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    for number in (signal.SIGTERM, HURRY, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    prctl(PR_SET_PDEATHSIG, HURRY)
    if os.getppid() != parent:  # it died before the parent-death signal was in place
        os.kill(os.getpid(), HURRY)
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
        """Take the actor's bytes, and ask if it is time; return, once, that it is gone. `ended` = as from `reap`."""
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
            return self.is_gone
        is_time = now >= max(self._heard + SILENT_S, self._asked + ASK_EVERY_S)
        if is_time and self._question and not self._asking and not self.is_gone:
            self._asked, self._asking = now, os.fork()
            if self._asking == 0:
                self._ask()
        return False

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


def guard(
    child: int, reader: int, output: Output, pipes: List[int], periods: Dict[int, float], tell: Callable[[int], None],
    actor: Optional[Actor] = None,
) -> Tuple[int, float]:
    """Wait until `child` ends, or until its period is over after a signal; then it is killed.

    `periods` = how long `child` may take after each signal, in seconds; `tell` passes the signal on. An `actor` that is
    gone counts as HURRY. Returns the wait status of `child`, or SIGTERM after a signal, and the end of the period
    (monotonic), 0 without a signal. Output is moved as it arrives if `pipes` contains its pipe.
    """
    status, deadline = None, NEVER
    while status is None and time.monotonic() < deadline:
        left = min(BEAT_S if actor else 30.0, deadline - time.monotonic())
        woken = select.select([reader, *pipes, *(actor.beats if actor else ())], [], [], max(0.0, left))[0]
        if output.pipe in woken and output.take() < READ_BYTES:
            select.select([reader], [], [], GATHER_S)
        try:
            received = os.read(reader, 512)
        except OSError:
            received = b""
        ended = reap()
        status = ended.get(child)
        if actor and actor.look(ended):
            received += bytes([HURRY])
        for number in periods if status is None else ():
            if number in received:
                tell(number)
                deadline = min(deadline, time.monotonic() + periods[number])
    if status is None:
        signal_all([child], signal.SIGKILL)
    return (signal.SIGTERM, deadline) if deadline < NEVER else (int(status or 0), 0.0)


def exit_like(status: int) -> None:
    """Exit with the code of a wait status, or with 128 + its signal."""
    os._exit(128 + (status & 0x7F) if status & 0x7F else status >> 8)


class SupervisedEngine:
    """An engine's command, environment and working directory, and its end. `fresh_dir` = its own, removed at the end.

    `stop` = the number of the signal that its first process gets, and its grace period in seconds.
    """

    def __init__(self, argv: List[str], env: Dict[str, str], cwd: str, fresh_dir: Optional[str],
                 stop: Tuple[int, float]) -> None:
        self.argv, self.env, self.cwd, self.fresh_dir = argv, env, cwd, fresh_dir
        self.stop_signal, self.grace_s = stop


def run_engine(engine: SupervisedEngine) -> None:
    """Become the engine; if its command cannot start, the log says why."""
    signal.set_wakeup_fd(-1)
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


def remove_fresh_dir(engine: SupervisedEngine) -> None:
    """Remove the engine's own working directory, if it has one: the actor that created it may be gone."""
    if engine.fresh_dir:
        import shutil  # here, because it is slow to import

        shutil.rmtree(engine.fresh_dir, ignore_errors=True)


def run_inner(engine: SupervisedEngine, parent: int, output: Output) -> None:
    """The inner guard: starts the engine, reports its pid, moves its output, and alone gives it its stop signal."""
    reader = become_guard(parent)
    runs, closed_by_exec = os.pipe()
    pid = os.fork()
    if pid == 0:
        run_engine(engine)
    os.close(closed_by_exec)
    os.write(1, b"started %d\n" % pid)
    told: List[int] = []

    def tell(number: int) -> None:
        if not told:
            select.select([runs], [], [], 1.0)  # until it is the engine, it ignores the signal
            signal_all([pid], engine.stop_signal)
        told.append(number)

    periods: Dict[int, float] = {signal.SIGTERM: engine.grace_s, HURRY: ALONE_S}
    status, deadline = guard(pid, reader, output, [output.pipe], periods, tell)
    kill_tree(os.getpid(), deadline, output.drain, pid)
    if os.getppid() != parent:  # else the outer guard removes it later: a probe may still run in that directory
        remove_fresh_dir(engine)
    exit_like(status)


def main(argv: List[str], env: Dict[str, str], cwd: str, fresh_dir: Optional[str], stop: Tuple[int, float], log: str,
         output_pipe: int, parent: int, question: List[str]) -> None:
    """The outer guard: starts the inner one and reports its exit status. `parent` = the pid of the actor."""
    engine, outer = SupervisedEngine(argv, env, cwd, fresh_dir, stop), os.getpid()
    os.set_inheritable(output_pipe, False)
    output = Output(output_pipe, log)
    reader = become_guard(parent)
    inner = os.fork()
    if inner == 0:
        run_inner(engine, outer, output)
    more_s, actor = ALONE_S + KILL_S + LATE_S, Actor(parent, question)
    periods: Dict[int, float] = {signal.SIGTERM: engine.grace_s + more_s, HURRY: ALONE_S + more_s}
    status, _ = guard(inner, reader, output, [], periods, lambda number: signal_all([inner], number), actor)
    kill_tree(os.getpid(), 0.0, output.drain, inner)
    remove_fresh_dir(engine)
    if actor.is_gone:
        os.write(2, b"fleetctl: Ray has ended its actor, whose process hangs: this ended both\n")
        output.drain()
        actor.end()
    try:
        os.write(1, b"exited %d\n" % (128 + (status & 0x7F) if status & 0x7F else status >> 8))
    finally:
        exit_like(status)
