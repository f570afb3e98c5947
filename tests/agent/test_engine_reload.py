"""The request that makes an engine reload, and what its end or missing answer means."""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from dripping_server import dripping

from fleetctl.agent import engine as engine_module
from fleetctl.agent.engine import ANSWER_SHOWN, EngineProcess, ask_to_reload
from fleetctl.agent.messages import Engine, HttpCall, PortProbe, Probe
from fleetctl.agent.report import StartFailed

Requests = list[tuple[str, str, bytes]]
CALL = HttpCall("POST", "/load")
ENGINE = Engine((), readiness=Probe(http=PortProbe()))


@pytest.fixture
def engine() -> Iterator[tuple[int, Requests, dict[str, Any]]]:
    """An engine's port, the requests it received, and its answers."""
    requests: Requests = []
    answers: dict[str, Any] = {"status": 200, "text": "", "until": None, "drips": None, "dripped": False}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append((self.command, self.path, self.rfile.read(int(self.headers.get("Content-Length") or 0))))
            if answers["until"]:
                answers["until"].wait(30)
            self.send_response(answers["status"])
            self.end_headers()
            self.wfile.write(answers["text"].encode())
            for _ in range(300 if answers["drips"] else 0):
                self.wfile.write(b"x")
                if answers["drips"].wait(0.1):
                    return
            answers["dripped"] = True

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1], requests, answers
    server.shutdown()
    server.server_close()


def ask(port: int, within_s: float = 30, objection: Callable[[str], str | None] = lambda _: None, **more: Any) -> str:
    return ask_to_reload(CALL._replace(**more), port, ("127.0.0.1", "127.0.0.2"), time.monotonic() + within_s,
                         objection, shown="/load")


def test_the_engine_gets_one_json_request_and_an_error_quotes_the_start_of_its_answer(engine: Any) -> None:
    port, requests, answers = engine
    assert ask(port, body={"dir": "/new", "layers": [1]}).endswith("HTTP 200")
    assert ask(port, method="GET")
    assert [(method, path, json.loads(body or b"null")) for method, path, body in requests] == [
        ("POST", "/load", {"dir": "/new", "layers": [1]}), ("GET", "/load", None)]
    answers.update(status=500, text="x" * 9999)
    with pytest.raises(StartFailed, match="HTTP 500: x") as failed:
        ask(port)
    assert (failed.value.code, len(str(failed.value)) < ANSWER_SHOWN + 100, len(requests)) == ("RELOAD_FAILED", True, 3)
    answers.update(status=302)
    with pytest.raises(StartFailed, match="HTTP 302"):
        ask(port)
    answers.update(status=200, text='{"success": false, "message": "blocks are in use"}')
    with pytest.raises(StartFailed, match="blocks are in use"):
        ask(port)


def test_an_endless_answer_counts_by_its_first_bytes(engine: Any) -> None:
    port, _, answers = engine
    answers.update(text="x", drips=threading.Event())
    try:
        assert "HTTP 200: xx" in ask(port, within_s=3)
        assert not answers["dripped"]
    finally:
        answers["drips"].set()


def test_an_answer_without_a_body_in_time_is_too_late() -> None:
    with dripping(b"HTTP/1.1 200 X\r\nX: ") as (port, over):
        with pytest.raises(StartFailed, match=r"on port [0-9]+: (TimeoutError|timeout)"):
            ask(port, within_s=1.5)
        assert not over.is_set()


def test_without_an_answer_in_time_or_from_another_process_the_engine_has_not_reloaded(engine: Any) -> None:
    port, requests, answers = engine
    answers["until"] = threading.Event()
    with pytest.raises(StartFailed, match=r"TimeoutError|timeout"):
        ask(port, within_s=1.5)
    answers["until"].set()
    with pytest.raises(StartFailed, match="not ours"):
        ask(port, objection=lambda _: "not ours")
    assert len(requests) == 1
    with pytest.raises(StartFailed, match="ConnectionRefusedError"):
        ask(1)


