"""The two inputs of a comparison: each side is a fleet with its positions, or no fleet.

A fleet file that was renamed since a commit is read under its old name there, as git sees it: half of the content is
the same. git lists only which files came and went. The rest is done here: git would read files of any size for it.

As arguments of `fleetctl diff [BASE [HEAD]] -f FILES` each is a git revision or a path, as for `git diff`. An argument
that could be both is refused: ./ before it makes it a path, ~0 after it a revision.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote

from fleetctl.documents.difference import Revision
from fleetctl.errors import FleetFileError, RevisionError, UsageError
from fleetctl.fleetfile.file_tree import DISK, FileTree
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.fleetfile.sources import MAX_FILE_BYTES, fleet_files, is_fleet_file
from fleetctl.problem import Problem
from fleetctl.review.git_command import check
from fleetctl.review.git_objects import LargeObject, MissingObject, TreeEntry
from fleetctl.review.revisions import Commit, GitTree, MissingRevision, Repository, parse_range, repository_of

WORKING_TREE = "the working tree"
STDIN = "-"
MOST_BYTES = 64 << 20
"""How much is read to find the old names of one file that was also changed."""


@dataclass(frozen=True, slots=True)
class SideFiles:
    """The files of one side, not read yet. `prefix`, such as `main:`, precedes its file names in problems. `former` =
    the old names of requested files that were renamed since.
    """

    revision: Revision
    tree: FileTree
    prefix: str = ""
    former: tuple[str, ...] = ()

    @property
    def existing(self) -> list[str]:
        """The files that this side has; a folder without fleet files counts as missing."""
        return [*(file for file in self.revision.files if self._has(file)), *self.former]

    def _has(self, file: str) -> bool:
        if file == STDIN or not self.tree.is_folder(file):
            return file == STDIN or self.tree.is_file(file)
        try:
            return bool(fleet_files(file, self.tree))
        except OSError:  # reading it will report the reason
            return True


@dataclass(frozen=True, slots=True)
class Side:
    """One side, loaded; `fleet` is None if none of its files exists on this side, or if they have `problems`."""

    revision: Revision
    fleet: ResolvedFleet | None = None
    documents: tuple[Document, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_sides(base: SideFiles, head: SideFiles, stdin: Callable[[], bytes]) -> tuple[Side, Side]:
    """Read both sides; raises FleetFileError with all errors of both, RevisionError if neither has any file."""
    if [*base.revision.files, *head.revision.files].count(STDIN) > 1:
        raise UsageError("standard input can be read only once", hint="name a file for one of the sides")
    if not base.existing and not head.existing:
        missing = ", ".join(dict.fromkeys((*base.revision.files, *head.revision.files)))
        raise RevisionError(f"{missing}: neither in {base.revision.name} nor in {head.revision.name}",
                            hint="paths are relative to the current folder, also in a revision")
    sides: list[Side] = []
    errors: list[Problem] = []
    for side in (base, head):
        try:
            sides.append(read_side(side, stdin))
        except FleetFileError as error:
            errors += error.problems
    if errors:
        raise FleetFileError(errors)
    return sides[0], sides[1]


def read_side(side: SideFiles, stdin: Callable[[], bytes] | None = None) -> Side:
    """Read one side; raises FleetFileError with all errors in its files, prefixed by its revision."""
    files = side.existing
    if not files:
        return Side(side.revision)
    loaded = inspect_fleet(files, stdin=stdin, tree=side.tree)
    if loaded.fleet is None:
        raise FleetFileError([replace(problem, file=side.prefix + problem.file) for problem in loaded.errors])
    return Side(side.revision, loaded.fleet, loaded.documents)


def refuse_empty(argument: str | None, name: str) -> None:
    """Raise UsageError if an argument was given but is empty."""
    if argument is not None and not argument.strip():
        raise UsageError(f"{name} is empty; is a variable unset?", hint="name a revision, such as origin/main, or HEAD")


def at_commit(commit: Commit, repository: Repository, files: Sequence[str], until: str | None = None) -> SideFiles:
    """Return the side that has `files` in a commit, with the old names of files renamed by `until`, else by the index.

    Raises UsageError or RevisionError for a file that cannot be in a commit.
    """
    tree = GitTree(repository, commit)
    for file in files:
        if file == STDIN:
            raise UsageError("standard input has no revisions", hint="name the fleet files with -f, or two files")
        if not tree.in_checkout(file, file):
            where = repository.top or repository.git.git_dir.path
            raise RevisionError(f"{file} is outside of the git repository {where}",
                                hint="only files of one repository can be read at a revision")
    side = SideFiles(Revision(name=commit.name, commit=commit.id, files=list(files)), tree, f"{commit.name}:")
    existing = side.existing
    if len(existing) == len(files):
        return side
    former = former_names(tree, [file for file in files if file not in existing], until,
                          {tree.identity(file) for file in existing})
    return replace(side, former=tuple(dict.fromkeys(former)))


@dataclass(frozen=True, slots=True)
class _File:
    """A file that is on one side only, by its path from the top; `gone` = the side is the commit."""

    path: str
    id: str
    gone: bool


def former_names(tree: GitTree, files: Sequence[str], until: str | None, already_read: set[str]) -> list[str]:
    """Return the old names of `files` in the commit of `tree`, as paths like these; of a folder, those of its files.

    `until` = the commit that has the new names; None = the index has them. Names in `already_read`, from the top, and
    files in such a folder are left out. Raises RevisionError for a forged object.
    """
    changed = list(_changed(tree, until))
    gone = [file for file in changed if file.gone and not {file.path, posixpath.dirname(file.path)} & already_read]
    wanted = [tree.inside(file) for file in files]
    came = [file for file in changed if not file.gone and any(
        file.path == inside or (posixpath.dirname(file.path) == inside and is_fleet_file(posixpath.basename(file.path)))
        for inside in wanted)]
    top, former = tree.repository.top, []
    for new in came:
        old = _old_name(tree, new, gone)
        if old is not None:
            gone.remove(old)
            former.append(posixpath.relpath(posixpath.join(top, old.path)) if top else old.path)
    return former


def _changed(tree: GitTree, until: str | None) -> Iterator[_File]:
    """Yield the files that came and went; those that went are in the commit, and not in `until`."""
    compared = ("diff-tree", "-r", tree.commit.id, until) if until else ("diff-index", "--cached", tree.commit.id)
    done = tree.repository.git.run(*compared, "--raw", "--no-renames", "--no-abbrev", "--diff-filter=AD", "-z")
    check(done, compared[0])
    later = GitTree(tree.repository, Commit("", until)) if until else None
    fields = os.fsdecode(done.stdout).split("\0")
    for head, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, new_mode, old_id, new_id, kind = head.removeprefix(":").split(" ")
        if kind == "A" and stat.S_ISREG(int(new_mode, 8)):
            yield _File(path, new_id, gone=False)
        elif kind == "D" and stat.S_ISREG(int(old_mode, 8)) and _has(tree, path, old_id) \
                and not (later and _has(later, path)):
            yield _File(path, old_id, gone=True)


def _has(tree: GitTree, path: str, object_id: str | None = None) -> bool:
    """Return whether a file is in a commit; git's own list was made from trees it did not check."""
    entry, _ = tree.repository.objects.entry_at(tree.repository.root(tree.commit.id), path.split("/"))
    return isinstance(entry, TreeEntry) and (object_id is None or entry.id == object_id)


