"""The source: a member's actor serves its node's weights, and views of them, to a few other nodes at a time.

It runs in threads of the actor, at a lower priority than the engine, and ends with the actor. `connections.py` limits
what the network can do to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import threading
import time
import urllib.parse
import uuid
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from ..messages import ServedWeights, WeightSource
from ..ports import host_port
from ..wire import parse
from . import protocol
from .check import READ, CheckedEntry, Verified, state_of
from .connections import Connection, Listener, Request, Session, ShortAnswer, lower_priority
from .fetch import Fetched
from .gather import WrongPiece, layout_of, make_view
from .index import Index, WeightsError
from .protocol import report_copy
from .store import Entry
from .table import RequestRefused, View, ViewTable
from .views import view_id

ANY_PORT = (0,)
MAKE_S = 3600.0
WAIT_S = 5.0
"""Seconds for which a request waits for a pending view before it is answered 202, try again."""
SWEEP_S = 0.5
MOST_KNOWN = 64
KEPT_S = 900.0
"""Seconds for which a replica is suggested: after that a plan knows it, or it is gone."""
STATUS = {"absent": 404, "draining": 409, "pending": 202, "busy": 429, "noRoom": 507, "anotherEntry": 409}
_PATH = re.compile(protocol.PREFIX + r"/(?P<artifact>[0-9a-f]{64})(?:/views/(?P<view>[0-9a-f]{16}))?"
                   r"/(?:(?P<index>index)|files/(?P<file>.+))")


class Others:
    """The latest replicas that got weights from one source, which suggests a few of them while it is busy."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._known: Dict[str, Tuple[WeightSource, float]] = {}
        self._calls = 0

    def add(self, other: WeightSource) -> None:
        """Record a replica as a source."""
        with self._lock:
            self._known.pop(other.address, None)
            self._known[other.address] = other, self._clock() + KEPT_S
            for address in list(self._known)[:-MOST_KNOWN]:
                del self._known[address]

    def some(self, view: Optional[str]) -> List[WeightSource]:
        """Return up to MOST_NAMED sources of the view, the latest first. Each call starts one further down the list."""
        with self._lock:
            now = self._clock()
            fitting = [other for other, until in reversed(list(self._known.values()))
                       if until > now and (other.whole or other.view == view)]
            first = self._calls % max(1, len(fitting))
            self._calls += 1
        return [*fitting[first:], *fitting[:first]][:protocol.MOST_NAMED]


class Source:
    """The weights that one member's actor serves, and the views it makes for other nodes.

    `budget` = the most bytes those views may take; by default half of the free disk. `replica` is for messages.
    """

    def __init__(self, root: str, fetched: Fetched, secret: bytes, clock: Callable[[], float] = time.monotonic,
                 budget: Optional[int] = None, replica: str = "") -> None:
        self._root, self._fetched, self.secret, self._replica = root, fetched, secret, replica
        self.others = Others(clock)
        self.artifact = fetched.entry.artifact
        self.verified = Verified(root, self.artifact, secret)
        limit = shutil.disk_usage(root).free // 2 if budget is None else budget
        self.table = ViewTable(clock, limit, self._drop)
        self._held: Dict[Optional[str], Tuple[Index, Entry]] = {fetched.entry.view: (fetched.held, fetched.entry)}
        if fetched.whole is not None:
            whole = self._entry(None)
            whole.keep()
            self._held[None] = fetched.artifact, whole
        self._own = frozenset(self._held)
        for view, (index, _) in self._held.items():
            self.table.hold(view, index.size)
        self.on_report: Callable[[Entry, str], None] = lambda *_: None
        """Called with an entry and the path of a file, if a receiver reports a wrong piece of it."""
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
            raise RequestRefused("absent")
        return held

    @property
    def described(self) -> ServedWeights:
        """The weights that it has, and since when all their files are verified; not yet where it serves them."""
        got = self._fetched
        return ServedWeights(self.artifact, got.entry.view, got.whole is not None, bytes=got.held.size,
                             verified=self.verified.since(got.entry, got.held))

    def report_copy(self, address: str) -> None:
        """Report this copy, served at `address`, to the sources it came from: they suggest it when they are busy."""
        got = self._fetched
        copy = WeightSource(self._replica, address, got.entry.view, got.whole is not None)
        report_copy(got.suppliers, self.artifact, self.secret, copy)

    def take_report(self, report: protocol.WrongReport) -> None:
        """Have a file checked of which a receiver got a wrong piece. A lie costs only that."""
        held = self._held.get(report.view)
        if held and any(file.path == report.path for file in held[0].files):
            self.on_report(held[1], report.path)

    def checked(self, own: bool) -> List[CheckedEntry]:
        """Return what is to be checked: all that it serves. `own` = its actor can fetch its own weights again.

        Views made for other nodes whose files were found wrong are removed: the next request for one has it made again.
        """
        for view, (_, entry) in list(self._held.items()):
            if view not in self._own and entry.wrong():
                self.table.remove_if_idle(view)
        return [CheckedEntry(entry, index, own and view in self._own)
                for view, (index, entry) in list(self._held.items())]

    def replace_held(self, index: Index) -> None:
        """Take the index of the replica's own weights, which were fetched again."""
        view = self._fetched.entry.view
        self._held[view] = index, self._held[view][1]

    def release(self) -> None:
        """Allow other processes to remove the files: they are no longer served."""
        for _, entry in self._held.values():
            entry.release()

    def index(self, view: Optional[str], request: Optional[protocol.ViewRequest]) -> bytes:
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
            raise RequestRefused("pending")
        return self.held(view)[0].encoded()

    def _start_making(self, view: str, request: Optional[protocol.ViewRequest]) -> None:
        whole = self._fetched.whole
        if whole is None or request is None or view_id(*request, self.artifact) != view:
            raise RequestRefused("absent")
        failure = self._failed.pop(view, None)
        if failure:
            raise WeightsError(failure)
        layout = layout_of(self._entry(None), self._fetched.artifact, *request)
        if self.table.reserve(view, layout.size) != "make":
            return

        def make() -> None:
            lower_priority()
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
                if isinstance(error, WrongPiece):
                    self.on_report(self._entry(None), error.path)
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


