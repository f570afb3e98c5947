"""What `fleetctl diff [BASE [HEAD]] -f FILES` compares: each argument is a git revision or a path, as for `git diff`.

An argument that could be both is refused: a path is sure with ./ before it, a revision with ~0 behind it.
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

SURELY_PATHS, SURELY_FILES = ("./", "../", "/"), (".yaml", ".yml")


def places_of(
    base: str | None, head: str | None, files: Sequence[str], environ: Mapping[str, str]
) -> tuple[Place, Place]:
    """Return the places of the two sides; BASE defaults to HEAD, HEAD to the working tree.

    A revision is asked for `files`, or, without them, for the path that is the other argument. Raises UsageError for
    ambiguous arguments, RevisionError for a revision that is not here.
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
        new = (_named(head_path) if head_path is not None else
               _on_disk(files) if self.head is None else self._at(self.head, files))
        old = (_named(base_path) if base_path is not None else
               self._at(self.base or "HEAD", files, new.revision.commit))
        return old, new

    def _between(self, start: str, dots: str, end: str, files: tuple[str, ...]) -> tuple[Place, Place]:
        if self.head is not None:
            raise UsageError(f"{self.base} names both sides already, and {self.head} is a third",
                             hint="give BASE HEAD, BASE..HEAD, or BASE...HEAD for HEAD since their merge base")
        repository = repository_of(_needed(files)[0], self.environ)
        parted = repository.merge_base(start, end) if dots == "..." else repository.commit(start)
        last = repository.commit(end)
        return at_commit(parted, repository, files, last.id), at_commit(last, repository, files)

    def _at(self, name: str, files: tuple[str, ...], until: str | None = None) -> Place:
        if STDIN in _needed(files):
            raise UsageError(f"standard input has no revision {name}", hint="name the fleet files with -f")
        repository = repository_of(files[0], self.environ)
        try:
            return at_commit(repository.commit(name), repository, files, until)
        except MissingRevision as error:
            hint = f"{error.hint}; a path is meant with ./ before its name"
            raise MissingRevision(error.message, hint=hint) from None

    def _path(self, argument: str | None) -> str | None:
        """Return an argument that is a path, None for a revision; raises UsageError for one that is both."""
        if argument is None or argument == STDIN or argument.startswith(SURELY_PATHS):
            return argument
        if not _is_there(argument):
            return argument if argument.endswith(SURELY_FILES) else None
        if self._is_revision(argument):
            raise UsageError(f"{argument} is both a revision and a path here",
                             hint=f"write ./{argument} for the path, or {argument}~0 for the revision")
        return argument

    def _is_revision(self, argument: str) -> bool:
        try:
            return repository_of((self.files or (".",))[0], self.environ).find(argument) is not None
        except RevisionError:
            return False


def _named(path: str) -> Place:
    """Return the place of a path that was given by itself, and so must exist."""
    if path != STDIN and not _is_there(path):
        raise UsageError(f"{path}: no such file or folder", hint="what is only in a revision is named with -f")
    return Place(Revision(name=path, files=[path]), DISK)


def _on_disk(files: tuple[str, ...]) -> Place:
    return Place(Revision(name=WORKING_TREE, files=list(files)), DISK)


def _needed(files: tuple[str, ...]) -> tuple[str, ...]:
    if not files:
        raise UsageError("no fleet files: a revision holds many files",
                         hint="name them with -f, as in: fleetctl diff main -f fleets/")
    return files


def _is_there(path: str) -> bool:
    return DISK.is_folder(path) or DISK.is_file(path)


def load_base(files: Sequence[str], revision: str, environ: Mapping[str, str]) -> Side:
    """Return the fleet in `files` at `revision`; `REV...` is the merge base of REV and HEAD.

    A fleet with errors at that revision is returned as its problems, as a change may be there to fix them. Raises
    RevisionError for a revision that is not here, UsageError for text that is not a single revision.
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
        if revision.startswith(SURELY_PATHS) or (revision.endswith(SURELY_FILES) and not repository.find(revision)):
            raise UsageError(f"--base {revision}: a git revision is needed, and this is a path",
                             hint=f"two files are compared by `fleetctl diff {quote(revision)} NEW.yaml`")
        return repository.commit(revision)
    one, dots, other = between
    if dots != "..." or other != "HEAD":
        raise UsageError(f"--base {revision}: --base names one revision; the other side is the files as they lie here",
                         hint=f"write {one}, or {one}... for where {one} and HEAD parted; "
                              "`fleetctl diff` compares two revisions")
    return repository.merge_base(one, other)
