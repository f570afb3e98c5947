"""Reads objects of a repository, each checked against its id: git itself does not check the hash of a loose object.

The size of an object is asked before its content is read. Errors name the object.
"""

from __future__ import annotations

import hashlib
import os
import re
import selectors
import stat
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fleetctl.child import Child
from fleetctl.errors import RevisionError
from fleetctl.review.git_command import MOST_MEMORY, Git, forged_object

MOST_BYTES = 8 << 20
"""The largest commit, tag or tree: a folder with some 150,000 files."""
Kind = Literal["blob", "tree", "commit", "tag"]
OBJECT_ID = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_CHUNK = 1 << 20


class MissingObject(RevisionError):
    """An object that this clone does not have, as in a shallow or partial clone."""


class LargeObject(RevisionError):
    """An object that is larger than its reader allows."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a git tree."""

    mode: int
    id: str

    @property
    def is_folder(self) -> bool:
        """Return whether it is another tree."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Return whether it is a symbolic link."""
        return stat.S_ISLNK(self.mode)

    @property
    def is_submodule(self) -> bool:
        """Return whether it is the commit of a submodule."""
        return stat.S_IFMT(self.mode) == 0o160000

    @property
    def is_file(self) -> bool:
        """Return whether it is a regular file."""
        return stat.S_ISREG(self.mode)


@dataclass(frozen=True, slots=True)
class CommitObject:
    """What a commit says: its tree, parents and message."""

    tree: str
    parents: tuple[str, ...]
    message: str


