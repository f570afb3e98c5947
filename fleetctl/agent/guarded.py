"""One run of an engine under its two guards, as its actor sees it: start, end, exit code, processes."""

from __future__ import annotations

import contextlib
import fcntl
import marshal
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import List, Mapping, Optional, Sequence, Tuple

import ray

from . import supervisor
from .sockets import Tree

LOAD_SUPERVISOR = "import marshal,sys;source,*config=marshal.load(sys.stdin.buffer);exec(source);main(*config)"
"""Actors get our code by value, so their nodes have no supervisor file to run."""
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
    source: str, argv: Sequence[str], env: Mapping[str, str], cwd: str, log: str, fresh_dir: Optional[str] = None,
    question: Sequence[str] = (),
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
    process.stdin.write(marshal.dumps(
        (source, list(argv), dict(env), cwd, fresh_dir, log, output, os.getpid(), list(question))))
    process.stdin.flush()
    return process, output


class GuardedProcess:
    """A run of `argv` that starts immediately; `exit_code` is set once it has `ended`.

    Create it in a thread that outlives the engine: Linux sends the parent-death signal when the thread ends.
    `cwd` None = a fresh directory, removed at the end.
    """

    def __init__(self, source: str, argv: Sequence[str], env: Mapping[str, str], cwd: Optional[str], log: str) -> None:
        supervisor.prctl(supervisor.PR_SET_CHILD_SUBREAPER, 1)  # to adopt the processes of a killed supervisor
        self.pid: Optional[int] = None
        self.exit_code: Optional[int] = None
        self._fresh_dir = None if cwd else tempfile.mkdtemp(prefix="fleetctl-engine-")
        self.cwd = cwd or str(self._fresh_dir)
        self._log = log
        self.started, self.ended = threading.Event(), threading.Event()
        self._process, self._output = launch(source, argv, env, self.cwd, log, self._fresh_dir, question())
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
            supervisor.kill_tree(os.getpid(), 0, supervisor.Output(self._output, self._log).drain)
            self.exit_code = 128 + signal.SIGKILL
        os.close(self._output)
        if self._fresh_dir:
            shutil.rmtree(self._fresh_dir, ignore_errors=True)
        self.ended.set()
        self.started.set()

    def stop(self) -> None:
        """End the engine and all processes below it, and wait until they are gone."""
        if not self.ended.is_set():
            self._process.send_signal(signal.SIGTERM)
            if not self.ended.wait(supervisor.GRACE_S + 2):
                supervisor.kill_tree(os.getpid(), 0, lambda: None)
