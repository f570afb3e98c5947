"""A child process in its own session, so that it can be ended together with everything it started."""

from __future__ import annotations

import errno
import os
import pickle
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

_CHUNK = 1 << 16
_PACKAGES = Path(__file__).parents[1]
"""The folder of this fleetctl: its children must not import another one from the working folder."""
_LIMITED = '(ulimit "$1" "$2") 2>/dev/null && ulimit "$1" "$2"; shift 2; '
"""Sets a limit, unless there is a lower one; the attempt comes first because a failure would end the shell."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What each process of a child may use: heap in bytes, without the files it maps, and processor time in seconds.

    Only Linux enforces the first. None = unlimited.
    """

    memory: int | None = None
    cpu_s: int | None = None

    def around(self, command: Sequence[str]) -> list[str]:
        """Return the command with its limits.

        A shell sets them: one set on the running program comes too late, and code between fork and exec may block.
        """
        wanted = [(flag, str(value)) for flag, value in (("-d", self.memory and self.memory >> 10), ("-t", self.cpu_s))
                  if value is not None]
        return ["/bin/sh", "-c", f'{_LIMITED * len(wanted)}exec "$@"', "sh", *chain.from_iterable(wanted), *command]


class Child:
    """A running program; as a context manager it is ended after the block. Raises OSError if it cannot be started.

    Killing git alone leaves its own children behind: ssh or an HTTPS helper, which may never exit. With `limits` a
    program that does not exist is no OSError, but ends with 127.
    """

    def __init__(self, command: Sequence[str], *, stdin: bytes = b"", env: Mapping[str, str] | None = None,
                 cwd: str | None = None, output: int = subprocess.PIPE, limits: Limits | None = None) -> None:
        self._command, self._unwritten = command, memoryview(stdin)
        self._process = subprocess.Popen(
            limits.around(command) if limits else command, env=env, cwd=cwd, start_new_session=True,
            stdin=subprocess.PIPE, stdout=output, stderr=output)
        self._printed: dict[IO[bytes], bytearray] = {
            pipe: bytearray() for pipe in (self._process.stdout, self._process.stderr) if pipe}

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        """Its standard input, output and error output, for a conversation instead of `wait`."""
        return cast("tuple[IO[bytes], IO[bytes], IO[bytes]]",
                    (self._process.stdin, self._process.stdout, self._process.stderr))

    def wait(self, timeout_s: float, most_output: int | None = None) -> subprocess.CompletedProcess[bytes]:
        """Return its exit status and output; raises TimeoutExpired if it still runs, and may then be called again.

        Raises OSError with EFBIG once it has printed more than `most_output` bytes.
        """
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as waiting:
            for pipe in self._printed:
                if not pipe.closed:
                    waiting.register(pipe, selectors.EVENT_READ)
            if self._process.stdin and not self._process.stdin.closed:
                os.set_blocking(self._process.stdin.fileno(), False)
                waiting.register(self._process.stdin, selectors.EVENT_WRITE)
            while waiting.get_map():
                ready = waiting.select(max(0, deadline - time.monotonic()))
                if not ready:
                    raise subprocess.TimeoutExpired(self._command, timeout_s)
                for key, _ in ready:
                    pipe = cast("IO[bytes]", key.fileobj)
                    if not (self._read(pipe, most_output) if pipe in self._printed else self._write(pipe)):
                        waiting.unregister(pipe)
                        pipe.close()
        self._process.wait(max(0.001, deadline - time.monotonic()))
        out, errors = (bytes(self._printed[pipe]) if pipe else b""
                       for pipe in (self._process.stdout, self._process.stderr))
        return subprocess.CompletedProcess(self._command, self._process.returncode, out, errors)

    def _read(self, pipe: IO[bytes], most_output: int | None) -> bool:
        """Read what is there; return False at its end."""
        data = os.read(pipe.fileno(), _CHUNK)
        self._printed[pipe] += data
        if most_output is not None and len(self._printed[pipe]) > most_output:
            raise OSError(errno.EFBIG, f"it printed more than {most_output >> 20} MiB")
        return bool(data)

    def _write(self, pipe: IO[bytes]) -> bool:
        """Write as much as it takes; return whether there is more."""
        try:
            self._unwritten = self._unwritten[os.write(pipe.fileno(), self._unwritten[:_CHUNK]):]
        except BrokenPipeError:
            return False
        return bool(self._unwritten)

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


def run_module(module: str, stdin: bytes, timeout_s: float, limits: Limits | None = None) -> bytes:
    """Return what a module of this fleetctl prints, run as a program.

    Raises TimeoutExpired, and OSError whose text says how it failed, such as "ended with 1: MemoryError".
    """
    try:
        with Child([sys.executable, "-m", module], cwd=str(_PACKAGES), stdin=stdin, limits=limits) as child:
            done = child.wait(timeout_s)
    except OSError as error:
        raise OSError(f"cannot be started: {error.strerror}") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise OSError(f"ended with {done.returncode}{''.join(f': {line}' for line in last)}")
    return done.stdout


def ask_module(module: str, question: object, timeout_s: float, limits: Limits) -> Any:  # noqa: ANN401  any answer
    """Return the answer of a module of this fleetctl to a question, or raise it if it is an error; both are pickled.

    Raises as `run_module` does, too.
    """
    answer = pickle.loads(run_module(module, pickle.dumps(question), timeout_s, limits))  # noqa: S301  our own process
    if isinstance(answer, Exception):
        raise answer
    return answer


def answer_question(answer: Callable[[Any], object]) -> None:
    """In such a module: read the question, and print the answer."""
    sys.stdout.buffer.write(pickle.dumps(answer(pickle.load(sys.stdin.buffer))))  # noqa: S301  from `ask_module`
