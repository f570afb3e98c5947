"""Snapshots of a cache: an artifact of the weights' store, made of a quiet folder, and copied into an empty one.

A folder that an engine writes to is never served: what is served was copied out of it, hashed as it was copied, while
no file changed and none was open for writing. What an engine gets was copied in, and each byte compared with the hash
of the index. An artifact's name is the hash of its index, and one of its files, the manifest, has the whole key: so
content and key belong together, whoever sends them.

No `from __future__ import annotations` here: `parse` reads the types of fields.
"""

import contextlib
import errno
import hashlib
import itertools
import json
import os
import shutil
import stat
import time
from typing import Any, Callable, Dict, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..own_files import replace_own
from ..weights.check import FileState, Verified, state_of
from ..weights.index import NAME, PIECE, File, Index, WeightsError, name_of, require_safe
from ..weights.store import Entry, require_own_folder
from ..wire import document_of, parse
from .key import CacheKey

MANIFEST = "fleetctl-cache.json"
"""The file of a snapshot with its key, and with what an index does not tell of a file."""
MOST_FILES, MOST_FOLDERS, MOST_BYTES = 50_000, 100_000, 16 << 30
BLOCK, MOST_MANIFEST = 1 << 20, 64 << 20
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class CacheError(Exception):
    """A cache that cannot be taken, copied or used; the message says why."""


class Growing(CacheError):
    """A folder that is not quiet: later it may be."""


class Manifest(NamedTuple):
    """The key of a snapshot, and time of change and mode of each file: some tools compare the times of files."""

    key: CacheKey
    files: Mapping[str, Sequence[int]]


States = Mapping[str, FileState]
"""The state of each file of a cache by its path, which begins with the name of its variable."""


def scan(folder: str) -> Dict[str, FileState]:
    """Return the state of each file in a cache's folder; raises CacheError for what cannot be in a snapshot."""
    found: Dict[str, FileState] = {}
    size = folders = 0
    for path, status in _entries(folder, folder):
        if stat.S_ISDIR(status.st_mode):
            folders += 1
            if folders > MOST_FOLDERS:
                raise CacheError(f"it has more than {MOST_FOLDERS} folders")
            continue
        if not stat.S_ISREG(status.st_mode):
            raise CacheError(f"{path} is a link, or no plain file")
        try:
            require_safe(path)
        except WeightsError as error:
            raise CacheError(str(error)) from None
        found[path] = state_of(status)
        size += status.st_size
        if len(found) > MOST_FILES or size > MOST_BYTES:
            raise CacheError(f"it has more than {MOST_FILES} files, or more than {MOST_BYTES >> 30} GiB")
    return found


def _entries(top: str, folder: str) -> Iterator[Tuple[str, os.stat_result]]:
    """Yield path and status of everything below a folder; no link is followed. Of one with too much in it, a part."""
    try:
        with os.scandir(folder) as entries:
            rows = list(itertools.islice(entries, MOST_FILES + MOST_FOLDERS + 1))
        for entry in rows:
            yield os.path.relpath(entry.path, top), entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(top, entry.path)
    except FileNotFoundError:  # removed meanwhile
        raise Growing(f"{folder} changes while it is read") from None
    except (OSError, RecursionError) as error:
        raise CacheError(f"{folder} cannot be read: {error}") from None


def written_now(folder: str, pids: Iterable[int]) -> str:
    """Return a file below the folder that one of these processes has open for writing; empty = there is none.

    An empty file does not count: it is a lock.
    """
    for pid in pids:
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError, ValueError):
                    path = os.readlink(f"/proc/{pid}/fd/{number}")
                    if path.startswith(folder + os.sep) and _is_for_writing(pid, number) and os.path.getsize(path):
                        return path
    return ""


def _is_for_writing(pid: int, number: str) -> bool:
    with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as rows:
        flags = next(int(row.split()[1], 8) for row in rows if row.startswith("flags:"))
    return flags & os.O_ACCMODE != os.O_RDONLY


