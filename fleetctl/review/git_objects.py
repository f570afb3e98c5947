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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from fleetctl.errors import RevisionError
from fleetctl.review.git_command import MOST_MEMORY, MOST_OUTPUT, Git, ended_by, forged_object

MOST_BYTES = 8 << 20
"""The largest commit, tag or tree: a folder with some 150,000 files."""
Kind = Literal["blob", "tree", "commit", "tag"]
OBJECT_ID = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_CHUNK = 1 << 20
_AT_ONCE = 200


class MissingObject(RevisionError):
    """An object that this clone does not have, as in a shallow or partial clone."""


class LargeObject(RevisionError):
    """An object that is larger than its reader allows."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
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
    """The objects of one repository, read by two `git cat-file` processes that end with this object."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._conversations: dict[str, _Conversation] = {}

    def read(self, object_id: str, kind: Kind, limit: int = MOST_BYTES) -> bytes:
        """Return the content of an object of at most `most` bytes.

        Raises MissingObject, LargeObject, and RevisionError for an object of another kind or with another content.
        """
        [(kind_here, content)] = self._ask([object_id], kind, limit)
        if kind_here != kind:
            raise RevisionError(f"git object {object_id} is a {kind_here}, not a {kind}: the repository is damaged")
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
        if not all(OBJECT_ID.fullmatch(name) for name in (tree, *parents)):
            raise RevisionError(f"git commit {object_id} cannot be read: the repository is damaged")
        return CommitObject(tree, tuple(parents), message.decode(errors="replace"))

    def peeled(self, object_id: str) -> str | None:
        """Return the commit that an id names, through annotated tags; None if it names something else."""
        for _ in range(100):
            [(kind, content)] = self._ask([object_id], "commit", MOST_BYTES)
            if kind != "tag":
                return object_id if kind == "commit" else None
            target = content.partition(b"\n")[0].decode(errors="replace").removeprefix("object ")
            if not OBJECT_ID.fullmatch(target):
                return None
            object_id = target
        return None

    def tree(self, object_id: str) -> Mapping[str, TreeEntry]:
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
                entries[name] = TreeEntry(mode, content[end + 1:at].hex())
        except ValueError:
            raise RevisionError(f"git tree {object_id} cannot be read: the repository is damaged") from None
        return entries

    def entry_at(self, tree: str, path: Sequence[str]) -> tuple[TreeEntry | None, int]:
        """Return the entry of a path below a tree, and how many parts of the path were followed; no link is followed.

        The entry is None if the last part followed does not exist.
        """
        entry: TreeEntry | None = TreeEntry(stat.S_IFDIR, tree)
        for depth, name in enumerate(path):
            if entry is None or not entry.is_folder:
                return entry, depth
            entry = self.tree(entry.id).get(name)
        return entry, len(path)

    def check_commits(self, object_ids: Sequence[str]) -> None:
        """Raise RevisionError unless each of these commits is what its id says."""
        for at in range(0, len(object_ids), _AT_ONCE):
            others = {kind for kind, _ in self._ask(object_ids[at:at + _AT_ONCE], "commit", MOST_BYTES)} - {"commit"}
            if others:
                raise RevisionError(f"git has a {max(others)} where a commit should be: the repository is damaged")

    def _ask(self, object_ids: Sequence[str], wanted: Kind, limit: int) -> Iterator[tuple[str, bytes]]:
        """Yield kind and content of objects, to be read to the end; no content, b"", for other kinds except of tags."""
        sizes, contents = self._conversation("--batch-check"), self._conversation("--batch")
        sizes.send(object_ids)
        headers = [sizes.header(object_id) for object_id in object_ids]
        for object_id, (kind, size) in zip(object_ids, headers, strict=True):
            if kind in (wanted, "tag") and size > limit:
                raise LargeObject(f"git {kind} {object_id} is too large: {size} bytes; at most {limit} are read")
        contents.send([object_id for object_id, (kind, _) in zip(object_ids, headers, strict=True)
                       if kind in (wanted, "tag")])
        for object_id, (kind, size) in zip(object_ids, headers, strict=True):
            yield kind, self._checked(contents, object_id, kind, size) if kind in (wanted, "tag") else b""

    def _checked(self, contents: _Conversation, object_id: str, kind: str, size: int) -> bytes:
        if contents.header(object_id) != (kind, size):
            contents.end()
            raise forged_object(kind, object_id)
        content = contents.read(size + 1, object_id)[:-1]
        digest = hashlib.sha1 if len(object_id) == 40 else hashlib.sha256
        if digest(f"{kind} {size}\0".encode() + content).hexdigest() != object_id:
            contents.end()
            raise forged_object(kind, object_id)
        return content

    def _conversation(self, how: str) -> _Conversation:
        running = self._conversations.get(how)
        if running is None or running.ended:
            running = self._conversations[how] = _Conversation(self._git, how)
            weakref.finalize(self, running.child.end)
        return running


