"""Whatever the network does to a source costs it a fixed number of connections, and never the transfers it serves."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_pieces import SECRET
from weights_world import eventually, fetch, files_in, model, request, serving, status_and_body

from fleetctl.agent.weights import connections, serve
from fleetctl.agent.weights.connections import (
    MOST_ADMITTED,
    MOST_ANSWERED,
    MOST_CONNECTIONS,
    MOST_FROM_ONE,
    MOST_REQUEST_BYTES,
    Connection,
    Listener,
    Session,
)
from fleetctl.agent.weights.protocol import NONCE_PATH, connect, new_nonce
from fleetctl.agent.weights.sources import SourceFailed
from fleetctl.demo.lifecycle import free_port

SERVER_THREADS = {"fleetctl-weights", "fleetctl-send"}
Served = tuple[dict[str, Any], Path]


@pytest.fixture
def served(tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A source, as a plan names it, and the folder with the files that it serves. It lets strangers take their time."""
    monkeypatch.setattr(connections, "REQUEST_S", 3600.0)
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    with serving(tmp_path / "a", got) as (_, described):
        yield {**described, "artifact": artifact}, origin


@contextlib.contextmanager
def strangers(described: dict[str, Any], count: int, begun: bytes = b"", host: str = "127.0.0.1",
              ) -> Iterator[list[socket.socket]]:
    """Connections that send `begun` and then nothing, all open at the same time."""
    target = described["address"].rpartition(":")
    with contextlib.ExitStack() as opened:
        made = []
        for _ in range(count):
            one = opened.enter_context(socket.create_connection((target[0], int(target[2])), 30, (host, 0)))
            one.sendall(begun)
            made.append(one)
        yield made


