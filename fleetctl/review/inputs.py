"""The two inputs of a comparison: each side is a fleet with its positions, or no fleet."""

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
from fleetctl.review.renames import former_names
from fleetctl.review.revisions import Commit, Repository

WORKING_TREE = "the working tree"
STDIN = "-"


@dataclass(frozen=True, slots=True)
class Place:
    """The source of one side. `prefix`, such as `main:`, precedes its file names in problems. `former` = the old names
    of requested files that were renamed since.
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


def read_sides(base: Place, head: Place, stdin: Callable[[], bytes]) -> tuple[Side, Side]:
    """Read both sides; raises FleetFileError with all errors of both, UsageError if neither has any file."""
    if [*base.revision.files, *head.revision.files].count(STDIN) > 1:
        raise UsageError("standard input can be read only once", hint="name a file for one of the sides")
    if not base.existing and not head.existing:
        missing = ", ".join(dict.fromkeys((*base.revision.files, *head.revision.files)))
        raise UsageError(f"{missing}: neither in {base.revision.name} nor in {head.revision.name}",
                         hint="paths are relative to the current folder, also in a revision")
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
    """Read one side; raises FleetFileError with all errors in its files, prefixed by its revision."""
    files = place.existing
    if not files:
        return Side(place.revision)
    loaded = inspect_fleet(files, stdin=stdin, tree=place.tree)
    if loaded.fleet is None:
        raise FleetFileError([replace(problem, file=place.prefix + problem.file) for problem in loaded.errors])
    return Side(place.revision, loaded.fleet, loaded.documents)


def refuse_empty(argument: str | None, name: str) -> None:
    """Raise UsageError if an argument was given but is empty."""
    if argument is not None and not argument.strip():
        raise UsageError(f"{name} is empty; is a variable unset?", hint="name a revision, such as origin/main, or HEAD")


def at_commit(commit: Commit, repository: Repository, files: Sequence[str], until: str | None = None) -> Place:
    """Return the place of `files` in a commit, with the old names of files renamed by `until`, else by the index.

    Raises UsageError or RevisionError for a file that cannot be in a commit.
    """
    tree = GitTree(repository, commit)
    for file in files:
        if file == STDIN:
            raise UsageError("standard input has no revisions", hint="name the fleet files with -f, or two files")
        if not tree.in_checkout(file, file):
            where = repository.top or repository.git.place.path
            raise RevisionError(f"{file} is outside of the git repository {where}",
                                hint="only files of one repository can be read at a revision")
    place = Place(Revision(name=commit.name, commit=commit.id, files=list(files)), tree, f"{commit.name}:")
    existing = place.existing
    if len(existing) == len(files):
        return place
    former = former_names(tree, [file for file in files if file not in existing], until,
                          {tree.identity(file) for file in existing})
    return replace(place, former=tuple(dict.fromkeys(former)))
