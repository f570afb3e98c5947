"""Which files of an artifact on this node are verified, and the checks: some at once, all in the background later.

Verified: hashed by us, and by their ctime not changed since. A user can set a file's mtime back, but not its ctime. The
table is by inode, because views share files with their artifact. Each session of a cluster has its own, sealed with its
secret, so in a new session every file is hashed again. Our own links change a ctime as well: the table follows them
(`linking`).

A file that changes while an engine runs is found by its ctime, or by a receiver of its pieces. It is no longer served.
It is fetched again beside the one in place, and swapped in for the next start. A running engine is never touched, and
the files it has open stay.

No `from __future__ import annotations` here: `parse` reads the types of fields.
"""

import contextlib
import errno
import fcntl
import hashlib
import hmac
import json
import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..own_files import replace_own
from ..report import utc_now
from ..wire import parse
from .index import PIECE, File, Index, WeightsError
from .memory import usable_cores
from .store import Entry, Wrong

TABLE, KEPT_S = "verified-", 7 * 86400.0
"""Prefix of the tables' names; how long an unchanged table of another session is kept."""
LOCK_S, POLL_S = 5.0, 0.01
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileState(NamedTuple):
    """What any change of a file changes as well; times in nanoseconds."""

    inode: int
    size: int
    mtime: int
    ctime: int


class VerifiedFile(NamedTuple):
    """A verified file. `content` = its pieces' hashes, hashed; `at` = since when; `read` = hashed as it is on the disk.

    What has just been fetched was hashed as it came from the network: it is to be read once more.
    """

    state: FileState
    content: str
    at: str
    read: bool


class VerifiedTable(NamedTuple):
    """The rows as a file, `seal` = that of the session. A row is a list, and so is its state, to keep it short."""

    files: Sequence[Any]
    seal: str


def state_of(status: os.stat_result) -> FileState:
    """Return the state of a file."""
    return FileState(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def content_of(file: File) -> str:
    """Return one hash for the content that an index demands of a file."""
    return hashlib.sha256(json.dumps([file.size, *file.chunks]).encode()).hexdigest()


class Verified:
    """The verified files of one artifact, in a table for all processes of the node. A full disk loses rows, no more."""

    def __init__(self, root: str, artifact: str, secret: bytes) -> None:
        self._folder, self._secret = os.path.join(root, artifact), secret
        name = hmac.new(secret, b"TABLE", hashlib.sha256).hexdigest()[:16]
        self._path = os.path.join(self._folder, f"{TABLE}{name}.json")
        self._unsaved: Dict[int, VerifiedFile] = {}
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
            self._save([VerifiedFile(state_of(os.lstat(entry.path(file.path))), content_of(file), utc_now(), False)
                        for file in files])

    def add_read(self, state: FileState, file: File) -> None:
        """Record a file that was in this state both before and after all of it was read and hashed."""
        self._save([VerifiedFile(state, content_of(file), utc_now(), True)])

    def _save(self, new: List[VerifiedFile]) -> None:
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
            kept: List[Tuple[int, VerifiedFile]] = []
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

    def _row_of(self, rows: Dict[int, VerifiedFile], entry: Entry, file: File) -> Optional[VerifiedFile]:
        try:
            return self._row(rows, os.lstat(entry.path(file.path)), file)
        except OSError:
            return None

    def _row(self, rows: Dict[int, VerifiedFile], status: os.stat_result, file: File) -> Optional[VerifiedFile]:
        found = (rows.get(status.st_ino), self._unsaved.get(status.st_ino))
        state, content = state_of(status), content_of(file)
        return next((row for row in found if row and (row.state, row.content) == (state, content)), None)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Dict[int, VerifiedFile]]:
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
                        table = VerifiedTable(files, self._seal(files))
                        replace_own(self._path, json.dumps(table._asdict()).encode(), 0o644)

    def _remove_old(self) -> None:
        """Remove the tables of sessions that have probably ended."""
        for name in os.listdir(self._folder):
            path = os.path.join(self._folder, name)
            if name.startswith(TABLE) and time.time() - os.lstat(path).st_mtime > KEPT_S:
                os.remove(path)

    def _rows(self) -> Dict[int, VerifiedFile]:
        """Return the rows of the table; none if it is missing, damaged, or was not sealed by this cluster session."""
        try:
            with open(os.open(self._path, READ), "rb") as file:
                table = parse(VerifiedTable, json.loads(file.read()))
            if not hmac.compare_digest(table.seal, self._seal(table.files)):
                return {}
            return {state[0]: VerifiedFile(FileState(*state), content, at, read)
                    for state, content, at, read in table.files}
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


