"""The two inputs of a comparison: each side is a fleet with the positions of everything in it, or no fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fleetctl.documents.difference import Revision
from fleetctl.errors import FleetFileError, RevisionError, UsageError
from fleetctl.fleetfile.file_tree import FileTree
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.fleetfile.sources import fleet_files
from fleetctl.problem import Problem
from fleetctl.review.git_tree import GitTree
from fleetctl.review.revisions import Commit, Repository

WORKING_TREE = "the working tree"
STDIN = "-"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one side is read from. `shown` is put before the names of its files in problems, as `main:`."""

    revision: Revision
    tree: FileTree
    shown: str = ""

    @property
    def there(self) -> list[str]:
        """The files that this side has; a folder without a fleet file counts as missing."""
        return [file for file in self.revision.files if self._has(file)]

    def _has(self, file: str) -> bool:
        if file == STDIN or not self.tree.is_folder(file):
            return file == STDIN or self.tree.is_file(file)
        try:
            return bool(fleet_files(file, self.tree))
        except OSError:  # reading it will say why
            return True


@dataclass(frozen=True, slots=True)
class Side:
    """One side, read; `fleet` None = none of its files exists on this side, or they have `problems`."""

    revision: Revision
    fleet: ResolvedFleet | None = None
    documents: tuple[Document, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_sides(base: Place, head: Place, stdin: Callable[[], bytes]) -> tuple[Side, Side]:
    """Read both sides; raises FleetFileError with every error of both, UsageError where neither has any file."""
    if [*base.revision.files, *head.revision.files].count(STDIN) > 1:
        raise UsageError("standard input can be read only once", hint="name a file for one of the sides")
    if not base.there and not head.there:
        missing = ", ".join(dict.fromkeys((*base.revision.files, *head.revision.files)))
        raise UsageError(f"{missing}: neither in {base.revision.name} nor in {head.revision.name}",
                         hint="paths are relative to this folder, in a revision, too")
    sides: list[Side] = []
    errors: list[Problem] = []
    for place in (base, head):
        try:
            sides.append(read_side(place, stdin))
        except FleetFileError as error:
            errors += error.problems
    if errors:
        raise FleetFileError(errors)
    return sides[0], sides[1]


def read_side(place: Place, stdin: Callable[[], bytes] | None = None) -> Side:
    """Read one side; raises FleetFileError with every error in its files, each named with its revision."""
    there = place.there
    if not there:
        return Side(place.revision)
    loaded = inspect_fleet(there, stdin=stdin, tree=place.tree)
    if loaded.fleet is None:
        raise FleetFileError([replace(problem, file=place.shown + problem.file) for problem in loaded.errors])
    return Side(place.revision, loaded.fleet, loaded.documents)


def refuse_empty(argument: str | None, name: str) -> None:
    """Raise UsageError for an argument that was given and is empty."""
    if argument is not None and not argument.strip():
        raise UsageError(f"{name} is empty; is a variable unset?", hint="name a revision, such as origin/main, or HEAD")


def at_commit(commit: Commit, repository: Repository, files: Sequence[str]) -> Place:
    """Return the place of `files` in a commit; raises UsageError or RevisionError for one that no commit can have."""
    tree = GitTree(repository, commit)
    for file in files:
        if file == STDIN:
            raise UsageError("standard input has no revisions", hint="name the fleet files with -f, or two files")
        if not tree.in_checkout(file, file):
            raise RevisionError(f"{file} is outside of the git repository {repository.top or repository.git.folder}",
                                hint="only files of one repository can be read at a revision")
    return Place(Revision(name=commit.name, commit=commit.id, files=list(files)), tree, f"{commit.name}:")