def _old_name(tree: GitTree, new: _File, gone: Sequence[_File]) -> _File | None:
    """Return the file with most in common; with the same content one of the same name first."""
    same = [old for old in gone if old.id == new.id]
    if same:
        return min(same, key=lambda old: (posixpath.basename(old.path) != posixpath.basename(new.path), old.path))
    content = _content(tree, new.id)
    if content is None:
        return None
    best, kept, left = 0.5, None, MOST_BYTES
    for old in sorted(gone, key=lambda old: (posixpath.basename(old.path) != posixpath.basename(new.path),
                                             not is_fleet_file(posixpath.basename(old.path)), old.path)):
        before = _content(tree, old.id)
        left -= len(before or b"")
        if left < 0:
            break
        if before is not None and (common := _in_common(before, content)) >= best and (kept is None or common > best):
            best, kept = common, old
    return kept


def _content(tree: GitTree, object_id: str) -> bytes | None:
    try:
        return tree.repository.objects.read(object_id, "blob", MAX_FILE_BYTES)
    except (LargeObject, MissingObject):
        return None


def _in_common(one: bytes, other: bytes) -> float:
    """Return the share of the longer content that both have, line by line."""
    lines, others = Counter(one.splitlines(keepends=True)), Counter(other.splitlines(keepends=True))
    return sum(len(line) * count for line, count in (lines & others).items()) / max(len(one), len(other), 1)


PATH_PREFIXES, FILE_SUFFIXES = ("./", "../", "/"), (".yaml", ".yml")


def files_of_sides(
    base: str | None, head: str | None, files: Sequence[str], environ: Mapping[str, str]
) -> tuple[SideFiles, SideFiles]:
    """Return the files of the two sides; BASE defaults to HEAD, HEAD to the working tree.

    At a revision `files` are read, or without them the path given as the other argument. Raises UsageError for
    ambiguous arguments, RevisionError for a revision that is not found.
    """
    return _Arguments(base, head, tuple(files), environ).sides()


