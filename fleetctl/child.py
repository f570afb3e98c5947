"""A program that this one runs and may have to end: with all that it has started, in a session of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress


class Child:
    """A program that runs; as a context it has ended after the block. Raises OSError where it cannot be started.

    Git that is killed alone leaves behind what it has started: ssh or a helper for HTTPS, which may never end.
    """

    def __init__(self, command: Sequence[str], *, stdin: bytes = b"", env: Mapping[str, str] | None = None,
                 cwd: str | None = None, output: int = subprocess.PIPE) -> None:
        self._command, self._stdin = command, stdin
        self._process = subprocess.Popen(
            command, env=env, cwd=cwd, start_new_session=True, stdin=subprocess.PIPE, stdout=output,
            stderr=output)

    def wait(self, timeout_s: float) -> subprocess.CompletedProcess[bytes]:
        """Return how it ended; raises TimeoutExpired where it goes on, and may then be called again."""
        stdin, self._stdin = self._stdin, b""  # it may be handed over once
        out, errors = self._process.communicate(stdin, timeout_s)
        return subprocess.CompletedProcess(self._command, self._process.returncode, out, errors)

    def end(self) -> None:
        """End it, and what it has started, unless it has ended."""
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
