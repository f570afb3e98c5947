"""The server of `watch --listen` goes on answering whatever connects to it, and only under names it is known by."""

from __future__ import annotations

import errno
import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from types import SimpleNamespace

import pytest

from fleetctl.cli import watch_server
from fleetctl.cli.watch_server import MAX_CONNECTIONS, MAX_FROM_ONE, MAX_REQUEST_BYTES, LimitedHandler, LimitedServer

BEGUN = [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\n"]


class Handler(LimitedHandler):
    def do_GET(self) -> None:  # noqa: N802  as http.server calls it
        known = self.server.knows(self.headers.get_all("Host", []))
        self.send_response(HTTPStatus.OK if known else HTTPStatus.MISDIRECTED_REQUEST)
        self.end_headers()
        self.wfile.write(b"page")

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def running(address: str = "127.0.0.1", *names: str) -> Iterator[LimitedServer]:
    with LimitedServer((address, 0), Handler, names) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LimitedServer]:
    monkeypatch.setattr(watch_server, "REQUEST_S", 3600.0)  # else strangers might be closed for having taken long
    with running() as found:
        yield found


def answer(server: LimitedServer, host: str | None = None, path: str = "/") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=300)
    connection.putrequest("GET", path, skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    with connection.getresponse() as response:
        return response.status, response.read()


@contextmanager
def strangers(server: LimitedServer, count: int, begun: bytes = b"", host: str = "127.0.0.1",
              ) -> Iterator[list[socket.socket]]:
    with ExitStack() as opened:
        made = []
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", server.server_port), 30, (host, 0))
            made.append(opened.enter_context(one))
            one.sendall(begun)
        yield made


def is_closed(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return not one.recv(1)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def open_ones(made: list[socket.socket]) -> int:
    return sum(not is_closed(one) for one in made)


@pytest.mark.parametrize("begun", BEGUN)
def test_strangers_take_few_connections_and_threads_and_a_newcomer_gets_its_page(
    server: LimitedServer, begun: bytes
) -> None:
    before = threading.active_count()
    with strangers(server, 300, begun) as made:
        assert answer(server) == (200, b"page")
        assert threading.active_count() <= before + MAX_CONNECTIONS
        eventually(lambda: open_ones(made) <= MAX_FROM_ONE)
        assert answer(server) == (200, b"page")


def test_strangers_of_many_addresses_close_the_oldest_of_them(
    server: LimitedServer
) -> None:
    with ExitStack() as opened:
        made = [opened.enter_context(strangers(server, MAX_FROM_ONE, host=f"127.0.0.{number}"))
                for number in range(2, 9)]
        eventually(lambda: sum(map(open_ones, made)) <= MAX_CONNECTIONS)
        assert (open_ones(made[0]), open_ones(made[-1])) == (0, MAX_FROM_ONE)
        assert answer(server) == (200, b"page")


def test_one_address_cannot_close_the_connections_of_another(
    server: LimitedServer
) -> None:
    with strangers(server, 5, host="127.0.0.2") as quiet, strangers(server, 200, host="127.0.0.3") as loud:
        eventually(lambda: open_ones(loud) <= MAX_FROM_ONE)
        assert open_ones(quiet) == 5


def test_a_request_must_be_complete_in_time_however_it_drips(
    server: LimitedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_server, "REQUEST_S", 0.3)
    with strangers(server, 2, b"GET / HTTP/1.1\r\n") as [silent, dripping]:
        def drip() -> bool:
            try:
                dripping.send(b"G")
            except OSError:
                return is_closed(silent)
            return False

        eventually(drip)


def test_a_request_of_any_length_takes_little_memory(
    server: LimitedServer
) -> None:
    with strangers(server, 1, b"GET / HTTP/1.1\r\n") as [one]:
        for _ in range(MAX_REQUEST_BYTES // 1024 + 1):
            try:
                one.sendall(b"A: " + b"b" * 1022 + b"\r\n")
            except ConnectionError:
                break
        eventually(lambda: is_closed(one))
    assert answer(server) == (200, b"page")


def test_connections_that_are_reset_at_any_moment_do_not_end_serving(server: LimitedServer) -> None:
    for begun in (*BEGUN, b"GET / HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n") * 20:
        with strangers(server, 2, begun) as made:
            for one in made:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close = reset
    assert answer(server) == (200, b"page")


def test_without_a_free_file_strangers_make_room_and_the_server_does_not_spin(
    server: LimitedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses, accept = list[float](), server.socket
    monkeypatch.setattr(watch_server, "time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))

    class Full:
        """A listening socket in a process without a free file, for the first three times."""

        def accept(self) -> object:
            if len(pauses) < 3:
                raise OSError(errno.EMFILE, "Too many open files")
            return accept.accept()

    with strangers(server, 3) as made:
        eventually(lambda: len(server._strangers) == 3)
        monkeypatch.setattr(server, "socket", Full())
        assert answer(server) == (200, b"page")
        assert pauses == [watch_server.PAUSE_S] * 3
        assert open_ones(made) == 0
    monkeypatch.setattr(server, "socket", accept)


def test_without_a_free_thread_a_connection_is_closed_and_the_next_one_served(
    server: LimitedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            answer(server)
    assert answer(server) == (200, b"page")


MACHINE = socket.gethostname()


@pytest.mark.parametrize("host", [
    "127.0.0.1", "127.0.0.1:9464", "10.0.0.7", "[::1]:9464", "[fe80::1]", "localhost", "LOCALHOST:80", "localhost.",
    MACHINE, f"{MACHINE}:9464", socket.getfqdn(), "fleet.example.org", "Fleet.Example.org.:443", None])
def test_addresses_names_of_the_machine_and_given_names_are_known(host: str | None) -> None:
    with running("127.0.0.1", "fleet.example.org") as server:
        assert answer(server, host)[0] == 200


@pytest.mark.parametrize("host", [
    "evil.example", "evil.example:9464", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.1@evil.example",
    "evil.example#127.0.0.1", "[::1].evil.example", "0x7f.1", "2130706433", "fleet.example.org.evil.example", "", " ",
    "[evil.example]", "evil.example:127.0.0.1", "local\thost"])
def test_any_other_name_is_refused_as_of_a_page_that_rebinds_its_name(server: LimitedServer, host: str) -> None:
    assert answer(server, host)[0] == 421


def test_two_hosts_are_refused(server: LimitedServer) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), 30) as one:
        one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert b" 421 " in one.recv(100)
