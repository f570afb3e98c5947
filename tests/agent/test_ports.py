"""Ports that are kept for an engine, against real servers; and whose server answers, against real processes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.server
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.agent import holders, ports, sockets
from fleetctl.agent.ports import Ownership, host_port, probe_port, reserve_port, taken_by

LISTEN = """\
import socket, sys, time
server = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind((sys.argv[1], int(sys.argv[2])))
server.listen()
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


class Server:
    """A process that listens until it is closed."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.process = subprocess.Popen([sys.executable, "-I", "-S", "-c", LISTEN, host, str(port)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.pid = self.process.pid

    def close(self) -> None:
        self.process.communicate("")


Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with contextlib.ExitStack() as opened:
        def serving(host: str = "127.0.0.1", port: int = 0) -> Server:
            return opened.enter_context(contextlib.closing(Server(host, port)))

        yield serving


@pytest.fixture
def kept() -> Iterator[socket.socket]:
    with contextlib.closing(reserve_port()) as holder:
        yield holder


def port_of(holder: socket.socket) -> int:
    return int(holder.getsockname()[1])


def bind(port: int, host: str, *options: int) -> None:
    """Bind and listen as an engine does that sets these options, and be reached there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        for option in options:
            server.setsockopt(socket.SOL_SOCKET, option, 1)
        server.bind((host, port))
        server.listen()
        socket.create_connection((host, port), timeout=10).close()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
@pytest.mark.parametrize("options", [
    [socket.SO_REUSEADDR], [socket.SO_REUSEPORT], [socket.SO_REUSEADDR, socket.SO_REUSEPORT],
], ids=["address", "port", "both"])
def test_an_engine_that_lets_others_share_listens_on_the_port_that_is_kept_for_it(
    kept: socket.socket, host: str, options: list[int]
) -> None:
    bind(port_of(kept), host, *options)


def test_an_engine_that_lets_nobody_share_does_not_get_it_before_it_is_released(kept: socket.socket) -> None:
    port = port_of(kept)
    with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
        bind(port, "0.0.0.0")
    kept.close()
    bind(port, "0.0.0.0")


def test_pythons_own_servers_listen_on_a_kept_port(kept: socket.socket) -> None:
    port = port_of(kept)
    http.server.ThreadingHTTPServer(("", port), http.server.BaseHTTPRequestHandler).server_close()

    async def serve() -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
        server.close()
        await server.wait_closed()

    asyncio.run(serve())


def test_a_kept_port_is_given_to_nobody_else() -> None:
    """Not to who binds any port, whatever it shares, nor to who connects: 500 are kept, 5000 are asked for."""
    with contextlib.ExitStack() as opened:
        kept = {port_of(opened.enter_context(contextlib.closing(reserve_port()))) for _ in range(500)}
        assert len(kept) == 500, "nor to us again"
        given = set()
        for turn in range(3000):
            with socket.socket() as other:
                if turn % 3:
                    option = socket.SO_REUSEADDR if turn % 3 == 1 else socket.SO_REUSEPORT
                    other.setsockopt(socket.SOL_SOCKET, option, 1)
                other.bind(("", 0))
                given.add(port_of(other))
        server = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        for _ in range(2000):
            with socket.create_connection(server.getsockname(), timeout=10) as client:
                given.add(port_of(client))
                server.accept()[0].close()
        assert not given & kept


def test_nobody_answers_on_a_kept_port(kept: socket.socket) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(kept)), timeout=10)
    assert taken_by(port_of(kept), ["127.0.0.1"], 0) is None


