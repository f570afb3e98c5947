"""An engine whose answers take computing time: chains of hashes. Prints its port, and serves until it is killed."""

from __future__ import annotations

import hashlib
import http.server

ROUNDS = 4000


def answer_to(path: str) -> bytes:
    found = path.encode()
    for _ in range(ROUNDS):
        found = hashlib.sha256(found).digest()
    return found.hex().encode()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise the second half of an answer waits for 40 ms

    def do_GET(self) -> None:
        body = answer_to(self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


if __name__ == "__main__":
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
