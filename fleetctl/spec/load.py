"""Loading a fleet: read, decode, compose, validate, check the rules, resolve. All problems at once, or the fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fleetctl.collector import collector_paused
from fleetctl.documents.plan import FleetSource
from fleetctl.errors import FleetFileError
from fleetctl.spec.compose import compose
from fleetctl.spec.file_tree import DISK, FileTree
from fleetctl.spec.nodes import Document
from fleetctl.spec.problems import Problem
from fleetctl.spec.raw import models
from fleetctl.spec.resolve import resolve
from fleetctl.spec.resolved import ResolvedFleet
from fleetctl.spec.rules_fleet import check_fleet, check_not_empty
from fleetctl.spec.rules_model import check_model
from fleetctl.spec.sources import SourceBytes, read_sources
from fleetctl.spec.text import SourceText, decode
from fleetctl.spec.validate import validate

MAX_PROBLEMS = 1000


@dataclass(frozen=True, slots=True)
class LoadedFleet:
    """What a run found: the fleet where there are no errors, and all problems, warnings included, in file order.

    `documents` are what the fleet was resolved from, to find the place of anything in it.
    """

    fleet: ResolvedFleet | None
    problems: tuple[Problem, ...]
    documents: tuple[Document, ...] = ()

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that keep the fleet from being used."""
        return tuple(problem for problem in self.problems if problem.severity == "error")


def load_fleet(
    sources: Sequence[str], *, stdin: Callable[[], bytes] | None = None, tree: FileTree = DISK
) -> ResolvedFleet:
    """Return the fleet that lies in `sources` (files, folders, `-`); raises FleetFileError with every error in them."""
    loaded = inspect_fleet(sources, stdin=stdin, tree=tree)
    if loaded.fleet is None:
        raise FleetFileError(loaded.errors)
    return loaded.fleet


def inspect_fleet(
    sources: Sequence[str], *, stdin: Callable[[], bytes] | None = None, tree: FileTree = DISK
) -> LoadedFleet:
    """Return the fleet, if it is sound, and everything there is to say about its files; raises nothing."""
    read, problems = read_sources(sources, stdin, tree)
    return inspect_bytes(read, problems)


def inspect_bytes(read: Sequence[SourceBytes], problems: Iterable[Problem] = ()) -> LoadedFleet:
    """Like `inspect_fleet`, for files already in memory; `problems` were met while reading them."""
    with collector_paused():
        return _inspect(read, list(problems))


def _inspect(read: Sequence[SourceBytes], found: list[Problem]) -> LoadedFleet:
    documents, whole = _documents(read, found)
    whole = whole and not found
    checked = [validate(document) for document in documents]
    fleets = [one for one in checked if not one.foreign]
    found.extend(problem for one in checked for problem in one.problems)
    found.extend(problem for one in fleets for model in models(one.document) for problem in check_model(model))
    found.extend(check_fleet([one.document for one in fleets]))
    if whole:
        found.extend(check_not_empty([one.document for one in fleets]))
    ordered = _ordered(found, [source.file for source in read])
    if any(problem.severity == "error" for problem in ordered):
        return LoadedFleet(None, ordered)
    files = [FleetSource(path=source.file, sha256=source.sha256) for source in read]
    sound = [(one.document, one.model) for one in fleets if one.model is not None]
    return LoadedFleet(resolve(sound, files), ordered, tuple(document for document, _ in sound))


def _documents(read: Sequence[SourceBytes], found: list[Problem]) -> tuple[list[Document], bool]:
    documents: list[Document] = []
    whole = True
    for source in read:
        text = decode(source)
        if isinstance(text, Problem):
            found.append(text)
            whole = False
            continue
        composed = compose(text)
        found.extend(composed.problems)
        documents.extend(composed.documents)
        whole = whole and not composed.broken
        if not composed.documents and not composed.broken:
            found.append(_empty(text))
    return documents, whole


def _empty(text: SourceText) -> Problem:
    return text.problem("FL007", 0, "no document in this file", allowed="at least one Fleet")


def _ordered(problems: list[Problem], files: list[str]) -> tuple[Problem, ...]:
    rank = {file: number for number, file in enumerate(files)}
    ordered = sorted(dict.fromkeys(problems),
                     key=lambda p: (rank.get(p.file, -1), p.file, p.line, p.column, p.code, p.message))
    if len(ordered) <= MAX_PROBLEMS:
        return tuple(ordered)
    last, left = ordered[MAX_PROBLEMS - 1], len(ordered) - MAX_PROBLEMS
    return (*ordered[:MAX_PROBLEMS],
            Problem("FL019", "error", f"{left} more problems are not listed", last.file, last.line, last.column))
