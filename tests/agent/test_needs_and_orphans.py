"""The doctor's findings on a node: unmet needs of engines, and engines without their replica."""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from engine_run import engine_like
from marked_processes import end, eventually

from fleetctl.agent import examine, leftovers, processes, supervisor
from fleetctl.agent.guarded import FRESH
from fleetctl.agent.report import MARKED
from fleetctl.agent.run_messages import Need, Orphan
from fleetctl.demo.lifecycle import free_port

pytestmark = pytest.mark.slow
MARK = {**dict.fromkeys(MARKED, "0"), "FLEETCTL_MODEL": f"org/of-{os.getpid()}"}
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "SETTLE_S", 0)


def await_program(pid: int, name: str) -> None:
    """Wait until a process runs this program: for a moment a new one has no environment."""
    process = Path(f"/proc/{pid}")
    eventually(lambda: (process / "environ").read_bytes() and (process / "cmdline").read_bytes().startswith(
        name.encode()), f"it runs {name}")


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process with the mark of an engine, and end it after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def starting(*words: str, **more: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(words, env={"PATH": os.environ["PATH"], **MARK, **more}, stdout=subprocess.PIPE)
        started.append(process)
        await_program(process.pid, words[0])
        return process

    yield starting
    for process in started:
        process.kill()
        process.communicate()


def found() -> list[int]:
    return [one.pid for one in leftovers.find_orphans() if one.model == MARK["FLEETCTL_MODEL"]]


def test_a_marked_process_without_a_guard_is_an_orphan_and_only_an_orphan_is_ended(start: Start) -> None:
    process, other = start("sleep", "100"), start("sleep", "100", FLEETCTL_MODEL="another")
    [orphan] = [one for one in leftovers.find_orphans() if one.pid == process.pid]
    assert (orphan.command, orphan.replica_id) == ("sleep 100", "0")
    assert leftovers.end_orphans([orphan._replace(began=orphan.began + 1)]) == [""], "this process has ended"
    assert process.poll() is None, "another process than the confirmed one"
    assert leftovers.end_orphans([orphan]) == [""]
    assert process.wait(300) == -15
    assert other.poll() is None


GUARD = "import subprocess, sys; p = subprocess.Popen(['sleep', '100']); print(p.pid, flush=True); p.wait()"


def test_a_guarded_process_is_no_orphan_nor_is_its_engine_in_a_container(start: Start) -> None:
    guard = subprocess.Popen([sys.executable, "-c", GUARD, "fleetctl-supervisor"], env={**os.environ, **MARK},
                             stdout=subprocess.PIPE)
    try:
        assert guard.stdout is not None
        guarded = int(guard.stdout.readline())
        same = start("sleep", "100")
        assert not {guarded, same.pid} & set(found())
        assert start("sleep", "100", FLEETCTL_PORT="1").pid in found()
    finally:
        os.kill(guarded, 9)
        guard.communicate()


@contextmanager
def below_a(*words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process with this command line, and the pid of an engine below it."""
    above = subprocess.Popen([words[0], "-c", GUARD, *words[1:]], executable=sys.executable, stdout=subprocess.PIPE,
                             env={**os.environ, **MARK})
    assert above.stdout is not None
    engine = int(above.stdout.readline())
    try:
        await_program(engine, "sleep")
        yield above, engine
    finally:
        above.kill()
        end(engine)
        above.communicate()


@pytest.mark.parametrize(("words", "lives", "is_orphan"), [
    (["ray::ModelActor"], True, False), (["ray::ModelActor"], False, True), (["ray::GangMember.start"], False, True),
    (["ray::fetch_here"], False, False), (["python", "fleetctl-supervisor"], False, True),
], ids=["living actor", "dead actor", "dead member", "task", "guards without an actor"])
def test_an_engine_is_an_orphan_unless_a_living_actor_is_above_it(
    monkeypatch: pytest.MonkeyPatch, words: list[str], *, lives: bool, is_orphan: bool
) -> None:
    """A process that hangs is still there when its actor is dead for Ray; so is an engine whose guards are stopped."""
    with below_a(*words) as (above, engine):
        monkeypatch.setattr(leftovers, "actor_pids_here", lambda: {above.pid} if lives else set())
        assert (engine in found()) is (is_orphan and not words[0].startswith("ray::")), "a worker of another raylet"
        monkeypatch.setattr(leftovers.os, "getppid", os.getpid)
        assert (engine in found()) is is_orphan
        monkeypatch.setattr(leftovers, "actor_pids_here", lambda: None)
        assert engine not in found(), "Ray does not answer"


def test_with_an_orphan_the_process_of_its_dead_actor_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with below_a("ray::ModelActor") as (above, engine):
        above.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(leftovers.os, "getppid", os.getpid)
        monkeypatch.setattr(leftovers, "actor_pids_here", set)
        agreed = [one for one in leftovers.find_orphans() if one.pid == engine]
        assert leftovers.end_orphans(agreed) == [""]
        assert above.wait(300) == -signal.SIGKILL


def test_what_is_an_orphan_for_a_moment_is_none(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its guards are just ending it, or its actor has just begun."""
    with below_a("ray::ModelActor") as (above, engine):
        monkeypatch.setattr(leftovers.os, "getppid", os.getpid)
        answers = [set[int](), {above.pid}]
        monkeypatch.setattr(leftovers, "actor_pids_here", lambda: answers.pop(0))
        assert engine not in found()
        assert answers == []


def test_a_process_that_lacks_one_of_the_variables_is_not_of_fleetctl(start: Start) -> None:
    process = subprocess.Popen(["sleep", "100"], env={name: value for name, value in MARK.items()
                                                      if name != "FLEETCTL_RANK"})
    try:
        assert process.pid not in found()
    finally:
        process.kill()
        process.wait()


OVERWRITES = """\
import ctypes, time
start, end = map(int, open("/proc/self/stat").read().rpartition(")")[2].split()[47:49])
ctypes.memset(start, 0, end - start)
print("overwritten", flush=True)
time.sleep(100)
"""


def test_a_process_that_has_written_over_its_environment_is_known_by_the_folder_made_for_its_engine(
        tmp_path: Path) -> None:
    for name, is_ours in ((f"{FRESH}host-1", True), ("other", False)):
        folder = tmp_path / name / "below"
        folder.mkdir(parents=True)
        for command in ([sys.executable, "-c", OVERWRITES], ["sh", "-c", "echo a shell; exec sleep 100"]):
            with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as process:
                try:
                    assert process.stdout is not None
                    said = process.stdout.readline()
                    if said == b"a shell\n":
                        await_program(process.pid, "sleep")
                    [*orphan] = [one for one in leftovers.find_orphans() if one.pid == process.pid]
                    assert bool(orphan) == (is_ours and said == b"overwritten\n")
                    shutil.rmtree(folder)
                    assert leftovers.end_orphans(orphan) == [""] * len(orphan)
                    assert (process.poll() is None) != bool(orphan)
                finally:
                    process.kill()
                    folder.mkdir(exist_ok=True)


def in_container(*words: str) -> list[str]:
    """Return a command that runs in a PID namespace of its own; skips the test where that is not allowed."""
    own = ["unshare", "--pid", "--fork", "--kill-child", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
    if subprocess.run([*own, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may make no PID namespace")
    return [*own, *words]


def below(orphan: Orphan, outside: subprocess.Popen[bytes]) -> bool:
    """Return whether an orphan is the `sleep` with which the container that `outside` has started begins."""
    is_first = processes.parent_and_start(orphan.pid)[0] == outside.pid
    return bool(orphan.container) and is_first and orphan.command == "sleep 100"


def test_a_container_without_a_guard_is_found_by_any_of_the_variables_and_left_alone(start: Start) -> None:
    outside = start(*in_container("env", "-i", f"FLEETCTL_NAME={MARK['FLEETCTL_MODEL']}", "sleep", "100"))
    [orphan] = eventually(lambda: [one for one in leftovers.find_orphans() if below(one, outside)], "it is found")
    assert (orphan.model, orphan.replica_id, orphan.container) == ("", "", "unknown")
    leftovers.end_orphans([orphan])
    assert outside.poll() is None


def test_a_container_whose_client_is_guarded_is_no_orphan(start: Start) -> None:
    guard = subprocess.Popen([sys.executable, "-c", GUARD, "fleetctl-supervisor"], env={**os.environ, **MARK},
                             stdout=subprocess.PIPE)
    try:
        assert guard.stdout is not None
        client = int(guard.stdout.readline())
        same = start(*in_container("sleep", "100"))
        other = start(*in_container("sleep", "100"), FLEETCTL_PORT="1")
        [left] = eventually(lambda: [one for one in leftovers.find_orphans() if below(one, other)], "it is found")
        assert left.model == MARK["FLEETCTL_MODEL"]
        assert [one for one in leftovers.find_orphans() if below(one, same)] == []
    finally:
        os.kill(client, 9)
        guard.communicate()


def test_an_unmet_need_is_reported_with_the_place_searched(tmp_path: Path) -> None:
    (tmp_path / "vllm").write_text("#!/bin/sh\n")
    node = {"PATH": str(tmp_path), "HF_TOKEN": "x"}
    wanted = [Need("command", "vllm"), Need("command", "./relative"), Need("command", "sh", "/usr/bin:/bin"),
              Need("command", sys.executable), Need("variable", "HF_TOKEN"), Need("variable", "NONE"),
              Need("workdir", str(tmp_path)), Need("workdir", str(tmp_path / "none"))]
    unmet = {(one.value, one.code) for one in examine.unmet_needs(wanted, node)}
    assert unmet == {("vllm", "COMMAND_MISSING"), ("NONE", "VARIABLE_MISSING"),
                     (str(tmp_path / "none"), "WORKDIR_MISSING")}, "a file that is not executable is no command"
    (tmp_path / "vllm").chmod(0o755)
    assert examine.command("vllm", str(tmp_path)) is None
    assert examine.unmet_needs([Need("command", "vllm", "/opt/bin:$(PATH)")], node) == []
    [one] = examine.unmet_needs([Need("command", "no-such", "/opt/bin:$(PATH)")], node)
    assert (one.path, one.message) == ("/opt/bin:$(PATH)", f"no-such is not on its PATH (/opt/bin:{tmp_path})")


def test_a_port_may_be_used_by_a_foreign_process_or_an_engine_or_be_free(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = free_port()
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = examine.port(server.getsockname()[1])
        assert taken is not None
        assert (taken[0], f"(process {os.getpid()})" in taken[1]) == ("PORT_TAKEN", True)
    ours = start(sys.executable, "-c", "import socket, time; s = socket.create_server(('127.0.0.1', 0));"
                                       "print(s.getsockname()[1], flush=True); time.sleep(100)")
    assert ours.stdout is not None
    assert examine.port(int(ours.stdout.readline())) is None
    monkeypatch.setattr(examine, "outgoing_range", lambda: (number, number))
    assert (examine.port(number) or ("",))[0] == "PORT_IN_RANGE"
    monkeypatch.setattr(examine, "outgoing_range", lambda: (0, -1))
    assert examine.port(number) is None
    assert processes.parent_and_start(os.getpid())[0] == os.getppid()


def test_paths_on_one_disk_report_the_same_device(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    device = examine.disk(str(tmp_path)).device
    assert examine.disk(str(tmp_path / "below")).device == device
    assert examine.disk("/proc").device != device


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in /dev/shm that stands in for it: only there Linux says who has a file open."""
    with tempfile.TemporaryDirectory(prefix="fleetctl-test-", dir="/dev/shm") as folder:
        monkeypatch.setattr(examine, "NEW_S", 0.0)
        yield Path(folder)


def test_only_shared_memory_of_usual_libraries_that_nothing_has_open_is_left_behind(shared: Path) -> None:
    for name in ("psm_left", "psm_open", "psm_mapped", "sem.mp-left", "model-00001.safetensors"):
        (shared / name).write_bytes(b"x" * 4096)
    (shared / "psm_folder").mkdir()
    (shared / "psm_link").symlink_to(shared / "psm_left")
    with (shared / "psm_open").open("rb"), (shared / "psm_mapped").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
        file.close()
        found = examine.shared_memory(str(shared))
        mapped.close()
    assert [(segment.name, segment.size) for segment in found.left] == [("psm_left", 4096), ("sem.mp-left", 4096)]
    assert 0 < found.free <= found.total
    assert {segment.name for segment in examine.shared_memory(str(shared)).left} == {
        "psm_left", "sem.mp-left", "psm_open", "psm_mapped"}, "the others have been closed"


def test_shared_memory_that_was_just_made_may_be_on_its_way_to_another_process(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shared / "psm_new").touch()
    monkeypatch.setattr(examine, "NEW_S", 3600.0)
    assert examine.shared_memory(str(shared)).left == []
    assert examine.shared_memory("/no/such/folder") == examine.SharedMemory(0, 0, ())


def test_what_a_killed_engine_leaves_in_shared_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its processes are killed at once, the tracker that would remove the segment included."""
    monkeypatch.setattr(examine, "NEW_S", 0.0)
    command, engine = engine_like()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    engine.await_serving()
    state = engine.state()
    assert state["segment"] not in [segment.name for segment in examine.shared_memory().left]
    processes = [*supervisor.descendants(process.pid), process.pid]
    supervisor.signal_all(processes, signal.SIGSTOP)  # or the front may see its worker die, and clean up
    supervisor.signal_all(processes, signal.SIGKILL)
    process.wait(300)
    try:
        eventually(lambda: state["segment"] in [one.name for one in examine.shared_memory().left], "it is found")
    finally:
        Path("/dev/shm", state["segment"]).unlink()


def test_the_limits_of_an_engine_are_those_that_it_would_have_and_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0), Path("/proc/self/oom_score_adj").read_text()
    limits = examine.limits()
    assert (limits.nice, limits.oom_score_adj) == (0, 0)
    assert limits.open_files == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert (os.getpriority(os.PRIO_PROCESS, 0), Path("/proc/self/oom_score_adj").read_text()) == before
    monkeypatch.setattr(examine.resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert (examine.limits().open_files, examine.limits().locked_memory) == (None, None)