@dataclass(frozen=True, slots=True)
class _Arguments:
    base: str | None
    head: str | None
    files: tuple[str, ...]
    environ: Mapping[str, str]

    def sides(self) -> tuple[SideFiles, SideFiles]:
        refuse_empty(self.base, "BASE")
        refuse_empty(self.head, "HEAD")
        base_path, head_path = self._path(self.base), self._path(self.head)
        paths = tuple(path for path in (base_path, head_path) if path is not None)
        files = self.files or paths
        if base_path is None and self.base is not None and (between := parse_range(self.base)):
            return self._between(*between, files)
        if base_path is not None and self.head is None and not self.files:
            return self._at("HEAD", paths), on_disk(paths)
        if head_path is not None:
            new = _existing(head_path)
        else:
            new = on_disk(files) if self.head is None else self._at(self.head, files)
        if base_path is not None:
            return _existing(base_path), new
        return self._at(self.base or "HEAD", files, new.revision.commit), new

    def _between(self, start: str, dots: str, end: str, files: tuple[str, ...]) -> tuple[SideFiles, SideFiles]:
        if self.head is not None:
            raise UsageError(f"{self.base} already names both sides; {self.head} would be a third",
                             hint="give BASE HEAD, BASE..HEAD, or BASE...HEAD for HEAD since their merge base")
        repository = repository_of(_required(files)[0], self.environ)
        first = repository.merge_base(start, end) if dots == "..." else repository.commit(start)
        last = repository.commit(end)
        return at_commit(first, repository, files, last.id), at_commit(last, repository, files)

    def _at(self, name: str, files: tuple[str, ...], until: str | None = None) -> SideFiles:
        if STDIN in _required(files):
            raise UsageError(f"standard input has no revision {name}", hint="name the fleet files with -f")
        repository = repository_of(files[0], self.environ)
        try:
            return at_commit(repository.commit(name), repository, files, until)
        except MissingRevision as error:
            hint = f"{error.hint}; if you mean a path, put ./ before it"
            raise MissingRevision(error.message, hint=hint) from None

    def _path(self, argument: str | None) -> str | None:
        """Return the argument if it is a path, None for a revision; raises UsageError if it could be both."""
        if argument is None or argument == STDIN or argument.startswith(PATH_PREFIXES):
            return argument
        if not _exists(argument):
            return argument if argument.endswith(FILE_SUFFIXES) else None
        if self._is_revision(argument):
            raise UsageError(f"{argument} is both a revision and a path here",
                             hint=f"write ./{argument} for the path, or {argument}~0 for the revision")
        return argument

    def _is_revision(self, argument: str) -> bool:
        try:
            return repository_of((self.files or (".",))[0], self.environ).find(argument) is not None
        except RevisionError:
            return False


def _existing(path: str) -> SideFiles:
    if path != STDIN and not _exists(path):
        raise RevisionError(f"{path}: no such file or folder", hint="use -f for a file that exists only in a revision")
    return SideFiles(Revision(name=path, files=[path]), DISK)


def on_disk(files: Sequence[str]) -> SideFiles:
    """Return the side that has `files` as they are on disk."""
    return SideFiles(Revision(name=WORKING_TREE, files=list(files)), DISK)


def _required(files: tuple[str, ...]) -> tuple[str, ...]:
    if not files:
        raise UsageError("no fleet files are given, and a revision has many files",
                         hint="name them with -f, as in: fleetctl diff main -f fleets/")
    return files


def _exists(path: str) -> bool:
    return DISK.is_folder(path) or DISK.is_file(path)


def at_revision(files: Sequence[str], revision: str, environ: Mapping[str, str]) -> SideFiles:
    """Return the side that has `files` at `revision`; `REV...` is the merge base of REV and HEAD.

    Raises RevisionError for a revision that is not found, UsageError for text that is not a single revision.
    """
    refuse_empty(revision, "BASE")
    repository = repository_of(next((file for file in files if file != STDIN), "."), environ)
    return at_commit(_commit(repository, revision), repository, files)


def load_base(files: Sequence[str], revision: str, environ: Mapping[str, str]) -> Side:
    """Return the fleet in `files` at `revision`; `REV...` is the merge base of REV and HEAD.

    A fleet with errors is returned as its problems, as the purpose of a change may be to fix them. Raises as
    `at_revision` does.
    """
    side = at_revision(files, revision, environ)
    try:
        return read_side(side)
    except FleetFileError as error:
        return Side(side.revision, problems=error.problems)


def _commit(repository: Repository, revision: str) -> Commit:
    between = parse_range(revision)
    if between is None:
        if revision.startswith(PATH_PREFIXES) or (revision.endswith(FILE_SUFFIXES) and not repository.find(revision)):
            raise UsageError(f"--base {revision}: expected a git revision, found a path",
                             hint=f"to compare two files: fleetctl diff {quote(revision)} NEW.yaml")
        return repository.commit(revision)
    start, dots, end = between
    if dots != "..." or end != "HEAD":
        raise UsageError(f"--base {revision}: --base takes one revision; the other side is the files on disk",
                         hint=f"write {start}, or {start}... for the merge base of {start} and HEAD; "
                              "`fleetctl diff` compares two revisions")
    return repository.merge_base(start, end)
