"""A signal at any moment: the process ends with the signal's code, or had finished already, and prints no traceback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from random_cases import cases

pytestmark = pytest.mark.slow

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
numbers = pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)


@contextmanager
def started(home: Path, *arguments: str | Path, program: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run `fleetctl` in a separate process, which is killed at the end."""
    begin = ["-m", "fleetctl"] if program is None else ["-c", program]
    with subprocess.Popen([sys.executable, *begin, *map(str, arguments)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home)}) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_it_runs(process: subprocess.Popen[str]) -> None:
    """Wait until fleetctl runs: it handles SIGTERM, which Python itself does not."""
    while process.poll() is None:
        caught = Path(f"/proc/{process.pid}/status").read_text().partition("SigCgt:")[2].split(maxsplit=1)[0]
        if int(caught, 16) & 1 << signal.SIGTERM - 1:
            return


def outcome_of(process: subprocess.Popen[str], number: signal.Signals, shows: str = "Plan: ") -> str:
    """How the process ended; fail if it has neither the signal's exit code nor complete output."""
    out, err = process.communicate(timeout=300)
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    if process.returncode == CODES[number]:
        return "interrupted"
    assert process.returncode == 0, err
    assert shows in out
    return "finished"


MOMENTS = cases(6)


@pytest.mark.parametrize(("number", "signals", "first"), [
    (signal.SIGINT, 1, 0.0), (signal.SIGTERM, 1, 0.25), (signal.SIGINT, 2, 0.5), (signal.SIGTERM, 2, 0.75),
], ids=["SIGINT", "SIGTERM", "SIGINT twice", "SIGTERM twice"])
def test_a_signal_at_any_moment_ends_the_command_cleanly(
    number: signal.Signals, signals: int, first: float, fleet_file: Path, snapshot_file: Path, tmp_path: Path
) -> None:
    """The moments are shares of the time that the command takes here; those of the four cases interleave."""
    command = ("plan", "-f", fleet_file, "--inventory", snapshot_file)
    with started(tmp_path, *command) as process:
        wait_until_it_runs(process)
        began = time.monotonic()
        assert outcome_of(process, number) == "finished"
        undisturbed_s = time.monotonic() - began
    for step in range(MOMENTS):
        with started(tmp_path, *command) as process:
            wait_until_it_runs(process)
            time.sleep((step + first) / MOMENTS * undisturbed_s)  # the moment varies, the assertions do not
            for _ in range(signals):
                process.send_signal(number)
            outcome_of(process, number)


END = """
import atexit, os, signal, sys
from fleetctl.cli.entry import main

class Interrupting:
    def __init__(self, stream): self.stream = stream
    def __getattr__(self, name): return getattr(self.stream, name)
    def flush(self):
        self.stream.flush()
        if {flush} and sys._getframe(1).f_code.co_name == "_flushed":
            os.kill(os.getpid(), {number})

atexit.register(os.kill, os.getpid(), {number})
sys.stdout = Interrupting(sys.stdout)
main()
"""


@numbers
@pytest.mark.parametrize("flush", [True, False], ids=["while it flushes", "when it has ended"])
def test_a_signal_at_the_very_end_interrupts_the_flush_or_is_too_late(
    number: signal.Signals, flush: bool, tmp_path: Path
) -> None:
    program = END.format(flush=flush, number=int(number))
    with started(tmp_path, "schema", "plan", program=program) as process:
        assert outcome_of(process, number, "fleetctl plan") == ("interrupted" if flush else "finished")


@numbers
def test_a_signal_during_an_import_waits_for_the_import(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "fragile.py").write_text(f"""
import os, time
try:
    os.kill(os.getpid(), {int(number)})
    time.sleep(0)
except BaseException:
    raise ImportError("half loaded") from None
whole = True
""")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from fleetctl.cli import entry, signals
signals.REDELIVER_S = 2.0  # on a busy machine the import may take longer than the default
def work(_):
    import fragile, time
    print("whole", fragile.whole, flush=True)
    while True: time.sleep(0.01)
entry._run_app = work
entry.main()
"""
    with started(tmp_path, "plan", program=program) as process:
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (CODES[number], "whole True\n", "")


@numbers
def test_a_signal_deferred_until_the_work_is_done_is_dropped(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "last.py").write_text(f"import os\nos.kill(os.getpid(), {int(number)})\n")
    program = f"""
import atexit, os, signal, sys
sys.path.insert(0, {str(tmp_path)!r})
from fleetctl.cli import entry, signals
signals.REDELIVER_S = 3600.0
def work(_):
    import last
    return 0
entry._run_app = work
atexit.register(lambda: os.write(1, b"%a" % (signal.getitimer(signal.ITIMER_REAL),)))
entry.main()
"""
    with started(tmp_path, "plan", program=program) as process:
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (0, "(0.0, 0.0)", ""), "a pending signal would still arrive"


@numbers
def test_a_signal_that_python_cannot_raise_is_delivered_again(number: signal.Signals, tmp_path: Path) -> None:
    program = f"""
import os
from fleetctl.cli import entry
class Loud:
    def __del__(self):
        os.kill(os.getpid(), {int(number)})
        for _ in range(10): pass
def work(_):
    Loud()
    while True: pass
entry._run_app = work
entry.main()
"""
    with started(tmp_path, "plan", program=program) as process:
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (CODES[number], "", "")


@numbers
def test_a_signal_ends_the_wait_for_a_silent_cluster_promptly(number: signal.Signals, tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with started(tmp_path, "inventory", "--address", address) as process:
            assert process.stderr is not None
            assert process.stderr.readline() == f"note: waiting for {address} to answer\n"
            process.send_signal(number)
            _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (CODES[number], "")


@numbers
def test_a_process_started_to_ignore_a_signal_continues(
    number: signal.Signals, fleet_file: Path, snapshot_file: Path, tmp_path: Path
) -> None:
    ignoring = f"""
import os, signal, sys
signal.signal({int(number)}, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "fleetctl", *sys.argv[1:]])
"""
    arguments = ("plan", "-f", fleet_file, "--inventory", snapshot_file)
    with started(tmp_path, *arguments, program=ignoring) as process:
        while process.poll() is None:
            if ignores(process, number):
                process.send_signal(number)
            time.sleep(0.05)
        assert outcome_of(process, number) == "finished"


def ignores(process: subprocess.Popen[str], number: signal.Signals) -> bool:
    try:
        mask = Path(f"/proc/{process.pid}/status").read_text().partition("SigIgn:")[2].split(maxsplit=1)[0]
    except OSError:
        return False
    return bool(int(mask, 16) & 1 << number - 1)
