#!/usr/bin/env python3
"""An engine with a real model: Google's Magika detects the type of a file by its content.

The weights are in its package, or in FLEETCTL_MODEL_DIR, which `weights` in a fleet file sets. GET /health answers once
the model is loaded. POST /classify takes the bytes of a file and returns a label and a score from 0 to 1.
"""

from __future__ import annotations

import argparse
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from magika import Magika

FOLDER = os.environ.get("FLEETCTL_MODEL_DIR")
MODEL = Magika(Path(FOLDER) if FOLDER else None)
MAX_BODY_BYTES = 16 << 20


class Handler(BaseHTTPRequestHandler):
    """One request."""

    def do_GET(self) -> None:
        """Answer /health."""
        self._answer(200 if self.path == "/health" else 404, {"model": MODEL.get_model_name()})

    def do_POST(self) -> None:
        """Answer /classify."""
        length = int(self.headers.get("Content-Length") or 0)
        if self.path != "/classify" or length > MAX_BODY_BYTES:
            self._answer(400, {"error": "POST a file of at most 16 MiB to /classify"})
            return
        found = MODEL.identify_bytes(self.rfile.read(length))
        self._answer(200, {"label": found.output.label, "score": round(found.score, 4),
                           "replica": os.environ.get("FLEETCTL_REPLICA_ID")})

    def _answer(self, status: int, body: dict[str, object]) -> None:
        data = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve Magika over HTTP.")
    parser.add_argument("--port", type=int, default=8000)
    ThreadingHTTPServer(("", parser.parse_args().port), Handler).serve_forever()
