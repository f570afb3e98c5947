"""A stand-in for an inference engine: real HTTP and real gangs, no weights. Standard library only.

It is an OpenAI-style server (`/v1/models`, `/v1/completions`, `/v1/chat/completions`, `/health`) whose responses name
the replica. In a gang, rank 0 waits for the other ranks on FLEETCTL_LEADER_PORT: its `/health` is 503 until all have
joined. A rank that loses its leader ends, as the ranks of a real engine do.

The ranks of a gang find each other: rank 0 listens, the others join and keep the connection open. One line of text each
way ("rank 2", "joined"); a rank is a member as long as its connection lasts. Real engines do the same with the store of
NCCL or Gloo.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar, cast

MAX_BODY_BYTES = 1 << 20
RETRY_S = 0.2


@dataclass
class Gang:
    """One rank's view of its gang. `joined` = on rank 0 the ranks that have joined, on others only the rank itself."""

    rank: int = 0
    size: int = 1
    leader: tuple[str, int] = ("127.0.0.1", 0)
    host: str = "127.0.0.1"
    joined: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def from_environment(cls, env: Mapping[str, str], host: str) -> Gang:
        """Read rank, size and leader from the variables that fleetctl injects; a single engine is a gang of one."""
        return cls(
            rank=int(env.get("FLEETCTL_RANK", "0")),
            size=int(env.get("FLEETCTL_GROUP_SIZE", "1")),
            leader=(env.get("FLEETCTL_LEADER_ADDRESS", "127.0.0.1"), int(env.get("FLEETCTL_LEADER_PORT") or 0)),
            host=host)

    def missing(self) -> list[int]:
        """Return the ranks this one still waits for: on rank 0 the absent others, on others rank 0."""
        with self._lock:
            if self.rank == 0:
                return sorted(set(range(1, self.size)) - self.joined)
            return [] if self.rank in self.joined else [0]

    def start(self, on_lost: Callable[[str], object]) -> None:
        """Listen or join; `on_lost` gets the reason if a rank leaves. Raises OSError if rank 0 cannot listen."""
        if self.size == 1:
            return
        if self.rank == 0:
            server = of_family(_Rendezvous, self.host)((self.host, self.leader[1]), _Join)
            server.gang, server.on_lost = self, on_lost
            threading.Thread(target=server.serve_forever, name="rendezvous", daemon=True).start()
        else:
            threading.Thread(target=self._join, args=(on_lost,), name="join", daemon=True).start()

    def enter(self, rank: int) -> bool:
        """Record that a rank has joined; returns False if it is not in the gang, or has joined before."""
        with self._lock:
            accepted = rank not in self.joined and 0 < rank < self.size
            if accepted:
                self.joined.add(rank)
            return accepted

    def leave(self, rank: int) -> None:
        """Record that a rank has left."""
        with self._lock:
            self.joined.discard(rank)

    def _join(self, on_lost: Callable[[str], object]) -> None:
        while True:
            try:
                connection = socket.create_connection(self.leader, timeout=5)
            except OSError:
                time.sleep(RETRY_S)
                continue
            with connection:
                connection.settimeout(None)
                connection.sendall(f"rank {self.rank}\n".encode())
                if _receive(connection):  # rank 0 has accepted this rank
                    self.enter(self.rank)
                    while _receive(connection):
                        pass
                    on_lost(f"rank {self.rank} lost the leader at {endpoint(*self.leader)}")
                    return
            time.sleep(RETRY_S)


def _receive(connection: socket.socket) -> bytes:
    """Wait for data; returns nothing once the connection is closed or broken."""
    try:
        return connection.recv(64)
    except OSError:
        return b""


Server = TypeVar("Server", bound=socketserver.TCPServer)


def of_family(kind: type[Server], host: str) -> type[Server]:
    """Return a kind of server that listens at this host, of IPv6 or IPv4."""
    return type(kind.__name__, (kind,), {"address_family": socket.AF_INET6 if ":" in host else socket.AF_INET})


def endpoint(host: str, port: int) -> str:
    """Return host and port as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Rendezvous(socketserver.ThreadingTCPServer):
    """The server on rank 0."""

    daemon_threads = True
    allow_reuse_address = True
    gang: Gang
    on_lost: Callable[[str], object]


class _Join(socketserver.StreamRequestHandler):
    """The connection of one rank."""

    def handle(self) -> None:
        """Accept the rank, and wait until it leaves."""
        server = cast("_Rendezvous", self.server)
        word, _, number = self.rfile.readline(64).decode(errors="replace").strip().partition(" ")
        if word != "rank" or not number.isdigit() or not server.gang.enter(int(number)):
            return
        rank = int(number)
        self.wfile.write(b"joined\n")
        while _receive(self.connection):
            pass
        server.gang.leave(rank)
        server.on_lost(f"rank {rank} has ended; the gang cannot serve")


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
    every = "::" if ":" in os.environ.get("FLEETCTL_HOST", "") else "0.0.0.0"  # noqa: S104 (as engines do)
    parser.add_argument("--host", default=every, help="address to listen on")
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
        server = of_family(ThreadingHTTPServer, options.host)((options.host, options.port), handler)
    except OSError as error:
        log(f"cannot listen: {error}")
        return 1
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    log(f"serving {stub.model} on {endpoint(options.host, server.server_port)}, rank {gang.rank} of {gang.size}")
    if not stub.stopped.wait(options.fail_after):
        log(f"failing as --fail-after asks, with exit code {options.exit_code}")
        stub.stop(options.exit_code)
    server.server_close()
    return stub.exit_code


if __name__ == "__main__":
    sys.exit(serve(parse(sys.argv[1:])))
