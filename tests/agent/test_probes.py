"""Probes against real servers and real commands: healthy, or a short reason."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

import pytest
from dripping_server import dripping
from marked_processes import eventually

from fleetctl.agent.messages import ExecProbe, PortProbe, Probe
from fleetctl.agent.ports import Ownership, PortTaken, Tree, reserve_port
from fleetctl.agent.probes import CHECKS, build_check, exec_check, first_answer, http_check, pauses, tcp_check
from fleetctl.agent.supervisor import PR_SET_CHILD_SUBREAPER, prctl
from fleetctl.agent.wire import parse
from fleetctl.documents import engine as documents

ENV = {"PATH": "/usr/bin:/bin", "MODE": "fast"}


own_tree = Tree(os.getppid())
"""The engine's processes, if the test itself is the engine."""


def read_close(connection: socket.socket) -> bytes:
    """Return how the peer closed the connection: b'' = normally, b'reset' = with unread data."""
    try:
        return connection.recv(1)
    except ConnectionResetError:
        return b"reset"


@pytest.fixture
def tcp_server() -> Iterator[tuple[int, dict[str, bytes]]]:
    """A server that replies with `exchange["answer"]` and stores the request; it stays silent if the answer is b""."""
    exchange: dict[str, bytes] = {"answer": b"", "received": b""}
    server = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def answer() -> None:
        while not over.is_set():
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(10)
                exchange["received"] = connection.recv(4096)
                if exchange["answer"]:
                    connection.sendall(exchange["answer"])
                    exchange["closed"] = read_close(connection)
                elif exchange["received"]:
                    over.wait(30)

    thread = threading.Thread(target=answer)
    thread.start()
    yield server.getsockname()[1], exchange
    over.set()
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A bound port without a listener."""
    holder = reserve_port()
    yield holder.getsockname()[1]
    holder.close()


@pytest.mark.parametrize("status", [200, 204, 301, 399])
def test_http_200_to_399_is_healthy(tcp_server: tuple[int, dict[str, bytes]], status: int) -> None:
    port, exchange = tcp_server
    exchange["answer"] = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:1/\r\n\r\n" % status
    assert http_check("127.0.0.1", port, "/health?deep=1", 10) is None
    assert exchange["received"].startswith(b"GET /health?deep=1 HTTP/1.1\r\n")


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_any_other_status_is_unhealthy_and_reported(tcp_server: tuple[int, dict[str, bytes]], status: int) -> None:
    port, exchange = tcp_server
    exchange["answer"] = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status
    assert http_check("127.0.0.1", port, "/health", 10) == f"GET /health on port {port}: HTTP {status}"


@pytest.mark.parametrize("status", [200, 503])
def test_the_whole_answer_is_read_so_that_no_server_logs_a_reset(
    tcp_server: tuple[int, dict[str, bytes]], status: int
) -> None:
    port, exchange = tcp_server
    exchange["answer"] = b"HTTP/1.1 %d X\r\nContent-Length: 16\r\n\r\nloading weights\n" % status
    http_check("127.0.0.1", port, "/health", 10)
    eventually(lambda: "closed" in exchange, "the connection is closed")
    assert exchange["closed"] == b""
    assert b"\r\nConnection: close\r\n" in exchange["received"]


def test_a_port_without_a_listener_is_reported(closed_port: int) -> None:
    assert http_check("127.0.0.1", closed_port, "/", 10) == f"GET / on port {closed_port}: ConnectionRefusedError"
    assert tcp_check("127.0.0.1", closed_port, 10) == f"connect to port {closed_port}: ConnectionRefusedError"


def test_a_silent_server_is_unhealthy(tcp_server: tuple[int, dict[str, bytes]]) -> None:
    port, _ = tcp_server
    assert http_check("127.0.0.1", port, "/", 0.05) == f"GET / on port {port}: TimeoutError"


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 X\r\nX: ", b"HTTP/1.1 200 X\r\nContent-Length: 9999\r\n\r\n"])
def test_an_answer_that_arrives_byte_by_byte_has_the_same_time_limit(head: bytes) -> None:
    with dripping(head) as (port, over):
        assert http_check("127.0.0.1", port, "/", 0.3) == f"GET / on port {port}: TimeoutError"
        assert not over.is_set()


def test_an_answer_that_is_not_http_is_not_healthy(tcp_server: tuple[int, dict[str, bytes]]) -> None:
    port, exchange = tcp_server
    exchange["answer"] = b"SSH-2.0-OpenSSH\r\n"
    assert http_check("127.0.0.1", port, "/", 10) == f"GET / on port {port}: BadStatusLine"


@pytest.mark.parametrize("path", ["/a b", "/h\u00e4lth", "/\r\nX: 1"])
def test_a_path_that_http_cannot_carry_is_reported(tcp_server: tuple[int, dict[str, bytes]], path: str) -> None:
    port, _ = tcp_server
    assert http_check("127.0.0.1", port, path, 10) is not None


def test_tcp_is_healthy_when_it_connects(tcp_server: tuple[int, dict[str, bytes]]) -> None:
    assert tcp_check("127.0.0.1", tcp_server[0], 10) is None


@pytest.mark.parametrize(("argv", "seen"), [
    (["true"], None),
    (["sh", "-c", "test $MODE = fast"], None),
    (["sh", "-c", "exit 3"], "sh: exit code 3"),
    (["no-such-command"], "no-such-command: No such file or directory"),
])
def test_exec_is_healthy_when_the_command_exits_0(argv: list[str], seen: str | None, tmp_path: Path) -> None:
    assert exec_check(argv, ENV, str(tmp_path), 10) == seen


def test_exec_runs_in_the_engines_folder_and_has_a_time_limit(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    assert exec_check(["test", "-e", "here"], ENV, str(tmp_path), 10) is None
    assert exec_check(["sleep", "1000"], ENV, str(tmp_path), 0.05) == "sleep: no answer in 0.05 s"


def test_exec_output_is_discarded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert exec_check(["sh", "-c", "echo noise; echo noise >&2"], ENV, str(tmp_path), 10) is None
    assert capfd.readouterr() == ("", "")


def test_a_probe_uses_the_members_own_port_unless_it_names_one(
    tcp_server: tuple[int, dict[str, bytes]], closed_port: int, tmp_path: Path
) -> None:
    port, exchange = tcp_server
    exchange["answer"] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    def check(probe: Probe, own: int) -> str | None:
        return build_check(probe, ["127.0.0.1"], own, own_tree, ENV, str(tmp_path))()

    assert check(Probe(http=PortProbe(path="/")), port) is None
    assert check(Probe(http=PortProbe(path="/", port=port)), closed_port) is None
    assert check(Probe(tcp=PortProbe()), port) is None
    assert check(Probe(tcp=PortProbe(port=port)), closed_port) is None
    assert check(Probe(tcp=PortProbe()), closed_port) is not None


def test_an_exec_probe_is_expanded_once_when_it_is_built(tmp_path: Path) -> None:
    env = {**ENV, "X": "true"}
    probe = Probe(exec_=ExecProbe(("$(X)",)), timeout=10.0)
    check = build_check(probe, ["127.0.0.1"], 1, own_tree, env, str(tmp_path))
    env["X"] = "false"
    assert (check(), check()) == (None, None)


def test_an_engine_that_listens_only_on_the_nodes_address_is_found_there() -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        port = server.getsockname()[1]
        probe = Probe(tcp=PortProbe(port=port))
        seen = build_check(probe, ["127.0.0.1"], 1, own_tree, ENV, "/")()
        assert seen == f"connect to port {port}: ConnectionRefusedError"
        assert build_check(probe, ["127.0.0.1", "127.0.0.2"], 1, own_tree, ENV, "/")() is None


def test_an_answer_from_another_process_is_reported_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check = build_check(Probe(tcp=PortProbe(port=port)), ["127.0.0.1"], 1, Tree(1 << 30), ENV, "/")
        with pytest.raises(PortTaken, match=f"process {os.getpid()}"):
            check()


def test_an_unhealthy_answer_must_be_the_engines_too(tcp_server: tuple[int, dict[str, bytes]]) -> None:
    port, exchange = tcp_server
    exchange["answer"] = b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n"
    probe = Probe(http=PortProbe(port=port))
    assert "HTTP 503" in (build_check(probe, ["127.0.0.1"], 1, own_tree, ENV, "/")() or "")
    with pytest.raises(PortTaken):
        build_check(probe, ["127.0.0.1"], 1, Tree(1 << 30), ENV, "/")()


def test_the_first_address_that_responds_decides() -> None:
    """An engine that listens on all addresses is probed once, so its log does not have three lines per probe."""
    seen = {"a": "on port 1: ConnectionRefusedError", "b": "on port 1: OSError", "c": "on port 1: HTTP 503"}
    owner = Ownership(1, own_tree)
    assert first_answer("abcd", seen.__getitem__, owner) == "on port 1: HTTP 503"
    assert first_answer("ab", seen.__getitem__, owner) == "on port 1: ConnectionRefusedError"


@pytest.mark.parametrize("period_s", [0.02, 0.1, 1.0, 10.0])
def test_readiness_is_detected_within_a_quarter_of_the_start_or_one_period(period_s: float) -> None:
    waited, found = 0.0, list(itertools.islice(pauses(period_s), 40))
    for pause_s in found:
        assert pause_s <= min(period_s, 0.051 + waited / 4)
        waited += pause_s
    assert found == sorted(found)
    assert found[-1] == period_s


def test_an_exec_probe_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $! > {pids}; wait"
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # as an actor is: the child becomes its own when the shell has gone
    try:
        assert exec_check(["sh", "-c", script], ENV, "/", 4.0) == "sh: no answer in 4 s"
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0)
    assert not (Path("/proc") / pids.read_text().strip()).exists()


@pytest.mark.parametrize("kind", documents.Probe.KINDS)
def test_each_kind_of_the_fleet_file_has_a_check_and_asks_a_port_if_it_may_name_one(kind: str) -> None:
    [written] = [one for one in get_args(documents.Probe.model_fields[kind].annotation) if one is not type(None)]
    values = {name: ("true",) if get_origin(field.annotation) is list else "/x"
              for name, field in written.model_fields.items() if field.is_required()}
    probe = parse(Probe, {kind: values, "period": 1, "timeout": 5})
    assert probe.kind in CHECKS
    assert probe.port_or(7000) == (7000 if "port" in written.model_fields else None)
