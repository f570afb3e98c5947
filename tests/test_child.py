"""A child process: its output and memory have limits, and it can be asked again after a timeout."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from fleetctl.child import Child, Limits

pytestmark = pytest.mark.slow

MEBIBYTE = 1 << 20
LIMITS = Limits(256 * MEBIBYTE, 1)


def run(program: str, *, stdin: bytes = b"", most_output: int | None = None, limits: Limits | None = None
        ) -> tuple[int, bytes, bytes]:
    with Child([sys.executable, "-c", program], stdin=stdin, limits=limits) as child:
        done = child.wait(60, most_output)
    return done.returncode, done.stdout, done.stderr


def test_input_and_output_larger_than_a_pipe_pass_through() -> None:
    copy = "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer); sys.stderr.write('e' * 200000)"
    data = os.urandom(MEBIBYTE)
    assert run(copy, stdin=data) == (0, data, b"e" * 200_000)


def test_a_program_that_does_not_read_its_input_is_no_error() -> None:
    assert run("import os; os.close(0); print(1)", stdin=b"x" * MEBIBYTE)[:2] == (0, b"1\n")


def test_output_beyond_the_limit_is_an_error() -> None:
    for stream in ("stdout", "stderr"):
        endless = f"import sys\nwhile True: sys.{stream}.write('x' * 4096)"
        with pytest.raises(OSError, match="it printed more than 1 MiB"):
            run(endless, most_output=MEBIBYTE)
    assert run("print('x')", most_output=2)[1] == b"x\n"


def test_a_child_that_still_runs_can_be_awaited_again(tmp_path: Path) -> None:
    waits = f"echo one; while ! [ -e {tmp_path}/go ]; do sleep 0.01; done; echo two"
    with Child(["/bin/sh", "-c", waits]) as child:
        with pytest.raises(TimeoutExpired):
            child.wait(0.05)
        (tmp_path / "go").touch()
        assert child.wait(60).stdout == b"one\ntwo\n"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce it")
def test_memory_beyond_the_limit_is_refused_from_the_start() -> None:
    code, _, errors = run(f"bytearray({600 * MEBIBYTE})", limits=LIMITS)
    assert (code, b"MemoryError" in errors) == (1, True)
    assert run(f"bytearray({20 * MEBIBYTE})", limits=LIMITS)[0] == 0
    assert run("import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[0])",
               limits=LIMITS)[1] == b"%d\n" % (256 * MEBIBYTE)


def test_processor_time_beyond_the_limit_ends_the_program() -> None:
    assert run("while True: pass", limits=LIMITS)[0] in (-signal.SIGKILL, -signal.SIGXCPU)


def test_a_lower_limit_stays() -> None:
    lowered = ["/bin/sh", "-c", 'ulimit -t 5; exec "$@"', "sh", *LIMITS.around(["/bin/sh", "-c", "ulimit -t"])]
    for limits, seconds in ((None, b"1\n"), (Limits(cpu_s=7), b"5\n")):
        command = lowered if limits is None else [*lowered[:4], *limits.around(["/bin/sh", "-c", "ulimit -t"])]
        with Child(command) as child:
            assert child.wait(60).stdout == seconds
