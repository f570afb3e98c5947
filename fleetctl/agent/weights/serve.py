"""The source: a member's actor serves what its node holds to others of the cluster, a few at a time, and views of it.

Threads of the actor, which has nothing else to do: the kernel sends the bytes, at a lower priority than the engine, and
all of it ends with the actor.
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
from .index import Index, WeightsError
from .peers import SIGNATURE_HEADER, VIEW_HEADER, WANTED_HEADER, is_signed, others_path, signature, tell, token
from .store import Entry
from .table import LEASE_S, Refused, Table, View
from .views import view_id

SLICE = 1 << 20
MAKE_S = 3600.0
WAIT_S = 5.0
"""How long a request waits for a view that is made, before it is told to ask again."""
NICE = 10
STATUS = {"absent": 404, "draining": 409, "pending": 202, "busy": 429, "noRoom": 507, "anotherEntry": 409}
_PATH = re.compile(r"/v1/(?P<artifact>[0-9a-f]{64})(?:/views/(?P<view>[0-9a-f]{16}))?"
                   r"/(?:(?P<index>index)|files/(?P<file>.+))")


class Source:
    """What one member's actor serves, and the views that it makes for others. `budget` = bytes of such views.

    `replica` = whose member it is, for people.
    """

    def __init__(self, root: str, fetched: Fetched, secret: bytes, clock: Callable[[], float] = time.monotonic,
                 budget: Optional[int] = None, replica: str = "") -> None:
        self._root, self._fetched, self.secret, self._replica = root, fetched, secret, replica
        self.others = others.Others(clock)
        self.artifact = fetched.entry.artifact
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
        """Return index and folder of what is served; raises Refused."""
        found = self._held.get(view)
        if found is None:
            raise Refused("absent")
        return found

    def tell_givers(self, address: str) -> None:
        """Tell those that gave it that it is served at this address, too: they name it to others."""
        got = self._fetched
        tell(got.givers, self.artifact, self.secret, {
            "replica": self._replica, "address": address, "view": got.entry.view, "whole": got.whole is not None})

    def release(self) -> None:
        """Let others remove what is served no longer."""
        for _, entry in self._held.values():
            entry.release()

    def index(self, view: Optional[str], asked: Optional[Mapping[str, Any]]) -> bytes:
        """Return the index of the artifact, or of a view; `asked` says which view to make where it is not here yet.

        Raises Refused, with `pending` while it is made, and WeightsError where it cannot be made.
        """
        if view is None:
            return self._fetched.artifact.encoded()
        if self.table.state(view) is None:
            self._begin_to_make(view, asked)
        with self._made:
            self._made.wait_for(lambda: self.table.state(view) != "pending", WAIT_S)
        if self.table.state(view) is None:
            self._begin_to_make(view, asked)
        if self.table.state(view) == "pending":
            raise Refused("pending")
        return self.held(view)[0].encoded()

    def _begin_to_make(self, view: str, asked: Optional[Mapping[str, Any]]) -> None:
        whole = self._fetched.whole
        if whole is None or asked is None or view_id(
                asked["view"], asked["rank"], asked["size"], self.artifact) != view:
            raise Refused("absent")
        failed = self._failed.pop(view, None)
        if failed:
            raise WeightsError(failed)
        layout = layout_of(self._entry(None), self._fetched.artifact, asked["view"], asked["rank"], asked["size"])
        if self.table.reserve(view, layout.size) != "make":
            return

        def make() -> None:
            _be_nice()
            entry = self._entry(view)
            try:
                entry.keep()
                with entry.writing(time.monotonic() + MAKE_S):
                    here = entry.index()
                    made = here or make_view(self._entry(None), whole, self._fetched.artifact, layout, entry)
                    self._held[view] = made, entry
                    self.made += 1
                    self._settle(self.table.commit, view)
                    if here is None:  # others need not wait for the disk
                        with contextlib.suppress(OSError):
                            entry.record(made)
            except Exception as error:
                self._failed[view] = f"the view cannot be made: {error}"
                entry.release()
                self._settle(self.table.forget, view)

        threading.Thread(target=make, name="fleetctl-view", daemon=True).start()

    def _settle(self, how: Callable[[str], None], view: str) -> None:
        """End what is pending, and wake who waits for it."""
        how(view)
        with self._made:
            self._made.notify_all()

    def _drop(self, view: View) -> bool:
        """Remove a view that was made for others; not where another process of the node uses it."""
        held = self._held.pop(view)
        entry = held[1]
        entry.release()
        if entry.remove():
            return True
        entry.keep()
        self._held[view] = held  # its index may not be on the disk yet
        return False


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection, which is one fetch from its first bytes on."""

    protocol_version = "HTTP/1.1"
    timeout = LEASE_S
    wbufsize = 0
    disable_nagle_algorithm = True  # else the body of a small answer waits until its head has arrived: 40 ms
    server: "WeightsServer"

    def setup(self) -> None:
        """Begin a connection."""
        super().setup()
        _be_nice()
        self._source = self.server.source  # to the end of the connection, whatever is served after it
        self._fetch = uuid.uuid4().hex

    def finish(self) -> None:
        """End the connection, and the fetch with it."""
        self._source.table.end(self._fetch)
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        """Answer with an index or with the bytes of a file."""
        source = self._source
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token(source.secret, self.path)}".encode()):
            return self._answer(401, b"no valid token")
        match = _PATH.fullmatch(self.path)
        if match is None or match["artifact"] != source.artifact:
            return self._answer(404, b"this artifact is not here")
        try:
            if match["index"]:
                asked = json.loads(self.headers.get(VIEW_HEADER) or "null")
                return self._answer_signed(200, source.index(match["view"], asked))
            return self._send(match["view"], urllib.parse.unquote(match["file"]))
        except Refused as refused:
            return self._refuse(refused.code, match["view"] or self.headers.get(WANTED_HEADER))
        except (WeightsError, ValueError, KeyError, TypeError) as error:
            return self._answer(500, str(error).encode())

    def do_POST(self) -> None:
        """Hear who else has it now."""
        source = self._source
        self.close_connection = True
        try:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(max(0, min(size, others.MOST_BYTES)))
            if not is_signed(self.headers.get(SIGNATURE_HEADER), source.secret, self.path, body):
                return self._answer(401, b"no valid signature")
            if self.path != others_path(source.artifact):
                return self._answer(404, b"this artifact is not here")
            for other in others.decoded(body):
                source.others.add(other)
            return self._answer(200, b"")
        except ValueError as error:
            return self._answer(400, str(error).encode())

    def _refuse(self, code: str, wanted: Optional[str]) -> None:
        """Answer that nothing is given now, and where that is because of others, who else has the view."""
        self._answer_signed(STATUS[code], others.encoded(self._source.others.some(wanted)) if code == "busy"
                            else code.encode())

    def _send(self, view: Optional[str], path: str) -> None:
        source = self._source
        index, entry = source.held(view)
        size = next((file.size for file in index.files if file.path == path), None)
        begin = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "bytes=0-")
        if size is None or begin is None or int(begin[1]) > size:
            return self._answer(404 if size is None else 416, b"no such file or range")
        source.table.begin(view, self._fetch)
        with open(entry.path(path), "rb") as file:
            if os.fstat(file.fileno()).st_size != size:
                return self._answer(410, b"the file was changed")
            self._send_from(file, int(begin[1]), size)
        return None

    def _send_from(self, file: Any, at: int, size: int) -> None:
        headers = {"Content-Range": f"bytes {at}-{size - 1}/{size}"} if self.headers.get("Range") else {}
        self._head(206 if headers else 200, size - at, headers)
        while at < size:
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

    def _answer_signed(self, status: int, body: bytes) -> None:
        self._answer(status, body, {SIGNATURE_HEADER: signature(self._source.secret, self.path, body)})

    def _answer(self, status: int, body: bytes, headers: Optional[Mapping[str, str]] = None) -> None:
        self._head(status, len(body), headers or {})
        self.wfile.write(body)

    def handle(self) -> None:
        """Answer until the other side is gone or still for the time of a lease."""
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, *_: Any) -> None:
        """Write nothing: an actor's output is nobody's."""


class WeightsServer(socketserver.ThreadingTCPServer):
    """Serves a source at one address of the node, at a port of its own."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, source: Source, address: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.source = source
        super().__init__((address, 0), Handler)

    @property
    def port(self) -> int:
        """Return the port."""
        return int(self.server_address[1])

    def start(self) -> None:
        """Serve from now on, in threads that end with the process."""
        threading.Thread(target=self.serve_forever, name="fleetctl-weights", daemon=True).start()
        threading.Thread(target=self.source.tell_givers, name="fleetctl-tell", daemon=True,
                         args=(host_port(str(self.server_address[0]), self.port),)).start()

    def service_actions(self) -> None:
        """End what is over, twice a second."""
        self.source.table.sweep()

    def handle_error(self, *_: Any) -> None:
        """Leave a connection that broke: who fetches knows it."""


def _be_nice() -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
