"""Ports reserved for an engine, and fixed ports that another process uses, against real servers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.server
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Serve

from fleetctl.agent import ports
from fleetctl.agent.ports import host_port, reserve_port, taken_by


@pytest.fixture
def reserved() -> Iterator[socket.socket]:
    with contextlib.closing(reserve_port()) as holder:
        yield holder


def port_of(holder: socket.socket) -> int:
    return int(holder.getsockname()[1])


def bind(port: int, host: str, *options: int) -> None:
    """Bind and listen as an engine with these options does, and accept a connection."""
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
def test_an_engine_that_shares_ports_listens_on_its_reserved_port(
    reserved: socket.socket, host: str, options: list[int]
) -> None:
    bind(port_of(reserved), host, *options)


def test_an_engine_that_does_not_share_ports_can_listen_only_after_the_release(reserved: socket.socket) -> None:
    port = port_of(reserved)
    with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
        bind(port, "0.0.0.0")
    reserved.close()
    bind(port, "0.0.0.0")


def test_pythons_own_servers_listen_on_a_reserved_port(reserved: socket.socket) -> None:
    port = port_of(reserved)
    http.server.ThreadingHTTPServer(("", port), http.server.BaseHTTPRequestHandler).server_close()

    async def serve() -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
        server.close()
        await server.wait_closed()

    asyncio.run(serve())


def test_a_reserved_port_is_given_to_no_other_process() -> None:
    """Neither to a bind of port 0, with any sharing option, nor to a connection: 500 are reserved, 5000 requested."""
    with contextlib.ExitStack() as opened:
        reserved = {port_of(opened.enter_context(contextlib.closing(reserve_port()))) for _ in range(500)}
        assert len(reserved) == 500, "nor reserved again"
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
        assert not given & reserved


def test_nothing_responds_on_a_reserved_port(reserved: socket.socket) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(reserved)), timeout=10)
    assert taken_by(port_of(reserved), ["127.0.0.1"], 0) is None


def test_without_ipv6_a_port_is_reserved_too(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_an_ipv6_address_has_brackets(host: str, address: str) -> None:
    assert host_port(host, 8000) == address


def test_the_process_that_uses_a_port_is_reported_by_name_and_pid(serve: Serve) -> None:
    server = serve()
    name = Path(f"/proc/{server.pid}/comm").read_text().strip()
    assert taken_by(server.port, ["127.0.0.1"], 0) == f"{name} (process {server.pid})"
    assert taken_by(server.port, ["127.0.0.2"], 0) is None, "no process listens at that address"


def test_a_port_is_in_use_even_if_proc_does_not_show_the_process(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()
    monkeypatch.setattr(ports, "listeners", lambda port: [])
    assert taken_by(server.port, ["127.0.0.1"], 0) == "a process that /proc does not show"


def test_a_port_that_is_about_to_be_released_is_awaited(serve: Serve) -> None:
    server = serve()
    threading.Timer(0.3, server.close).start()
    assert taken_by(server.port, ["127.0.0.1"], 30) is None


def test_a_connection_to_itself_does_not_count_as_an_answer() -> None:
    """Linux may choose the destination port itself as the source port, and then the socket is connected to itself."""
    with socket.socket() as lone:
        lone.bind(("127.0.0.1", 0))
        lone.connect(lone.getsockname())
        assert lone.getsockname() == lone.getpeername(), "Linux does this"

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