SWEEP_S = 30.0
"""Interval at which the states of the files are compared with those that are verified."""
REST = 20
"""So many times as long as a check on request took is the pause until the next one."""
AT_ONCE = 16 << 20
"""So many bytes are hashed before a start, the smallest files first: configuration, tokenizers, code."""
BLOCK = 1 << 20
TICK_S = 0.02
"""Longer than the steps in which a kernel counts ctimes: a change soon after another one might have the same ctime."""
SLOWEST_BYTES_S = float(200 << 20)
"""At which rate another process must be checking an entry: with a lower one it may be stopped, or mean no good."""
NICE = 19
TRIES = 3
SHORT_OF = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors that say nothing about a file: it is checked later."""
BAD_MEDIUM = {errno.EIO, errno.EBADMSG, errno.EUCLEAN}
RETRY_S, MOST_RETRY_S = 60.0, 3600.0


class CheckedEntry(NamedTuple):
    """An entry that an actor uses or serves. `own` = the actor can fetch it again."""

    entry: Entry
    files: Index
    own: bool = True


class CheckResult(NamedTuple):
    """What a check found or did: `verified`, `wrong`, `fetched` again, or `unfetched` because of `trouble`."""

    what: str
    entry: Entry
    wrong: Optional[Wrong] = None
    trouble: str = ""

    def __str__(self) -> str:
        if self.wrong is None:
            return f"all files in {self.entry.folder} were read and are verified"
        place = f"{self.wrong.path} in {self.entry.folder}"
        return {
            "wrong": f"{place} is not what the index says: piece {self.wrong.piece}, {self.wrong.reason}; it is no"
                     " longer served, and the engine may have loaded it",
            "fetched": f"{place} was fetched again, for the next start",
            "unfetched": f"{place} could not be fetched again: {self.trouble}",
        }[self.what]


def cores() -> int:
    """Return how many threads hash at a time: a quarter of the cores, but at least two of them and at most four."""
    usable = usable_cores()
    return min(4, max(int(min(2.0, usable)), int(usable // 4), 1))


def lower_priority() -> None:
    """Give this thread the lowest priority for the processors, and so for the disk."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


