"""Resolves git revisions to commits: `main`, `v1.2`, `HEAD~3`, and merge bases such as `main...HEAD`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from fleetctl.documents.nearest import nearest
from fleetctl.errors import RevisionError
from fleetctl.review.git_command import Git, error_line

_OBJECT_ID = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_NO_BRANCH = re.compile(r"HEAD.*|@|[0-9a-f]{7,39}|.*([~^:]|@\{).*", re.DOTALL)
"""Names that no remote has as a branch; hexadecimal ones are taken for abbreviated commits."""

_ALL_NAMES = ("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/remotes", "refs/tags")
_TRUST = "git config --global --add safe.directory"
_RANGE = re.compile(r"(?P<from>.*?)(?P<dots>\.\.\.?)(?P<to>.*)", re.DOTALL)


class MissingRevision(RevisionError):
    """A revision or merge base that this clone does not have and may be able to fetch."""


class NoRepository(RevisionError):
    """A folder outside of any git repository."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit, and the name that was given for it."""

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository; `top` is the folder of its working tree, None for a bare one."""

    git: Git
    top: str | None

    def find(self, name: str) -> Commit | None:
        """Return the commit that a revision names, or None if there is none."""
        if name.startswith("-"):  # git would take it for an option
            return None
        found = self._object(name)
        # in two steps, because `:/text` would take the suffix for text
        commit = found and self._object(f"{found}^{{commit}}")
        return Commit(name, commit) if commit else None

    def commit(self, name: str) -> Commit:
        """Return the commit that a revision names; raises RevisionError, with a hint how to fetch it, if not found."""
        found = self.find(name)
        if found is None:
            near = nearest(name, (self.git.ask(*_ALL_NAMES) or "").splitlines())
            hint = f"did you mean {near}? If not, {self._how_to_get(name)}" if near else self._how_to_get(name)
            raise MissingRevision(f"git has no revision {name!r} here", hint=hint)
        return found

    def merge_base(self, one: str, other: str) -> Commit:
        """Return the merge base of two revisions, named `one...other`; raises RevisionError if there is none."""
        first, second = self.commit(one), self.commit(other)
        found = self.git.ask("merge-base", first.id, second.id)
        if not found:
            hint = self._how_to_deepen() or "they share no history; to compare them directly, write two dots"
            raise MissingRevision(f"{one} and {other} have no merge base here", hint=hint)
        return Commit(f"{one}...{other}", found)

    def renamed_since(self, commit: Commit, until: str | None) -> dict[str, str]:
        """Return the old names of renamed files by their new names in the commit `until`, else in the index.

        Paths are relative to the top.
        """
        compared = ("diff-tree", "-r", commit.id, until) if until else ("diff-index", "--cached", commit.id)
        printed = self.git.ask(*compared, "--find-renames", "--diff-filter=R", "--name-status", "-z") or ""
        fields = printed.split("\0")
        return dict(zip(fields[2::3], fields[1::3], strict=False))

    def _object(self, name: str) -> str | None:
        found = self.git.ask("rev-parse", "--verify", "--quiet", name)
        return found if found and _OBJECT_ID.fullmatch(found) else None

    def _how_to_get(self, name: str) -> str:
        if name.startswith("HEAD") and self._object("HEAD") is None:
            return "this branch has no commit yet"
        remotes = (self.git.ask("remote") or "").split()
        if not remotes or _NO_BRANCH.fullmatch(name):
            return self._how_to_deepen() or "see `git branch --all` and `git log`"
        remote, slash, branch = name.partition("/")
        if not slash or remote not in remotes:
            remote, branch = remotes[0], name
        if _OBJECT_ID.fullmatch(branch):
            return f"fetch it: git fetch {remote} {branch}"
        tracked = f"{remote}/{branch}"
        use = "" if tracked == name else f", then use {quote(tracked)}"
        return f"fetch it: git fetch {remote} {quote(f'{branch}:refs/remotes/{tracked}')}{use}"

    def _how_to_deepen(self) -> str | None:
        shallow = self.git.ask("rev-parse", "--is-shallow-repository") == "true"
        return "this clone is shallow; get the rest: git fetch --unshallow (in GitHub Actions: fetch-depth: 0)" \
            if shallow else None


def repository_of(path: str, environ: Mapping[str, str]) -> Repository:
    """Return the repository of a file or folder, which need not exist anymore.

    Raises RevisionError with git's message if there is none.
    """
    git = Git(_nearest_folder(path), environ)
    inside = git.run("rev-parse", "--is-inside-work-tree")
    if inside.returncode:
        advice = [line.strip() for line in inside.stderr.decode(errors="replace").splitlines() if _TRUST in line]
        message = f"no git repository at {git.folder}: {error_line(inside)}"
        if advice:
            raise RevisionError(message, hint=f"if you trust it: {advice[0]}")
        raise NoRepository(message, hint="without git, compare two files: fleetctl diff OLD.yaml NEW.yaml")
    top = git.ask("rev-parse", "--show-toplevel") if inside.stdout.strip() == b"true" else None
    return Repository(git, top)


def parse_range(name: str) -> tuple[str, str, str] | None:
    """Split `a..b` and `a...b` into both ends and the dots; a missing end is HEAD. None for any other name."""
    match = _RANGE.fullmatch(name)
    if match is None or name.startswith(("../", "./", "/")) or name in (".", "..", "..."):
        return None
    return match["from"] or "HEAD", match["dots"], match["to"] or "HEAD"


def _nearest_folder(path: str) -> str:
    # a file may be a link into another repository: its own folder counts
    folder = Path(posixpath.realpath(path if Path(path).is_dir() else posixpath.dirname(posixpath.abspath(path))))
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return str(folder)
