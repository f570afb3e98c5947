"""The supervisor as a program of its own, started from its source as engine.py does, with real processes below it."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_run import EngineLike, engine_like, unstamped
from marked_processes import FAMILY, MARK, PRINTS_ON_CUE, alive, children, eventually, marked

from fleetctl.agent import supervisor
from fleetctl.agent.engine import EngineLog
from fleetctl.agent.guarded import launch, supervisor_source
from fleetctl.agent.messages import Stop

pytestmark = pytest.mark.slow

SOURCE, DEFAULT = supervisor_source(), Stop()


class Supervised:
    """A running supervisor and its log; `reports` = the lines it has written so far."""

    def __init__(self, process: subprocess.Popen[bytes], output: int, log: Path) -> None:
        self.process = process
        self.output = output
        self.log = log

    @property
    def outer(self) -> int:
        return self.process.pid

    @property
    def inner(self) -> int:
        return eventually(lambda: children(self.outer), "the inner guard is there")[0]

    def started(self) -> int:
        """Return the pid of the engine, its first report."""
        assert self.process.stdout is not None
        what, pid = self.process.stdout.readline().split()
        assert what == b"started"
        return int(pid)

    def finish(self) -> tuple[list[str], int]:
        """Wait for the end; return the reports since the last read, and the exit code."""
        assert self.process.stdout is not None
        reports = [line.decode().strip() for line in self.process.stdout]
        return reports, self.process.wait(300)


Start = Callable[..., Supervised]


@pytest.fixture
def start(tmp_path: Path, mark: str) -> Iterator[Start]:
    """Start a supervisor with an engine `argv`; its environment is PATH, the mark, and the given variables."""
    started: list[Supervised] = []

    def starting(
        *argv: str, cwd: Path = tmp_path, source: str = SOURCE, log: str = "engine.log", fresh: Path | None = None,
        stop: Stop = DEFAULT, **env: str,
    ) -> Supervised:
        path = tmp_path / log
        variables = {"PATH": os.environ["PATH"], MARK: mark, **env}
        started.append(Supervised(*launch(source, argv, variables, str(cwd), str(path), stop, fresh and str(fresh)),
                                  path))
        return started[-1]

    yield starting
    for one in started:
        with ending(one):
            pass


@contextmanager
def ending(supervised: Supervised) -> Iterator[None]:
    """End the supervisor after the test, whatever its state."""
    yield
    if supervised.process.poll() is None:
        supervised.process.kill()
    supervised.process.wait(300)
    assert supervised.process.stdout is not None
    assert supervised.process.stdin is not None
    supervised.process.stdout.close()
    supervised.process.stdin.close()
    os.close(supervised.output)


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code)


def family(start: Start, mark: str, fresh: Path | None = None) -> Supervised:
    """An engine with a child that called setsid and an orphaned process; all three are up."""
    supervised = start(*python(FAMILY), fresh=fresh)
    eventually(lambda: len(marked(mark)) == 3 and "complete" in unstamped(supervised.log), "the family is complete")
    return supervised


COUNTS = "import sys\nfor i in range(int(sys.argv[1])): print('%08d' % i, 'x' * 90, flush=i % 100 == 0)"
SMALL = SOURCE.replace("LOG_BYTES = 64 << 20", "LOG_BYTES = 1 << 20")


def test_a_burst_of_output_is_capped_and_its_end_is_kept_without_a_gap(start: Start, tmp_path: Path) -> None:
    """20 MB are written; 1 MiB is kept."""
    assert SMALL != SOURCE
    supervised = start(*python(COUNTS), "200000", source=SMALL)
    supervised.finish()
    before, now = tmp_path / "engine.log.1", tmp_path / "engine.log"
    assert max(before.stat().st_size, now.stat().st_size) <= 1 << 19
    assert before.stat().st_size > 1 << 18
    assert [stat.S_IMODE(log.stat().st_mode) & ~0o640 for log in (before, now)] == [0, 0]
    numbers = [int(line[:8]) for line in (unstamped(before) + unstamped(now)).splitlines()[1:]]
    assert numbers == list(range(200_000 - len(numbers), 200_000))


def test_each_line_is_stamped_with_its_time_and_the_number_of_earlier_lines(tmp_path: Path) -> None:
    """Also if a line arrives in parts, if the log has no stamps yet, and if the log continues an earlier one."""
    path = tmp_path / "engine.log"
    path.write_text("of an earlier agent\ncut")
    reader, writer = os.pipe()
    for part in (b"", b" off\none\ntwo\nth", b"ree\n", b"\nfive"):
        os.write(writer, part)
        supervisor.Output(reader, str(path)).drain()  # a new guard each time
    EngineLog(str(path)).say("it has ended")
    lines = path.read_text().splitlines()
    assert lines[:2] == ["of an earlier agent", "cut off"]
    stamp = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z#(\d+) (.*)")
    assert [found.groups() for line in lines[2:] if (found := stamp.fullmatch(line))] == [
        ("0", "one"), ("0", "two"), ("0", "three"), ("3", ""), ("3", "five"), ("5", "fleetctl: it has ended")]


def test_a_log_that_is_already_large_is_replaced(start: Start, tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_bytes(b"x" * (1 << 19))
    start("echo", "new", source=SMALL).finish()
    assert (tmp_path / "engine.log").read_text() == "new\n"
    assert (tmp_path / "engine.log.1").stat().st_size == 1 << 19


def test_a_log_that_cannot_be_renamed_stays_small_too(start: Start, tmp_path: Path) -> None:
    (tmp_path / "engine.log.1").mkdir()
    (tmp_path / "engine.log.1" / "not empty").touch()
    supervised = start(*python(COUNTS), "20000", source=SMALL)
    supervised.finish()
    assert supervised.log.stat().st_size <= 1 << 19
    assert unstamped(supervised.log).splitlines()[-1].startswith("00019999 ")


@pytest.mark.parametrize("log", ["/dev/full", "/no/such/folder/engine.log"])
def test_an_engine_keeps_running_if_its_log_cannot_be_written(start: Start, log: str) -> None:
    """2 MB is more than the pipe holds, so an engine whose output is not read would hang."""
    supervised = start(*python(COUNTS), "20000", log=log)
    supervised.started()
    assert supervised.finish() == (["exited 0"], 0)
    assert Path("/dev/full").is_char_device(), "a device is neither written to nor moved"


def test_output_lost_to_a_full_disk_is_reported_once_there_is_room(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    log = tmp_path / "engine.log"
    output = supervisor.Output(reader, str(log))
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if room:
            return real(descriptor, data[:room.pop()])
        raise OSError(errno.ENOSPC, "No space left on device")

    os.write(writer, b"first\n")
    assert output.take() == 6
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor.os, "write", full)
        room = [len("2026-11-21T04:22:07.123Z#1 half")]
        real(writer, b"halfgone")
        assert output.take() == 8
        real(writer, b"all gone")
        assert output.take() == 8
    os.write(writer, b"again\n")
    output.drain()
    assert unstamped(log) == "first\nhalf\nfleetctl: 12 bytes of output are missing: No space left on device\nagain\n"
    for descriptor in (reader, writer):
        os.close(descriptor)


def test_output_written_while_the_inner_guard_was_frozen_is_not_lost(start: Start, tmp_path: Path) -> None:
    supervised = start("sh", "-c", PRINTS_ON_CUE)
    supervised.started()
    inner = supervised.inner
    os.kill(inner, signal.SIGSTOP)
    (tmp_path / "cue").touch()
    eventually((tmp_path / "printed").exists, "the engine has printed its line")
    os.kill(inner, signal.SIGKILL)
    supervised.finish()
    assert unstamped(supervised.log) == "the last words\n"


def test_the_engines_output_is_appended_to_the_log(start: Start, tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_text("an earlier life\n")
    supervised = start("sh", "-c", "echo out; echo err >&2")
    supervised.finish()
    assert unstamped(supervised.log) == "an earlier life\nout\nerr\n"


def test_not_everyone_can_read_a_new_log(start: Start) -> None:
    supervised = start("echo", "secret")
    supervised.finish()
    assert stat.S_IMODE(supervised.log.stat().st_mode) & ~0o640 == 0


@pytest.mark.parametrize("code", [0, 1, 7, 127])
def test_an_exit_code_is_reported_and_passed_on(start: Start, code: int) -> None:
    supervised = start("sh", "-c", f"exit {code}")
    supervised.started()
    assert supervised.finish() == ([f"exited {code}"], code)


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV"])
def test_a_signal_is_reported_as_128_and_its_number(start: Start, name: str) -> None:
    supervised = start("sh", "-c", f"ulimit -c 0; kill -{name} $$")
    supervised.started()
    code = 128 + signal.Signals[f"SIG{name}"]
    assert supervised.finish() == ([f"exited {code}"], code)


def test_the_engines_own_pid_is_reported(start: Start, mark: str) -> None:
    supervised = start("sleep", "1000")
    started = supervised.started()
    eventually(lambda: marked(mark) == [started], "the engine runs under the reported pid")
    os.kill(started, signal.SIGKILL)
    assert supervised.finish()[1] == 128 + signal.SIGKILL


def test_a_missing_command_is_reported_in_the_log(start: Start) -> None:
    supervised = start("no-such-engine", "--port", "1")
    supervised.started()
    assert supervised.finish() == (["exited 127"], 127)
    assert unstamped(supervised.log) == "fleetctl: cannot start no-such-engine: No such file or directory\n"


def test_a_command_that_may_not_run_is_reported_in_the_log(start: Start, tmp_path: Path) -> None:
    plain = tmp_path / "engine.sh"
    plain.write_text("#!/bin/sh\n")
    supervised = start(str(plain))
    supervised.started()
    assert supervised.finish() == (["exited 126"], 126)
    assert unstamped(supervised.log) == f"fleetctl: cannot start {plain}: Permission denied\n"


def test_a_missing_working_directory_is_reported_as_such(start: Start, tmp_path: Path) -> None:
    supervised = start("true", cwd=tmp_path / "weights")
    supervised.started()
    assert supervised.finish()[1] == 126
    assert unstamped(supervised.log) == (
        f"fleetctl: cannot use the working directory {tmp_path / 'weights'}: No such file or directory\n")


def test_the_engine_starts_with_a_clean_process_state(start: Start, tmp_path: Path, mark: str) -> None:
    """Only the given environment, no input, no foreign descriptors, its own session, no blocked or ignored signal."""
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # as in a raylet that a shell started in the background
    supervised = start(*python(
        "import json, os\n"
        "status = dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines())\n"
        "open_now = [fd for fd in map(int, os.listdir('/proc/self/fd')) if os.path.exists(f'/proc/self/fd/{fd}')]\n"
        "print(json.dumps({'env': dict(os.environ), 'fds': sorted(open_now),\n"
        "  'stdin': os.readlink('/proc/self/fd/0'), 'leads': os.getsid(0) == os.getpid(), 'cwd': os.getcwd(),\n"
        "  'ignored': int(status['SigIgn'], 16), 'blocked': int(status['SigBlk'], 16)}))\n"
    ), EXTRA="a b\nc")
    signal.signal(signal.SIGQUIT, before)
    supervised.finish()
    seen = json.loads(unstamped(supervised.log))
    not_pythons_own = signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}
    seen["ignored"] = [number for number in not_pythons_own if seen["ignored"] >> (number - 1) & 1]
    assert seen == {
        "env": {"PATH": os.environ["PATH"], MARK: mark, "EXTRA": "a b\nc", **locale_of(seen["env"])},
        "fds": [0, 1, 2], "stdin": "/dev/null", "leads": True, "cwd": str(tmp_path),
        "ignored": [], "blocked": 0,
    }


def locale_of(env: dict[str, str]) -> dict[str, str]:
    """A variable that Python sets for itself in the C locale."""
    return {name: value for name, value in env.items() if name == "LC_CTYPE"}


def test_bytes_that_are_not_text_pass_through_environment_and_arguments(start: Start) -> None:
    odd = os.fsdecode(b"caf\xe9")
    supervised = start("sh", "-c", 'printf %s "$ODD-$1"', "sh", odd, ODD=odd)
    supervised.finish()
    assert unstamped(supervised.log) == "caf\udce9-caf\udce9"


@pytest.mark.parametrize("victim", ["outer", "inner"])
def test_whichever_guard_is_killed_all_processes_end_and_the_folder_is_removed(
        start: Start, mark: str, victim: str, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    supervised = family(start, mark, fresh)
    guards = (supervised.outer, supervised.inner)
    os.kill(getattr(supervised, victim), signal.SIGKILL)
    eventually(lambda: not marked(mark), "no process of the engine is left")
    supervised.process.wait(300)
    eventually(lambda: not any(map(alive, guards)), "no guard is left")
    assert not fresh.exists()


def test_with_both_guards_killed_the_engine_ends_too(start: Start, mark: str) -> None:
    """The actor inherits and ends its earlier orphans; the tests of the engine cover that."""
    supervised = start("sleep", "1000")
    supervised.started()
    eventually(lambda: marked(mark), "the engine runs")
    for pid in (supervised.inner, supervised.outer):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not marked(mark), "the engine is gone")


def test_when_an_engine_exits_its_remaining_processes_end(start: Start, mark: str) -> None:
    supervised = family(start, mark)
    os.kill(supervised.started(), signal.SIGINT)
    assert supervised.finish()[1] == 128 + signal.SIGINT
    assert marked(mark) == []


MAIN_THREAD_ENDED = """\
import ctypes, os, threading, time
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
    threading.Thread(target=time.sleep, args=(1000,)).start()
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
time.sleep(1000)
"""
"""Its child has a child of its own and looks like a zombie, since of its threads only the first one has ended."""


def test_what_looks_like_a_zombie_while_its_threads_run_ends_with_all_below_it(start: Start, mark: str) -> None:
    """A killed process looks so until its last thread has ended, and has its children until then."""
    supervised = start(*python(MAIN_THREAD_ENDED))
    engine = supervised.started()
    eventually(lambda: len(marked(mark)) == 2 and not children(engine), "the first thread of the child has ended")
    os.kill(engine, signal.SIGKILL)
    assert supervised.finish()[1] == 128 + signal.SIGKILL
    assert marked(mark) == []


def test_an_engine_may_shut_down_by_itself_after_sigterm(start: Start) -> None:
    supervised = start("sh", "-c", "trap 'echo goodbye; exit 5' TERM; echo up; while :; do sleep 0.05; done")
    eventually(lambda: "up" in unstamped(supervised.log), "the engine is up")
    os.kill(supervised.outer, signal.SIGTERM)
    supervised.started()
    assert supervised.finish() == ([f"exited {128 + signal.SIGTERM}"], 128 + signal.SIGTERM)
    assert unstamped(supervised.log).splitlines()[-1] == "goodbye"


def test_an_engine_that_ignores_sigterm_is_killed(start: Start, mark: str) -> None:
    supervised = start("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done", stop=Stop(grace=0.2))
    eventually(lambda: "up" in unstamped(supervised.log), "the engine is up")
    os.kill(supervised.outer, signal.SIGTERM)
    assert supervised.finish()[1] == 128 + signal.SIGTERM
    assert marked(mark) == []


def signals(supervised: Supervised) -> list[str]:
    """Return the signals that the processes of an engine of engine_like.py have received, as they say."""
    return re.findall(r"^((?:front|worker): signal .*)$", unstamped(supervised.log), re.MULTILINE)


Serving = Callable[..., tuple[Supervised, EngineLike]]


@pytest.fixture
def serving(start: Start) -> Serving:
    """Start engine_like.py and return once it serves; `before` = the words before its command."""

    def starting(*flags: str, before: Sequence[str] = (), **more: Any) -> tuple[Supervised, EngineLike]:
        command, engine = engine_like(*flags)
        supervised = start(*before, *command, **more)
        engine.await_serving()
        return supervised, engine

    return starting


FOREVER = Stop(grace=3600.0)


def test_the_first_process_alone_gets_one_sigterm_and_finishes_its_requests(serving: Serving) -> None:
    supervised, engine = serving("--workers", "2", stop=FOREVER)
    segment = Path("/dev/shm", engine.state()["segment"])
    assert segment.exists()
    with engine.working() as answer:
        os.kill(supervised.outer, signal.SIGTERM)
        os.kill(supervised.outer, signal.SIGTERM)  # another request to end, such as a second eviction
        eventually(lambda: signals(supervised), "the engine was told")
        assert answer() == (200, "done")
    supervised.finish()
    assert signals(supervised) == ["front: signal 15 number 1, 1 requests running", *["worker: signal 15"] * 2]
    assert unstamped(supervised.log).splitlines()[-1] == "front: shut down"
    assert not segment.exists()


def test_an_engine_gets_the_signal_that_its_file_names(serving: Serving) -> None:
    supervised, _ = serving(stop=Stop("SIGUSR1", 3600.0))
    os.kill(supervised.outer, signal.SIGTERM)
    supervised.finish()
    assert signals(supervised) == [f"front: signal {signal.SIGUSR1.value} number 1, 0 requests running",
                                   "worker: signal 15"]


def test_what_a_shell_leaves_when_it_ends_early_has_the_rest_of_the_period(serving: Serving) -> None:
    supervised, engine = serving(before=("sh", "-c", '"$@" & wait', "sh"), stop=FOREVER)
    with engine.working() as answer:
        os.kill(supervised.outer, signal.SIGTERM)
        eventually(lambda: signals(supervised), "the engine was told")
        time.sleep(supervisor.ALONE_S + 1.0)
        assert answer() == (200, "done")
    supervised.finish()
    assert signals(supervised) == ["front: signal 15 number 1, 1 requests running", "worker: signal 15"]


def test_when_the_period_is_over_the_rest_can_still_clean_up(serving: Serving, mark: str) -> None:
    """The first process is killed, and Python's resource tracker, which ignores SIGTERM, removes the shared memory."""
    supervised, engine = serving(stop=Stop(grace=3.0))
    segment = Path("/dev/shm", engine.state()["segment"])
    with engine.working():
        os.kill(supervised.outer, signal.SIGTERM)
        supervised.finish()
    assert signals(supervised)[0] == "front: signal 15 number 1, 1 requests running"
    assert set(signals(supervised)[1:]) <= {"worker: signal 15"}, "it may see the other's end before the signal"
    assert (marked(mark), segment.exists()) == ([], False)


