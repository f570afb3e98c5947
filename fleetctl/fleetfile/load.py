"""Loads a fleet: read, compose, merge with bases, validate, check the rules, resolve. All problems, or the fleet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from fleetctl.collector import collector_paused
from fleetctl.documents.fleet import MAX_SCHEMAS, FleetDocument
from fleetctl.documents.position import FleetSource
from fleetctl.documents.quantity import AUTO
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.compose import compose_bytes
from fleetctl.fleetfile.extends import Bases, NamedFile, in_each_variant, join, use_shapes, with_defaults
from fleetctl.fleetfile.file_tree import DISK, FileTree
from fleetctl.fleetfile.nodes import Document, models, root, shapes_of
from fleetctl.fleetfile.resolved import ResolvedFleet, resolve
from fleetctl.fleetfile.rules import check_alike, check_fleet, check_minimums, check_model, check_whole
from fleetctl.fleetfile.sources import SourceBytes, read_sources
from fleetctl.fleetfile.validate import MAX_FOUND, validate
from fleetctl.problem import Problem

MAX_PROBLEMS = 1000
MAX_RULES_BYTES = 1 << 20


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
    found = _Found()
    found.add(problems)
    given: list[Document] = []
    whole, size = True, 0  # whether every file could be read, and the number of values
    for source in read:
        composed = compose_bytes(source, size)
        found.add(composed.problems)
        given += composed.documents
        whole, size = whole and not composed.broken, size + composed.size
        if not composed.documents and not composed.broken:
            found.add([Problem("FL007", "this file has no document", source.file, allowed="at least one Fleet")])
    bases = Bases(read, tree, size)
    stacked = [bases.stack(document) for document in given]
    whole = whole and not found.first and not bases.problems
    documents, problems = use_shapes([document for document, _ in stacked], whole=whole)
    found.add(bases.problems)
    found.add(problems)
    checked, complete = [], []
    for document, (_, bases_read) in zip(documents, stacked, strict=True):
        if not found.is_full:
            checked.append(validate(document, whole=bases_read))
            found.add(checked[-1].problems)
            if bases_read and not checked[-1].foreign:
                complete.append(document)
    found.add(replace(problem, model=model.text("key") or "") for document in complete
              for model in (*shapes_of(document), *models(document)) for problem in check_model(model))
    found.add(check_fleet(complete))
    house_rules: list[FleetSource] = []
    if whole and not found.is_full:
        house_rules, problems = check_house_rules(complete, tree)
        found.add(problems)
        found.add(check_whole(complete))
    files = [*read, *bases.read]
    ordered = found.ordered([source.file for source in files])
    if any(problem.severity == "error" for problem in ordered):
        return LoadedFleet(None, ordered)
    return _resolved([(one.document, one.model) for one in checked if one.model is not None], found, files, house_rules,
                     tree)


def _resolved(pairs: Sequence[tuple[Document, FleetDocument]], found: _Found, files: Sequence[SourceBytes],
              house_rules: Sequence[FleetSource], tree: FileTree) -> LoadedFleet:
    """Resolve documents that passed every rule; what is only known then may be a problem, too."""
    known, names = None, [source.file for source in files]
    if any(model.model is not None or way.model is not None or member.resources.vram == AUTO for _, fleet in pairs
           for model in fleet.spec.models for way in model.alternatives for group in way.workers
           for member in group.members):
        from fleetctl.fleetfile.model_numbers import read_numbers  # for fleets with described models

        known = read_numbers(pairs, tree)
        found.add(known.problems)
    documents = tuple(document for document, _ in pairs)
    fleet = resolve(pairs, [source.about for source in files], house_rules, found.ordered(names), known)
    if any(model.variants for model in fleet.models):
        found.add(check_alike(documents, fleet))
        found.add(check_minimums(documents, fleet))
    ordered = found.ordered(names)
    if any(problem.severity == "error" for problem in ordered):
        return LoadedFleet(None, ordered)
    return LoadedFleet(replace(fleet, warnings=ordered), ordered, documents)


@dataclass(slots=True)
class _Found:
    """The problems found so far, each once: one in a shape or an anchor is found again in each model that uses it."""

    first: dict[tuple[object, ...], Problem] = field(default_factory=dict)
    is_full: bool = False

    def add(self, problems: Iterable[Problem]) -> None:
        """Add problems until there are too many; the rest is not even searched for."""
        for problem in () if self.is_full else problems:
            key = (problem.file, problem.line, problem.column, problem.code, problem.message)
            self.first.setdefault(key, problem)
            if len(self.first) > MAX_FOUND:
                self.is_full = True
                return

    def ordered(self, files: Sequence[str]) -> tuple[Problem, ...]:
        """Return the problems in the order of the files; the last one says how many are not listed."""
        rank = {file: number for number, file in enumerate(files)}
        ordered = sorted(self.first.values(),
                         key=lambda p: (rank.get(p.file, -1), p.file, p.line, p.column, p.code, p.message))
        if len(ordered) <= MAX_PROBLEMS:
            return tuple(ordered)
        last, hidden = ordered[MAX_PROBLEMS - 1], len(ordered) - MAX_PROBLEMS
        more = f"{hidden} more problems are not listed{', and the search ended there' if self.is_full else ''}"
        return (*ordered[:MAX_PROBLEMS], Problem("FL019", more, last.file, last.line, last.column))


def check_house_rules(documents: Sequence[Document], tree: FileTree) -> tuple[list[FleetSource], list[Problem]]:
    """Check a whole fleet against its house rules, the JSON Schemas in the files that `spec.policy.schemas` names.

    A rule sees the fleet as its files write it, with bases merged and `spec.defaults` merged into each model. It sees
    it once for each variant, with the workers, placement and numbers of that variant as those of the model, so that a
    rule over workers holds in all of them. Return the schema files, and all problems of schemas and fleet.
    """
    named = [(NamedFile(document, path, text, "FL037"), document.source.file) for document in documents
             for path, text in root(document).child("spec").child("policy").texts("schemas") if text]
    if not named:
        return [], []
    from fleetctl.fleetfile.rule_schema import problems_of_rules  # only for a fleet with rules

    fleet = with_defaults(join(documents))
    sources: list[SourceBytes] = []
    problems: list[Problem] = []
    for name, given in named[:MAX_SCHEMAS]:
        try:
            name.find(tree, given)
            sources.append(name.read(tree, MAX_RULES_BYTES))
        except FleetFileError as error:
            problems += error.problems
    for place, whole in enumerate(in_each_variant(fleet)):
        problems += [_in_its_variant(problem, whole, place) for problem in problems_of_rules(whole, sources)]
    return [source.about for source in sources], problems


_BELOW_WORKERS = re.compile(r"(spec\.models\[(\d+)\])(\.workers.*)")


def _in_its_variant(problem: Problem, fleet: Document, place: int) -> Problem:
    """Return a problem in the workers of a model that is seen in a variant, with the path that these have in the file.
    """
    match = _BELOW_WORKERS.fullmatch(problem.path)
    variants = match and fleet.node(("spec", "models", int(match[2]), "variants"))
    if not match or not variants or not isinstance(variants.children, list):
        return problem
    return replace(problem, path=f"{match[1]}.variants[{min(place, len(variants.children) - 1)}]{match[3]}")
