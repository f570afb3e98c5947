"""Loads a fleet: read, compose, merge with bases, validate, check the rules, resolve. All problems, or the fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fleetctl.collector import collector_paused
from fleetctl.documents.position import FleetSource
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.compose import compose_bytes
from fleetctl.fleetfile.extends import Bases
from fleetctl.fleetfile.file_tree import DISK, FileTree
from fleetctl.fleetfile.house_rules import check_house_rules
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.raw import models
from fleetctl.fleetfile.resolve import resolve
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.fleetfile.rules_fleet import check_fleet, check_whole
from fleetctl.fleetfile.rules_model import check_model
from fleetctl.fleetfile.shapes import shapes_of, use_shapes
from fleetctl.fleetfile.sources import SourceBytes, read_sources
from fleetctl.fleetfile.validate import validate
from fleetctl.problem import Problem

MAX_PROBLEMS = 1000


@dataclass(frozen=True, slots=True)
class LoadedFleet:
    """The fleet, if there are no errors, and all problems in file order, including warnings.

    `documents` = what the fleet was resolved from; they hold the position of every value.
    """

    fleet: ResolvedFleet | None
    problems: tuple[Problem, ...]
    documents: tuple[Document, ...] = ()

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that make the fleet unusable."""
        return tuple(problem for problem in self.problems if problem.severity == "error")

    def sound(self) -> ResolvedFleet:
        """Return the fleet; raises FleetFileError with every error in its files."""
        if self.fleet is None:
            raise FleetFileError(self.errors)
        return self.fleet


def load_fleet(
    sources: Sequence[str], *, stdin: Callable[[], bytes] | None = None, tree: FileTree = DISK
) -> ResolvedFleet:
    """Return the fleet in `sources` (files, folders, `-`); raises FleetFileError with every error in them."""
    return inspect_fleet(sources, stdin=stdin, tree=tree).sound()


def inspect_fleet(
    sources: Sequence[str], *, stdin: Callable[[], bytes] | None = None, tree: FileTree = DISK
) -> LoadedFleet:
    """Return the fleet, if it is valid, and every problem of its files; never raises."""
    read, problems = read_sources(sources, stdin, tree)
    return inspect_bytes(read, problems, tree=tree)


@collector_paused()
def inspect_bytes(read: Sequence[SourceBytes], problems: Iterable[Problem] = (), *, tree: FileTree = DISK
                  ) -> LoadedFleet:
    """Like `inspect_fleet`, for files in memory; `problems` = found while reading them, `tree` = where bases are."""
    found = list(problems)
    documents, whole = _documents(read, found)
    bases = Bases([source.file for source in read], tree)
    stacked = [bases.stack(document) for document in documents]
    whole = whole and not found and not bases.problems
    documents, problems = use_shapes([document for document, _ in stacked], whole=whole)
    found += (*bases.problems, *problems)
    checked, complete = [], []
    for document, (_, bases_read) in zip(documents, stacked, strict=True):
        checked.append(validate(document, whole=bases_read))
        if bases_read and not checked[-1].foreign:
            complete.append(document)
    found += (problem for one in checked for problem in one.problems)
    found += (problem for document in complete for model in (*shapes_of(document), *models(document))
              for problem in check_model(model))
    found += check_fleet(complete)
    house_rules: list[FleetSource] = []
    if whole:
        house_rules, problems = check_house_rules(complete, tree)
        found += (*problems, *check_whole(complete))
    files = [*read, *bases.read]
    ordered = _ordered(found, [source.file for source in files])
    if any(problem.severity == "error" for problem in ordered):
        return LoadedFleet(None, ordered)
    pairs = [(one.document, one.model) for one in checked if one.model is not None]
    fleet = resolve(pairs, [source.about for source in files], house_rules)
    return LoadedFleet(fleet, ordered, tuple(document for document, _ in pairs))


def _documents(read: Sequence[SourceBytes], found: list[Problem]) -> tuple[list[Document], bool]:
    documents: list[Document] = []
    whole = True
    for source in read:
        composed = compose_bytes(source)
        found.extend(composed.problems)
        documents.extend(composed.documents)
        whole = whole and not composed.broken
        if not composed.documents and not composed.broken:
            found.append(Problem("FL007", "this file has no document", source.file, allowed="at least one Fleet"))
    return documents, whole


def _ordered(problems: list[Problem], files: list[str]) -> tuple[Problem, ...]:
    rank = {file: number for number, file in enumerate(files)}
    # a problem in a shape or an anchor is found again in each model that uses it: keep the first
    unique = {(p.file, p.line, p.column, p.code, p.message): p for p in reversed(problems)}
    ordered = sorted(unique.values(),
                     key=lambda p: (rank.get(p.file, -1), p.file, p.line, p.column, p.code, p.message))
    if len(ordered) <= MAX_PROBLEMS:
        return tuple(ordered)
    last, hidden = ordered[MAX_PROBLEMS - 1], len(ordered) - MAX_PROBLEMS
    return (*ordered[:MAX_PROBLEMS],
            Problem("FL019", f"{hidden} more problems are not listed", last.file, last.line, last.column))
