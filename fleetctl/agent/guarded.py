"""One run of an engine under its two guards, as its actor sees it: start, end, exit code, processes."""

from __future__ import annotations

import contextlib
import fcntl
import marshal
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import List, Mapping, Optional, Sequence, Tuple

import ray

from . import supervisor
from .messages import Stop
from .ports import Tree

LOAD_SUPERVISOR = "import marshal,sys;source,*config=marshal.load(sys.stdin.buffer);exec(source);main(*config)"
"""Actors get our code by value, so their nodes have no supervisor file to run."""
FRESH = "fleetctl-engine-"
"""How the names of the working directories begin that are made for engines."""
ABANDONED_S = 3600.0
STOP_S = supervisor.ALONE_S + 2 * supervisor.KILL_S + 5.0
"""How much longer than its grace period the end of an engine may take, for all that its guards do one after another."""
F_SETPIPE_SZ = 1031  # not in fcntl before Python 3.10
FUTURE = "from __future__ import annotations\n"
ASK_RAY = """\
import sys
import ray
from ray._raylet import GcsClientOptions, GlobalStateAccessor
from ray.core.generated import gcs_pb2
address, actor_id, worker_id, gone = sys.argv[1:]
table = GlobalStateAccessor(GcsClientOptions.create(
    address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False))
table.connect()
actor = gcs_pb2.ActorTableData.FromString(table.get_actor_info(ray.ActorID(bytes.fromhex(actor_id))))
other = actor.address.worker_id.hex() not in ("", worker_id)
sys.exit(int(gone) if other or actor.state == gcs_pb2.ActorTableData.DEAD else 0)
"""
"""Exits with the code `gone` if the actor is dead or in another process; any trouble is another code."""


def supervisor_source() -> str:
    """Return the source of the supervisor, with the module that it imports. Only the agent's job has these files."""
    own_files, source = (Path(__file__).with_name(name).read_text(encoding="utf-8")
                         for name in ("own_files.py", "supervisor.py"))
    return source.replace("from .own_files import open_own\n", own_files.replace(FUTURE, ""))


def question() -> List[str]:
    """Return the command that asks Ray's table about this actor for its guard; empty outside an actor."""
    if not ray.is_initialized():
        return []
    context = ray.get_runtime_context()
    return [sys.executable, "-c", ASK_RAY, context.gcs_address, context.get_actor_id() or "", context.get_worker_id(),
            str(supervisor.GONE)]


def launch(
    source: str, argv: Sequence[str], env: Mapping[str, str], cwd: str, log: str, stop: Stop,
    fresh_dir: Optional[str] = None, question: Sequence[str] = (),
) -> Tuple[subprocess.Popen[bytes], int]:
    """Start the supervisor from its source; return its process and the read end of the engine's output pipe.

    Its standard input stays open, for a byte every BEAT_S.
    """
    output, write_end = os.pipe()
    with contextlib.suppress(OSError):  # this user has too many pipes: then the pipe holds less
        fcntl.fcntl(output, F_SETPIPE_SZ, supervisor.PIPE_BYTES)
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LOAD_SUPERVISOR, "fleetctl-supervisor"], pass_fds=(output,),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=write_end, start_new_session=True)
    except BaseException:
        os.close(output)
        raise
    finally:
        os.close(write_end)
    assert process.stdin is not None
    end = signal.Signals[stop.signal].value, stop.grace
    process.stdin.write(marshal.dumps(
        (source, list(argv), dict(env), cwd, fresh_dir, end, log, output, os.getpid(), list(question))))
    process.stdin.flush()
    return process, output


class GuardedProcess:
    """A run of `argv` that starts immediately; `exit_code` is set once it has `ended`.

    Create it in a thread that outlives the engine: Linux sends the parent-death signal when the thread ends.
    `cwd` None = a fresh directory, removed at the end.
    """

    def __init__(
        self, source: str, argv: Sequence[str], env: Mapping[str, str], cwd: Optional[str], log: str, stop: Stop
    ) -> None:
        supervisor.prctl(supervisor.PR_SET_CHILD_SUBREAPER, 1)  # to adopt the processes of a killed supervisor
        self.pid: Optional[int] = None
        self.exit_code: Optional[int] = None
        self._fresh_dir: Optional[str] = None
        if not cwd:
            self._fresh_dir, self._lock = make_fresh_dir()
        self.cwd = cwd or str(self._fresh_dir)
        self._log, self._grace_s = log, stop.grace
        self.started, self.ended = threading.Event(), threading.Event()
        self._process, self._output = launch(source, argv, env, self.cwd, log, stop, self._fresh_dir, question())
        self.tree = Tree(self._process.pid)
        threading.Thread(target=self._follow, name="fleetctl-engine", daemon=True).start()
        threading.Thread(target=self._beat, name="fleetctl-beat", daemon=True).start()

    def _beat(self) -> None:
        """Show the outer guard that this process does not hang."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as guard:
            while not self.ended.wait(supervisor.BEAT_S):
                os.write(guard.fileno(), b".")

    def _follow(self) -> None:
        """Read the supervisor's reports. If they end without an exit code, it was killed: end the engine too."""
        assert self._process.stdout is not None
        with self._process.stdout as reports:
            for line in reports:
                what, number = line.split()
                if what == b"started":
                    self.pid = int(number)
                else:
                    self.exit_code = int(number)
                self.started.set()
        self._process.wait()
        if self.exit_code is None:
            supervisor.kill_tree(os.getpid(), 0, supervisor.Output(self._output, self._log).drain, self.pid or 0)
            self.exit_code = 128 + signal.SIGKILL
        os.close(self._output)
        if self._fresh_dir:
            shutil.rmtree(self._fresh_dir, ignore_errors=True)
            os.close(self._lock)
        self.ended.set()
        self.started.set()

    def stop(self) -> None:
        """End the engine within its grace period, and all processes below it, and wait until they are gone."""
        if not self.ended.is_set():
            self._process.send_signal(signal.SIGTERM)
            if not self.ended.wait(self._grace_s + STOP_S):
                supervisor.kill_tree(os.getpid(), 0, lambda: None, self.pid or 0)


def make_fresh_dir() -> Tuple[str, int]:
    """Make a new, empty folder for one run of an engine, and return it with a descriptor that keeps it locked.

    It is below the user's cache: a process whose working directory is removed cannot start children, and what clears
    temporary folders by age does not look there. Where that cannot be written to, it is a temporary folder, which
    systemd-tmpfiles leaves alone while it is locked.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    prefix, parent = f"{FRESH}{socket.gethostname()}-", os.path.join(cache, "fleetctl", "engines")
    try:
        if not os.path.isabs(parent):  # this user has no home
            raise FileNotFoundError(parent)
        os.makedirs(parent, exist_ok=True)
        folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
        remove_abandoned(parent, prefix)
    except OSError:
        folder = tempfile.mkdtemp(prefix=prefix)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with contextlib.suppress(OSError):  # not every file system has locks
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return folder, lock


def remove_abandoned(parent: str, prefix: str) -> None:
    """Remove this user's folders that a host which went down has left: not locked, and older than ABANDONED_S."""
    for name in os.listdir(parent):
        if not name.startswith(prefix):
            continue
        path, lock = os.path.join(parent, name), -1
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            found = os.fstat(lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if found.st_uid == os.geteuid() and time.time() - found.st_mtime > ABANDONED_S:
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue
        finally:
            if lock >= 0:
                os.close(lock)