def is_closed(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        while one.recv(1 << 16):
            pass
        return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def open_ones(made: list[socket.socket]) -> int:
    return sum(not is_closed(one) for one in made)


def server_threads() -> int:
    return sum(thread.name in SERVER_THREADS for thread in threading.enumerate())


def fetches(described: dict[str, Any], root: Path) -> bool:
    """Whether a new node gets all files from the source."""
    return fetch(root, described["artifact"], described).source == "peer"


def raw(described: dict[str, Any], data: bytes) -> bytes:
    """Send bytes, and return all that comes back until the source closes the connection."""
    with strangers(described, 1, data) as [one]:
        one.settimeout(30)
        with contextlib.suppress(ConnectionError):
            return b"".join(iter(lambda: one.recv(1 << 16), b""))
    return b""


@pytest.mark.parametrize("begun", [b"", b"G", f"GET {NONCE_PATH}{new_nonce()} HTTP/1.1\r\n\r\n".encode(),
                                   b"POST /v2/x HTTP/1.1\r\nContent-Length: 999\r\n\r\n"])
def test_strangers_cost_few_connections_and_no_thread_and_every_newcomer_gets_in(
    served: Served, tmp_path: Path, begun: bytes
) -> None:
    described, origin = served
    with strangers(described, 300, begun) as made:
        assert fetches(described, tmp_path / "b")
        eventually(lambda: open_ones(made) <= MOST_FROM_ONE)
        assert server_threads() <= 1 + MOST_ANSWERED
        assert fetches(described, tmp_path / "c")
    assert files_in(tmp_path / "c" / described["artifact"] / "files") == files_in(origin)


def test_strangers_from_many_addresses_close_only_the_oldest_of_them(served: Served, tmp_path: Path) -> None:
    described, _ = served
    with contextlib.ExitStack() as opened:
        made = [opened.enter_context(strangers(described, MOST_FROM_ONE, host=f"127.0.0.{number}"))
                for number in range(2, 10)]
        eventually(lambda: sum(map(open_ones, made)) <= MOST_CONNECTIONS)
        assert open_ones(made[0]) == 0
        assert open_ones(made[-1]) == MOST_FROM_ONE
        assert fetches(described, tmp_path / "b")


def test_one_address_cannot_close_the_connections_of_another(served: Served) -> None:
    described, _ = served
    with strangers(described, 5, host="127.0.0.2") as quiet, strangers(described, 300, host="127.0.0.3") as loud:
        eventually(lambda: open_ones(loud) <= MOST_FROM_ONE)
        assert open_ones(quiet) == 5


def test_strangers_never_close_a_connection_that_has_shown_a_valid_token(served: Served, tmp_path: Path) -> None:
    described, origin = served
    path = f"/v2/{described['artifact']}/files/config.json"
    connection, proof = connect(described["address"], SECRET, 30)
    with contextlib.closing(connection):
        for number in range(3):
            connection.request("GET", path, headers={"Authorization": f"Bearer {proof.token('GET', path)}"})
            assert connection.getresponse().read() == (origin / "config.json").read_bytes()
            with contextlib.ExitStack() as opened:
                made = [opened.enter_context(strangers(described, 40, host=f"127.0.0.{number + 2 + at}"))
                        for at in range(4)]
                eventually(lambda made=made: sum(map(open_ones, made)) <= MOST_CONNECTIONS)


def test_a_request_must_be_complete_in_time_however_it_drips(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    described, _ = served
    monkeypatch.setattr(connections, "REQUEST_S", 2.0)
    monkeypatch.setattr(connections, "POLL_S", 0.02)
    connection, proof = connect(described["address"], SECRET, 30)
    path = f"/v2/{described['artifact']}/files/config.json"
    with contextlib.closing(connection), strangers(described, 1) as [silent], strangers(described, 1) as [dripping]:
        connection.request("GET", path, headers={"Authorization": f"Bearer {proof.token('GET', path)}"})
        connection.getresponse().read()
        later = connection.sock  # a later request on the same connection has the same time
        later.sendall(b"G")

        def drip() -> bool:
            for one in (dripping, later):
                with contextlib.suppress(OSError):
                    one.send(b"G")
            return is_closed(silent) and is_closed(dripping) and is_closed(later)

        eventually(drip)


def test_an_idle_connection_with_a_token_is_closed_in_the_end(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    described, _ = served
    monkeypatch.setattr(connections, "LEASE_S", 0.1)
    monkeypatch.setattr(connections, "POLL_S", 0.02)
    connection, answer = request(described["address"], f"/v2/{described['artifact']}/files/config.json")
    with contextlib.closing(connection):
        answer.read()
        eventually(lambda: is_closed(connection.sock))


def test_connections_with_a_token_leave_room_for_newcomers(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described, _ = served
    path = f"/v2/{described['artifact']}/files/config.json"
    monkeypatch.setattr(connections, "MOST_ADMITTED", 3)
    with contextlib.ExitStack() as opened:
        for _ in range(3):
            connection, answer = request(described["address"], path)
            opened.callback(connection.close)
            assert answer.read() == b'{"layers": 2}'
        assert status_and_body(described["address"], path)[0] == 429
    eventually(lambda: status_and_body(described["address"], path)[0] == 200)
    assert MOST_ADMITTED + MOST_FROM_ONE <= MOST_CONNECTIONS


def test_a_reader_that_is_too_slow_loses_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = model(tmp_path / "large", rows=1 << 14)
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(tmp_path / "large")}])
    monkeypatch.setattr(connections, "SLICE_S", 0.2)
    with serving(tmp_path / "a", got) as (source, described):
        path = f"/v2/{artifact}/files/model-00001-of-00002.safetensors"
        connection, _ = request(described["address"], path)
        with contextlib.closing(connection):
            def read_one() -> bool:
                with contextlib.suppress(OSError):
                    connection.sock.recv(1)
                return not source.table._fetches

            eventually(read_one)


@pytest.mark.parametrize("data", [
    b"nonsense\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: 1_0\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    b"GET / HTTP/1.1\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", b"G" * (MOST_REQUEST_BYTES + 1),
    "POST / HTTP/1.1\r\nContent-Length: ²\r\n\r\n".encode("latin-1")])
def test_what_is_not_a_request_is_refused_and_the_connection_closed(served: Served, data: bytes) -> None:
    described, _ = served
    assert raw(described, data).partition(b"\r\n")[0] in {b"HTTP/1.1 400 Bad Request", b""}
    assert status_and_body(described["address"], f"/v2/{described['artifact']}/index")[0] == 200


def test_the_connection_is_closed_after_every_refusal(served: Served) -> None:
    described, _ = served
    folder = f"/v2/{described['artifact']}"
    for path, given, status in ((f"{folder}/files/none", {}, 404), ("/", {}, 404), (f"{folder}/index", {}, 200),
                                (f"{folder}/files/config.json", {"Range": "x"}, 416),
                                (f"{folder}/index", {"Authorization": "Bearer x"}, 401)):
        connection, answer = request(described["address"], path, **given)
        with contextlib.closing(connection):
            answer.read()
            assert (answer.status, answer.will_close) == (status, status != 200)
            if status != 200:
                eventually(lambda one=connection: one.sock is None or is_closed(one.sock))
    nonces = f"GET {NONCE_PATH}{new_nonce()} HTTP/1.1\r\n\r\n".encode() * 2
    assert raw(described, nonces).count(b"HTTP/1.1 200 OK") == 1, "a connection has one nonce"


def test_requests_sent_at_once_are_answered_in_order(served: Served) -> None:
    described, origin = served
    connection, proof = connect(described["address"], SECRET, 30)
    path = f"/v2/{described['artifact']}/files/config.json"
    lines = f"GET {path} HTTP/1.1\r\nAuthorization: Bearer {proof.token('GET', path)}\r\n\r\n".encode()
    with contextlib.closing(connection):
        connection.sock.sendall(lines * 3 + b"GET /none HTTP/1.1\r\n\r\n")
        got = b"".join(iter(lambda: connection.sock.recv(1 << 16), b""))
        assert got.count((origin / "config.json").read_bytes()) == 3
        assert b"401" in got.rpartition(b"HTTP/1.1")[2]


def test_connections_that_are_reset_at_any_moment_do_not_end_serving(served: Served, tmp_path: Path) -> None:
    described, _ = served
    nonce = f"GET {NONCE_PATH}{new_nonce()} HTTP/1.1\r\n\r\n".encode()
    for begun in (b"", b"G", nonce, nonce + b"GET / HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n") * 20:
        with strangers(described, 2, begun) as made:
            for one in made:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close = reset
    assert fetches(described, tmp_path / "b")


def test_an_error_in_one_connection_ends_only_that_connection(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described, _ = served

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    for place in ("accept", "__init__"):
        with monkeypatch.context() as patched:
            patched.setattr(serve.Handler, place, broken)
            with pytest.raises(SourceFailed, match="no response"):
                connect(described["address"], SECRET, 30)
    assert fetches(described, tmp_path / "b")


def test_a_receiver_whose_new_connection_is_closed_among_those_of_strangers_tries_again(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described, _ = served
    accept, closed = serve.Handler.accept, list[str]()

    def closes(self: serve.Handler, asked: connections.Request) -> connections.ShortAnswer | None:
        if len(closed) < 2:
            closed.append(asked.path)
            raise ConnectionError
        return accept(self, asked)

    monkeypatch.setattr(serve.Handler, "accept", closes)
    assert fetches(described, tmp_path / "b")
    assert len(closed) == 2


def test_a_process_without_a_free_file_accepts_nothing_and_frees_what_strangers_hold(served: Served) -> None:
    described, _ = served
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = described["address"].rpartition(":")
    nonce = f"GET {NONCE_PATH}{new_nonce()} HTTP/1.1\r\n\r\n".encode()
    with strangers(described, 8, nonce) as made, contextlib.ExitStack() as opened:
        assert all(one.recv(1 << 16) for one in made), "each is accepted"
        later = [opened.enter_context(socket.socket()) for _ in range(20)]
        used = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
        while (filled := os.dup(later[0].fileno())) < used:  # numbers that are free in between
            opened.callback(os.close, filled)
        os.close(filled)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (used, before[1]))
            for one in later:
                one.connect((target[0], int(target[2])))
            eventually(lambda: open_ones(made) == 0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert status_and_body(described["address"], f"/v2/{described['artifact']}/index")[0] == 200


def test_a_source_without_a_free_thread_serves_again_later(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described, _ = served
    start = threading.Thread.start

    def none_left(self: threading.Thread) -> None:
        if self.name == "fleetctl-send":
            raise RuntimeError("can't start new thread")
        start(self)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            request(described["address"], f"/v2/{described['artifact']}/index")
    assert fetches(described, tmp_path / "b")


@pytest.mark.parametrize("missing", ["fleetctl-weights", "fleetctl-sweep", "fleetctl-report"])
def test_a_source_whose_threads_cannot_start_frees_its_port(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    source = serve.Source(str(tmp_path / "a"), fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}]), SECRET)
    port = free_port()
    start = threading.Thread.start

    def none_left(self: threading.Thread) -> None:
        if self.name == missing:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", none_left)
    server, place = serve.serve_weights(source, "127.0.0.1", f"{port}-{port}")
    assert (server, place.port) == (None, None)
    assert "can't start new thread" in str(place.unserved)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 30)


class Silent(Session):
    """Accepts nothing."""


def test_a_port_of_the_range_is_used_and_a_full_range_is_an_error() -> None:
    def begin(_: Connection) -> Session:
        return Silent()

    with contextlib.ExitStack() as opened:
        taken = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        ports = [taken.getsockname()[1], free_port()]
        first = Listener("127.0.0.1", ports, begin)
        opened.callback(first.stop)
        assert first.address == ("127.0.0.1", ports[1])
        with pytest.raises(OSError, match="in use"):
            Listener("127.0.0.1", ports, begin)


def test_a_port_is_free_again_although_connections_of_a_former_process_are_still_ending(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    with serving(tmp_path / "a", got) as (_, described):
        connection, answer = request(described["address"], f"/v2/{artifact}/index")
        answer.read()
    with contextlib.closing(connection):  # closed by the source first, so its end waits
        port = int(described["address"].rpartition(":")[2])
        again = Listener("127.0.0.1", [port], lambda _: Silent())
        again.stop()
