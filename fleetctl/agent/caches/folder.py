"""The folders of caches on a node's disk: one for each member that runs, and the last snapshot that was made in it.

`<root>/caches/<name>/<number>/files/<VARIABLE>` is what an engine writes to; `<name>` is that of the key without its
folder, `<number>` the lowest that no other member of the node has. Engines write to their caches while they run, so
two members never share a folder: one would load what the other is just writing. The number is part of the path, and
the path part of the key, as compiled files name it.

Beside `files` are `key.json`, for people to see why two caches differ, and `snapshot.json`, sealed by the session: what
was made in this folder and indexed. After another session of Ray nothing on a disk is used: nobody has told its hash.

No `from __future__ import annotations` here: `parse` reads the types of fields.
"""

import contextlib
import errno
import fcntl
import hashlib
import hmac
import json
import os
import re
import shutil
import time
from functools import partial
from typing import Callable, Iterator, List, NamedTuple, Optional, Sequence

from ..own_files import replace_own
from ..ports import visible_processes
from ..processes import namespace_of
from ..weights.index import WeightsError
from ..weights.store import CachedArtifact, looked_at, require_own_folder
from ..wire import document_of, parse
from .key import CacheKey
from .snapshot import READ, CacheError, replace_folder

FOLDER = "caches"
MOST_NUMBERS, MOST_ODD = 1024, 16
"""The most folders of a key on a node, and how many of them may be no folder of ours before a member does without."""
LINGER_S, POLL_S = 10.0, 0.2
"""How long processes of a member that has just ended may take to leave its folder."""
_NAME, _NUMBER = re.compile(r"[0-9a-f]{16}\Z"), re.compile(r"\d{1,4}\Z")


class Snapshot(NamedTuple):
    """What was made in a folder: the artifact with its size, for which key, and the seal of the session."""

    artifact: str
    key: str
    bytes: int
    files: int
    at: str
    seal: str = ""


class OwnFolder:
    """The folder of one member, which no other member takes until `release` or the end of this process."""

    def __init__(self, path: str, lock: int) -> None:
        self.path, self._lock = path, lock
        self.files = os.path.join(path, "files")

    @property
    def in_key(self) -> str:
        """The path in the key: the very one that the engine is given."""
        return os.path.abspath(self.files)

    def release(self) -> None:
        """Allow another member to take the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def empty(self, names: List[str]) -> None:
        """Put new, empty folders in place of what an earlier member has left."""
        work = f"{self.files}.new"
        shutil.rmtree(work, ignore_errors=True)
        for name in names:
            os.makedirs(os.path.join(work, name))
        replace_folder(self.files, work)
        for left in (f"{self.files}.taken", f"{self.files}.old"):
            shutil.rmtree(left, ignore_errors=True)

    def write_key(self, key: CacheKey) -> None:
        """Write the key beside the files."""
        content = json.dumps(document_of(key), indent=1, sort_keys=True).encode()
        replace_own(os.path.join(self.path, "key.json"), content, 0o600)

    def snapshot(self, key: CacheKey, secret: bytes) -> Optional[Snapshot]:
        """Return the last snapshot that was made here in this session of the cluster and for this key."""
        try:
            with open(os.open(os.path.join(self.path, "snapshot.json"), READ), "rb") as file:
                found = parse(Snapshot, json.loads(file.read(1 << 20)))
        except (OSError, ValueError, RecursionError):
            return None
        sealed = hmac.compare_digest(found.seal.encode(), _seal(found, secret).encode())
        return found if sealed and found.key == key.digest else None

    def record(self, snapshot: Snapshot, secret: bytes) -> None:
        """Write which snapshot was made here."""
        sealed = snapshot._replace(seal=_seal(snapshot, secret))
        replace_own(os.path.join(self.path, "snapshot.json"), json.dumps(document_of(sealed)).encode(), 0o600)


def _seal(snapshot: Snapshot, secret: bytes) -> str:
    text = json.dumps(document_of(snapshot._replace(seal="")), sort_keys=True)
    return hmac.new(secret, b"SNAPSHOT " + text.encode(), hashlib.sha256).hexdigest()


def take_folder(root: str, name: str, linger_s: float = LINGER_S,
                users: Optional[Callable[[str], List[int]]] = None) -> OwnFolder:
    """Take the folder with the lowest free number; raises CacheError if there can be none.

    A folder that processes still use, whose member has ended, is waited for a little and then left to them.
    """
    users = users or processes_with
    deadline = time.monotonic() + linger_s
    odd = 0
    try:
        require_own_folder(root, FOLDER)
        os.makedirs(os.path.join(root, FOLDER, name), mode=0o700, exist_ok=True)
        for number in range(MOST_NUMBERS):
            path = os.path.join(root, FOLDER, name, str(number))
            try:
                os.makedirs(path, mode=0o700, exist_ok=True)
                lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError:  # another user's, or no folder: the next one is as good
                odd += 1
                if odd >= MOST_ODD:
                    raise
                continue
            if _locked(lock):
                while users(path) and time.monotonic() < deadline:
                    time.sleep(POLL_S)
                if not users(path):
                    return OwnFolder(path, lock)
            os.close(lock)
    except (OSError, WeightsError) as error:
        raise CacheError(f"there is no folder for it below {root}: {error}") from None
    raise CacheError(f"{MOST_NUMBERS} members on this node have one")


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def processes_with(path: str) -> List[int]:
    """Return the processes, except this one, that have the folder in their environment: of an engine that had it.

    With other mounts a path is another folder.
    """
    needle, own, found = f"={path}/".encode(), namespace_of("self", "mnt"), []
    for pid in visible_processes():
        if pid != os.getpid() and namespace_of(str(pid), "mnt") == own:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environ:
                if needle in environ.read():
                    found.append(pid)
    return found


def folders(root: str) -> Iterator[str]:
    """Yield the path of each member's folder, of those that run and of earlier ones; no link is followed."""
    top = os.path.join(root, FOLDER)
    for name in _named(top, _NAME):
        yield from (os.path.join(top, name, number) for number in _named(os.path.join(top, name), _NUMBER))


