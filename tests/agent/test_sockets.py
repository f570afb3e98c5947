"""The listening sockets, from netlink and from /proc: both give the same result."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from marked_processes import MARK, end, eventually, marked

from fleetctl.agent import ports
from fleetctl.agent.ports import answering, listeners, packed


@pytest.fixture(params=["netlink", "proc"])
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both sources of sockets: /proc is read when netlink is not available."""
    if request.param == "proc":
        monkeypatch.setattr(ports, "SOCK_DIAG", 31)  # a protocol that netlink does not have
    else:
        monkeypatch.setattr(ports, "TABLES", dict.fromkeys(ports.TABLES, "/proc/no/such"))
    return str(request.param)


@contextlib.contextmanager
def listening(host: str, *, both: bool = False) -> Iterator[tuple[int, str]]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, dualstack_ipv6=both) as server:
        yield server.getsockname()[1], str(Path(f"/proc/self/fd/{server.fileno()}").readlink())


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"])
def test_a_listening_socket_is_found_with_its_address(source: str, host: str) -> None:
    with listening(host, both=host.startswith("::ffff")) as (port, link):
        found = ports.ListeningSocket(packed(host) or b"", port, link)
        on_port = listeners(port)
        assert [one for one in on_port if one.link == link] == [found]
        assert {one.port for one in on_port} == {port}  # another process may use the same port at another address
        assert found in listeners()


@pytest.mark.parametrize("source", ["netlink"], indirect=True)
def test_a_socket_that_does_not_listen_is_not_found(source: str) -> None:
    with listening("127.0.0.1") as (port, link), socket.create_connection(("127.0.0.1", port), timeout=10):
        assert [one.link for one in listeners(port) if one.address == packed("127.0.0.1")] == [link]


def test_without_netlink_and_proc_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "SOCK_DIAG", 31)
    monkeypatch.setattr(ports, "TABLES", dict.fromkeys(ports.TABLES, "/proc/no/such"))
    with listening("127.0.0.1") as (port, _):
        assert listeners(port) == []


@pytest.mark.parametrize(("bound", "asked", "answers"), [
    ("127.0.0.1", "127.0.0.1", True), ("127.0.0.1", "127.0.0.2", False), ("0.0.0.0", "127.0.0.2", True),
    ("0.0.0.0", "::1", False), ("::", "127.0.0.1", True), ("::", "::1", True), ("::1", "::1", True),
    ("::1", "127.0.0.1", False), ("::ffff:127.0.0.1", "127.0.0.1", True), ("0.0.0.0", "node-a", False),
])
def test_the_sockets_that_answer_at_an_address(bound: str, asked: str, answers: bool) -> None:
    with listening(bound, both=bound.startswith("::ffff") or bound == "::") as (port, _):
        assert bool(answering(port, asked)) is answers


def test_the_processes_below_another_are_found(mark: str) -> None:
    script = "sleep 1000 & setsid sleep 1000 & sh -c 'sleep 1000; true'"
    engine = subprocess.Popen(["sh", "-c", script], env={**os.environ, MARK: mark}, start_new_session=True)
    try:
        eventually(lambda: len(marked(mark)) == 5, "all of it is there")
        below = [pid for pid in marked(mark) if pid != engine.pid]
        tree = ports.Tree(engine.pid)
        assert sorted(tree.processes()) == below
        assert [tree.has(pid) for pid in (*below, engine.pid, os.getpid(), 1)] == [True] * 4 + [False] * 3
    finally:
        for pid in marked(mark):
            end(pid)
        engine.wait(300)
