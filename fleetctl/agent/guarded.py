"""One run of an engine under its two guards, as the actor sees it: start, end, exit code, processes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import marshal
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Mapping, Optional, Sequence, Tuple

from . import supervisor
from .holders import Tree

LOAD_SUPERVISOR = "import marshal,sys;config=marshal.load(sys.stdin.buffer);exec(config['source']);main(config)"
"""An actor gets our code by value, so there is no file of the supervisor on its node to run."""
F_SETPIPE_SZ = 1031  # not in fcntl before Python 3.10


def launch(
    source: str, argv: Sequence[str], env: Mapping[str, str], cwd: str, log: str, fresh_dir: Optional[str] = None
) -> Tuple[subprocess.Popen[bytes], int]:
    """Start the supervisor from its source; return it, and the end of the pipe from which the engine's output comes."""
    output, write_end = os.pipe()
    with contextlib.suppress(OSError):  # too many pipes of this user: then it holds less
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
    with process.stdin as config:
        config.write(marshal.dumps({
            "source": source, "argv": list(argv), "env": dict(env), "cwd": cwd, "freshDir": fresh_dir, "log": log,
            "output": output, "parent": os.getpid(),
        }))
    return process, output


class GuardedProcess:
    """A run of `argv` that begins at once; once it has `ended`, `exit_code` says how.

    `cwd` None = a fresh directory, removed at the end.

    Start it from a thread that lives as long as the engine: Linux sends the parent-death signal at the end of a thread.
    """

    def __init__(self, source: str, argv: Sequence[str], env: Mapping[str, str], cwd: Optional[str], log: str) -> None:
        supervisor.prctl(supervisor.PR_SET_CHILD_SUBREAPER, 1)  # to adopt the processes of a killed supervisor
        self.pid: Optional[int] = None
        self.exit_code: Optional[int] = None
        self._fresh_dir = None if cwd else tempfile.mkdtemp(prefix="fleetctl-engine-")
        self.cwd = cwd or str(self._fresh_dir)
        self._log = log
        self.started, self.ended = threading.Event(), threading.Event()
        self._process, self._output = launch(source, argv, env, self.cwd, log, self._fresh_dir)
        self.tree = Tree(self._process.pid)
        threading.Thread(target=self._follow, name="fleetctl-engine", daemon=True).start()

    def _follow(self) -> None:
        """Read the supervisor's reports; the end without an exit code means that it was killed: end the engine too."""
        assert self._process.stdout is not None
        with self._process.stdout as reports:
            for line in reports:
                report = json.loads(line)
                self.pid = report.get("started", self.pid)
                self.started.set()
                self.exit_code = report.get("exited", self.exit_code)
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
        """End the engine and everything below it, and wait for that."""
        if not self.ended.is_set():
            self._process.send_signal(signal.SIGTERM)
            if not self.ended.wait(supervisor.GRACE_S + 2):
                supervisor.kill_tree(os.getpid(), 0, lambda: None)
