"""The engine's supervisor: a program of its own that makes sure that no process of an engine outlives its replica.

Two guards, one inside the other, each a subreaper with a parent-death signal: actor > outer > inner > engine. Whichever
of actor, outer and inner is killed, the next one up or down notices, and everything below goes, also processes that
called setsid or were orphaned: a subreaper inherits them. Two guards are needed because Ray kills the direct
children of a worker that it ends, which would take a single guard before it could act.

Run by its source text, alone, with a configuration {argv, env, cwd, freshDir, log, parent}; writes `{"started": pid}`
and `{"exited": status}` lines to standard output. Imports nothing of ours and little else, so that it stays small.
"""

import ctypes
import json
import os
import select
import signal
import time
from typing import Any, Dict, List

GRACE_S = 2.0
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, value: int) -> None:
    """Call prctl(2); failures are ignored because there is nothing better to do than to go on."""
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


def kill_tree(root: int, grace_s: float) -> None:
    """End everything below `root`: SIGTERM, then SIGKILL after `grace_s`, until nothing is left (10 s at most)."""
    signal_all(descendants(root), signal.SIGTERM)
    begun = time.monotonic()
    while time.monotonic() - begun < grace_s + 10:
        reap()
        left = descendants(root)
        if not left:
            return
        if time.monotonic() - begun >= grace_s:
            signal_all(left, signal.SIGKILL)
        time.sleep(0.02)


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


def guard(child: int, reader: int) -> int:
    """Wait until `child` ends or we are told to stop, then end everything below; return its wait status, or 15."""
    status = None
    while status is None:
        select.select([reader], [], [], 30)
        try:
            received = os.read(reader, 512)
        except OSError:
            received = b""
        status = reap().get(child)
        if status is None and signal.SIGTERM in received:
            status = signal.SIGTERM
    kill_tree(os.getpid(), GRACE_S)
    return int(status)


def exit_like(status: int) -> None:
    """End with an exit code that tells the wait status: the code itself, or 128 + signal."""
    os._exit(128 + (status & 0x7F) if status & 0x7F else status >> 8)


def run_engine(config: Dict[str, Any]) -> None:
    """Become the engine; what cannot be started is said in the engine's own log."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # whatever was ignored where Ray was started
    log = os.open(config["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, 256)
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


def run_inner(config: Dict[str, Any], parent: int) -> None:
    """The inner guard: starts the engine, and says which process it is."""
    reader = become_guard(parent)
    engine = os.fork()
    if engine == 0:
        run_engine(config)
    os.write(1, json.dumps({"started": engine}).encode() + b"\n")
    exit_like(guard(engine, reader))


def main(config: Dict[str, Any]) -> None:
    """The outer guard: starts the inner one and reports how it ended."""
    outer = os.getpid()
    reader = become_guard(config["parent"])
    inner = os.fork()
    if inner == 0:
        run_inner(config, outer)
    status = guard(inner, reader)
    if config.get("freshDir"):  # who made it may be gone by now
        import shutil  # only now: two guards stand beside every engine, and should weigh little

        shutil.rmtree(config["freshDir"], ignore_errors=True)
    try:
        code = 128 + (status & 0x7F) if status & 0x7F else status >> 8
        os.write(1, json.dumps({"exited": code}).encode() + b"\n")
    finally:
        exit_like(status)

