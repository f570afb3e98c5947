"""A busy source suggests the replicas that got the weights from it; a receiver tries them without trusting them."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_pieces import SECRET
from weights_world import SHARD, eventually, fetch, files_in, has_sent, serving, status_and_body

from fleetctl.agent.messages import WeightSource
from fleetctl.agent.weights.fetch import MOST_OTHERS
from fleetctl.agent.weights.protocol import (
    MOST_NAMED,
    MOST_NAMED_BYTES,
    NONCE_PATH,
    SIGNATURE_HEADER,
    decoded,
    encoded,
    new_nonce,
    others_path,
    proof_of_source,
    report_copy,
)
from fleetctl.agent.weights.serve import KEPT_S, MOST_KNOWN, Others, Source
from fleetctl.agent.weights.table import MOST_FETCHES
from fleetctl.agent.wire import document_of, parse

FILES = {"files": "model-00001-*"}
VIEW = "a" * 16


def other(number: int, view: str | None = None, whole: bool = True) -> WeightSource:
    return WeightSource(f"m/{number}", f"10.0.0.1:{number}", view, whole)


ROW = document_of(other(1))


def keep_busy(source: Source) -> None:
    """Take all places of a source after earlier fetches have ended."""
    eventually(lambda: not source.table._fetches)
    for number in range(MOST_FETCHES):
        source.table.begin(None, f"another-{number}")


def test_the_latest_receivers_are_suggested_in_turn_a_few_at_a_time_and_for_a_limited_time() -> None:
    now = [0.0]
    others = Others(lambda: now[0])
    for number in range(MOST_KNOWN + 9):
        others.add(other(number))
    first = others.some(None)
    assert first == [other(MOST_KNOWN + 8 - at) for at in range(MOST_NAMED)]
    named = {one.address for _ in range(MOST_KNOWN) for one in others.some(None)}
    assert named == {other(number).address for number in range(9, MOST_KNOWN + 9)}
    now[0] = KEPT_S
    others.add(other(1))
    assert others.some(None) == [other(1)]


def test_only_sources_of_the_wanted_view_are_suggested() -> None:
    others = Others(lambda: 0.0)
    assert others.some(None) == []
    for number, (view, whole) in enumerate([(None, True), (VIEW, False), ("b" * 16, False), ("b" * 16, True)], 1):
        others.add(other(number, view, whole))
    assert {one.replica for one in others.some(None)} == {"m/1", "m/4"}
    assert {one.replica for one in others.some(VIEW)} == {"m/1", "m/2", "m/4"}


def test_the_most_suggestions_fit_into_a_message() -> None:
    longest = [WeightSource("m" * 200, "h" * 255 + ":65535", VIEW)] * MOST_NAMED
    assert len(encoded(longest)) < MOST_NAMED_BYTES
    assert decoded(encoded(longest)) == longest


@pytest.mark.parametrize("content", [
    {}, [None], [[]], [ROW] * (MOST_NAMED + 1), [{**ROW, "address": "host"}], [{**ROW, "address": 1}],
    [{**ROW, "address": "http://host:1"}], [{**ROW, "address": "me@host:1"}], [{**ROW, "view": "../x"}],
    [{**ROW, "view": 1}],
])
def test_a_malformed_list_of_sources_is_refused(content: object) -> None:
    with pytest.raises(ValueError, match=r"no|not"):
        decoded(json.dumps(content).encode())


def report(described: dict[str, Any], path: str, body: bytes, **more: Any) -> int:
    return status_and_body(described["address"], path, "POST", body, **more)[0]


def test_a_source_accepts_reports_only_with_the_secret(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    got, path, body = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}]), others_path(artifact), encoded(
        [other(1)])
    with serving(tmp_path / "a", got) as (source, described):
        assert report(described, path, body, secret=b"another") == 401
        assert report(described, path, body, Authorization="") == 401
        assert report(described, path, b" " * (MOST_NAMED_BYTES + 1)) == 400, "no more than one message is read"
        assert report(described, others_path("0" * 64), body) == 404
        assert report(described, path, b"[1]") == 400
        assert source.others.some(None) == []
        assert report(described, path, body) == 200
        assert source.others.some(None) == [other(1)]


def test_a_busy_source_suggests_a_replica_that_got_the_weights_from_it_and_that_replica_serves(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    whole = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    with serving(tmp_path / "a", whole) as (source, described):
        second = fetch(tmp_path / "b", artifact, described)
        assert source.others.some(None) == [], "a replica is suggested once it serves"
        with serving(tmp_path / "b", second) as (other_source, there):
            eventually(lambda: source.others.some(None))
            keep_busy(source)
            sent = source.sent
            third = fetch(tmp_path / "c", artifact, described, origins=[{"path": str(origin)}])
            assert (third.name, third.left) == (f"m/b at {there['address']}", [])
            assert has_sent(other_source, whole.held.size)
            assert source.sent == sent
            eventually(lambda: not other_source.table._fetches)
            with serving(tmp_path / "c", third) as (third_source, far):
                eventually(lambda: other_source.others.some(None))
                assert not [one for one in source.others.some(None) if one.address == far["address"]]
                keep_busy(other_source)
                fourth = fetch(tmp_path / "d", artifact, described, origins=[{"path": str(origin)}])
                assert fourth.name == f"m/c at {far['address']}", "a suggested source that is busy suggests this one"
                assert has_sent(third_source, whole.held.size)
    assert files_in(fourth.entry.folder) == files_in(origin)


@pytest.mark.parametrize("view", [SHARD, FILES])
def test_a_replica_with_the_same_view_is_suggested_for_it(
    tmp_path: Path, origin: Path, artifact: str, view: dict[str, Any]
) -> None:
    whole = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    with serving(tmp_path / "a", whole) as (source, described):
        for rank in range(2):
            source.others.add(other(rank, VIEW, whole=False))
        second = fetch(tmp_path / "b", artifact, described, view=view, rank=1)
        with serving(tmp_path / "b", second) as (_, there):
            eventually(lambda: there["address"] in str(source.others.some(second.entry.view)))
            keep_busy(source)
            third = fetch(tmp_path / "c", artifact, described, view=view, rank=1)
    assert (third.name, third.size, third.left) == (f"m/b at {there['address']}", second.held.size, [])
    assert files_in(third.entry.folder) == files_in(second.entry.folder)


def test_suggested_sources_that_are_gone_or_wrong_are_reported_and_not_used(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    whole = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    liar = fetch(tmp_path / "liar", artifact, origins=[{"path": str(origin)}])
    good = fetch(tmp_path / "good", artifact, origins=[{"path": str(origin)}])
    for path in Path(liar.entry.folder).rglob("*.safetensors"):
        path.chmod(0o644)
        path.write_bytes(bytes(path.stat().st_size))
    with (serving(tmp_path / "a", whole) as (source, described), serving(tmp_path / "liar", liar) as (lying, lies),
          serving(tmp_path / "good", good) as (_, honest)):
        lying.verified.add(liar.entry, liar.held.files)
        gone = other(1)._replace(address="127.0.0.1:1")
        for one in (parse(WeightSource, honest), parse(WeightSource, lies), gone):
            report_copy([described["address"]], artifact, SECRET, one)
        keep_busy(source)
        got = fetch(tmp_path / "b", artifact, described)
    assert files_in(got.entry.folder) == files_in(origin)
    assert got.name == f"m/good at {honest['address']}"
    assert [name for name, _ in got.left] == ["m/1 at 127.0.0.1:1", f"m/liar at {lies['address']}"]
    assert "piece 0 does not match" in got.left[1][1]


def test_only_a_few_bad_suggestions_are_tried(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    whole = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    now = iter(range(10_000))
    with serving(tmp_path / "a", whole) as (source, described):
        for number in range(1, 50):
            source.others.add(other(number)._replace(address=f"127.0.0.1:{number}"))
        keep_busy(source)
        got = fetch(tmp_path / "b", artifact, described, origins=[{"path": str(origin)}], time_s=100,
                    clock=lambda: float(next(now)))
    assert got.source == "origin"
    assert MOST_OTHERS <= len(got.left) < 2 * MOST_OTHERS


@pytest.mark.parametrize("time_s", range(50, 54))
def test_an_origin_is_used_whenever_the_wait_for_a_busy_source_ends(
    tmp_path: Path, origin: Path, artifact: str, time_s: int
) -> None:
    """The clock moves with every reading, so that each of these waits ends within one step of a round."""
    whole = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    now = iter(range(10_000))
    with serving(tmp_path / "a", whole) as (source, described):
        keep_busy(source)
        got = fetch(tmp_path / "b", artifact, described, origins=[{"path": str(origin)}], time_s=time_s * 2,
                    clock=lambda: float(next(now)))
    assert got.source == "origin"


@pytest.fixture
def answering() -> Iterator[Callable[[int, bytes, bytes | None], str]]:
    """Start servers that always give the same answer, signed with a secret or unsigned."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(status: int, body: bytes, secret: bytes | None) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path.startswith(NONCE_PATH):
                    nonces = self.path[len(NONCE_PATH):], new_nonce()
                    self.proof = proof_of_source(secret or b"", nonces, self.connection)
                    return self.answer(200, nonces[1].encode(), {})
                signed = {SIGNATURE_HEADER: self.proof.signature(self.path, body)} if secret is not None else {}
                return self.answer(status, body, signed)

            def answer(self, code: int, text: bytes, headers: dict[str, str]) -> None:
                self.send_response(code)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                return

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return f"127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("secret", [None, b"another", SECRET])
def test_a_source_suggested_without_the_secret_is_not_contacted(
    tmp_path: Path, origin: Path, artifact: str, answering: Callable[[int, bytes, bytes | None], str],
    secret: bytes | None,
) -> None:
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    now = iter(range(10_000))
    with serving(tmp_path / "a", got) as (source, described):
        address = answering(429, encoded([parse(WeightSource, described)]), secret)
        fetched = fetch(tmp_path / "b", artifact, {"replica": "m/1", "address": address, "view": None},
                        origins=[{"path": str(origin)}], time_s=100, clock=lambda: float(next(now)))
        assert (fetched.source, source.sent > 0) == (("peer", True) if secret == SECRET else ("origin", False))
