"""The source: a member's actor serves its node's weights, and views of them, to a few other nodes at a time.

It runs in threads of the actor, at a lower priority than the engine, and ends with the actor. The kernel sends the
bytes (sendfile), so Python does not copy them.
"""

from __future__ import annotations

import contextlib
import hmac
import http.server
import json
import os
import re
import shutil
import socket
import socketserver
import threading
import time
import urllib.parse
import uuid
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from ..ports import host_port
from . import others
from .fetch import Fetched
from .gather import layout_of, make_view
from .index import File, Index, WeightsError
from .peers import SIGNATURE_HEADER, VIEW_HEADER, WANTED_HEADER, is_signed, others_path, report_copy, signature, token
from .store import Entry
from .table import LEASE_S, Refused, Table, View
from .verified import READ, Verified, state_of
from .views import view_id

SLICE = 1 << 20
MAKE_S = 3600.0
WAIT_S = 5.0
"""Seconds for which a request waits for a pending view before it is answered 202, try again."""
NICE = 10
STATUS = {"absent": 404, "draining": 409, "pending": 202, "busy": 429, "noRoom": 507, "anotherEntry": 409}
_PATH = re.compile(r"/v1/(?P<artifact>[0-9a-f]{64})(?:/views/(?P<view>[0-9a-f]{16}))?"
                   r"/(?:(?P<index>index)|files/(?P<file>.+))")