class Handler(Session):
    """The requests of one connection, which is one fetch from its first bytes on."""

    def __init__(self, source: Source, connection: Connection) -> None:
        self._source = source  # for the whole connection, even if the server gets a new source
        self.connection = connection
        self._proof: Optional[protocol.Proof] = None
        self._fetch = uuid.uuid4().hex

    def accept(self, request: Request) -> Optional[ShortAnswer]:
        """Exchange nonces once, and refuse every other request without a valid token."""
        theirs = request.path[len(protocol.NONCE_PATH):]
        if self._proof is None and request.path.startswith(protocol.NONCE_PATH) and protocol.is_nonce(theirs):
            own = protocol.new_nonce()
            self._proof = protocol.proof_of_source(self._source.secret, (theirs, own), self.connection.socket)
            return ShortAnswer(200, own.encode())
        if self._proof is not None and self._proof.admits(
                request.headers.get("Authorization"), request.method, request.path, request.body):
            return None
        if request.path.startswith("/v1/"):
            return ShortAnswer(401, b"no valid token: the receiver runs an older fleetctl, whose tokens are good on "
                               b"any connection")
        return ShortAnswer(401, b"no valid token for this connection: the secret is another cluster's, or the network "
                           b"translates addresses")

    def answer(self, request: Request) -> None:
        """Answer a request with a valid token."""
        self._request = request
        if request.method == "POST":
            self._post()
        else:
            self._get()

    def end(self) -> None:
        """End the fetch."""
        self._source.table.end(self._fetch)

    def _get(self) -> None:
        """Send an index or the bytes of a file."""
        source, headers = self._source, self._request.headers
        match = _PATH.fullmatch(self._request.path)
        if match is None or match["artifact"] != source.artifact:
            return self._respond(404, b"this artifact is not served here")
        try:
            if match["index"]:
                described = json.loads(headers.get(protocol.VIEW_HEADER) or "null")
                wanted = None if described is None else parse(protocol.ViewRequest, described)
                return self._respond(200, source.index(match["view"], wanted))
            return self._send(match["view"], urllib.parse.unquote(match["file"]))
        except RequestRefused as refused:
            return self._refuse(refused.code, match["view"] or headers.get(protocol.WANTED_HEADER))
        except (WeightsError, ValueError) as error:
            return self._respond(500, str(error).encode())

    def _post(self) -> None:
        """Receive a report of another copy, or of a wrong piece."""
        source = self._source
        if self._request.path not in {protocol.others_path(source.artifact), protocol.wrong_path(source.artifact)}:
            return self._respond(404, b"this artifact is not served here")
        try:
            if self._request.path == protocol.wrong_path(source.artifact):
                source.take_report(parse(protocol.WrongReport, json.loads(self._request.body)))
                return self._respond(200, b"")
            for other in protocol.decoded(self._request.body[:protocol.MOST_NAMED_BYTES]):
                source.others.add(other)
        except (ValueError, RecursionError) as error:
            return self._respond(400, str(error).encode())
        return self._respond(200, b"")

    def _refuse(self, code: str, wanted: Optional[str]) -> None:
        """Refuse a request; a busy source suggests other sources of the wanted view."""
        suggested = self._source.others.some(wanted) if code == "busy" else None
        self._respond(STATUS[code], code.encode() if suggested is None else protocol.encoded(suggested))

    def _send(self, view: Optional[str], path: str) -> None:
        source, given = self._source, self._request.headers.get("Range")
        index, entry = source.held(view)
        wanted = next((file for file in index.files if file.path == path), None)
        begin = re.fullmatch(r"bytes=(\d+)-", given or "bytes=0-")
        if wanted is None or begin is None or int(begin[1]) > wanted.size:
            return self._respond(404 if wanted is None else 416, b"no such file or range")
        source.table.begin(view, self._fetch)
        at, size = int(begin[1]), wanted.size
        with open(os.open(entry.path(path), READ), "rb") as file:
            before, wrong = os.fstat(file.fileno()), entry.wrong()
            if not source.verified.settled(before, wanted) or (wrong and wrong.path == path):
                return self._respond(410, b"this file has changed on the disk since it was verified")

            def sent(size: int) -> bool:
                """Count sent bytes; returns whether the fetch may continue: not once the file has changed."""
                source.sent += size
                now = os.fstat(file.fileno())
                return source.table.sent(self._fetch) and (
                    state_of(now) == state_of(before) or source.verified.settled(now, wanted))

            self.connection.send_head(206 if given else 200, size - at,
                                      {"Content-Range": f"bytes {at}-{size - 1}/{size}"} if given else {})
            self.connection.send_file(file, at, size, sent)
        return None

    def _respond(self, status: int, body: bytes) -> None:
        assert self._proof is not None
        signed = self._proof.signature(self._request.path, body)
        self.connection.send(ShortAnswer(status, body, {protocol.SIGNATURE_HEADER: signed}))


