"""Validates one document against the models: each pydantic error becomes a problem with a message and a position."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fleetctl.documents.base import LIST, MAPPING, TEXT
from fleetctl.documents.fleet import API_VERSION, FleetDocument
from fleetctl.fleetfile.guess import BECAUSE_OF_THE_COMMA
from fleetctl.fleetfile.keys import keys_of
from fleetctl.fleetfile.merge import OWN_KEYS
from fleetctl.fleetfile.messages import Finding, cut, problem_of
from fleetctl.fleetfile.nodes import Document, Entry, Value, size_of
from fleetctl.problem import Problem

_KEYS = frozenset(keys_of(FleetDocument))
_READ_BY = {"Inventory": "a Fleet; --inventory FILE reads an Inventory",
            "Plan": "a Fleet; `show FILE` and `apply FILE` read a Plan"}
_A_FLEET = "a mapping with apiVersion, kind, metadata and spec"
_FORMS = (TEXT.tag, MAPPING.tag, LIST.tag)
_EMPTY = {"apiVersion": API_VERSION, "kind": "Fleet", "metadata": {"name": "any"}}
PART = 20_000
"""The most values of one model, and of models that are checked at once."""
MAX_BESIDE_MODELS = 100_000
MAX_FOUND = 3000
"""Beyond so many problems the search for more ends: each costs time, such as that for a suggestion."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A document and its model, which is None if there are problems; `foreign` = not a fleet at all."""

    document: Document
    model: FleetDocument | None
    problems: tuple[Problem, ...] = ()
    foreign: bool = False


def validate(document: Document, *, whole: bool = True) -> Checked:
    """Check keys, types and values of one document. A document of another kind gets one problem, not one per key.

    `whole` = every base could be read; otherwise a missing key may be in an unread base, and is not a problem.
    """
    if foreign := foreign_problem(document):
        return Checked(document, None, (foreign,), foreign=True)
    large = size_of(document.root) > PART
    checked = _checked_in_parts(document) if large else _checked(document, document.value)
    return checked if whole else replace(
        checked, problems=tuple(problem for problem in checked.problems if problem.code != "FL021"))


def validate_base(document: Document) -> tuple[Problem, ...]:
    """Check the keys of a base that are never inherited; all others are checked after merging."""
    if foreign := foreign_problem(document):
        return (foreign,)
    own = {key: document.value[key] for key in OWN_KEYS if key in document.value}
    return _checked(document, {**own, "metadata": {"name": "any"}, "spec": {}}).problems


def _checked_in_parts(document: Document) -> Checked:
    """Check a large document: a few models at a time, since each error of pydantic takes a kilobyte of memory."""
    node = document.node(("spec", "models"))
    models: list[Entry] = node.children if node and isinstance(node.children, list) else []
    sizes = [size_of(model) for *_, model in models]
    problems = [document.problem("FL014", ("spec", "models", index), f"more than {PART} values in one model",
                                 allowed="copies and counts instead of groups and members that are written out")
                for index, size in enumerate(sizes) if size > PART]
    if size_of(document.root) - sum(sizes) > MAX_BESIDE_MODELS:
        problems.append(document.problem("FL014", (), f"more than {MAX_BESIDE_MODELS} values beside the models",
                                         allowed="fewer entries, such as node policies that select nodes by labels"))
    if problems:
        return Checked(document, None, tuple(problems))
    without = {**document.value, "spec": {**document.value["spec"], "models": []}} if models else document.value
    rest = _checked(document, without)
    problems, found, first = list(rest.problems), [], 0
    while first < len(sizes) and len(problems) <= MAX_FOUND:
        last, size = first + 1, sizes[first]
        while last < len(sizes) and size + sizes[last] <= PART:
            size, last = size + sizes[last], last + 1
        part = _checked(document, {**_EMPTY, "spec": {"models": document.value["spec"]["models"][first:last]}}, first)
        problems += part.problems
        found += part.model.spec.models if part.model else []
        first = last
    if problems or rest.model is None:
        return Checked(document, None, tuple(problems))
    spec = rest.model.spec.model_copy(update={"models": found}) if models else rest.model.spec
    return Checked(document, rest.model.model_copy(update={"spec": spec}))


