"""A token is good for one request on one connection between two addresses; so is the signature of an answer."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_pieces import SECRET
from weights_world import SHARD, fetch, files_in, serving

from fleetctl.agent.weights.index import WeightsError
from fleetctl.agent.weights.protocol import NONCE_PATH, SIGNATURE_HEADER, Proof, connect, host_of, is_nonce, new_nonce

RECEIVER, SOURCE = ("10.0.0.2", 40_000), ("10.0.0.1", 7_000)
NONCES = ("a" * 32, "b" * 32)


def proof(secret: bytes = SECRET, nonces: tuple[str, str] = NONCES, receiver: tuple[str, int] = RECEIVER,
          source: tuple[str, int] = SOURCE) -> Proof:
    return Proof(secret, nonces, receiver, source)


def test_a_token_covers_nonces_addresses_method_path_and_body() -> None:
    token = f"Bearer {proof().token('GET', '/a')}"
    assert proof().admits(token, "GET", "/a")
    for other in (proof(b"another"), proof(nonces=("c" * 32, NONCES[1])), proof(nonces=(NONCES[0], "c" * 32)),
                  proof(receiver=("10.0.0.3", 40_000)), proof(receiver=("10.0.0.2", 40_001)),
                  proof(source=("10.0.0.9", 7_000)), proof(source=("10.0.0.1", 7_001)),
                  proof(receiver=SOURCE, source=RECEIVER), proof(nonces=(NONCES[1], NONCES[0]))):
        assert not other.admits(token, "GET", "/a")
    for method, path, body in (("GET", "/b", b""), ("POST", "/a", b""), ("GET", "/a", b"x")):
        assert not proof().admits(token, method, path, body)
    for given in (None, "", token[len("Bearer "):], token + "0", "Bearer ", "Bearer ä"):
        assert not proof().admits(given, "GET", "/a")


def test_the_signature_of_an_answer_is_no_token_and_covers_the_body() -> None:
    signed = proof().signature("/a", b"body")
    assert proof().is_signed(signed, "/a", b"body")
    for path, body in (("/a", b"other"), ("/b", b"body")):
        assert not proof().is_signed(signed, path, body)
    assert not proof(nonces=("c" * 32, NONCES[1])).is_signed(signed, "/a", b"body"), "an answer of another connection"
    assert not any(proof().admits(f"Bearer {signed}", method, "/a", b"body") for method in ("GET", "POST", "ANSWER"))
    assert not proof().is_signed(proof().token("POST", "/a", b"body"), "/a", b"body")


@pytest.mark.parametrize(("address", "host"), [
    (("10.0.0.1", 1), "10.0.0.1"), (("::ffff:10.0.0.1", 1, 0, 0), "10.0.0.1"), (("fe80::1%eth0", 1, 0, 2), "fe80::1"),
    (("2001:0DB8::0001", 1, 0, 0), "2001:db8::1")])
def test_both_ends_spell_an_address_alike(address: tuple[Any, ...], host: str) -> None:
    assert host_of(address) == host


def test_nonces_are_never_repeated() -> None:
    assert len({new_nonce() for _ in range(100)}) == 100
    assert is_nonce(new_nonce())
    assert not any(map(is_nonce, ("", "a" * 31, "A" * 32, "a" * 33, "a" * 32 + "\n")))


@pytest.fixture
def served(tmp_path: Path, origin: Path, artifact: str) -> Iterator[tuple[str, int, str]]:
    """Host and port of a source, and the path of a file that it serves."""
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    with serving(tmp_path / "a", got) as (_, described):
        host, _, port = described["address"].rpartition(":")
        yield host, int(port), f"/v2/{artifact}/files/config.json"


def status(connection: http.client.HTTPConnection, path: str, token: str) -> int:
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    return connection.getresponse().status


def test_a_token_that_was_seen_is_of_no_use_on_another_connection(served: tuple[str, int, str]) -> None:
    host, port, path = served
    first, seen = connect(f"{host}:{port}", SECRET, 30)
    second, _ = connect(f"{host}:{port}", SECRET, 30)
    with contextlib.closing(first), contextlib.closing(second):
        assert status(second, path, seen.token("GET", path)) == 401
        assert status(first, path, seen.token("GET", path)) == 200


class Relay:
    """A program that poses as a source: it passes a receiver's bytes on to a real one, and the answers back.

    `host` = the address from which it connects to the real source.
    """

    def __init__(self, target: tuple[str, int], host: str) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._target, self._host = target, host
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        receiver, _ = self._server.accept()
        source = socket.create_connection(self._target, 30, (self._host, 0))
        with receiver, source:
            back = threading.Thread(target=self._pass_on, args=(source, receiver), daemon=True)
            back.start()
            self._pass_on(receiver, source)
            back.join(30)

    def _pass_on(self, begin: socket.socket, end: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := begin.recv(1 << 16):
                end.sendall(data)
            end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._server.close()
        self._thread.join(30)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_a_program_between_receiver_and_source_gets_nothing_with_the_receivers_token(
    served: tuple[str, int, str], host: str
) -> None:
    """Also not on the receiver's own node, with the same address."""
    relay = Relay(served[:2], host)
    connection, own = connect(f"127.0.0.1:{relay.port}", SECRET, 30)
    with contextlib.closing(relay), contextlib.closing(connection):
        assert status(connection, served[2], own.token("GET", served[2])) == 401


