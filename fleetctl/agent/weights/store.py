"""The weights on a node's disk: files by artifact and view, renamed into place when complete.

`<root>/<artifact>/files` holds an artifact's files, `<root>/<artifact>/views/<id>` the files of a view. Next to each
folder are its index (`.json`, written last), unfinished files (`.part`), the first file that was found wrong (`.wrong`:
the next start fetches it again), and two locks: `.lock` for the one writing process, `.use` shared by the readers.
Which files are verified is in a table of the artifact (verified.py).

No `from __future__ import annotations` here: `parse` reads the types of fields.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from functools import partial
from typing import Any, Callable, ContextManager, Iterator, List, NamedTuple, Optional, Set, Tuple

from ..own_files import open_own, replace_own
from ..report import utc_now
from ..wire import document_of, parse
from .index import PIECE, File, Index, WeightsError, read_index

HEADROOM = 1 << 30
LOCK_POLL_S = 0.1
_ARTIFACT = re.compile(r"[0-9a-f]{64}")
_VIEW = re.compile(r"[0-9a-f]{16}(?=\.|$)")


class OutOfTime(WeightsError):
    """The weights were not complete at the deadline."""


class Wrong(NamedTuple):
    """A file that is not what the index says. `piece` counts from 0; `at` = when that was found, in UTC."""

    path: str
    piece: int
    reason: str
    at: str


class CachedArtifact(NamedTuple):
    """An artifact with files in the cache. `bytes` = size of its files and views; `used` = a process uses any.

    `removed` = whether it was just removed, `trouble` = why it could not be. `cache` = the model and fleet whose
    compile cache it is; None = weights.
    """

    artifact: str
    bytes: int
    used: bool
    removed: Optional[bool] = None
    trouble: Optional[str] = None
    cache: Optional[str] = None


def cache_root() -> str:
    """Return the folder for weights on this node: FLEETCTL_CACHE_DIR, or the user's cache."""
    env = os.environ
    cache = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".cache")
    return os.path.abspath(env.get("FLEETCTL_CACHE_DIR") or os.path.join(cache, "fleetctl", "weights"))


def require_own_folder(root: str, artifact: str) -> None:
    """Raise WeightsError if anyone may write to the cache, and the artifact's folder there is not this user's.

    Otherwise there is such a folder afterwards, if the disk can be written to, whatever the umask is.
    """
    folder = os.path.join(root, artifact)
    with contextlib.suppress(OSError):
        os.makedirs(root, exist_ok=True)
        os.mkdir(folder, 0o755)
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(folder)
        is_folder = stat.S_ISDIR(found.st_mode)
        if os.stat(root).st_mode & stat.S_IWOTH and not (is_folder and found.st_uid == _own_uid(root)):
            raise WeightsError(f"{folder} is not a folder of this user, and anyone may write to {root}: remove it, or"
                               " set FLEETCTL_CACHE_DIR to a folder to which only this user may write")