class _Conversation:
    """A running `git cat-file`: one line per object in, one header per object out."""

    def __init__(self, git: Git, how: str) -> None:
        self.child = git.start("cat-file", how)
        self.ended = False
        self._timeout_s = git.timeout_s
        self._unread, self._said = bytearray(), b""

    def send(self, object_ids: Sequence[str]) -> None:
        """Ask for objects; no more than fit into a pipe, as git may wait until its answers are read."""
        with suppress(BrokenPipeError):  # reading the answer says why
            os.write(self.child.pipes[0].fileno(), "".join(f"{name}\n" for name in object_ids).encode())

    def header(self, object_id: str) -> tuple[str, int]:
        """Return kind and size of the next object; raises RevisionError if there is none."""
        deadline = time.monotonic() + self._timeout_s
        while (end := self._unread.find(b"\n")) < 0:
            self._read_more(object_id, deadline)
        words = self._take(end + 1).decode(errors="replace").split()
        if len(words) == 3 and words[0] == object_id and words[2].isdigit():
            return words[1], int(words[2])
        self.end()  # more answers may follow
        if words[1:] == ["missing"]:
            raise _missing(object_id)
        raise RevisionError(f"git object {object_id} cannot be read: git answered {' '.join(words)[:200]!r}")

    def read(self, count: int, object_id: str) -> bytes:
        """Return the next bytes; raises RevisionError at the end of the output, and when time is up."""
        deadline = time.monotonic() + self._timeout_s
        while len(self._unread) < count:
            self._read_more(object_id, deadline)
        return self._take(count)

    def end(self) -> None:
        """End the process."""
        self.child.end()
        self.ended = True

    def _take(self, count: int) -> bytes:
        taken = bytes(self._unread[:count])
        del self._unread[:count]
        return taken

    def _read_more(self, object_id: str, deadline: float) -> None:
        """Read what is there of the answer and of warnings: git waits while nobody takes those."""
        answer, warnings = (pipe.fileno() for pipe in self.child.pipes[1:])
        with selectors.DefaultSelector() as waiting:
            for pipe in (answer, warnings):
                waiting.register(pipe, selectors.EVENT_READ)
            ready = {key.fd for key, _ in waiting.select(max(0, deadline - time.monotonic()))}
        if not ready or time.monotonic() > deadline:
            self.end()
            raise RevisionError(f"git cat-file did not answer within {self._timeout_s:g} s")
        if warnings in ready:
            self._said = (self._said + os.read(warnings, _CHUNK))[-_CHUNK:]
        if answer in ready:
            data = os.read(answer, _CHUNK)
            if not data:
                raise self._failed(object_id)
            self._unread += data

    def _failed(self, object_id: str) -> RevisionError:
        """Return the error for a process that ended before it answered."""
        done = self.child.wait(self._timeout_s, MOST_OUTPUT)
        self.end()
        if done.returncode < 0:
            return ended_by("cat-file", -done.returncode)
        said = (self._said + done.stderr).decode(errors="backslashreplace")
        why = said.strip().splitlines()[-1:] or ["git cat-file ended"]
        if "promisor remote" in why[0]:
            return _missing(object_id)
        return RevisionError(f"git object {object_id} cannot be read: {why[0].removeprefix('fatal: ')}",
                             hint=f"git may use at most {MOST_MEMORY >> 20} MiB of memory here; git fsck shows damage")


def _missing(object_id: str) -> MissingObject:
    return MissingObject(f"git does not have its content here: {object_id} is missing in this clone")
