"""A real HTTP server for stand-ins: each request is passed to a stand-in's `answer` method, one at a time."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Request:
    """One request as received; header names are lower-case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    """The response; `body` becomes JSON unless it is text or bytes. Status 0 = hang up without a response."""

    status: int
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict)


class Answering(Protocol):
    url: str

    def answer(self, request: Request) -> Answer: ...


@contextmanager
def serving(stand_in: Answering) -> Iterator[None]:
    """Serve on a free port of this machine; its address is stored in `url`."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            with lock:
                answer = stand_in.answer(Request(self.command, parts.path, query, headers,
                                                 json.loads(raw) if raw else None))
            if answer.status == 0:
                self.close_connection = True
                return
            content = answer.body if isinstance(answer.body, (str, bytes)) else json.dumps(answer.body)
            data = content.encode() if isinstance(content, str) else content
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            return  # a client that hangs up is no failure of the server

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    stand_in.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