def take(root: str, folder: str, key: CacheKey, states: States, secret: bytes) -> Entry:
    """Copy a quiet folder into the store and return it there; raises Growing if it is not as `states` says, or changes.

    The entry is kept from removal until the caller releases it.
    """
    work = f"{folder}.taken"
    shutil.rmtree(work, ignore_errors=True)
    try:
        _require_room(os.path.dirname(folder), sum(state.size for state in states.values()))
        modes = {path: _mode(os.path.join(folder, path)) for path in states}
        files = [_copied(os.path.join(folder, path), os.path.join(work, path), path, state)
                 for path, state in sorted(states.items())]
        if scan(folder) != states:
            raise Growing("it changed while it was copied")
        manifest = Manifest(key, {path: (state.mtime, modes[path]) for path, state in states.items()})
        data = json.dumps(document_of(manifest), sort_keys=True, separators=(",", ":")).encode()
        if len(data) > MOST_MANIFEST:
            raise CacheError("the paths of its files are too long")
        os.makedirs(work, exist_ok=True)
        with open(os.path.join(work, MANIFEST), "wb") as written:
            written.write(data)
        files.append(_file(MANIFEST, [data]))
        return _stored(root, work, Index(tuple(sorted(files))), secret)
    except FileNotFoundError as error:
        raise Growing(f"it changed while it was copied: {error.filename} is gone") from None
    except (OSError, WeightsError) as error:
        raise CacheError(f"it cannot be copied: {error}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _stored(root: str, work: str, index: Index, secret: bytes) -> Entry:
    """Move copied files into the store; an equal snapshot that is there already stays."""
    data = index.encoded()
    artifact = name_of(data)
    require_own_folder(root, artifact)
    entry = Entry(root, artifact, None)
    entry.keep()
    try:
        with entry.writing(time.monotonic() + 60.0):
            verified = Verified(root, artifact, secret)
            if entry.index() == index and not verified.due(entry, index, unread=False):
                return entry
            shutil.rmtree(entry.folder + ".part", ignore_errors=True)
            os.rename(work, entry.folder + ".part")
            replace_own(os.path.join(root, artifact, NAME), data, 0o644)
            entry.complete(index)
            verified.add(entry, index.files)
        return entry
    except BaseException:
        entry.release()
        raise


def _mode(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode) & 0o777


def _copied(source: str, target: str, path: str, state: FileState) -> File:
    """Copy one file while it is hashed; raises Growing if it is not in this state before and after."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        opened = os.open(source, READ)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            raise Growing(f"{path} changed while it was copied") from None
        raise
    with open(opened, "rb", buffering=0) as file, open(target, "wb") as copy:
        if state_of(os.fstat(opened)) != state:
            raise Growing(f"{path} changed before it was copied")
        found = _file(path, _blocks(file.read, copy.write))
        if state_of(os.fstat(opened)) != state or found.size != state.size:
            raise Growing(f"{path} changed while it was copied")
    return found


def _blocks(read: Callable[[int], bytes], write: Callable[[bytes], Any]) -> Iterator[bytes]:
    for block in iter(lambda: read(BLOCK), b""):
        write(block)
        yield block


def _file(path: str, blocks: Iterable[bytes]) -> File:
    """Return the index's row of a file with this content; the blocks divide a piece without rest."""
    whole, piece, chunks, size = hashlib.sha256(), hashlib.sha256(), list[str](), 0
    for block in blocks:
        whole.update(block)
        for part in _at_pieces(block, size):
            piece.update(part)
            size += len(part)
            if size % PIECE == 0:
                chunks.append(piece.hexdigest())
                piece = hashlib.sha256()
    if size % PIECE:
        chunks.append(piece.hexdigest())
    return File(path, size, whole.hexdigest(), tuple(chunks))


def _at_pieces(block: bytes, at: int) -> Iterator[bytes]:
    """Yield the parts of a block, cut where pieces end; `at` = where in the file it begins."""
    while block:
        room = PIECE - at % PIECE
        yield block[:room]
        at, block = at + len(block[:room]), block[room:]


def fill(folder: str, entry: Entry, key: CacheKey, deadline: float, clock: Callable[[], float] = time.monotonic,
         ) -> Dict[str, FileState]:
    """Copy a snapshot into a new folder and put it in place of `folder`; returns the states of its files.

    Raises CacheError, and leaves what is there, if the snapshot is not of this very key, a byte of it is wrong, or
    `deadline` passes: nobody ever sees a part of it.
    """
    index = entry.index()
    if index is None:
        raise CacheError("its files on this node are not complete")
    work = f"{folder}.new"
    shutil.rmtree(work, ignore_errors=True)
    try:
        require_bounded(index)
        _require_room(os.path.dirname(folder), index.size)
        manifest = _manifest(entry, index)
        if manifest.key.canonical() != key.canonical():
            raise CacheError("it is of another key")
        if set(manifest.files) != {file.path for file in index.files} - {MANIFEST}:
            raise CacheError("its manifest names other files than its index")
        for name in key.caches:
            os.makedirs(os.path.join(work, name))
        for file in index.files:
            if clock() >= deadline:
                raise CacheError("it was not copied in time")
            if file.path != MANIFEST:
                if file.path.partition("/")[0] not in key.caches:
                    raise CacheError(f"{file.path} is in the folder of no variable")
                _put(entry, file, os.path.join(work, file.path), manifest.files[file.path])
        replace_folder(folder, work)
        return scan(folder)
    except (OSError, WeightsError, ValueError, OverflowError, RecursionError, TypeError) as error:
        raise CacheError(f"it cannot be used: {error}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def require_bounded(index: Index) -> None:
    """Raise WeightsError for an index that is not that of a snapshot, since no snapshot is so large."""
    if len(index.files) > MOST_FILES + 1 or index.size > MOST_BYTES:
        raise WeightsError(f"it has more than {MOST_FILES} files, or more than {MOST_BYTES >> 30} GiB")
    if any(file.size > MOST_MANIFEST for file in index.files if file.path == MANIFEST):
        raise WeightsError(f"its manifest has more than {MOST_MANIFEST >> 20} MiB")


def _manifest(entry: Entry, index: Index) -> Manifest:
    """Return the manifest of a snapshot, after a comparison with the index; raises ValueError."""
    row = next((file for file in index.files if file.path == MANIFEST), None)
    if row is None:
        raise ValueError("it has no manifest: it is no snapshot of a cache")
    with open(os.open(entry.path(MANIFEST), READ), "rb") as file:
        data = file.read()
    if _file(MANIFEST, [data]) != row:
        raise ValueError("its manifest is not what the index says")
    return parse(Manifest, json.loads(data))


def key_in(root: str, artifact: str) -> Optional[CacheKey]:
    """Return the key in the manifest of an artifact, unverified, for a listing; None = it is no snapshot."""
    try:
        with open(os.open(os.path.join(root, artifact, "files", MANIFEST), READ), "rb") as file:
            return parse(Manifest, json.loads(file.read(MOST_MANIFEST))).key
    except (OSError, ValueError, RecursionError):
        return None


def _put(entry: Entry, file: File, target: str, told: Sequence[int]) -> None:
    """Copy one file of a snapshot; raises ValueError unless each byte is as the index says."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    mtime, mode = map(int, told)
    with open(os.open(entry.path(file.path), READ), "rb", buffering=0) as source, open(target, "wb") as copy:
        if _file(file.path, _blocks(source.read, copy.write)) != file:
            raise ValueError(f"{file.path} is not what the index says")
        os.fchmod(copy.fileno(), mode & 0o700 | 0o600)
    os.utime(target, ns=(mtime, mtime))


def replace_folder(folder: str, new: str) -> None:
    """Put a folder in place of another; what was there is gone afterwards."""
    old = f"{folder}.old"
    shutil.rmtree(old, ignore_errors=True)
    if os.path.islink(folder):
        os.remove(folder)
    elif os.path.lexists(folder):
        os.rename(folder, old)
    os.rename(new, folder)
    shutil.rmtree(old, ignore_errors=True)


def _require_room(folder: str, size: int) -> None:
    free = shutil.disk_usage(folder).free
    spare = max(size // 20, 1 << 30)
    if free < size + spare:
        raise CacheError(f"no room in {folder}: needs {size} bytes and {spare} to spare, {free} are free")


