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
from typing import Mapping, Optional, Sequence, Tuple

from . import supervisor
from .sockets import Tree

LOAD_SUPERVISOR = "import marshal,sys;source,*config=marshal.load(sys.stdin.buffer);exec(source);main(*config)"
"""Actors get our code by value, so their nodes have no supervisor file to run."""
F_SETPIPE_SZ = 1031  # not in fcntl before Python 3.10
FUTURE = "from __future__ import annotations\n"


def supervisor_source() -> str:
    """Return the source of the supervisor, with the module that it imports. Only the agent's job has these files."""
    own_files, source = (Path(__file__).with_name(name).read_text(encoding="utf-8")
                         for name in ("own_files.py", "supervisor.py"))
    return source.replace("from .own_files import open_own\n", own_files.replace(FUTURE, ""))


def launch(
    source: str, argv: Sequence[str], env: Mapping[str, str], cwd: str, log: str, fresh_dir: Optional[str] = None
) -> Tuple[subprocess.Popen[bytes], int]:
    """Start the supervisor from its source; return its process and the read end of the engine's output pipe."""
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
    with process.stdin as config:
        config.write(marshal.dumps((source, list(argv), dict(env), cwd, fresh_dir, log, output, os.getpid())))
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
        self._process, self._output = launch(source, argv, env, self.cwd, log, self._fresh_dir)
        self.tree = Tree(self._process.pid)
        threading.Thread(target=self._follow, name="fleetctl-engine", daemon=True).start()

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
