"""Which files of an artifact on this node are verified: hashed by us, and by their ctime not changed since.

A user can set a file's mtime back, but not its ctime. The table is by inode, because views share files with their
artifact. Each session of a cluster has its own, sealed with its secret, so in a new session every file is hashed again.
Our own links change a ctime as well: the table follows them (`linking`).

No `from __future__ import annotations` here: `parse` reads the types of fields.
"""

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import time
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..mark import utc_now
from ..own_files import replace_own
from ..wire import parse
from .index import File, Index
from .store import Entry

TABLE, KEPT_S = "verified-", 7 * 86400.0
"""Prefix of the tables' names; how long an unchanged table of another session is kept."""
LOCK_S, POLL_S = 5.0, 0.01
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class State(NamedTuple):
    """What any change of a file changes as well; times in nanoseconds."""

    inode: int
    size: int
    mtime: int
    ctime: int


class Row(NamedTuple):
    """A verified file. `content` = its pieces' hashes, hashed; `at` = since when; `read` = hashed as it is on the disk.

    What has just been fetched was hashed as it came from the network: it is to be read once more.
    """

    state: State
    content: str
    at: str
    read: bool


class Table(NamedTuple):
    """The rows as a file, `seal` = that of the session. A row is a list, and so is its state, to keep it short."""

    files: Sequence[Any]
    seal: str


def state_of(status: os.stat_result) -> State:
    """Return the state of a file."""
    return State(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def content_of(file: File) -> str:
    """Return one hash for the content that an index demands of a file."""
    return hashlib.sha256(json.dumps([file.size, *file.chunks]).encode()).hexdigest()


class Verified:
    """The verified files of one artifact, in a table for all processes of the node. A full disk loses rows, no more."""

    def __init__(self, root: str, artifact: str, secret: bytes) -> None:
        self._folder, self._secret = os.path.join(root, artifact), secret
        name = hmac.new(secret, b"TABLE", hashlib.sha256).hexdigest()[:16]
        self._path = os.path.join(self._folder, f"{TABLE}{name}.json")
        self._unsaved: Dict[int, Row] = {}
        """Rows that this process could not save: the disk is read-only or full."""

    def covers(self, status: os.stat_result, file: File) -> bool:
        """Return whether a file in this state has the content of `file`."""
        return self._row(self._rows(), status, file) is not None

    def settled(self, status: os.stat_result, file: File) -> bool:
        """Return the same after waiting for links that a process of this node is just making."""
        if self.covers(status, file):
            return True
        with self._locked() as rows:
            return self._row(rows, status, file) is not None

    def since(self, entry: Entry, index: Index) -> Optional[str]:
        """Return since when all files of an entry are verified; None = some are not."""
        rows = self._rows()
        found = [self._row_of(rows, entry, file) for file in index.files]
        return max((row.at for row in found if row), default=None) if all(found) else None

    def due(self, entry: Entry, index: Index, *, unread: bool = True) -> List[File]:
        """Return the files to hash: not verified in their present state or, with `unread`, never read from the disk."""
        rows = self._rows()
        found = ((file, self._row_of(rows, entry, file)) for file in index.files)
        return [file for file, row in found if row is None or (unread and not row.read)]

    def add(self, entry: Entry, files: Iterable[File]) -> None:
        """Record files that have just been received or written."""
        with contextlib.suppress(OSError):
            self._save([Row(state_of(os.lstat(entry.path(file.path))), content_of(file), utc_now(), False)
                        for file in files])

    def add_read(self, state: State, file: File) -> None:
        """Record a file that was in this state both before and after all of it was read and hashed."""
        self._save([Row(state, content_of(file), utc_now(), True)])

    def _save(self, new: List[Row]) -> None:
        added = {row.state.inode: row for row in new}
        with self._locked() as rows:
            rows.update(added)
        if not self._rows().items() >= added.items():
            self._unsaved.update(added)

    def forget(self, inode: int) -> None:
        """Record that a file is not what it should be."""
        self._unsaved.pop(inode, None)
        with self._locked() as rows:
            rows.pop(inode, None)

    @contextlib.contextmanager
    def linking(self, paths: Iterable[str]) -> Iterator[None]:
        """Give these files more or fewer names within the context: what was verified before is so afterwards."""
        with self._locked() as rows, contextlib.ExitStack() as opened:
            kept: List[Tuple[int, Row]] = []
            for path in paths:
                with contextlib.suppress(OSError):
                    file = os.open(path, READ)
                    opened.callback(os.close, file)
                    row = rows.get(os.fstat(file).st_ino)
                    if row and row.state == state_of(os.fstat(file)):
                        kept.append((file, row))
            try:
                yield
            finally:
                for file, row in kept:
                    rows.pop(row.state.inode, None)
                    if os.fstat(file).st_nlink:
                        rows[row.state.inode] = row._replace(state=state_of(os.fstat(file)))

    def _row_of(self, rows: Dict[int, Row], entry: Entry, file: File) -> Optional[Row]:
        try:
            return self._row(rows, os.lstat(entry.path(file.path)), file)
        except OSError:
            return None

    def _row(self, rows: Dict[int, Row], status: os.stat_result, file: File) -> Optional[Row]:
        found = (rows.get(status.st_ino), self._unsaved.get(status.st_ino))
        state, content = state_of(status), content_of(file)
        return next((row for row in found if row and (row.state, row.content) == (state, content)), None)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Dict[int, Row]]:
        """Hold the table's lock for a moment, and save what was changed."""
        with contextlib.ExitStack() as opened:
            with contextlib.suppress(OSError):  # without it a process may lose rows: those files are hashed again
                lock = os.open(self._path + ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
                opened.callback(os.close, lock)
                _take(lock)
            rows = self._rows()
            before = dict(rows)
            try:
                yield rows
            finally:
                if rows != before:
                    with contextlib.suppress(OSError):
                        if not os.path.exists(self._path):
                            self._remove_old()
                        files = list(rows.values())
                        table = Table(files, self._seal(files))
                        replace_own(self._path, json.dumps(table._asdict()).encode(), 0o644)

    def _remove_old(self) -> None:
        """Remove the tables of sessions that have probably ended."""
        for name in os.listdir(self._folder):
            path = os.path.join(self._folder, name)
            if name.startswith(TABLE) and time.time() - os.lstat(path).st_mtime > KEPT_S:
                os.remove(path)

    def _rows(self) -> Dict[int, Row]:
        """Return the rows of the table; none if it is missing, damaged, or was not sealed by this cluster session."""
        try:
            with open(os.open(self._path, READ), "rb") as file:
                table = parse(Table, json.loads(file.read()))
            if not hmac.compare_digest(table.seal, self._seal(table.files)):
                return {}
            return {state[0]: Row(State(*state), content, at, read) for state, content, at, read in table.files}
        except (OSError, ValueError, TypeError, RecursionError):
            return {}

    def _seal(self, files: Sequence[Any]) -> str:
        return hmac.new(self._secret, b"VERIFIED " + json.dumps(files).encode(), hashlib.sha256).hexdigest()


def _take(lock: int) -> None:
    """Take a lock, or go on without it: a process that holds it for long is stopped, or means no good."""
    deadline = time.monotonic() + LOCK_S
    while time.monotonic() < deadline:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(POLL_S)
    return None
