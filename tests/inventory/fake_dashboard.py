"""An HTTP server with the recorded answers of a Ray dashboard, or with configured misbehavior."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from record_rows import RecordRows

RECORDED = Path(__file__).parent / "recorded"
PARTS = ("nodes", "summary", "version", "actors_dependencies_unready", "actors_pending_creation", "actors_restarting",
         "actors_alive")
"""The parts without which a reading is incomplete."""
LOGICAL, JOBS = "/logical/actors", "/api/jobs/"
MORE_PARTS = ("placement_groups", "jobs", "job_log")


@dataclass
class Request:
    """One request that the server received."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]


Behaviour = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class FakeDashboard:
    """`bodies` are the answers by part, which tests may change; `behaviours` replace the handling of a part."""

    url: str = ""
    bodies: dict[str, Any] = field(default_factory=dict)
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    beyond: list[dict[str, Any]] = field(default_factory=list)
    """Rows of actors missing from the lists of the state API, as beyond the 10,000th."""
    dead: list[dict[str, Any]] = field(default_factory=list)
    """Rows of dead actors."""
    records: RecordRows = field(default_factory=RecordRows)
    """Rows of records; the list of jobs does not have them here."""
    released: threading.Event = field(default_factory=threading.Event)
    date: str | None = "Wed, 04 Mar 2026 12:00:00 GMT"
    """The time in its answers; None = they do not tell it."""

    def rows(self, part: str) -> list[dict[str, Any]]:
        """The rows of one list of the state API."""
        return self.bodies[part]["data"]["result"]["result"]

    def listing(self, part: str) -> dict[str, Any]:
        """The list of the state API with its counts."""
        return self.bodies[part]["data"]["result"]

    def dead_of(self, query: dict[str, str]) -> list[dict[str, Any]]:
        """The rows of the dead actors of one class."""
        return [row for row in self.dead if row["class_name"] == query["filter_values"]]

    def logical_actors(self) -> dict[str, Any]:
        """The dashboard's own list of all actors, with its own field names and without namespaces."""
        rows = [*self._all_actors(), *self.dead]
        return {"result": True, "data": {"actors": {row["actor_id"]: _as_dashboard(row) for row in rows}}}

    def job(self, job_id: str) -> tuple[int, bytes]:
        """The answer for one job, or row of records, by its submission id or the id of its driver."""
        listed = self.bodies["jobs"] if isinstance(self.bodies["jobs"], list) else []
        found = [row for row in (*listed, *self.records.rows.values()) if isinstance(row, dict)
                 and job_id in (row.get("submission_id"), row.get("job_id"))]
        return (200, json.dumps(found[0]).encode()) if found else (404, f"Job {job_id} does not exist".encode())

    def _all_actors(self) -> list[dict[str, Any]]:
        return [*(row for part in PARTS if part.startswith("actors_") for row in self.rows(part)), *self.beyond]


def recorded_bodies() -> dict[str, Any]:
    """All parts as recorded from Ray 2.60."""
    return {part: json.loads((RECORDED / f"{part}.json").read_text()) for part in (*PARTS, *MORE_PARTS)}


def _as_dashboard(row: dict[str, Any]) -> dict[str, Any]:
    """Ray writes an id of only f for no node, and plain names for the resources of bundles."""
    claim = row["required_resources"] or {}
    resources = {name.partition("_group_")[0]: amount for name, amount in claim.items()}
    return {"actorId": row["actor_id"], "name": row["name"], "state": row["state"], "jobId": row["job_id"],
            "actorClass": row["class_name"], "reprName": row["repr_name"], "numRestarts": row["num_restarts"],
            "address": {"nodeId": row["node_id"] or "f" * 56}, "placementGroupId": row["placement_group_id"],
            "requiredResources": resources, "timestamp": row.get("died_ms", 0)}


class Dated(BaseHTTPRequestHandler):
    """Answers tell the time of their source instead of this machine's."""

    source: FakeDashboard

    def send_header(self, keyword: str, value: str) -> None:
        if keyword != "Date":
            super().send_header(keyword, value)
        elif self.source.date is not None:
            super().send_header(keyword, self.source.date)


@contextmanager
def serve(*, tls: ssl.SSLContext | None = None) -> Iterator[FakeDashboard]:
    """Run a dashboard on a free local port."""
    fake = FakeDashboard(bodies=deepcopy(recorded_bodies()))

    class Handler(Dated):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # one packet per answer

        source = fake

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            headers = {key.lower(): value for key, value in self.headers.items()}
            fake.requests.append(Request(self.command, parts.path, query, headers))
            part = parts.path if parts.path in fake.behaviours else part_of(parts.path, query)
            if part in fake.behaviours:
                fake.behaviours[part](self)
            elif part == "failures" and part not in fake.bodies:
                answer(self, 200, json.dumps({"data": {"result": {"result": fake.dead_of(query)}}}).encode())
            elif part == "jobs" and parts.path != JOBS and part in fake.bodies:
                answer(self, *fake.job(parts.path.removeprefix(JOBS)))
            elif part == LOGICAL and part not in fake.bodies:
                answer(self, 200, json.dumps(fake.logical_actors()).encode())
            elif part in fake.bodies:
                answer(self, 200, json.dumps(fake.bodies[part]).encode())
            else:
                answer(self, 404, b"404: Not Found")

        do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_GET  # the method names of http.server

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass  # some tests make the client hang up

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    fake.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        fake.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def part_of(path: str, query: dict[str, str]) -> str:
    """The part of the inventory that a request is for."""
    if query.get("filter_keys") == "class_name":
        return "failures"
    if path == "/api/v0/actors":
        return f"actors_{query.get('filter_values', 'all').lower()}"
    if path.startswith(JOBS):
        return "job_log" if path.endswith("/logs") else "jobs"
    return {"/api/v0/nodes": "nodes", "/api/v0/placement_groups": "placement_groups", "/nodes": "summary",
            "/api/version": "version"}.get(path, path)


def answer(handler: BaseHTTPRequestHandler, status: int, body: bytes, *, claim: int | None = None,
           headers: dict[str, str] | None = None) -> None:
    """Send a complete answer; `claim` replaces the value of its Content-Length."""
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) if claim is None else claim))
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def status(code: int, body: bytes = b"") -> Behaviour:
    """Answer with this status."""
    return lambda handler: answer(handler, code, body)


def cut_off(handler: BaseHTTPRequestHandler) -> None:
    """Announce a longer body than is sent, then hang up."""
    answer(handler, 200, b'{"result": true, "data": {"result"', claim=10_000)
    handler.close_connection = True


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Hang up without an answer."""
    handler.close_connection = True


def redirect(handler: BaseHTTPRequestHandler) -> None:
    """Redirect to a login page."""
    answer(handler, 302, b"", headers={"Location": "https://login.example/start?state=secret"})


def slow(fake: FakeDashboard) -> Behaviour:
    """Send nothing until the test is over."""
    return lambda _: fake.released.wait(30) and None