def serve_weights(source: Source, ip: str, ports: Optional[str], former: Optional[WeightsServer] = None,
                  ) -> Tuple[Optional[WeightsServer], ServedWeights]:
    """Serve a source at one of `ports` (FIRST-LAST, none; None = any free port), by the `former` server if it may.

    Returns the server, None = it is not served, and what the member's place says of it. Never raises: a replica must
    not end because others cannot fetch from it.
    """
    server, why = None, f"weightsPorts of this node is {ports}"
    try:
        first, _, last = (ports or "").partition("-")
        allowed = range(int(first), int(last) + 1) if last else () if ports else ANY_PORT
        if former is not None and (former.port in allowed or allowed == ANY_PORT):
            former.serve_instead(source)
            server = former
        elif allowed:
            server = WeightsServer(source, ip, allowed)
            server.start()
    except (OSError, ValueError, OverflowError, RuntimeError) as error:
        if server is not None:
            server.close()
        server, why = None, f"no port of {ports or 'this node'} can be used: {error}"
    if former is not None and former is not server:
        former.close()
    served = source.described._replace(ports=ports or None)
    return server, served._replace(port=server.port) if server else served._replace(unserved=why)


class WeightsServer:
    """Serves a source at one address of the node, at the first free one of `ports`; raises OSError if none is free."""

    def __init__(self, source: Source, address: str, ports: Sequence[int] = ANY_PORT) -> None:
        self.source = source
        self._listener = Listener(address, ports, lambda connection: Handler(self.source, connection))
        self._closed = threading.Event()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._listener.address[1]

    def start(self) -> None:
        """Start serving, in threads that end with the process."""
        self._listener.start()
        threading.Thread(target=self._sweep, name="fleetctl-sweep", daemon=True).start()
        self._report()

    def serve_instead(self, source: Source) -> None:
        """Serve another source from now on; connections keep the former one."""
        self.source = source
        self._report()

    def close(self) -> None:
        """Stop serving, and close all connections."""
        self._closed.set()
        self._listener.stop()

    def __enter__(self) -> WeightsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _report(self) -> None:
        threading.Thread(target=self.source.report_copy, name="fleetctl-report", daemon=True,
                         args=(host_port(*self._listener.address),)).start()

    def _sweep(self) -> None:
        """Sweep the table: end expired leases, and remove idle views, which may take a while."""
        lower_priority()
        while not self._closed.wait(SWEEP_S):
            self.source.table.sweep()
