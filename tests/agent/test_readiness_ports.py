"""The ports of an engine: whose answer counts, which ports are in use, and on which port the engine is found."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_run import ENDS, Run, server
from marked_processes import children, eventually

from fleetctl.agent.engine import ADVICE
from fleetctl.demo import lifecycle


def test_an_engine_that_listens_only_on_ipv6_is_ready_and_found(run: Run) -> None:
    serves = ("import socket, sys\nserver = socket.create_server(('::1', int(sys.argv[1])), family=socket.AF_INET6)\n"
              "while True: server.accept()")
    run(sys.executable, "-I", "-S", "-c", serves, "$(FLEETCTL_PORT)", readiness={"tcp": {}}).read_report("ready")


@pytest.fixture
def other() -> Iterator[socket.socket]:
    """Another process's server: the test process listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def this_process() -> str:
    return f"{Path('/proc/self/comm').read_text().strip()} (process {os.getpid()})"


@pytest.mark.parametrize("kind", ["readiness", "liveness"])
def test_a_fixed_port_in_use_stops_the_start(run: Run, other: socket.socket, kind: str) -> None:
    """With two replicas on one node and one port, the second was reported ready because of the first one's answers."""
    port = other.getsockname()[1]
    actor = run("echo", "started", **{kind: {"tcp": {"port": port}}})
    assert actor.read_report("failed", "ready") == {
        "failed": "PORT_IN_USE",
        "message": f"port {port} of the {kind} probe is in use by {this_process()}, on node-a; {ADVICE}"}
    assert actor.written() == ""
    assert actor.fresh_folders() == []


def test_a_port_that_an_earlier_engine_is_about_to_release_is_awaited(run: Run, other: socket.socket) -> None:
    port = other.getsockname()[1]
    actor = run(*server(port=str(port)), readiness={"tcp": {"port": port}, "period": 0.05}, order={"patience": 60})
    actor.read_report("created")
    other.close()
    actor.read_report("ready")


def test_an_answer_from_another_server_does_not_make_an_engine_ready(run: Run, free_port: int) -> None:
    """The other server starts to listen after the engine started, as with two replicas that start at once."""
    actor = run("sh", "-c", "echo up; exec sleep 1000", readiness={"tcp": {"port": free_port}, "period": 0.05})
    eventually(lambda: "up" in actor.written(), "the engine is up")
    with socket.create_server(("127.0.0.1", free_port)):
        assert actor.read_report("failed", "ready") == {
            "failed": "PORT_IN_USE",
            "message": f"port {free_port} is served by {this_process()}, which does not belong to this engine,"
                       f" on node-a; {ADVICE}"}


@pytest.fixture
def free_port() -> int:
    return lifecycle.free_port()


def test_an_engine_whose_port_another_process_serves_is_not_alive(run: Run, free_port: int) -> None:
    serves = ("import os, socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1])));\n"
              "while not os.path.exists('close'): time.sleep(0.02)\n"
              "s.close(); print('closed', flush=True); time.sleep(1000)")
    probe = {"tcp": {"port": free_port}, "period": 0.05}
    actor = run(sys.executable, "-I", "-S", "-c", serves, str(free_port), readiness=probe,
                liveness={**probe, "failureThreshold": 3})
    assert (actor.read_report("ready") is not None, actor.read_report("serves")) == (True, free_port)
    [pid] = children(actor.process.pid)
    os.kill(pid, signal.SIGSTOP)  # it probes nothing while nobody serves
    (actor.temp / actor.fresh_folders()[0] / "close").touch()
    eventually(lambda: "closed" in actor.written(), "the engine has given up its port")
    with socket.create_server(("127.0.0.1", free_port)):
        os.kill(pid, signal.SIGCONT)
        down = actor.read_report("down")
    assert down.startswith("liveness failed 3 times in a row (port ")
    assert f"served by {this_process()}" in down


def test_an_engine_that_chooses_its_port_is_found_where_it_listens(run: Run, free_port: int) -> None:
    listens = f":{free_port:04X} 00000000:0000 0A"
    actor = run(*server(port=str(free_port)), readiness={"exec": {"command": ["grep", "-q", listens, "/proc/net/tcp"]}})
    actor.read_report("ready")
    assert actor.read_report("serves") == free_port


def test_an_engine_that_listens_nowhere_has_its_own_port(run: Run) -> None:
    actor = run("sleep", "1000")
    assert actor.read_report("created") == actor.read_report("serves")


@pytest.mark.parametrize("port", ["FLEETCTL_PORT", "FLEETCTL_LEADER_PORT"])
def test_an_engine_that_cannot_share_its_port_is_started_again_with_the_port_released(run: Run, port: str) -> None:
    listens = f'grep -q ":$(printf %04X "${port}") 00000000:0000 0A" /proc/net/tcp'
    actor = run(*server("0.0.0.0", f"$({port})", "--alone"), readiness={"exec": {"command": ["sh", "-c", listens]}})
    actor.read_report("ready")
    log = actor.log.read_text()
    assert log.count("fleetctl: starting main/0 rank 0 at ") == 2
    assert "fleetctl: the engine exited with code 1: without SO_REUSEADDR it cannot share its port with the" in log
    eventually(lambda: len(actor.fresh_folders()) == 1, "the folder of the first engine is removed once it has ended")


def test_a_rank_without_a_readiness_probe_is_started_again_too(run: Run) -> None:
    actor = run(*server("0.0.0.0", "$(FLEETCTL_PORT)", "--alone"), order={"probed": False})
    listens = f":{actor.read_report('created'):04X} 00000000:0000 0A"
    eventually(lambda: listens in Path("/proc/net/tcp").read_text(), "it listens")
    eventually(lambda: actor.written().count("loading") == 2, "both have written their line")


def test_an_engine_is_started_again_only_once(run: Run) -> None:
    actor = run("sh", "-c", "echo try; echo 'bind: Address already in use'; exit 7", order=ENDS)
    failed = actor.read_report("failed")
    assert failed["failed"] == "ENGINE_EXITED"
    assert failed["message"].endswith("last output: try\nbind: Address already in use")
    assert actor.written().count("try\n") == 2


def test_an_engine_that_ends_for_another_reason_is_not_started_again(run: Run) -> None:
    actor = run("sh", "-c", "echo try; exit 7", order=ENDS)
    actor.read_report("failed")
    assert actor.written() == "try\n"
