"""A child process in its own session, so that it can be ended together with everything it started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress


class Child:
    """A running program; as a context manager it is ended after the block. Raises OSError if it cannot be started.

    Killing git alone leaves its own children behind: ssh or an HTTPS helper, which may never exit.
    """

    def __init__(self, command: Sequence[str], *, stdin: bytes = b"", env: Mapping[str, str] | None = None,
                 cwd: str | None = None, output: int = subprocess.PIPE) -> None:
        self._command, self._stdin = command, stdin
        self._process = subprocess.Popen(
            command, env=env, cwd=cwd, start_new_session=True, stdin=subprocess.PIPE, stdout=output,
            stderr=output)

    def wait(self, timeout_s: float) -> subprocess.CompletedProcess[bytes]:
        """Return its exit status and output; raises TimeoutExpired if it still runs, and may then be called again."""
        stdin, self._stdin = self._stdin, b""  # a second communicate() must not get it again
        out, errors = self._process.communicate(stdin, timeout_s)
        return subprocess.CompletedProcess(self._command, self._process.returncode, out, errors)

    def end(self) -> None:
        """Kill it and everything it started, unless it has exited."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
