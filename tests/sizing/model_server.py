"""A server of a model's files, which tests let answer as they like, and a stand-in for a hub of models."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef" * 2 + "01234567"
Answer = Callable[["Asked"], None]


class Asked(BaseHTTPRequestHandler):
    """One request for the bytes from `begin` to `end`. `answer` says what becomes of it; each is in `seen`."""

    answer: Answer
    seen: list[tuple[str, int, int]]
    headers_seen: list[dict[str, str]]

    def do_GET(self) -> None:
        begin, _, end = self.headers.get("Range", "bytes=0--1").removeprefix("bytes=").partition("-")
        self.begin, self.end = int(begin), int(end) + 1
        self.seen.append((self.path, self.begin, self.end))
        self.headers_seen.append(dict(self.headers))
        type(self).answer(self)

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            if value:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def send_range(self, data: bytes, **headers: str) -> None:
        if "Range" not in self.headers:
            self.send(200, data, **headers)
            return
        piece = data[self.begin:self.end]
        self.send(206 if piece else 416, piece, **{
            "Content_Range": f"bytes {self.begin}-{self.begin + len(piece) - 1}/{len(data)}", **headers})

    def send_file_of(self, folder: Path) -> None:
        path = folder / self.path.partition("?")[0].rpartition("/")[2]
        self.send_range(path.read_bytes()) if path.is_file() else self.send(404)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, type[Asked]]]:
    """Serve requests with `answer`; yields the address, and the class with what was asked."""
    handler = type("Handler", (Asked,), {"answer": staticmethod(answer), "seen": [], "headers_seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", handler
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def of_folder(folder: Path) -> Answer:
    return lambda asked: asked.send_file_of(folder)


def hub_of(folder: Path, elsewhere: list[str]) -> Answer:
    """Answer as a hub does: each repository but org/private is that folder; with `elsewhere`, on another host."""
    def answer(asked: Asked) -> None:
        if "/private/" in asked.path:
            asked.send(401)
        elif re.fullmatch(r"/api/models/[^/]+/[^/]+/revision/main", asked.path):
            body = {"sha": COMMIT, "siblings": [{"rfilename": path.name} for path in folder.iterdir()]}
            asked.send(200, json.dumps(body).encode())
        elif f"/resolve/{COMMIT}/" in asked.path:
            name = asked.path.rpartition("/")[2]
            asked.send(302, Location=f"{elsewhere[0]}/{name}") if elsewhere else asked.send_file_of(folder)
        else:
            asked.send(404)

    return answer