def _named(folder: str, pattern: "re.Pattern[str]") -> List[str]:
    try:
        names = [] if os.path.islink(folder) else os.listdir(folder)
    except OSError:
        return []
    return sorted(name for name in names if pattern.match(name) and not os.path.islink(os.path.join(folder, name)))


def listed(root: str) -> Iterator[CachedArtifact]:
    """Yield the folder of each member on this node, and of earlier ones, as if it was an artifact."""
    for path in folders(root):
        size = _size(path)
        if size:
            yield looked_at(CachedArtifact(id_of(path), size, used=False, cache=_described(path)),
                            partial(_if_unused, path, wipe=False))


def id_of(path: str) -> str:
    """Return the name of a folder in a listing: it looks like an artifact's."""
    return hashlib.sha256("/".join(path.split(os.sep)[-2:]).encode()).hexdigest()


def label(key: CacheKey) -> str:
    """Return whose cache it is, for people."""
    return f"{key.model}, fleet {key.fleet}"


def _described(path: str) -> str:
    name = os.path.join(path, "key.json")
    with contextlib.suppress(OSError, ValueError, RecursionError), open(os.open(name, READ), "rb") as file:
        return label(parse(CacheKey, json.loads(file.read(1 << 20))))
    return "unknown"


def _size(path: str) -> int:
    """Return the size of all files in the folders of a member, without those that say what they are."""
    size = 0
    for folder, _, names in os.walk(path):
        for name in names if folder != path else ():
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_size
    return size


def remove(root: str, artifacts: Sequence[str]) -> Iterator[CachedArtifact]:
    """Remove the named folders that no member has, and yield what became of each."""
    for found in listed(root):
        path = next((path for path in folders(root) if id_of(path) == found.artifact), None)
        if path is not None and found.artifact in artifacts:
            try:
                done = _if_unused(path, wipe=True)
            except OSError as error:
                yield found._replace(removed=False, trouble=error.strerror or str(error))
            else:
                yield found._replace(removed=done, used=not done)


def _if_unused(path: str, *, wipe: bool) -> bool:
    """Return whether no member has a folder; with `wipe`, it is removed then, but for its lock."""
    try:
        lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not _locked(lock) or processes_with(path):
            return False
        if wipe:
            for name in ("snapshot.json", "key.json"):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(path, name))
            for name in ("files", "files.new", "files.old", "files.taken"):
                shutil.rmtree(os.path.join(path, name), ignore_errors=True)
        return True
    finally:
        os.close(lock)