def test_where_there_is_no_ipv6_a_port_is_kept_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(family: int, *rest: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return socket.SocketType(family, *rest)

    monkeypatch.setattr(ports.socket, "socket", none)
    with contextlib.closing(reserve_port()) as holder:
        assert (holder.family, port_of(holder) > 0) == (socket.AF_INET, True)


@pytest.mark.parametrize(("host", "address"), [
    ("10.0.0.7", "10.0.0.7:8000"), ("node-a", "node-a:8000"), ("fd00::7", "[fd00::7]:8000"),
])
def test_an_address_has_brackets_where_it_needs_them(host: str, address: str) -> None:
    assert host_port(host, 8000) == address


@pytest.mark.parametrize(("probe", "port"), [
    ({"http": {"path": "/", "port": 8000}}, 8000), ({"tcp": {"port": 9}}, 9), ({"http": {"path": "/"}}, None),
    ({"tcp": {}}, None), ({"exec": {"command": ["true"]}}, None), ({}, None),
])
def test_a_probe_may_name_a_port_of_its_own(probe: dict[str, dict[str, object]], port: int | None) -> None:
    assert probe_port(probe) == port


def test_who_has_taken_a_port_is_told_by_name_and_number(serve: Serve) -> None:
    server = serve()
    name = Path(f"/proc/{server.pid}/comm").read_text().strip()
    assert taken_by(server.port, ["127.0.0.1"], 0) == f"{name} (process {server.pid})"
    assert taken_by(server.port, ["127.0.0.2"], 0) is None, "nobody answers at that address"


def test_a_port_is_taken_too_where_proc_does_not_show_by_whom(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()
    monkeypatch.setattr(sockets, "listeners", lambda port: [])
    assert taken_by(server.port, ["127.0.0.1"], 0) == "a process that /proc does not show"


def test_a_port_that_is_just_being_given_up_is_waited_for(serve: Serve) -> None:
    server = serve()
    threading.Timer(0.3, server.close).start()
    assert taken_by(server.port, ["127.0.0.1"], 30) is None


class Tree:
    """The processes of an engine; counts how often it is looked through."""

    def __init__(self, *pids: int) -> None:
        self.pids = list(pids)
        self.looks = 0

    def __call__(self) -> list[int]:
        self.looks += 1
        return self.pids


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_answer_of_the_engines_own_counts_and_is_looked_into_once(serve: Serve, host: str) -> None:
    server = serve(host)
    tree = Tree(os.getpid(), server.pid)
    owner = Ownership(server.port, tree)
    assert [owner.objection(host) for _ in range(5)] == [None] * 5
    assert tree.looks == 1


def test_an_answer_of_another_process_does_not_count(serve: Serve) -> None:
    server = serve()
    found = Ownership(server.port, Tree(1)).objection("127.0.0.1") or ""
    assert found.startswith(f"port {server.port} is served by ")
    assert found.endswith(f" (process {server.pid}), which is not of this engine")


def test_a_port_that_an_engine_shares_with_another_is_not_its_own(serve: Serve) -> None:
    mine = serve()
    other = serve(port=mine.port)
    assert str(other.pid) in (Ownership(mine.port, Tree(mine.pid)).objection("127.0.0.1") or "")


def test_the_address_decides_who_answers(serve: Serve) -> None:
    """Who has bound the very address before who has bound all of them, and IPv4 is no IPv6."""
    everywhere = serve("0.0.0.0")
    here = serve("127.0.0.1", everywhere.port)
    owner = Ownership(here.port, Tree(here.pid))
    assert owner.objection("127.0.0.1") is None
    assert str(everywhere.pid) in (owner.objection("127.0.0.2") or "")
    six = serve("::1", everywhere.port)
    assert Ownership(here.port, Tree(six.pid)).objection("::1") is None


def test_an_engine_that_has_lost_its_port_is_found_out(serve: Serve) -> None:
    mine = serve()
    owner = Ownership(mine.port, Tree(mine.pid))
    assert owner.objection("127.0.0.1") is None
    mine.close()
    assert "no longer listens" in (owner.objection("127.0.0.1") or "")
    other = serve(port=mine.port)
    assert f"process {other.pid}" in (owner.objection("127.0.0.1") or "")


def test_where_proc_shows_no_listener_an_answer_counts_as_the_port_was_silent_before(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine in a container with a network of its own, say."""
    server = serve()
    monkeypatch.setattr(sockets, "listeners", lambda port: [])
    assert Ownership(server.port, Tree()).objection("127.0.0.1") is None


def test_where_proc_shows_no_holder_an_answer_counts_as_the_port_was_silent_before(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's process, or one in a container on this host: it may be the engine's."""
    server = serve()
    monkeypatch.setattr(holders, "neighbours", lambda: [os.getpid()])
    assert Ownership(server.port, Tree()).objection("127.0.0.1") is None


def test_the_ports_of_an_engine_are_those_that_are_reached_at_its_nodes_address(serve: Serve) -> None:
    inside, outside, other = serve("127.0.0.1"), serve("0.0.0.0"), serve("0.0.0.0")
    assert holders.ports_of([inside.pid, outside.pid], "127.0.0.2") == {outside.port}
    assert holders.ports_of([inside.pid, outside.pid], "127.0.0.1") == {inside.port, outside.port}
    assert other.port not in holders.ports_of([], "127.0.0.1")


def test_a_connection_with_oneself_is_nobodys_answer() -> None:
    """Linux may choose the very port that is asked for as the one it is asked from, and then the two are one."""
    with socket.socket() as lone:
        lone.bind(("127.0.0.1", 0))
        lone.connect(lone.getsockname())
        assert lone.getsockname() == lone.getpeername(), "it happens"

    class Alone(socket.socket):
        def getpeername(self) -> object:
            return self.getsockname()

    server = socket.create_server(("127.0.0.1", 0))
    with contextlib.closing(server), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports.socket, "create_connection", lambda address, timeout: _connected(Alone(), address))
        with pytest.raises(ConnectionRefusedError):
            ports.connect("127.0.0.1", port_of(server), 10)


def _connected(connection: socket.socket, address: tuple[str, int]) -> socket.socket:
    connection.connect(address)
    return connection


def test_a_foreign_process_is_searched_for_once(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()
    looks: list[int] = []
    monkeypatch.setattr(holders, "neighbours", lambda: looks.append(1) or [server.pid])
    owner = Ownership(server.port, Tree())
    assert owner.objection("127.0.0.1") == owner.objection("127.0.0.1") is not None
    assert len(looks) == 1