def _own_uid(folder: str) -> int:
    """Return the user to whom a new file of ours in the folder belongs: a file server may call root nobody."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            return os.fstat(probe.fileno()).st_uid
    except OSError:
        return os.geteuid()


class Entry:
    """One folder of files: a whole artifact or one view. `free` = function from path to free disk bytes."""

    def __init__(self, root: str, artifact: str, view: Optional[str],
                 free: Optional[Callable[[str], int]] = None) -> None:
        self.artifact, self.view = artifact, view
        self.folder = os.path.join(root, artifact, *(["views", view] if view else ["files"]))
        self._held: Optional[int] = None
        self._free = free or (lambda path: shutil.disk_usage(path).free)

    def path(self, path: str) -> str:
        """Path of a verified file."""
        return os.path.join(self.folder, path)

    def part_path(self, path: str) -> str:
        """Path of a file that is being written."""
        return os.path.join(self.folder + ".part", path)

    def index(self) -> Optional[Index]:
        """Return the entry's index; None = incomplete: a file is missing, has another size, or was found wrong.

        Nothing is hashed here: the content may have changed (`Verified.due`).
        """
        index = None if os.path.lexists(self.folder + ".wrong") else self._recorded()
        whole = index and self.is_plain(index) and not any(self._out_of_place(file) for file in index.files)
        return index if whole else None

    def _recorded(self) -> Optional[Index]:
        try:
            with open(self.folder + ".json", "rb") as record:
                return read_index(record.read())
        except (OSError, WeightsError):
            return None

    def _out_of_place(self, file: File) -> str:
        """Return why there is no such file; empty if there is."""
        try:
            status = os.lstat(self.path(file.path))
        except OSError:
            return "it is missing"
        if not stat.S_ISREG(status.st_mode):
            return "it is no plain file"
        return "" if status.st_size == file.size else "it has another size"

    def replaced(self) -> Optional[Wrong]:
        """Return a file of a once complete entry in whose place is something else, and was not just removed."""
        index = self._recorded()
        if index and not self.is_plain(index) and index.files:
            return Wrong(index.files[0].path, 0, "its folder is a link", utc_now())
        found = ((file, self._out_of_place(file)) for file in (index.files if index else ()))
        return next((Wrong(file.path, 0, reason, utc_now()) for file, reason in found
                     if reason and os.path.lexists(self.path(file.path))), None)

    def is_plain(self, index: Index) -> bool:
        """Return whether no folder of the entry is a link, which may lead anywhere."""
        return not any(os.path.islink(folder) for folder in self._folders(index))

    def _folders(self, index: Index) -> Set[str]:
        """Return the folder of the entry and those below it."""
        found = {self.folder}
        for file in index.files:
            parts = file.path.split("/")[:-1]
            found.update(self.path("/".join(parts[:count + 1])) for count in range(len(parts)))
        return found

    def wrong(self) -> Optional[Wrong]:
        """Return the first file that was found wrong; None = none was, or it has been fetched again."""
        try:
            with open(self.folder + ".wrong", "rb") as record:
                return parse(Wrong, json.loads(record.read()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return Wrong("a file", 0, "it was found wrong", "")

    def mark_wrong(self, wrong: Wrong) -> None:
        """Record that a file is not what the index says: the next start fetches it again."""
        replace_own(self.folder + ".wrong", json.dumps(document_of(wrong)).encode(), 0o644, sync=True)

    def require_room(self, size: int) -> None:
        """Raise WeightsError unless the disk has `size` bytes free, and 5 % or HEADROOM more."""
        os.makedirs(os.path.dirname(self.folder), exist_ok=True)
        free, spare = self._free(os.path.dirname(self.folder)), max(size // 20, HEADROOM)
        if size and free < size + spare:
            raise WeightsError(f"no room below {self.folder}: needs {size} bytes and {spare} to spare, {free} are free")

    @contextlib.contextmanager
    def writing(self, deadline: float, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
        """Hold the node's write lock on this entry; raises OutOfTime at `deadline`."""
        os.makedirs(os.path.dirname(self.folder), exist_ok=True)
        with self._opened_lock() as lock:
            while lock and not _locked(lock.fileno()):
                if clock() >= deadline:
                    raise OutOfTime("another process on this node is still fetching them")
                time.sleep(LOCK_POLL_S)
            yield

    def _opened_lock(self) -> ContextManager[Any]:
        """Open the write lock. A complete entry on a read-only disk needs none: nothing can write there."""
        try:
            return open(self.folder + ".lock", "ab")
        except OSError as error:
            if error.errno != errno.EROFS or self.index() is None:
                raise
            return contextlib.nullcontext()

    def keep(self) -> None:
        """Protect the entry from removal, until `release` or the end of this process."""
        if self._held is None:
            self._held = self._open_use()
            fcntl.flock(self._held, fcntl.LOCK_SH)

    def release(self) -> None:
        """Allow other processes to remove the entry."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _open_use(self) -> int:
        os.makedirs(os.path.dirname(self.folder), exist_ok=True)
        try:
            return os.open(self.folder + ".use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            return os.open(self.folder + ".use", os.O_RDONLY | os.O_CLOEXEC)

    def verified_part(self, file: File) -> int:
        """Verify the part file, truncate it after its last good piece, and return how many pieces it has."""
        path, ready = self.part_path(file.path), 0
        make_folder_of(path)
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                os.chmod(path, 0o644)
            else:
                os.remove(path)  # another name of a verified file, which may be in use: never write to it
        if not os.path.exists(path) and os.path.exists(self.path(file.path)):
            if self._intact(file):  # renamed, but its index was not recorded; a copy may not fit on the disk
                link_or_copy(self.path(file.path), path)
                return len(file.chunks)
            self.require_room(file.size)
            shutil.copyfile(self.path(file.path), path)
        with open(open_own(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644), "ab+") as part:
            part.seek(0)
            for chunk in file.chunks:
                if hashlib.sha256(part.read(PIECE)).hexdigest() != chunk:
                    break
                ready += 1
            part.truncate(min(ready * PIECE, file.size))
        return ready

    def _intact(self, file: File) -> bool:
        with open(self.path(file.path), "rb") as verified:
            return os.fstat(verified.fileno()).st_size == file.size and all(
                hashlib.sha256(verified.read(PIECE)).hexdigest() == chunk for chunk in file.chunks)

    def complete(self, index: Index) -> None:
        """Rename the verified part files into place and record the index."""
        self.rename(index)
        self.record(index)

    def rename(self, index: Index) -> None:
        """Rename the part files into place. The entry is complete once its index is recorded."""
        part = self.folder + ".part"
        for file in index.files:
            if os.path.exists(self.part_path(file.path)):
                os.chmod(self.part_path(file.path), 0o444)
        for folder in sorted(self._folders(index)):
            if os.path.islink(folder):  # not ours: what it leads to is not written to
                os.remove(folder)
        if not os.path.exists(self.folder):
            os.makedirs(part, exist_ok=True)
            os.rename(part, self.folder)
        else:
            for file in index.files:
                if os.path.exists(self.part_path(file.path)):
                    make_folder_of(self.path(file.path))
                    os.replace(self.part_path(file.path), self.path(file.path))
            shutil.rmtree(part, ignore_errors=True)

    def record(self, index: Index) -> None:
        """Sync all files to disk, then write their index."""
        for file in index.files:
            with open(self.path(file.path), "rb") as written:
                os.fsync(written.fileno())
        replace_own(self.folder + ".json", index.encoded(), 0o644, sync=True)
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.folder + ".wrong")

    def remove(self) -> bool:
        """Remove the entry; returns False if a process on this node uses it."""
        with self.unused() as unused:
            if unused:
                self.wipe()
            return unused

    @contextlib.contextmanager
    def unused(self) -> Iterator[bool]:
        """Yield whether no process on this node uses the entry; if so, none can start to within the context."""
        lock = self._open_use()
        try:
            yield _locked(lock)
        finally:
            os.close(lock)

    def wipe(self) -> None:
        """Remove the entry and its part files; the caller must hold it `unused`."""
        for name in (".json", ".wrong"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.folder + name)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.folder + ".part", ignore_errors=True)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def make_folder_of(path: str) -> None:
    """Create the folder of a file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)


