"""The HTTP side of `fleetctl watch --listen`: /metrics for Prometheus, /healthz and /readyz for Kubernetes. GET only.
"""

from __future__ import annotations

import hmac
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from fleetctl.errors import UsageError
from fleetctl.watch.metrics import WatchCollector
from fleetctl.watch.watcher import Watcher

Answer = tuple[HTTPStatus, str, bytes]
PLAIN = "text/plain; charset=utf-8"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  as in its base
        """Say nothing of a client that went away, such as a probe that did not wait."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


@contextmanager
def serving(watcher: Watcher, listen: str | None, token: str | None) -> Iterator[str]:
    """Serve while the block runs, and yield the URL; `listen` = HOST:PORT, None = serve nothing.

    With a `token` /metrics asks for it.
    Raises UsageError for an address that cannot be used.
    """
    if listen is None:
        yield ""
        return
    host, _, port = listen.rpartition(":")
    registry = CollectorRegistry()
    registry.register(WatchCollector(watcher))
    try:
        server = _Server((host.strip("[]") or "127.0.0.1", int(port)),
                         _handler(_pages(watcher, registry), token))
    except (OSError, ValueError, OverflowError) as error:
        raise UsageError(f"--listen {listen}: {getattr(error, 'strerror', None) or error}",
                         hint="such as 127.0.0.1:9464") from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{host or '127.0.0.1'}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _pages(watcher: Watcher, registry: CollectorRegistry) -> dict[str, Callable[[], Answer]]:
    def ready() -> Answer:
        if watcher.good is not None and watcher.seen is not None:
            return HTTPStatus.OK, PLAIN, b"ready\n"
        return HTTPStatus.SERVICE_UNAVAILABLE, PLAIN, b"no good revision yet, or the cluster was never read\n"

    def healthy() -> Answer:
        if watcher.is_late:
            return HTTPStatus.SERVICE_UNAVAILABLE, PLAIN, b"the loop has not turned for too long\n"
        return HTTPStatus.OK, PLAIN, b"ok\n"

    return {"/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry)),
            "/healthz": healthy, "/readyz": ready}


def _handler(pages: dict[str, Callable[[], Answer]], token: str | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            page = pages.get(path)
            if page is None:
                answer: Answer = HTTPStatus.NOT_FOUND, PLAIN, b"not found\n"
            elif path == "/metrics" and token and not self._may(token):
                answer = HTTPStatus.UNAUTHORIZED, PLAIN, b"a bearer token is needed\n"
            else:
                answer = page()
            status, kind, body = answer
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _may(self, wanted: str) -> bool:
            given = self.headers.get("Authorization", "").removeprefix("Bearer ")
            return hmac.compare_digest(given.encode(), wanted.encode())

        def log_message(self, *_: object) -> None:
            """Log nothing: probes come every few seconds."""

    return Handler