@pytest.mark.parametrize("told_before", [False, True])
def test_a_guard_that_loses_its_parent_does_not_wait_for_the_period(
        start: Start, serving: Serving, mark: str, told_before: bool) -> None:
    """Also if the period had begun; the engine's first process gets one signal all the same."""
    supervised, engine = serving(stop=FOREVER)
    with engine.working():
        if told_before:
            os.kill(supervised.outer, signal.SIGTERM)
            eventually(lambda: signals(supervised), "the engine was told")
        os.kill(supervised.outer, signal.SIGKILL)
        eventually(lambda: not marked(mark), "no process of the engine is left")
    assert [line for line in signals(supervised) if line.startswith("front")] == [
        "front: signal 15 number 1, 1 requests running"]


def test_a_guard_told_to_hurry_does_not_wait_for_the_period(serving: Serving, mark: str) -> None:
    supervised, engine = serving(stop=FOREVER)
    with engine.working():
        os.kill(supervised.outer, supervisor.HURRY)
        assert supervised.finish()[1] == 128 + signal.SIGTERM
    assert marked(mark) == []


def test_an_engine_that_is_ended_before_it_has_begun_gets_its_signal_too(start: Start) -> None:
    slow = SOURCE.replace("    os.setsid()\n", "    os.setsid()\n    time.sleep(0.5)\n")
    assert slow != SOURCE
    supervised = start("sleep", "1000", source=slow, stop=FOREVER)
    supervised.started()
    os.kill(supervised.outer, signal.SIGTERM)
    assert supervised.finish()[1] == 128 + signal.SIGTERM


def test_a_guard_whose_parent_died_during_the_start_ends(start: Start, mark: str, tmp_path: Path) -> None:
    """The supervisor knows its parent's pid; another parent means that the original parent has ended."""
    supervised = start("sleep", "1000", source=f"{SOURCE}\nos.getppid = lambda: 1\n")
    supervised.started()
    assert supervised.finish()[1] == 128 + signal.SIGTERM
    assert marked(mark) == []
