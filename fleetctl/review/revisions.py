"""Resolves git revisions to commits: `main`, `v1.2`, `HEAD~3`, and merge bases such as `main...HEAD`.

The commits on the way to an answer are checked against their ids. In a submodule a revision is one of the repository
around it, and means the commit of the submodule that is recorded there.

`GitTree` has the files of a commit, read as if they were on disk. Paths are relative to the current folder, as given.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from fleetctl.documents.canonical import short_commit
from fleetctl.documents.names import nearest
from fleetctl.errors import RevisionError
from fleetctl.fleetfile.file_tree import MAX_LINKS, Link
from fleetctl.fleetfile.sources import MAX_FILE_BYTES
from fleetctl.review.git_command import Git, check
from fleetctl.review.git_discovery import GitDir, NoRepository, find_git_dir, no_git
from fleetctl.review.git_objects import OBJECT_ID, LargeObject, MissingObject, Objects, TreeEntry

_NO_BRANCH = re.compile(r"HEAD.*|@|[0-9a-f]{7,39}|.*([~^:]|@\{|\.\.).*|([^/]*/)?-.*", re.DOTALL)
"""Names that no remote has as a branch; hexadecimal ones are taken for abbreviated commits. What begins with - would be
an option of the command in a hint."""

_ALL_NAMES = ("for-each-ref", "--count=10000", "--format=%(refname:short)", "refs/heads", "refs/remotes", "refs/tags")
_RANGE = re.compile(r"(?P<from>.*?)(?P<dots>\.\.\.?)(?P<to>.*)", re.DOTALL)
_AMBIGUOUS = re.compile(rb"^warning: refname .* is ambiguous", re.MULTILINE)
_NEVER_AMBIGUOUS = re.compile(r"(HEAD|@|[0-9a-f]{40}|[0-9a-f]{64})([~^@:].*)?", re.DOTALL)
"""Names that git never takes for a branch or tag, even where there is one of that name."""
_ANCESTOR = re.compile(r"(?P<start>[^~^]+)[~^].*", re.DOTALL)
MOST_COMMITS = 100_000
"""The most commits between two revisions that are compared."""


class MissingRevision(RevisionError):
    """A revision or merge base that this clone does not have and may be able to fetch."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit, and the name that was given for it."""

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository, and the submodule of another one that it may be."""

    git: Git
    submodule: Submodule | None = None
    objects: Objects = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "objects", Objects(self.git))

    @property
    def top(self) -> str | None:
        """The folder of its working tree, None for a bare clone."""
        return self.git.git_dir.top

    @property
    def outermost(self) -> Repository:
        """The repository whose revisions count: itself, or for a submodule the outermost one around it."""
        return self.submodule.around.outermost if self.submodule else self

    def find(self, name: str) -> Commit | None:
        """Return the commit that a revision names, or None if there is none; for a submodule the recorded one.

        Raises RevisionError for a forged object, and if that revision does not have the submodule.
        """
        if self.submodule:
            commit = self.submodule.around.find(name)
            return commit and self._recorded(commit)
        return self.find_here(name)

    def find_here(self, name: str) -> Commit | None:
        """As `find`, but in a submodule the name is one of its own revisions."""
        if name.startswith("-"):  # git would take it for an option
            return None
        object_id = self._object(name)
        try:
            commit = self.objects.peeled(object_id) if object_id else None
        except MissingObject:
            return None
        if commit and (ancestor := _ANCESTOR.fullmatch(name)) and (start := self.find_here(ancestor["start"])):
            self.check_between(start.id, commit)
        return Commit(name, commit) if commit else None

    def commit(self, name: str) -> Commit:
        """Return the commit that a revision names; raises RevisionError, with a hint how to fetch it, if not found."""
        commit = self.find(name)
        if commit is None:
            raise self.outermost.missing(name)
        return commit

    def missing(self, name: str) -> MissingRevision:
        """Return the error for a revision that is not found."""
        near = nearest(name, (self.git.ask(*_ALL_NAMES) or "").splitlines())
        hint = f"did you mean {near}? If not, {self._how_to_get(name)}" if near else self._how_to_get(name)
        return MissingRevision(f"git has no revision {name!r} here", hint=hint)

    def merge_base(self, one: str, other: str) -> Commit:
        """Return the merge base of two revisions, named `one...other`; raises RevisionError if there is none."""
        if self.submodule:
            return self._recorded(self.submodule.around.merge_base(one, other))
        first, second = self.commit(one), self.commit(other)
        base = self.git.ask("merge-base", first.id, second.id)
        if not base:
            hint = self._how_to_deepen() or "they share no history; to compare them directly, write two dots"
            raise MissingRevision(f"{one} and {other} have no merge base here", hint=hint)
        self.check_between(first.id, second.id)
        return Commit(f"{one}...{other}", base)

    def check_between(self, one: str, other: str) -> None:
        """Raise RevisionError unless every commit that only one of two commits follows is what its id says.

        git found them by the parents that it read without such a check.
        """
        listed = self.git.do("rev-list", f"--max-count={MOST_COMMITS + 1}", f"{one}...{other}").split()
        if len(listed) > MOST_COMMITS:
            raise RevisionError(
                f"{short_commit(one)} and {short_commit(other)} are more than {MOST_COMMITS} commits apart")
        self.objects.check_commits(listed)

    def root(self, commit: str) -> str:
        """Return the tree of a commit."""
        return self.objects.commit(commit).tree

    def _recorded(self, around: Commit) -> Commit:
        """Return the commit of this submodule that a commit around it records."""
        submodule = self.submodule
        if submodule is None:
            return around
        inner = submodule.commit_in(around)
        try:
            self.objects.commit(inner)
        except MissingObject:
            raise MissingRevision(
                f"{around.name} has the submodule {submodule.path} at {short_commit(inner)}, a commit that is not in "
                "this clone of it", hint=f"fetch it: git -C {quote(submodule.path)} fetch origin {inner}") from None
        return Commit(around.name, inner)

    def _object(self, name: str) -> str | None:
        done = self.git.run("rev-parse", "--verify", name)
        if done.returncode and done.stderr.startswith(b"error:"):  # otherwise it just does not exist
            check(done, "rev-parse")
        # git would take the tag of that name, and whoever may push one would choose the base
        if _AMBIGUOUS.search(done.stderr) and not _NEVER_AMBIGUOUS.fullmatch(name):
            raise RevisionError(f"{name!r} is ambiguous here: it names several branches, tags or commits",
                                hint="write it in full: refs/heads/NAME, refs/remotes/origin/NAME or refs/tags/NAME")
        object_id = done.stdout.decode(errors="replace").strip()
        return object_id if done.returncode == 0 and OBJECT_ID.fullmatch(object_id) else None

    def _how_to_get(self, name: str) -> str:
        if name.startswith("HEAD") and self._object("HEAD") is None:
            return "this branch has no commit yet"
        remotes = (self.git.ask("remote") or "").split()
        if not remotes or _NO_BRANCH.fullmatch(name):
            return self._how_to_deepen() or "see `git branch --all` and `git log`"
        remote, slash, branch = name.partition("/")
        if not slash or remote not in remotes:
            remote, branch = remotes[0], name
        if OBJECT_ID.fullmatch(branch):
            return f"fetch it: git fetch {remote} {branch}"
        tracked = f"{remote}/{branch}"
        use = "" if tracked == name else f", then use {quote(tracked)}"
        return f"fetch it: git fetch {remote} {quote(f'{branch}:refs/remotes/{tracked}')}{use}"

    def _how_to_deepen(self) -> str | None:
        shallow = self.git.ask("rev-parse", "--is-shallow-repository") == "true"
        return "this clone is shallow; get the rest: git fetch --unshallow (in GitHub Actions: fetch-depth: 0)" \
            if shallow else None


@dataclass(frozen=True, slots=True)
class Submodule:
    """The place of a repository in the one around it: a submodule at `path` from its top."""

    around: Repository
    path: str

    def commit_in(self, commit: Commit) -> str:
        """Return the commit of the submodule that a commit of the repository around it records.

        Raises RevisionError unless both that commit and HEAD have a submodule there, with the same URL: otherwise the
        change chooses what it is compared with.
        """
        head = self.around.find_here("HEAD")
        then, now = self._state(commit.id), self._state(head.id) if head else None
        where = f"the submodule {self.path} of {self.around.top}"
        if then is None:
            raise RevisionError(f"{commit.name} has no submodule at {self.path}, so it has no base for {where}",
                                hint="review the change that adds or moves a submodule by hand")
        if now is None:
            raise RevisionError(f"HEAD does not have {where}", hint="commit it, or remove the folder")
        if then[1] != now[1]:
            raise RevisionError(f"{where} has another URL than in {commit.name}: {now[1]}, not {then[1]}",
                                hint="review the change of a URL by hand")
        return then[0]

    def _state(self, commit: str) -> tuple[str, str] | None:
        """Return the recorded commit and the URL of the submodule in a commit; None if it is not a submodule there."""
        objects, root = self.around.objects, self.around.root(commit)
        entry, depth = objects.entry_at(root, self.path.split("/"))
        listed, _ = objects.entry_at(root, [".gitmodules"])
        if entry is None or not entry.is_submodule or depth != self.path.count("/") + 1:
            return None
        if listed is None or not listed.is_file:
            return None
        text = objects.read(listed.id, "blob")
        answer = self.around.git.do("config", "--file", "-", "-z", "--list", stdin=text)
        settings = [setting.partition("\n")[::2] for setting in answer.split("\0")]
        names = {key[:-len(".path")] for key, value in settings
                 if key.startswith("submodule.") and key.endswith(".path") and value == self.path}
        urls = {value for key, value in settings if key.removesuffix(".url") in names and key.endswith(".url")}
        return (entry.id, urls.pop()) if len(names) == len(urls) == 1 else None


def repository_of(path: str, environ: Mapping[str, str]) -> Repository:
    """Return the repository of a file or folder, which need not exist anymore.

    Raises NoRepository if there is none, RevisionError if it is not to be trusted.
    """
    if shutil.which("git", path=environ.get("PATH")) is None:
        raise no_git()
    return _repository(find_git_dir(path, environ), environ)


def _repository(git_dir: GitDir, environ: Mapping[str, str]) -> Repository:
    return Repository(Git(git_dir, environ), _submodule(git_dir, environ))


def _submodule(git_dir: GitDir, environ: Mapping[str, str]) -> Submodule | None:
    """Return the submodule that a repository is; None if it is independent of any repository around it.

    Raises RevisionError if the repository around it tracks the folder in another way: then its `.git` came from
    elsewhere, such as an archive.
    """
    top = git_dir.top
    if top is None or top == posixpath.dirname(top):
        return None
    try:
        above = find_git_dir(posixpath.dirname(top), environ)
    except NoRepository:
        return None
    except RevisionError:
        if "/modules/" in git_dir.path and Path(top, ".git").is_file():
            raise
        return None  # a repository of somebody else, such as one of the whole machine
    if above.top is None:
        return None
    around, inside = _repository(above, environ), posixpath.relpath(top, above.top)
    head = around.find_here("HEAD")
    parts = inside.split("/")
    entry, depth = around.objects.entry_at(around.root(head.id), parts) if head else (None, 0)
    absorbed = git_dir.path.startswith((f"{above.path}/modules/", f"{above.common}/modules/"))  # as git has submodules
    if absorbed or (entry is not None and entry.is_submodule and depth == len(parts)):
        return Submodule(around, inside)
    if entry is not None:
        raise RevisionError(f"{top} has a .git of its own, but the repository {above.top} tracks that folder, so it is "
                            "unclear which of the two its files belong to", hint=f"if it came from elsewhere, remove "
                            f"{quote(posixpath.join(top, '.git'))}")
    return None


def parse_range(name: str) -> tuple[str, str, str] | None:
    """Split `a..b` and `a...b` into both ends and the dots; a missing end is HEAD. None for any other name."""
    match = _RANGE.fullmatch(name)
    if match is None or name.startswith(("../", "./", "/")) or name in (".", "..", "..."):
        return None
    return match["from"] or "HEAD", match["dots"], match["to"] or "HEAD"


MAX_LINK_BYTES = 4096
_FOLDER, _LINK, _SUBMODULE = stat.S_IFDIR, stat.S_IFLNK, 0o160000
_ROOT = TreeEntry(_FOLDER, "")


@dataclass(frozen=True, slots=True)
class GitTree:
    """The files of `commit`. Symbolic links are followed inside the tree; a link out of it cannot be read."""

    repository: Repository
    commit: Commit
    _folders: dict[str, Mapping[str, TreeEntry]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def in_checkout(self, path: str, given: str) -> bool:  # noqa: ARG002  a commit is one checkout
        """Return whether `path` is inside the repository, even if the commit does not have it."""
        return self.inside(path) is not None

    def link_out(self, path: str, *, listed: bool = False) -> Link | None:  # noqa: ARG002
        """Return None: a link out of the commit has no target; reading it reports that."""
        return None

    def is_folder(self, path: str) -> bool:
        """Return whether `path` is a folder in this commit."""
        return self._kind(self.inside(path)) == _FOLDER

    def is_file(self, path: str) -> bool:
        """Return whether `path` is a file; one behind a link out or in a submodule counts, but cannot be read."""
        return self._is_file(self.inside(path))

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of the files in a folder, sorted."""
        real, _ = self._follow(self._required(folder))
        return sorted(name for name, entry in self._listing(real).items()
                      if entry.is_file or (entry.is_link and self._is_file(posixpath.join(real, name))))

    def read(self, path: str, limit: int) -> bytes:
        """Return the file's bytes, at most `limit` of them; raises OSError with EFBIG if it has far more."""
        _, entry = self._follow(self._required(path))
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._content(entry, path, max(limit, MAX_FILE_BYTES))[:limit]

    def identity(self, path: str) -> str:
        """Return the path from the repository's top, with all links followed."""
        inside = self.inside(path)
        if inside is None:
            return path
        try:
            return self._follow(inside)[0]
        except OSError:
            return inside

    def inside(self, path: str) -> str | None:
        """Return `path` from the repository's top, or None if it is outside."""
        top = self.repository.top
        if "\0" in path:  # not allowed in file names, and system calls reject it
            return None
        if top is None:
            inside = posixpath.normpath(path)
            return None if inside.startswith(("..", "/")) else _plain(inside)
        given = posixpath.normpath(posixpath.join(self._here(), path))
        # an absolute path may reach the repository through a link outside of it, such as /tmp on macOS
        resolved = posixpath.join(posixpath.realpath(posixpath.dirname(given)), posixpath.basename(given))
        for candidate in (given, resolved):
            inside = posixpath.relpath(candidate, top)
            if inside != ".." and not inside.startswith("../"):
                return _plain(inside)
        return None

    def _here(self) -> str:
        """Return the current folder as the shell came there: a change may have put a link in its place."""
        came_by = self.repository.git.environ.get("PWD", "")
        with suppress(OSError, ValueError):
            if posixpath.isabs(came_by) and Path(came_by).samefile("."):
                return came_by
        return posixpath.realpath(".")

    def _required(self, path: str) -> str:
        inside = self.inside(path)
        if inside is None:
            raise FileNotFoundError(errno.ENOENT, "it is outside of the repository", path)
        return inside

    def _is_file(self, inside: str | None) -> bool:
        return self._kind(inside) not in (None, _FOLDER, _SUBMODULE)

    def _kind(self, inside: str | None) -> int | None:
        """Return the kind of what a path from the top leads to; None if that is nothing, or outside."""
        if inside is None:
            return None
        try:
            entry = self._follow(inside)[1]
        except _NotHereError:
            return _LINK
        except OSError:
            return None
        return stat.S_IFMT(entry.mode) if entry else None

    def _follow(self, inside: str) -> tuple[str, TreeEntry | None]:
        """Walk down the tree; returns the real path and its entry, None if it is missing."""
        todo, done, links = [part for part in reversed(inside.split("/")) if part], "", 0
        entry: TreeEntry | None = _ROOT
        while todo:
            part = todo.pop()
            entry = self._listing(done).get(part) if entry is not None and entry.is_folder else None
            if entry is not None and entry.is_link:
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), inside)
                target = self._target(posixpath.join(done, part), entry)
                todo += [step for step in reversed(target.split("/")) if step]
                done, entry = "", _ROOT
            else:
                done = posixpath.join(done, part)
                if todo and entry is not None and entry.is_submodule:
                    raise _NotHereError(errno.ENOENT, f"it is in the submodule {done}; submodules are not read", inside)
        return done, entry

    def _target(self, link: str, entry: TreeEntry) -> str:
        """Return the target of a link, from the top; raises OSError if it is outside of the tree."""
        try:
            target = os.fsdecode(self._content(entry, link, MAX_LINK_BYTES))
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            raise _NotHereError(errno.ENAMETOOLONG, f"it is a link of more than {MAX_LINK_BYTES} bytes", link) from None
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(link), target))
        if posixpath.isabs(target) or inside == ".." or inside.startswith("../"):
            raise _NotHereError(errno.ENOENT, f"it is a link out of the repository, to {target}", link)
        return _plain(inside)

    def _listing(self, folder: str) -> Mapping[str, TreeEntry]:
        if folder not in self._folders:
            objects = self.repository.objects
            above, name = posixpath.split(folder)
            entry = self._listing(above).get(name) if folder else TreeEntry(
                _FOLDER, objects.commit(self.commit.id).tree)
            self._folders[folder] = objects.tree(entry.id) if entry is not None and entry.is_folder else {}
        return self._folders[folder]

    def _content(self, entry: TreeEntry, path: str, limit: int) -> bytes:
        try:
            return self.repository.objects.read(entry.id, "blob", limit)
        except MissingObject as error:
            raise _NotHereError(errno.EIO, error.message, path) from None
        except LargeObject:
            raise _NotHereError(errno.EFBIG, f"larger than {limit >> 20} MiB", path) from None


class _NotHereError(OSError):
    """Reported as a problem of the fleet file, like any OSError."""


def _plain(inside: str) -> str:
    return "" if inside == "." else inside