class Source:
    """The weights that one member's actor serves, and the views it makes for other nodes.

    `budget` = the most bytes those views may take; by default half of the free disk. `replica` is for messages.
    """

    def __init__(self, root: str, fetched: Fetched, secret: bytes, clock: Callable[[], float] = time.monotonic,
                 budget: Optional[int] = None, replica: str = "") -> None:
        self._root, self._fetched, self.secret, self._replica = root, fetched, secret, replica
        self.others = others.Others(clock)
        self.artifact = fetched.entry.artifact
        self.verified = Verified(root, self.artifact, secret)
        most = shutil.disk_usage(root).free // 2 if budget is None else budget
        self.table = Table(clock, most, self._drop)
        self._held: Dict[Optional[str], Tuple[Index, Entry]] = {fetched.entry.view: (fetched.held, fetched.entry)}
        if fetched.whole is not None:
            whole = self._entry(None)
            whole.keep()
            self._held[None] = fetched.artifact, whole
        for view, (index, _) in self._held.items():
            self.table.hold(view, index.size)
        self._failed: Dict[str, str] = {}
        self._made = threading.Condition()
        self.made = 0
        self.sent = 0

    def _entry(self, view: Optional[str]) -> Entry:
        return Entry(self._root, self.artifact, view)

    def held(self, view: Optional[str]) -> Tuple[Index, Entry]:
        """Return the index and the entry of a served view; raises Refused."""
        held = self._held.get(view)
        if held is None:
            raise Refused("absent")
        return held

    def report_copy(self, address: str) -> None:
        """Report this copy, served at `address`, to the sources it came from: they suggest it when they are busy."""
        got = self._fetched
        report_copy(got.suppliers, self.artifact, self.secret, {
            "replica": self._replica, "address": address, "view": got.entry.view, "whole": got.whole is not None})

    def release(self) -> None:
        """Allow other processes to remove the files: they are no longer served."""
        for _, entry in self._held.values():
            entry.release()

    def index(self, view: Optional[str], request: Optional[Mapping[str, Any]]) -> bytes:
        """Return the encoded index of the artifact or of a view; `request` describes the view to make if it is missing.

        Raises Refused (`pending` while the view is being made), or WeightsError if it cannot be made.
        """
        if view is None:
            return self._fetched.artifact.encoded()
        if self.table.state(view) is None:
            self._start_making(view, request)
        with self._made:
            self._made.wait_for(lambda: self.table.state(view) != "pending", WAIT_S)
        if self.table.state(view) is None:
            self._start_making(view, request)
        if self.table.state(view) == "pending":
            raise Refused("pending")
        return self.held(view)[0].encoded()

    def _start_making(self, view: str, request: Optional[Mapping[str, Any]]) -> None:
        whole = self._fetched.whole
        if whole is None or request is None or view_id(
                request["view"], request["rank"], request["size"], self.artifact) != view:
            raise Refused("absent")
        failure = self._failed.pop(view, None)
        if failure:
            raise WeightsError(failure)
        layout = layout_of(self._entry(None), self._fetched.artifact, request["view"], request["rank"], request["size"])
        if self.table.reserve(view, layout.size) != "make":
            return

        def make() -> None:
            _lower_priority()
            entry = self._entry(view)
            try:
                entry.keep()
                with entry.writing(time.monotonic() + MAKE_S):
                    existing = entry.index()
                    made = existing or make_view(self._entry(None), whole, self._fetched.artifact, layout, entry,
                                                      self.verified)
                    self._held[view] = made, entry
                    self.made += 1
                    self._end_pending(view, self.table.commit)
                    if existing is None:  # after the commit: a fetch need not wait for the sync to disk
                        with contextlib.suppress(OSError):
                            entry.record(made)
            except Exception as error:
                self._failed[view] = f"the view cannot be made: {error}"
                entry.release()
                self._end_pending(view, self.table.forget)

        threading.Thread(target=make, name="fleetctl-view", daemon=True).start()

    def _end_pending(self, view: str, change: Callable[[str], None]) -> None:
        """Commit or forget a pending view, and wake the requests that wait for it."""
        change(view)
        with self._made:
            self._made.notify_all()

    def _drop(self, view: View) -> bool:
        """Remove a view made for other nodes; returns False if another process on the node uses it."""
        held = self._held.pop(view)
        entry = held[1]
        entry.release()
        with self.verified.linking(entry.path(file.path) for file in held[0].files):
            removed = entry.remove()
        if removed:
            return True
        entry.keep()
        self._held[view] = held  # its index may not be on the disk yet
        return False


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection, which is one fetch from its first bytes on."""

    protocol_version = "HTTP/1.1"
    timeout = LEASE_S
    wbufsize = 0
    disable_nagle_algorithm = True  # otherwise the body of a small response waits 40 ms for the ack of its headers
    server: "WeightsServer"

    def setup(self) -> None:
        """Begin a connection."""
        super().setup()
        _lower_priority()
        self._source = self.server.source  # for the whole connection, even if the server gets a new source
        self._fetch = uuid.uuid4().hex

    def finish(self) -> None:
        """End the connection, and the fetch with it."""
        self._source.table.end(self._fetch)
        super().finish()

    def do_GET(self) -> None:
        """Send an index or the bytes of a file."""
        source = self._source
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token(source.secret, self.path)}".encode()):
            return self._respond(401, b"no valid token")
        match = _PATH.fullmatch(self.path)
        if match is None or match["artifact"] != source.artifact:
            return self._respond(404, b"this artifact is not served here")
        try:
            if match["index"]:
                request = json.loads(self.headers.get(VIEW_HEADER) or "null")
                return self._respond_signed(200, source.index(match["view"], request))
            return self._send(match["view"], urllib.parse.unquote(match["file"]))
        except Refused as refused:
            return self._refuse(refused.code, match["view"] or self.headers.get(WANTED_HEADER))
        except (WeightsError, ValueError, KeyError, TypeError) as error:
            return self._respond(500, str(error).encode())

    def do_POST(self) -> None:
        """Receive a report of another copy."""
        source = self._source
        self.close_connection = True
        try:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(max(0, min(size, others.MOST_BYTES)))
            if not is_signed(self.headers.get(SIGNATURE_HEADER), source.secret, self.path, body):
                return self._respond(401, b"no valid signature")
            if self.path != others_path(source.artifact):
                return self._respond(404, b"this artifact is not served here")
            for other in others.decoded(body):
                source.others.add(other)
            return self._respond(200, b"")
        except ValueError as error:
            return self._respond(400, str(error).encode())

    def _refuse(self, code: str, wanted: Optional[str]) -> None:
        """Refuse a request; a busy source suggests other sources of the wanted view."""
        suggested = self._source.others.some(wanted) if code == "busy" else None
        self._respond_signed(STATUS[code], code.encode() if suggested is None else others.encoded(suggested))

    def _send(self, view: Optional[str], path: str) -> None:
        source = self._source
        index, entry = source.held(view)
        wanted = next((file for file in index.files if file.path == path), None)
        begin = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "bytes=0-")
        if wanted is None or begin is None or int(begin[1]) > wanted.size:
            return self._respond(404 if wanted is None else 416, b"no such file or range")
        source.table.begin(view, self._fetch)
        with open(os.open(entry.path(path), READ), "rb") as file:
            if not source.verified.settled(os.fstat(file.fileno()), wanted):
                return self._respond(410, b"this file has changed on the disk since it was verified")
            self._send_from(file, int(begin[1]), wanted)
        return None

    def _send_from(self, file: Any, at: int, wanted: File) -> None:
        """Send a verified file from byte `at`, and nothing more of it once it has changed."""
        size, state = wanted.size, state_of(os.fstat(file.fileno()))
        headers = {"Content-Range": f"bytes {at}-{size - 1}/{size}"} if self.headers.get("Range") else {}
        self._head(206 if headers else 200, size - at, headers)
        while at < size:
            status = os.fstat(file.fileno())
            if state_of(status) != state and not self._source.verified.settled(status, wanted):
                self.close_connection = True
                return
            sent = self.connection.sendfile(file, at, min(SLICE, size - at))
            self._source.sent += sent
            if not sent or not self._source.table.sent(self._fetch):
                self.close_connection = True
                return
            at += sent

    def _head(self, status: int, length: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        if status in {202, 429}:
            self.send_header("Retry-After", "1")
        self.end_headers()

    def _respond_signed(self, status: int, body: bytes) -> None:
        self._respond(status, body, {SIGNATURE_HEADER: signature(self._source.secret, self.path, body)})

    def _respond(self, status: int, body: bytes, headers: Optional[Mapping[str, str]] = None) -> None:
        self._head(status, len(body), headers or {})
        self.wfile.write(body)


    def log_message(self, *_: Any) -> None:
        """Log nothing: no one reads an actor's output."""


class WeightsServer(socketserver.ThreadingTCPServer):
    """Serves a source at one address of the node, on a free port."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, source: Source, address: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.source = source
        super().__init__((address, 0), Handler)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    def start(self) -> None:
        """Start serving, in threads that end with the process."""
        threading.Thread(target=self.serve_forever, name="fleetctl-weights", daemon=True).start()
        self._report()

    def serve_instead(self, source: Source) -> None:
        """Serve another source from now on; connections keep the former one."""
        self.source = source
        self._report()

    def _report(self) -> None:
        threading.Thread(target=self.source.report_copy, name="fleetctl-report", daemon=True,
                         args=(host_port(str(self.server_address[0]), self.port),)).start()

    def service_actions(self) -> None:
        """Sweep the table; called twice a second."""
        self.source.table.sweep()

    def handle_error(self, *_: Any) -> None:
        """Ignore the error of a broken connection: the client handles it."""


def _lower_priority() -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
