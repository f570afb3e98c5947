"""A stand-in for an inference engine: real HTTP and real gangs, no weights. Standard library only.

It is an OpenAI-style server (`/v1/models`, `/v1/completions`, `/v1/chat/completions`, `/health`) whose responses name
the replica. In a gang, rank 0 waits for the other ranks on FLEETCTL_LEADER_PORT: its `/health` is 503 until all have
joined. A rank that loses its leader ends, as the ranks of a real engine do.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fleetctl.demo.stub_gang import Gang

MAX_BODY_BYTES = 1 << 20


class Stub:
    """The state of one stub engine."""

    def __init__(self, model: str, gang: Gang, ready_at: float) -> None:
        self.model = model
        self.gang = gang
        self.ready_at = ready_at
        self.stopped = threading.Event()
        self.exit_code = 0

    def not_ready(self) -> str | None:
        """Return why the engine cannot serve yet, or None. Times are monotonic."""
        if time.monotonic() < self.ready_at:
            return "loading weights"
        missing = self.gang.missing()
        return f"waiting for ranks {missing}" if missing else None

    def identity(self) -> dict[str, Any]:
        """Return the identity of this rank, from the variables that fleetctl injected."""
        return {
            "model": self.model,
            "replica": int(os.environ.get("FLEETCTL_REPLICA_ID", "0")),
            "group": os.environ.get("FLEETCTL_GROUP", "main"),
            "rank": self.gang.rank,
            "ranks": self.gang.size,
            "cards": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        }

    def complete(self, prompt: str) -> str:
        """Return the completion: the prompt and the identity of the replica."""
        own = self.identity()
        gang = f", a gang of {own['ranks']}" if own["ranks"] > 1 else ""
        return f"{prompt} (replica {own['replica']} of {own['model']}{gang}, on GPU {own['cards'] or 'none'})"

    def end_with_gang(self, reason: str) -> None:
        """End because another rank has ended."""
        log(reason)
        self.stop(1)

    def stop(self, exit_code: int) -> None:
        """End the engine with this exit code."""
        self.exit_code = exit_code
        self.stopped.set()


class Handler(BaseHTTPRequestHandler):
    """The HTTP side; `stub` is set on the class by `serve`."""

    stub: Stub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer /health and /v1/models."""
        if self.path == "/health":
            reason = self.stub.not_ready()
            self._send(503 if reason else 200, {"status": reason or "ok", **self.stub.identity()})
        elif self.path == "/v1/models":
            self._send(200, {"object": "list", "data": [
                {"id": self.stub.model, "object": "model", "created": int(time.time()), "owned_by": "stub"}]})
        else:
            self._refuse(404, f"no such path: {self.path}")

    def do_POST(self) -> None:
        """Answer /v1/completions and /v1/chat/completions."""
        if self.path not in {"/v1/completions", "/v1/chat/completions"}:
            self._refuse(404, f"no such path: {self.path}")
            return
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY_BYTES:
            self.close_connection = True
            self._refuse(413, "the request is too large")
            return
        try:
            request = json.loads(self.rfile.read(length))
            chat = self.path.startswith("/v1/chat")
            prompt = request["messages"][-1]["content"] if chat else request["prompt"]
        except (ValueError, KeyError, IndexError, TypeError):
            self._refuse(400, "the body must be JSON with a prompt, or messages for a chat")
            return
        self._complete(request.get("model", self.stub.model), str(prompt), chat=chat)

    def _complete(self, model: str, prompt: str, *, chat: bool) -> None:
        if model != self.stub.model:
            self._refuse(404, f"the model {model!r} is not served here; {self.stub.model!r} is")
        elif reason := self.stub.not_ready():
            self._refuse(503, reason)
        else:
            text = self.stub.complete(prompt)
            choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(text.split())}
            self._send(200, {
                "id": f"stub-{time.time_ns():x}",
                "object": "chat.completion" if chat else "text_completion",
                "created": int(time.time()),
                "model": self.stub.model,
                "choices": [{"index": 0, "finish_reason": "stop", **choice}],
                "usage": {**usage, "total_tokens": sum(usage.values())},
                "replica": self.stub.identity(),
            })

    def _refuse(self, status: int, message: str) -> None:
        self._send(status, {"error": {"message": message, "type": "invalid_request_error", "code": status}})

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name in http.server)
        """Log requests on stdout as engines do, but not the probes."""
        if self.path != "/health":
            log(format % args)


def log(message: str) -> None:
    """Write one line of engine output and flush it."""
    sys.stdout.write(f"stub-engine: {message}\n")
    sys.stdout.flush()


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="stub-engine", description="An inference engine without weights.")
    parser.add_argument("--model", default=os.environ.get("FLEETCTL_MODEL", "stub"), help="name to serve under")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104 (as engines do)
    parser.add_argument("--port", type=int, default=int(os.environ.get("FLEETCTL_PORT", "8000")))
    parser.add_argument("--startup-delay", type=float, default=0, metavar="S", help="seconds until ready")
    parser.add_argument("--fail-after", type=float, metavar="S", help="seconds until it ends by itself")
    parser.add_argument("--exit-code", type=int, default=1, help="with --fail-after")
    return parser.parse_args(argv)


def serve(options: argparse.Namespace) -> int:
    """Serve until SIGTERM, --fail-after, or the loss of another rank; return the exit code."""
    gang = Gang.from_environment(os.environ, options.host)
    stub = Stub(options.model, gang, time.monotonic() + options.startup_delay)
    signal.signal(signal.SIGTERM, lambda *_: stub.stop(0))
    handler = type("BoundHandler", (Handler,), {"stub": stub})
    try:
        gang.start(on_lost=stub.end_with_gang)
        server = ThreadingHTTPServer((options.host, options.port), handler)
    except OSError as error:
        log(f"cannot listen: {error}")
        return 1
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    log(f"serving {stub.model} on {options.host}:{server.server_port}, rank {gang.rank} of {gang.size}")
    if not stub.stopped.wait(options.fail_after):
        log(f"failing as --fail-after asks, with exit code {options.exit_code}")
        stub.stop(options.exit_code)
    server.server_close()
    return stub.exit_code


if __name__ == "__main__":
    sys.exit(serve(parse(sys.argv[1:])))