def link_or_copy(source: str, target: str) -> None:
    """Hard-link a verified file within the store, or copy it; `target` is replaced."""
    make_folder_of(target)
    with contextlib.suppress(FileNotFoundError):
        os.remove(target)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def cached(root: str) -> Iterator[CachedArtifact]:
    """Yield each artifact with files in the cache, including files of an interrupted fetch."""
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        entries = _entries(root, name)
        size = sum(_sizes(entries))
        if size:
            yield looked_at(CachedArtifact(name, size, used=False), partial(_unless_used, entries, wipe=False))


def looked_at(found: CachedArtifact, is_unused: Callable[[], bool]) -> CachedArtifact:
    """Return an artifact with whether a process uses it, which nobody can tell of another user's, or on a bad disk."""
    try:
        return found._replace(used=not is_unused())
    except OSError as error:  # nobody here can remove it
        return found._replace(used=True, trouble=error.strerror or str(error))


def remove(root: str, artifact: str) -> bool:
    """Remove an artifact and all its views, but keep its locks and its index: a later fetch must find the same ones.

    Returns False if there is none or a process uses it.
    """
    entries = _entries(root, artifact)
    return bool(entries) and _unless_used(entries, wipe=True)


def _unless_used(entries: List[Entry], wipe: bool) -> bool:
    """Return whether no process uses any of the entries; with `wipe`, also remove them if so."""
    with contextlib.ExitStack() as locks:
        if not all(locks.enter_context(entry.unused()) for entry in entries):
            return False
        if wipe:
            for entry in entries:
                entry.wipe()
        return True


def _entries(root: str, artifact: str) -> List[Entry]:
    """Return the entries of an artifact; none if the name is not an artifact's. Symlinked folders are skipped."""
    if not _ARTIFACT.fullmatch(artifact) or not _is_folder(os.path.join(root, artifact)):
        return []
    views = os.path.join(root, artifact, "views")
    matches = map(_VIEW.match, os.listdir(views) if _is_folder(views) else [])
    return [Entry(root, artifact, view) for view in [None, *sorted({match[0] for match in matches if match})]]


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _sizes(entries: List[Entry]) -> Iterator[int]:
    """Yield the size of each file once: views may share files with the artifact."""
    seen: Set[Tuple[int, int]] = set()
    for entry in entries:
        for top in (entry.folder, entry.folder + ".part"):
            for folder, _, names in os.walk(top) if _is_folder(top) else []:
                for name in names:
                    try:
                        stat = os.lstat(os.path.join(folder, name))
                    except FileNotFoundError:  # a fetch has just renamed it
                        continue
                    if (stat.st_dev, stat.st_ino) not in seen:
                        seen.add((stat.st_dev, stat.st_ino))
                        yield stat.st_size