def check_file(entry: Entry, file: File, verified: Verified, pool: Optional[ThreadPoolExecutor] = None
               ) -> Optional[Wrong]:
    """Hash a file and record the result: it is verified (None), or wrong. A file that keeps changing stays unverified.

    Raises OSError if it cannot be checked now. What processes have written through memory maps is flushed first: from
    then on a further write changes the ctime.
    """
    for _ in range(TRIES):
        try:
            opened = os.open(entry.path(file.path), READ)
        except OSError as error:
            if error.errno in SHORT_OF:
                raise
            return _found(entry, file, 0, f"it cannot be opened: {error.strerror}")
        with open(opened, "rb", buffering=0):
            with contextlib.suppress(OSError):  # a read-only disk
                os.fsync(opened)
            before = os.fstat(opened)
            if not stat.S_ISREG(before.st_mode) or before.st_size != file.size:
                return _found(entry, file, min(before.st_size, file.size) // PIECE, "it has another size")
            time.sleep(min(TICK_S, max(0.0, TICK_S - time.time() + before.st_ctime_ns / 1e9)))
            hashes = (pool.map if pool else map)(_piece, [opened] * len(file.chunks), range(len(file.chunks)))
            bad = [(number, found) for number, found in enumerate(hashes) if found != file.chunks[number]]
            if state_of(os.fstat(opened)) != state_of(before):
                continue
        if not bad:
            verified.add_read(state_of(before), file)
            return None
        verified.forget(before.st_ino)
        number, found = bad[0]
        return _found(entry, file, number, found if " " in found else "its content has changed")
    return None


def _piece(opened: int, number: int) -> str:
    """Return the hash of a piece, or why it cannot be read."""
    hashed, buffer = hashlib.sha256(), memoryview(bytearray(BLOCK))
    at, end = number * PIECE, (number + 1) * PIECE
    while at < end:
        try:
            size = os.preadv(opened, [buffer[:end - at]], at)
        except OSError as error:
            if error.errno not in BAD_MEDIUM:
                raise
            return f"it cannot be read: {error.strerror}"
        if not size:
            break
        hashed.update(buffer[:size])
        at += size
    return hashed.hexdigest()


def _found(entry: Entry, file: File, piece: int, reason: str) -> Wrong:
    wrong = Wrong(file.path, piece, reason, utc_now())
    with contextlib.suppress(OSError):  # a read-only disk: then every start checks it again
        entry.mark_wrong(wrong)
    return wrong


def check_small(entry: Entry, index: Index, verified: Verified) -> Optional[Wrong]:
    """Hash the changed files of an entry before a start uses them, up to AT_ONCE bytes; returns the first wrong one."""
    left = AT_ONCE
    for file in sorted(verified.due(entry, index, unread=False), key=lambda file: file.size):
        left -= file.size
        if left < 0:
            return None
        wrong = check_file(entry, file, verified)
        if wrong:
            return wrong
    return None


def check_changed(entry: Entry, index: Index, verified: Verified) -> Optional[Wrong]:
    """Hash all files of an entry that have changed; returns the first wrong one."""
    return _first_wrong(entry, verified.due(entry, index, unread=False), verified)


def _first_wrong(entry: Entry, files: Sequence[File], verified: Verified,
                 closed: Callable[[], bool] = lambda: False) -> Optional[Wrong]:
    with ThreadPoolExecutor(cores(), initializer=lower_priority) as pool:
        for file in files:
            wrong = None if closed() else check_file(entry, file, verified, pool)
            if wrong:
                return wrong
    return None


class BackgroundCheck:
    """The check of what one actor uses and serves, in a thread of low priority, until `close`.

    `held` returns its entries. `repair` fetches an entry again; raises WeightsError. `report` is told each finding.
    """

    def __init__(self, held: Callable[[], Sequence[CheckedEntry]], verified: Verified, repair: Callable[[Entry], None],
                 report: Callable[[CheckResult], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._held, self._verified, self._repair, self._report = held, verified, repair, report
        self._clock = clock
        self._requested: Set[Tuple[str, str]] = set()
        self._next_request: Dict[str, float] = {}
        self._waits_since: Dict[str, float] = {}
        """Since when another process checks an entry."""
        self._unmarked: Dict[str, Wrong] = {}
        """What was found wrong on a disk that is read-only."""
        self._reported: Dict[str, Wrong] = {}
        self._repairs: Dict[str, Tuple[float, float]] = {}
        """The time of the next try to fetch an entry again, and the pause after it."""
        self._wake, self._closed = threading.Event(), False

    def start(self) -> None:
        """Check now, and then every SWEEP_S seconds what has changed."""
        threading.Thread(target=self._run, name="fleetctl-check", daemon=True).start()

    def close(self) -> None:
        """Check nothing more; a file that is being hashed is finished."""
        self._closed = True
        self._wake.set()

    def request(self, entry: Entry, path: str) -> None:
        """Hash a file soon, even if it has not changed: a receiver got a wrong piece.

        Requests take at most 1 / REST of the time: a receiver may lie.
        """
        if self._clock() >= self._next_request.get(entry.folder, 0.0):
            self._next_request[entry.folder] = float("inf")
            self._requested.add((entry.folder, path))
            self._wake.set()

    def _run(self) -> None:
        lower_priority()
        while not self._closed:
            self._wake.clear()
            with contextlib.suppress(OSError, RuntimeError):  # no free disk, file or thread: the next sweep tries again
                self.sweep()
            self._wake.wait(SWEEP_S)

    def sweep(self) -> None:
        """Hash what is due, report what is wrong, and fetch it again."""
        for held in self._held():
            if self._closed:
                return
            if self._wrong(held.entry) is None and self._due(held):
                self._check(held)
            wrong = self._wrong(held.entry)
            if wrong is None:
                continue
            if self._reported.get(held.entry.folder) != wrong:
                self._reported[held.entry.folder] = wrong
                self._report(CheckResult("wrong", held.entry, wrong))
            if held.own:
                self._fetch_again(held.entry, wrong)

    def _wrong(self, entry: Entry) -> Optional[Wrong]:
        return entry.wrong() or self._unmarked.get(entry.folder)

    def _due(self, held: CheckedEntry) -> List[File]:
        due = self._verified.due(held.entry, held.files)
        return [*due, *(file for file in held.files.files
                        if (held.entry.folder, file.path) in self._requested and file not in due)]

    def _check(self, held: CheckedEntry) -> None:
        """Hash what is due, unless another process of this node does that for this entry."""
        with self._alone(held.entry) as alone:
            since = self._waits_since.setdefault(held.entry.folder, self._clock())
            if not alone and self._clock() - since < SWEEP_S + held.files.size / SLOWEST_BYTES_S:
                return
            self._waits_since.pop(held.entry.folder)
            files, begun = self._due(held), self._clock()  # others may have hashed some of them by now
            wrong = _first_wrong(held.entry, files, self._verified, lambda: self._closed)
            took_s = self._clock() - begun
        requested = {(held.entry.folder, file.path) for file in files} & self._requested
        if requested:
            self._requested -= requested
            self._next_request[held.entry.folder] = self._clock() + max(SWEEP_S, REST * took_s)
        if wrong is not None and held.entry.wrong() is None:
            self._unmarked[held.entry.folder] = wrong
        if wrong is None and self._verified.since(held.entry, held.files):
            self._report(CheckResult("verified", held.entry))

    def _fetch_again(self, entry: Entry, wrong: Wrong) -> None:
        """Fetch a wrong file again, beside the one in place. After a failure the pauses double."""
        due, pause_s = self._repairs.get(entry.folder, (0.0, RETRY_S))
        if self._clock() < due:
            return
        try:
            self._repair(entry)
        except (WeightsError, OSError) as error:
            self._repairs[entry.folder] = self._clock() + pause_s, min(2 * pause_s, MOST_RETRY_S)
            self._report(CheckResult("unfetched", entry, wrong, str(error)))
            return
        self._repairs.pop(entry.folder, None)
        self._unmarked.pop(entry.folder, None)
        self._report(CheckResult("fetched", entry, wrong))
        self._wake.set()  # to read what was fetched from the disk

    @contextlib.contextmanager
    def _alone(self, entry: Entry) -> Iterator[bool]:
        """Yield whether no other process of this node is checking this entry."""
        with contextlib.ExitStack() as opened:
            alone = True
            with contextlib.suppress(OSError):  # a read-only disk: then each process checks on its own
                lock = os.open(entry.folder + ".check", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
                opened.callback(os.close, lock)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    alone = False
            yield alone
