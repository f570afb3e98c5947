"""The doctor's findings on a node: unmet needs of engines, and engines without their replica."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from marked_processes import eventually

from fleetctl.agent import examine, orphans, ports, processes
from fleetctl.agent.mark import MARKED
from fleetctl.agent.messages import Need, Orphan

pytestmark = pytest.mark.slow
MARK = {**dict.fromkeys(MARKED, "0"), "FLEETCTL_MODEL": f"org/of-{os.getpid()}"}
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process with the mark of an engine, and end it after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def starting(*words: str, **more: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(words, env={"PATH": os.environ["PATH"], **MARK, **more}, stdout=subprocess.PIPE)
        started.append(process)
        while not Path(f"/proc/{process.pid}/environ").read_bytes():  # for a moment a new process has no environment
            time.sleep(0.01)
        return process

    yield starting
    for process in started:
        process.kill()
        process.communicate()


def found() -> list[int]:
    return [one.pid for one in orphans.find_orphans() if one.model == MARK["FLEETCTL_MODEL"]]


def test_a_marked_process_without_a_guard_is_an_orphan_and_only_an_orphan_is_ended(start: Start) -> None:
    process, other = start("sleep", "100"), start("sleep", "100", FLEETCTL_MODEL="another")
    [orphan] = [one for one in orphans.find_orphans() if one.pid == process.pid]
    assert (orphan.command, orphan.replica_id) == ("sleep 100", "0")
    assert orphans.end_orphans([orphan._replace(began=orphan.began + 1)]) == [""], "this process has ended"
    assert process.poll() is None, "another process than the confirmed one"
    assert orphans.end_orphans([orphan]) == [""]
    assert process.wait(10) == -15
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


def test_a_process_that_lacks_one_of_the_variables_is_not_of_fleetctl(start: Start) -> None:
    process = subprocess.Popen(["sleep", "100"], env={name: value for name, value in MARK.items()
                                                      if name != "FLEETCTL_RANK"})
    try:
        assert process.pid not in found()
    finally:
        process.kill()
        process.wait()


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
    [orphan] = eventually(lambda: [one for one in orphans.find_orphans() if below(one, outside)], "it is found")
    assert (orphan.model, orphan.replica_id, orphan.container) == ("", "", "unknown")
    orphans.end_orphans([orphan])
    assert outside.poll() is None


def test_a_container_whose_client_is_guarded_is_no_orphan(start: Start) -> None:
    guard = subprocess.Popen([sys.executable, "-c", GUARD, "fleetctl-supervisor"], env={**os.environ, **MARK},
                             stdout=subprocess.PIPE)
    try:
        assert guard.stdout is not None
        client = int(guard.stdout.readline())
        same = start(*in_container("sleep", "100"))
        other = start(*in_container("sleep", "100"), FLEETCTL_PORT="1")
        [left] = eventually(lambda: [one for one in orphans.find_orphans() if below(one, other)], "it is found")
        assert left.model == MARK["FLEETCTL_MODEL"]
        assert [one for one in orphans.find_orphans() if below(one, same)] == []
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
    with ports.reserve_port() as free:
        number = free.getsockname()[1]
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