def test_an_address_that_this_host_does_not_have_is_skipped(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without IPv6 a connection to ::1 fails with a bare OSError."""
    connect = socket.create_connection

    def connecting(address: tuple[str, int], *more: Any, **options: Any) -> socket.socket:
        if address[0] == "::1":
            raise OSError(99, "Cannot assign requested address") from None
        return connect(address, *more, **options)

    monkeypatch.setattr(socket, "create_connection", connecting)
    port, requests, _ = engine
    assert ask_to_reload(CALL, port, ("::1", "127.0.0.1"), time.monotonic() + 30, lambda _: None,
                         shown="/load").endswith("HTTP 200")
    assert len(requests) == 1
    with pytest.raises(StartFailed, match="no time"):
        ask(port, within_s=-1)
    assert len(requests) == 1


class Run:
    """A process that ends when it receives the reload request."""

    tree, exit_code = None, 134

    def __init__(self, ended: bool) -> None:
        self.ended = SimpleNamespace(wait=lambda _: ended)


@pytest.mark.parametrize(("ended", "code"), [(True, "RELOAD_ENDED"), (False, "RELOAD_FAILED")])
def test_an_engine_that_ends_is_a_failure_of_its_own_and_only_fleetctl_variables_are_expanded(
    engine: Any, ended: bool, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, requests, answers = engine
    answers.update(status=500)
    process = EngineProcess.__new__(EngineProcess)
    process.__dict__.update(_env={"TOKEN": "secret", "FLEETCTL_MODEL": "m"}, _port=port, _ready_port=None,
                            was_ready=True, _run=Run(ended), _hosts=("127.0.0.1",))
    monkeypatch.setattr(engine_module, "Ownership", lambda *_: SimpleNamespace(objection=lambda _: None))
    call = HttpCall("POST", "/load?of=$(FLEETCTL_MODEL)&as=$(TOKEN)", {"as": "$(TOKEN)"})
    with pytest.raises(StartFailed, match=r"POST /load\?of=\$\(FLEETCTL_MODEL\)&as=\$\(TOKEN\) on port") as failed:
        process.reload([call], {}, time.monotonic() + 30)
    assert failed.value.code == code
    assert [(path, json.loads(body)) for _, path, body in requests] == [
        ("/load?of=m&as=$(TOKEN)", {"as": "secret"})]


def test_if_an_engine_is_not_ready_after_its_reload_the_reason_is_the_probe_and_not_its_log(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = EngineProcess.__new__(EngineProcess)
    log = SimpleNamespace(say=lambda _: None, cause=lambda _: None, last_output=lambda: "serving the model that it had")
    process.__dict__.update(_env={}, _port=engine[0], _ready_port=None, was_ready=True,
                            _run=Run(ended=False), _hosts=("127.0.0.1",), _log=log, _engine=ENGINE,
                            _build=lambda _: lambda: "HTTP 503")
    monkeypatch.setattr(engine_module, "Ownership", lambda *_: SimpleNamespace(objection=lambda _: None))
    with pytest.raises(StartFailed) as failed:
        process.reload([CALL], {}, time.monotonic() + 0.9)
    assert failed.value.code == "RELOAD_FAILED"
    assert str(failed.value) == (
        f"POST /load on port {engine[0]}: HTTP 200; then not ready within its startupTimeout of 1 s (HTTP 503)")


@pytest.mark.parametrize(("to_the_end", "asked"), [
    (False, ["/pause", "/load"]), (True, ["/pause", "/load", "/resume"])])
def test_requests_are_sent_in_order_until_one_fails_and_for_a_return_to_the_former_weights_to_the_end(
    to_the_end: bool, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def send(host: str, port: int, call: HttpCall, deadline: float) -> tuple[bool, bool, str]:
        sent.append(call.path)
        return True, call.path != "/load", "HTTP 500" if call.path == "/load" else "HTTP 200"

    process = EngineProcess.__new__(EngineProcess)
    process.__dict__.update(_env={}, _port=7, _ready_port=None, _run=Run(ended=False), _hosts=("127.0.0.1",),
                            _log=SimpleNamespace(say=lambda _: None), _engine=ENGINE, _build=lambda _: lambda: None)
    monkeypatch.setattr(engine_module, "Ownership", lambda *_: SimpleNamespace(objection=lambda _: None))
    monkeypatch.setattr(engine_module, "_send", send)
    calls = [HttpCall("POST", path) for path in ("/pause", "/load", "/resume")]
    with pytest.raises(StartFailed, match="POST /load on port 7: HTTP 500"):
        process.reload(calls, {}, time.monotonic() + 30, to_the_end=to_the_end)
    assert sent == asked
    sent.clear()
    monkeypatch.setattr(process._run, "ended", SimpleNamespace(wait=lambda _: False, is_set=lambda: False))
    process.reload([calls[0], calls[2]], {}, time.monotonic() + 30)
    assert sent == ["/pause", "/resume"]