class Objects:
    """The objects of one repository, read by one `git cat-file` process that ends with this object."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._child: Child | None = None
        self._unread = bytearray()

    def read(self, object_id: str, kind: Kind, most: int = MOST_BYTES) -> bytes:
        """Return the content of an object of at most `most` bytes.

        Raises MissingObject, LargeObject, and RevisionError for an object of another kind or with another content.
        """
        found, content = self._ask(object_id, kind, most)
        if found != kind:
            raise RevisionError(f"git object {object_id} is a {found}, not a {kind}: the repository is damaged")
        return content

    def commit(self, object_id: str) -> CommitObject:
        """Return what a commit says; raises RevisionError as `read` does."""
        head, _, message = self.read(object_id, "commit").partition(b"\n\n")
        lines = head.decode(errors="replace").split("\n")
        tree, parents = "", []
        for line in lines:
            word, _, value = line.partition(" ")
            if word == "tree" and not tree:
                tree = value
            elif word == "parent":
                parents.append(value)
            else:
                break
        if not all(OBJECT_ID.fullmatch(one) for one in (tree, *parents)):
            raise RevisionError(f"git commit {object_id} cannot be read: the repository is damaged")
        return CommitObject(tree, tuple(parents), message.decode(errors="replace"))

    def peeled(self, object_id: str) -> str | None:
        """Return the commit that an id names, through annotated tags; None if it names something else."""
        for _ in range(100):
            kind, content = self._ask(object_id, "commit", MOST_BYTES)
            if kind != "tag":
                return object_id if kind == "commit" else None
            target = content.partition(b"\n")[0].decode(errors="replace").removeprefix("object ")
            if not OBJECT_ID.fullmatch(target):
                return None
            object_id = target
        return None

    def tree(self, object_id: str) -> Mapping[str, Entry]:
        """Return the entries of a tree by name; raises RevisionError as `read` does."""
        content, size, entries = self.read(object_id, "tree"), len(object_id) // 2, {}
        at = 0
        try:
            while at < len(content):
                space = content.index(b" ", at)
                end = content.index(b"\0", space)
                name, mode = os.fsdecode(content[space + 1:end]), int(content[at:space], 8)
                at = end + 1 + size
                if at > len(content) or not name or "/" in name or name in entries:
                    raise ValueError
                entries[name] = Entry(mode, content[end + 1:at].hex())
        except ValueError:
            raise RevisionError(f"git tree {object_id} cannot be read: the repository is damaged") from None
        return entries

    def entry_at(self, tree: str, path: Sequence[str]) -> tuple[Entry | None, int]:
        """Return the entry of a path below a tree, and how many parts of the path were followed; no link is followed.

        The entry is None if the last part followed does not exist.
        """
        entry: Entry | None = Entry(stat.S_IFDIR, tree)
        for depth, name in enumerate(path):
            if entry is None or not entry.is_folder:
                return entry, depth
            entry = self.tree(entry.id).get(name)
        return entry, len(path)

    def _ask(self, object_id: str, wanted: Kind, most: int) -> tuple[str, bytes]:
        """Return kind and content; the content is left out, b"", for another kind than wanted, except of a tag."""
        deadline = time.monotonic() + self._git.timeout_s
        try:
            child = self._running()
            os.write(child.pipes[0].fileno(), f"{object_id}\n".encode())
            words = self._line(child, deadline).decode(errors="replace").split()
        except (BrokenPipeError, EOFError):
            raise self._ended(object_id) from None
        if words[1:] == ["missing"]:
            raise _missing(object_id)
        if len(words) != 3 or words[0] != object_id or not words[2].isdigit():
            self._end()
            raise RevisionError(f"git object {object_id} cannot be read: git answered {' '.join(words)[:200]!r}")
        kind, size = words[1], int(words[2])
        if kind not in (wanted, "tag"):
            self._end()
            return kind, b""
        if size > most:
            self._end()
            raise LargeObject(f"git {kind} {object_id} is too large: {size} bytes; at most {most} are read")
        try:
            content = self._exactly(child, size + 1, deadline)[:-1]
        except EOFError:
            raise self._ended(object_id) from None
        digest = hashlib.sha1 if len(object_id) == 40 else hashlib.sha256
        if digest(f"{kind} {size}\0".encode() + content).hexdigest() != object_id:
            self._end()
            raise forged_object(kind, object_id)
        return kind, content

    def _running(self) -> Child:
        if self._child is None:
            self._child = self._git.start("cat-file", "--batch")
            weakref.finalize(self, self._child.end)
        return self._child

    def _end(self) -> None:
        """End the process, which may be loading a large object; the next read starts another one."""
        if self._child is not None:
            self._child.end()
            self._child, self._unread = None, bytearray()

    def _ended(self, object_id: str) -> RevisionError:
        """Return the error for a process that ended before it answered."""
        child, self._child, self._unread = self._running(), None, bytearray()
        with child:
            done = child.wait(self._git.timeout_s, _CHUNK)
        if done.returncode < 0:
            return RevisionError(f"git cat-file was ended by signal {-done.returncode}")
        why = done.stderr.decode(errors="backslashreplace").strip().splitlines()[-1:] or ["git cat-file ended"]
        if "promisor remote" in why[0]:
            return _missing(object_id)
        return RevisionError(f"git object {object_id} cannot be read: {why[0].removeprefix('fatal: ')}",
                             hint=f"git may use at most {MOST_MEMORY >> 20} MiB of memory here; git fsck shows damage")

    def _line(self, child: Child, deadline: float) -> bytes:
        while (end := self._unread.find(b"\n")) < 0:
            self._read_more(child, deadline)
        return self._take(end + 1)

    def _exactly(self, child: Child, count: int, deadline: float) -> bytes:
        while len(self._unread) < count:
            self._read_more(child, deadline)
        return self._take(count)

    def _take(self, count: int) -> bytes:
        taken = bytes(self._unread[:count])
        del self._unread[:count]
        return taken

    def _read_more(self, child: Child, deadline: float) -> None:
        """Add to what is unread; raises EOFError at the end of the output, RevisionError when time is up."""
        pipe = child.pipes[1].fileno()
        with selectors.DefaultSelector() as waiting:
            waiting.register(pipe, selectors.EVENT_READ)
            if not waiting.select(max(0, deadline - time.monotonic())):
                self._end()
                raise RevisionError(f"git cat-file did not answer within {self._git.timeout_s:g} s")
        data = os.read(pipe, _CHUNK)
        if not data:
            raise EOFError
        self._unread += data


def _missing(object_id: str) -> MissingObject:
    return MissingObject(f"git does not have its content here: {object_id} is missing in this clone")