def _checked(document: Document, value: Value, first: int = 0) -> Checked:
    """Check a value; `first` = the index in the document of the first model in it."""
    try:
        return Checked(document, FleetDocument.model_validate(value))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        for found in errors if first else ():
            spec, models, index, *below = found["loc"]
            found["loc"] = (spec, models, int(index) + first, *below)
        known = [found for found in errors if not _is_in_shape(document, found)]
        problems = _without_consequences([problem_of(_finding(document, found)) for found in known])
        # a document without a model must have a problem, or it would be dropped silently
        fallback = (document.problem("FL022", (), "this document cannot be used"),) if known else ()
        return Checked(document, None, problems or fallback)


def _without_consequences(problems: list[Problem]) -> tuple[Problem, ...]:
    """Leave out what another problem causes: a missing key that an unknown key of the same mapping is likely meant to
    be, and everything on a line after a selector that an unquoted comma splits."""
    def owner(problem: Problem) -> str:
        return problem.path.rpartition(".")[0]

    split_at = {(problem.file, problem.line): problem.column for problem in problems
                if problem.code == "FL027" and (problem.suggestion or "").endswith(BECAUSE_OF_THE_COMMA)
                and (problem.source_line or "")[problem.column - 1:][:1] in ("i", "!")}  # unquoted
    problems = [problem for problem in problems if problem.code not in ("FL022", "FL028")
                or problem.column < split_at.get((problem.file, problem.line), problem.column + 1)]
    meant = {(owner(problem), problem.suggestion) for problem in problems if problem.code == "FL020"}
    return tuple(problem for problem in problems
                 if problem.code != "FL021" or (owner(problem), problem.path.rpartition(".")[2]) not in meant)


def foreign_problem(document: Document) -> Problem | None:
    """Return the problem of a document that is not a fleet at all."""
    value = document.value
    if not isinstance(value, dict):
        found = "a list" if isinstance(value, list) else "a single value"
        return document.problem("FL022", (), f"the document is {found}, not a fleet", allowed=_A_FLEET)
    version, kind = value.get("apiVersion"), value.get("kind")
    if "formatVersion" in value and kind in _READ_BY:
        return document.problem("FL022", (), f"this document is of kind {kind}, not Fleet", allowed=_READ_BY[kind])
    if value and value.keys().isdisjoint(_KEYS):
        found = ", ".join(list(value)[:3])
        return document.problem("FL022", (), f"a document with {cut(found)} is not a fleet", allowed=_A_FLEET)
    if isinstance(version, str) and not version.startswith(API_VERSION.split("/")[0]):
        found = f"is of kind {kind} ({version})" if isinstance(kind, str) else f"is of {version}"
        return document.problem("FL024", ("apiVersion",), f"this document {found}, not a fleet", allowed=API_VERSION)
    return None


def _is_in_shape(document: Document, error: ErrorDetails) -> bool:
    """Return whether a key is only missing because the model's shape is unusable, which is a problem of its own."""
    path = tuple(part for part in error["loc"] if part not in _FORMS)
    if error["type"] != "missing" or path[:2] != ("spec", "models"):
        return False
    node = document.node((*path[:3], "shape"))
    return node is not None and node.value is not None and (path[3:] == ("workers",) or "workers" in path[4:-1])


def _finding(document: Document, error: ErrorDetails) -> Finding:
    """Return a pydantic error with its path in the file, up to the last part that exists."""
    loc = [part for part in error["loc"] if part not in _FORMS]
    on_key = loc[-1:] == ["[key]"]
    path = loc[:-1] if on_key else loc
    while path and error["type"] != "missing" and document.node(tuple(path)) is None:
        path.pop()
    return Finding(document, tuple(path), document.node(tuple(path)), on_key or error["type"] == "extra_forbidden",
                   error["type"], error["msg"], error.get("ctx") or {})
