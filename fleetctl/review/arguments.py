"""The arguments of `fleetctl diff [BASE [HEAD]] -f FILES`: each is a git revision or a path, as for `git diff`.

An argument that could be both is refused: ./ before it makes it a path, ~0 after it a revision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from fleetctl.documents.difference import Revision
from fleetctl.errors import FleetFileError, RevisionError, UsageError
from fleetctl.fleetfile.file_tree import DISK
from fleetctl.review.inputs import STDIN, WORKING_TREE, Place, Side, at_commit, read_side, refuse_empty
from fleetctl.review.revisions import Commit, MissingRevision, Repository, parse_range, repository_of

PATH_PREFIXES, FILE_SUFFIXES = ("./", "../", "/"), (".yaml", ".yml")


def places_of(
    base: str | None, head: str | None, files: Sequence[str], environ: Mapping[str, str]
) -> tuple[Place, Place]:
    """Return the places of the two sides; BASE defaults to HEAD, HEAD to the working tree.

    At a revision `files` are read, or without them the path given as the other argument. Raises UsageError for
    ambiguous arguments, RevisionError for a revision that is not found.
    """
    return _Arguments(base, head, tuple(files), environ).places()


@dataclass(frozen=True, slots=True)
class _Arguments:
    base: str | None
    head: str | None
    files: tuple[str, ...]
    environ: Mapping[str, str]

    def places(self) -> tuple[Place, Place]:
        refuse_empty(self.base, "BASE")
        refuse_empty(self.head, "HEAD")
        base_path, head_path = self._path(self.base), self._path(self.head)
        paths = tuple(path for path in (base_path, head_path) if path is not None)
        files = self.files or paths
        if base_path is None and self.base is not None and (between := parse_range(self.base)):
            return self._between(*between, files)
        if base_path is not None and self.head is None and not self.files:
            return self._at("HEAD", paths), _on_disk(paths)
        if head_path is not None:
            new = _existing(head_path)
        else:
            new = _on_disk(files) if self.head is None else self._at(self.head, files)
        if base_path is not None:
            return _existing(base_path), new
        return self._at(self.base or "HEAD", files, new.revision.commit), new

    def _between(self, start: str, dots: str, end: str, files: tuple[str, ...]) -> tuple[Place, Place]:
        if self.head is not None:
            raise UsageError(f"{self.base} already names both sides; {self.head} would be a third",
                             hint="give BASE HEAD, BASE..HEAD, or BASE...HEAD for HEAD since their merge base")
        repository = repository_of(_required(files)[0], self.environ)
        first = repository.merge_base(start, end) if dots == "..." else repository.commit(start)
        last = repository.commit(end)
        return at_commit(first, repository, files, last.id), at_commit(last, repository, files)

    def _at(self, name: str, files: tuple[str, ...], until: str | None = None) -> Place:
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


def _existing(path: str) -> Place:
    if path != STDIN and not _exists(path):
        raise RevisionError(f"{path}: no such file or folder", hint="use -f for a file that exists only in a revision")
    return Place(Revision(name=path, files=[path]), DISK)


def _on_disk(files: tuple[str, ...]) -> Place:
    return Place(Revision(name=WORKING_TREE, files=list(files)), DISK)


def _required(files: tuple[str, ...]) -> tuple[str, ...]:
    if not files:
        raise UsageError("no fleet files are given, and a revision has many files",
                         hint="name them with -f, as in: fleetctl diff main -f fleets/")
    return files


def _exists(path: str) -> bool:
    return DISK.is_folder(path) or DISK.is_file(path)


def load_base(files: Sequence[str], revision: str, environ: Mapping[str, str]) -> Side:
    """Return the fleet in `files` at `revision`; `REV...` is the merge base of REV and HEAD.

    A fleet with errors is returned as its problems, as the purpose of a change may be to fix them. Raises RevisionError
    for a revision that is not found, UsageError for text that is not a single revision.
    """
    refuse_empty(revision, "BASE")
    repository = repository_of(next((file for file in files if file != STDIN), "."), environ)
    place = at_commit(_commit(repository, revision), repository, files)
    try:
        return read_side(place)
    except FleetFileError as error:
        return Side(place.revision, problems=error.problems)


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
