"""Origins over real HTTP that count what they send and misbehave as real origins do."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Any

    def do_GET(self) -> None:
        served = self.server
        self.path, _, query = self.path.partition("?")
        served.requests.append((query, self.headers.get("Authorization")))
        try:
            data = Path(served.folder, self.path.lstrip("/")).read_bytes()
        except OSError:
            return self.send_error(404)
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        whole = served.way == "no ranges" or not start
        if self.path.endswith(".safetensors"):
            served.reads.append((self.path, start))
            if served.way == "redirects":
                self.send_response(302)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                return self.end_headers()
            if served.way == "lies":
                data = data[:-1] + bytes([data[-1] ^ 1])
        part = data if whole else data[start:]
        self.send_response(200 if whole else 206)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self._body(served, part)
        return None

    def _body(self, served: Any, part: bytes) -> None:
        if self.path.endswith(".safetensors") and served.way in {"truncates", "breaks"}:
            part = part[:len(part) // 2 if served.way == "truncates" else 100_000]
        if self.path.endswith(".safetensors") and served.way == "stalls":
            self.wfile.write(part[:served.stalls_after])
            part = part[served.stalls_after:]
        if self.path.endswith(".safetensors") and served.way in {"slow", "stalls"}:
            step = 512 if served.way == "slow" else 64
            for at in range(0, len(part), step):
                served.sent += step  # before it is sent: who has it may ask at once
                self.wfile.write(part[at:at + step])
                time.sleep(0.01)
            return
        served.sent += len(part)
        self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        return


@contextlib.contextmanager
def origin_over_http(folder: Path, way: str = "well") -> Iterator[Any]:
    """Serve a folder in one of these ways: well, lies, truncates, redirects, breaks, slow, stalls or no ranges."""
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads, server.folder, server.way, server.sent, server.reads = True, folder, way, 0, []
    server.requests = []
    server.stalls_after = 100_000
    server.url = f"http://127.0.0.1:{server.server_address[1]}/"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