@pytest.fixture
def other_version() -> Iterator[Callable[[Callable[[str], tuple[int, bytes]]], dict[str, Any]]]:
    """Start a source that answers each path as given; returns it as a plan names it."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(answer: Callable[[str], tuple[int, bytes]]) -> dict[str, Any]:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                code, body = answer(self.path)
                self.send_response(code)
                self.send_header(SIGNATURE_HEADER, "0" * 64)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return {"replica": "m/0", "address": f"127.0.0.1:{server.server_address[1]}", "view": None}

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_an_older_source_is_not_used_and_gets_no_token(
    tmp_path: Path, origin: Path, artifact: str, other_version: Callable[..., dict[str, Any]]
) -> None:
    asked: list[str] = []

    def older(path: str) -> tuple[int, bytes]:
        asked.append(path)
        return 401, b"no valid token"

    got = fetch(tmp_path / "a", artifact, other_version(older), origins=[{"path": str(origin)}])
    assert got.source == "origin"
    assert "older fleetctl" in got.left[0][1]
    assert all(path.startswith(NONCE_PATH) for path in asked)
    assert files_in(got.entry.folder) == files_in(origin)


def test_an_older_receiver_is_told_why_it_gets_nothing(served: tuple[str, int, str]) -> None:
    connection = http.client.HTTPConnection(*served[:2], timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", served[2].replace("/v2/", "/v1/"), headers={"Authorization": f"Bearer {'0' * 64}"})
        answer = connection.getresponse()
        assert (answer.status, b"older fleetctl" in answer.read()) == (401, True)


@pytest.mark.parametrize("body", [b"", b"0" * 31, b"0" * 64, b"\xff" * 32, b"x" * 100_000])
def test_what_does_not_answer_with_a_nonce_is_not_a_source(
    tmp_path: Path, origin: Path, artifact: str, other_version: Callable[..., dict[str, Any]], body: bytes
) -> None:
    got = fetch(tmp_path / "a", artifact, other_version(lambda _: (200, body)), origins=[{"path": str(origin)}])
    assert (got.source, "nonce" in got.left[0][1]) == ("origin", True)


def test_the_answers_of_a_real_source_cannot_be_replayed(
    tmp_path: Path, artifact: str, served: tuple[str, int, str], other_version: Callable[..., dict[str, Any]]
) -> None:
    """A liar that recorded a whole conversation, nonce included, repeats it to a later receiver."""
    address = f"{served[0]}:{served[1]}"
    connection, real = connect(address, SECRET, 30)
    with contextlib.closing(connection):
        connection.request("GET", f"/v2/{artifact}/index",
                           headers={"Authorization": f"Bearer {real.token('GET', f'/v2/{artifact}/index')}"})
        index = connection.getresponse().read()
    nonce = new_nonce()
    liar = other_version(lambda path: (200, nonce.encode() if path.startswith(NONCE_PATH) else index))
    with pytest.raises(WeightsError, match=re.escape("no source supplied all files")):
        fetch(tmp_path / "b", artifact, liar, view=SHARD, rank=1, lines=(lines := []))
    assert any("not signed by this cluster" in line for line in lines)
