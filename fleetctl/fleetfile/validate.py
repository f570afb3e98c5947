"""Validates one document against the models: each pydantic error becomes a problem with a message and a position."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fleetctl.documents.base import DNS_LABEL, LIST, MAPPING, TEXT
from fleetctl.documents.fleet import API_VERSION, FleetDocument
from fleetctl.documents.mask import COMMAND_LINE, is_env_value, masked, masked_text, variable_of, without_value
from fleetctl.documents.names import nearest
from fleetctl.documents.position import Path, path_text
from fleetctl.fleetfile import guess
from fleetctl.fleetfile.guess import BECAUSE_OF_THE_COMMA
from fleetctl.fleetfile.keys import homes, keys_of, model_at
from fleetctl.fleetfile.nodes import ChildNode, Document, MergedNode, Node, Value, size_of
from fleetctl.problem import Problem

MAX_SHOWN = 60
MOST_ITEMS = 1000
"""The longest list in which the name of a new item is compared with all others."""
MAX_MEANT = 200
"""The longest text for which a value is guessed."""
_ITEMS = {"models": "a model", "variants": "a variant", "workers": "a worker group", "members": "a member"}
_OTHER_NAMES = {("models", "name"): "key", ("models", "id"): "key", ("models", "model"): "key",
                ("models", "count"): "replicas", ("variants", "key"): "name", ("variants", "minReplicas"): "min",
                ("variants", "maxReplicas"): "max", ("workers", "replicas"): "copies", ("members", "replicas"): "count"}
"""Our key by the list it is in and the name that other systems, or other lists of the file, use for it."""
_NAMED_BY = {"models": "key", "variants": "name", "workers": "name"}
_WORKERS_OF = {"models": "workers, variants, or shape: NAME from spec.shapes",
               "variants": "workers, or shape: NAME from spec.shapes"}
_BOUNDS = {"ge": "at least", "le": "at most", "gt": "more than", "lt": "less than"}
_EXPECTED = re.compile(r"'([^']*)'")
_TWO_FORMS: dict[Path, str] = {
    ("placement", "spread"): "a label key or a mapping with label and maxPerValue",
    ("models", "shape"): "a name in spec.shapes or a mapping with name and workers",
    ("variants", "shape"): "a name in spec.shapes or a mapping with name and workers",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """One error and its position: `path` leads to the value `node`, or to its key if `on_key`.

    `kind`, `message` and `context` come from pydantic.
    """

    document: Document
    path: Path
    node: Node | None
    on_key: bool
    kind: str = ""
    message: str = ""
    context: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last key of the path, for messages: `replicas`, or `args[1]` for an item."""
        named = [part for part in self.path if isinstance(part, str)]
        last = self.path[-1] if self.path else ""
        text = f"{named[-1]}[{last}]" if isinstance(last, int) and named else str(last)
        return without_value(text) if self.variable is not None else text

    @property
    def variable(self) -> str | None:
        """The environment variable that holds the value; "" for the whole environment, None outside of it."""
        return variable_of(self.path)

    @property
    def raw(self) -> str:
        """The value as written, without quotes; "" if there is none."""
        return self.node.raw if self.node else ""

    @property
    def shown(self) -> str:
        """The value for a message; in an environment, which may hold secrets, only its type."""
        node = self.node
        if node is None or (node.value is None and node.children is None):
            return "nothing"
        if node.children is not None:
            return "a mapping" if isinstance(node.children, dict) else "a list"
        is_text = isinstance(node.value, str)
        if self.variable is not None:
            return "text" if is_text else "a number or boolean"
        text = "".join(char if char.isprintable() else "?" for char in cut(self._without_secrets(node.raw)))
        return f'"{text}"' if is_text else text

    def _without_secrets(self, raw: str) -> str:
        """Mask what is secret in a value, also by the words of the command line that it belongs to."""
        *_, key, at = ("", *self.path) if self.path else ("", "")
        owner = self.document.node(self.path[:-2])
        if key in COMMAND_LINE and isinstance(at, int) and owner is not None:
            words: Any = masked(owner.value)
            if words[key][at] != owner.value[key][at]:
                return str(words[key][at])
        return masked_text(raw)

    def problem(self, code: str, message: str, *, allowed: str | None = None, suggestion: str | None = None) -> Problem:
        """Return the problem at the position of this finding."""
        if suggestion and masked_text(self.raw) != self.raw:
            suggestion = None  # it would repeat the secret
        return self.document.problem(code, self.path, message, key=self.on_key, allowed=allowed, suggestion=suggestion)


def problem_of(finding: Refusal) -> Problem:
    """Return the problem for an error of pydantic."""
    if make := _PROBLEMS.get(finding.kind):
        return make(finding)
    if "allowed" in finding.context:
        return _own("FL035", None, finding)
    return finding.problem("FL022", f"{finding.name or 'the document'} is {finding.shown}, which is not allowed here")


def _unknown_key(finding: Refusal) -> Problem:
    model = model_at(finding.path[:-1])
    known = keys_of(model) if model else []
    key = str(finding.path[-1])
    meant = nearest(key, known) or _our_name(finding, key)
    allowed = ", ".join(known)
    if finding.variable and meant is None:  # the key may be an unquoted secret in braces
        found = finding.problem("FL020", f"unknown key in the environment value {finding.variable}", allowed=allowed)
        return replace(found, path=path_text(finding.path[:-1]))
    parents = [home for home in homes().get(key, ()) if home]
    under = f"{'one of ' if len(parents) > 1 else ''}{', '.join(parents)}"
    elsewhere = f"; {key} belongs under {under}" if parents and meant is None else ""
    return finding.problem("FL020", f'unknown key "{cut(key)}"{elsewhere}', allowed=allowed, suggestion=meant)


def _our_name(finding: Refusal, key: str) -> str | None:
    """Return our name for a key that another system or list calls `key`, unless the mapping already has it."""
    above = finding.path[:-1]
    meant = _OTHER_NAMES.get((str(above[-2]) if len(above) > 1 else "", key))
    item = finding.document.node(above)
    present = item.value if item and isinstance(item.value, dict) else {}
    return None if meant in present or (meant == "count" and present.get("role") != "Worker") else meant


def _missing(finding: Refusal) -> Problem:
    missing, above = finding.path[-1], finding.path[:-1]
    owner = next((part for part in reversed(above) if isinstance(part, str)), None)
    where = "the document" if owner is None else _ITEMS.get(owner, owner)
    if is_env_value(above):
        where = f"the environment value {finding.variable}"
    if above[:-1] == ("spec", "shapes"):
        where = "a shape"
    message = f'{where} needs the key "{missing}"'
    names = _names_of_new_item(finding.document, owner, above)
    if names is None:
        return finding.problem("FL021", message, allowed=_WORKERS_OF.get(owner or "") if missing == "workers" else None)
    name, others, lacking = names
    return finding.problem("FL021", f'{message}, and {lacking} "{cut(name)}"', suggestion=nearest(name, others))


def _names_of_new_item(document: Document, owner: str | None, path: Path) -> tuple[str, list[str], str] | None:
    """Return the name of an item that only the topmost merged file has, the other names, and what lacks the item."""
    key, index = _NAMED_BY.get(owner or ""), path[-1] if path else None
    items = document.node(path[:-1])
    if key is None or not isinstance(index, int) or not isinstance(items, MergedNode):
        return None
    if len(items.value) > MOST_ITEMS or not _is_new(items, index, document):
        return None
    has_base = any(source is not document.source for source in items.sources.values())
    if owner in _WORKERS_OF and not has_base:  # merged only with shapes
        return None
    names = [item.get(key) if isinstance(item, dict) else None for item in items.value]
    name, lacking = names[index], "no base has" if has_base else "its shape has no"
    others = [other for number, other in enumerate(names) if isinstance(other, str) and number != index
              and not (has_base and _is_new(items, number, document))]
    return (name, others, lacking) if isinstance(name, str) else None


def _is_new(items: MergedNode, index: int, document: Document) -> bool:
    """Return whether only the topmost merged file has an item."""
    return items.sources[index] is document.source and not isinstance(items.child(index), MergedNode)


def _wrong_type(finding: Refusal) -> Problem:
    empty = finding.node is not None and finding.node.value is None
    if is_env_value(finding.path):
        found = "empty" if empty or finding.node is None else finding.shown
        found += ", not text" if finding.node and finding.node.children is None and not empty else ""
        return finding.problem("FL032", f"the environment value {finding.name} is {found}",
                               allowed='text in quotes, such as "1", or {fromNode: NAME}')
    expected, suggestion = _expected(finding)
    if form := _TWO_FORMS.get(tuple(step for step in finding.path if isinstance(step, str))[-2:]):
        expected, suggestion = form, None
    if empty:
        return finding.problem("FL022", f"{finding.name} is empty; give it a value or remove the key", allowed=expected)
    return finding.problem("FL022", f"{finding.name} is {finding.shown}, not {expected}", suggestion=suggestion)


def _expected(finding: Refusal) -> tuple[str, str | None]:
    """Return what a value of the wrong type should be, in words, and the value that was probably meant."""
    node, raw = finding.node, finding.raw
    if finding.kind == "string_type":
        quotable = node and node.children is None and 0 < len(raw) <= MAX_SHOWN and finding.variable is None
        return "text", f'"{raw}"' if quotable else None
    if finding.kind == "bool_type":
        return "true or false", guess.bool_meant(raw)
    if finding.kind == "list_type":
        return "a list", guess.words_meant(raw) if finding.name in COMMAND_LINE else None
    if finding.kind in ("int_type", "int_from_float"):
        quoted = node and isinstance(node.value, str) and re.fullmatch(r"-?[0-9]+", raw)
        allowed = "a whole number" + ("; without port, FLEETCTL_PORT is used" if finding.path[-1] == "port" else "")
        return allowed, raw if quoted else None
    model = model_at(finding.path)
    return f"a mapping with {', '.join(keys_of(model))}" if model else "a mapping", None


def _out_of_range(finding: Refusal) -> Problem:
    bounds = (f"{words} {finding.context[key]}" for key, words in _BOUNDS.items() if key in finding.context)
    allowed = finding.context.get("allowed") or " and ".join(bounds) or None
    return finding.problem("FL023", f"{finding.name} is {finding.shown}, out of range", allowed=allowed)


def _length(finding: Refusal) -> Problem:
    if "min_length" in finding.context:
        return finding.problem("FL023", f"{finding.name} must not be empty")
    allowed = f"at most {finding.context.get('max_length')}"
    if finding.kind == "string_too_long":
        return finding.problem("FL023", f"{finding.name} is too long", allowed=f"{allowed} characters")
    return finding.problem("FL023", f"{finding.name} has too many items", allowed=allowed)


def _literal(finding: Refusal) -> Problem:
    known = _EXPECTED.findall(str(finding.context.get("expected", "")))
    return finding.problem("FL024", f"{finding.name} is {finding.shown}", allowed=", ".join(known),
                           suggestion=nearest(finding.raw, known) if finding.raw else None)


def _pattern(finding: Refusal) -> Problem:
    if finding.context.get("pattern") == "^/":
        return finding.problem("FL035", f"{finding.name} is {finding.shown}", allowed="a path that begins with /")
    if (pattern := finding.context.get("pattern")) != DNS_LABEL:
        return finding.problem("FL035", f"{finding.name} is {finding.shown}", allowed=f"text that matches {pattern}")
    return finding.problem("FL029", f"{finding.name} is {finding.shown}, not a DNS label",
                           suggestion=guess.dns_label_meant(finding.raw),
                           allowed="lower-case letters, digits and inner hyphens, at most 63 characters")


def _own(code: str, meant: Callable[[str], str | None] | None, finding: Refusal) -> Problem:
    """Return the problem for an error of our own models, whose context has `found` and `allowed`."""
    raw = finding.name if finding.on_key else finding.raw
    value = f"the value of {finding.variable}" if finding.variable else finding.shown
    shown = f'"{cut(raw)}"' if finding.on_key else value
    suggestion = meant(raw) if meant and 0 < len(raw) <= MAX_MEANT else None
    found, allowed = str(finding.context.get("found", "")), str(finding.context.get("allowed", ""))
    if finding.message == f"{found} is not {allowed}":
        return finding.problem(code, f"{finding.name} is {shown}, not {allowed}", suggestion=suggestion)
    message = finding.message.replace(found, shown, 1)
    return finding.problem(code, message, allowed=allowed or None, suggestion=suggestion)


def _not_one_kind(code: str, finding: Refusal) -> Problem:
    found, kinds = finding.context.get("found"), finding.context.get("allowed")
    return finding.problem(code, f"{finding.name} has {f'none of {kinds}' if found == 'none' else found}",
                           allowed=f"exactly one of {kinds}")


def cut(text: str) -> str:
    """Return the text, truncated to the length that a message shows."""
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _name(code: str, meant: Callable[[str], str | None], finding: Refusal) -> Problem:
    """Return the problem for a name with characters that names do not have."""
    value = finding.node.value if finding.node else None
    return _own(code, lambda _: meant(value) if isinstance(value, str) else None, finding)


_PROBLEMS: dict[str, Callable[[Refusal], Problem]] = {
    "extra_forbidden": _unknown_key,
    "missing": _missing,
    **dict.fromkeys(("string_type", "bool_type", "int_type", "int_from_float", "list_type", "dict_type", "model_type",
                     "model_attributes_type"), _wrong_type),
    **dict.fromkeys(("greater_than_equal", "less_than_equal", "greater_than", "less_than"), _out_of_range),
    **dict.fromkeys(("too_short", "too_long", "string_too_short", "string_too_long"), _length),
    "literal_error": _literal,
    "string_pattern_mismatch": _pattern,
    "bad_bytes": partial(_own, "FL025", guess.bytes_meant),
    **dict.fromkeys(("bad_gpus", "bad_cpus"), partial(_own, "FL025", guess.number_meant)),
    "bad_price": partial(_own, "FL025", guess.price_meant),
    "absurd_quantity": _out_of_range,
    **dict.fromkeys(("share_too_fine", "gpus_not_whole", "price_too_fine"), partial(_own, "FL031", None)),
    "bad_duration": partial(_own, "FL026", guess.duration_meant),
    "bad_selector": partial(_own, "FL027", guess.selector_meant),
    "bad_label_key": partial(_own, "FL028", None),
    "bad_shape_name": partial(_own, "FL029", guess.dns_label_meant),
    "empty_node": lambda finding: finding.problem("FL021", "a node of spec.cluster.grow needs gpus, cpus or both"),
    "quota_without_limit": lambda finding: finding.problem("FL021", "a quota needs gpus, replicas or both"),
    "bad_model_key": partial(_name, "FL030", guess.key_meant),
    "bad_served_name": partial(_name, "FL035", guess.served_name_meant),
    **dict.fromkeys(("bad_env_name", "reserved_env_name", "bad_cache_name", "no_cache_name"),
                    partial(_own, "FL033", None)),
    "probe_kind": partial(_not_one_kind, "FL034"),
    "weights_kind": partial(_not_one_kind, "FL080"),
    "numbers_kind": partial(_not_one_kind, "FL091"),
    "bad_parameters": partial(_own, "FL025", guess.parameters_meant),
    "bad_index": partial(_own, "FL035", lambda text: text.lower() if len(text) == 64 else None),
    "bad_ports": partial(_own, "FL035", guess.ports_meant),
    "bad_origin": partial(_own, "FL035", lambda text: re.sub(r"^(s3://|https://huggingface\.co/|/+)|\s+$", "", text)),
    "bad_of": partial(_own, "FL082", None),
}
"""By the kind of pydantic's error; any other one of our own models is text in an invalid form."""


OWN_KEYS = ("apiVersion", "kind", "extends")
"""Keys that a document never inherits."""
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
class CheckedDocument:
    """A document and its model, which is None if there are problems; `foreign` = not a fleet at all."""

    document: Document
    model: FleetDocument | None
    problems: tuple[Problem, ...] = ()
    foreign: bool = False


def validate(document: Document, *, whole: bool = True) -> CheckedDocument:
    """Check keys, types and values of one document. A document of another kind gets one problem, not one per key.

    `whole` = every base could be read; otherwise a missing key may be in an unread base, and is not a problem.
    """
    if foreign := foreign_problem(document):
        return CheckedDocument(document, None, (foreign,), foreign=True)
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


def _checked_in_parts(document: Document) -> CheckedDocument:
    """Check a large document: a few models at a time, since each error of pydantic takes a kilobyte of memory."""
    node = document.node(("spec", "models"))
    models: list[ChildNode] = node.children if node and isinstance(node.children, list) else []
    sizes = [size_of(model) for *_, model in models]
    problems = [document.problem("FL014", ("spec", "models", index), f"more than {PART} values in one model",
                                 allowed="copies and counts instead of groups and members that are written out")
                for index, size in enumerate(sizes) if size > PART]
    if size_of(document.root) - sum(sizes) > MAX_BESIDE_MODELS:
        problems.append(document.problem("FL014", (), f"more than {MAX_BESIDE_MODELS} values beside the models",
                                         allowed="fewer entries, such as node policies that select nodes by labels"))
    if problems:
        return CheckedDocument(document, None, tuple(problems))
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
        return CheckedDocument(document, None, tuple(problems))
    spec = rest.model.spec.model_copy(update={"models": found}) if models else rest.model.spec
    return CheckedDocument(document, rest.model.model_copy(update={"spec": spec}))


def _checked(document: Document, value: Value, first: int = 0) -> CheckedDocument:
    """Check a value; `first` = the index in the document of the first model in it."""
    try:
        return CheckedDocument(document, FleetDocument.model_validate(value))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        for found in errors if first else ():
            spec, models, index, *below = found["loc"]
            found["loc"] = (spec, models, int(index) + first, *below)
        known = [found for found in errors if not _is_in_shape(document, found)]
        problems = _without_consequences([problem_of(_finding(document, found)) for found in known])
        # a document without a model must have a problem, or it would be dropped silently
        fallback = (document.problem("FL022", (), "this document cannot be used"),) if known else ()
        return CheckedDocument(document, None, problems or fallback)


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
    """Return whether a key is only missing because the shape of the model or variant is unusable, which is a problem
    of its own.
    """
    path = tuple(part for part in error["loc"] if part not in _FORMS)
    if error["type"] != "missing" or path[:2] != ("spec", "models"):
        return False
    user = path[:5] if path[3:4] == ("variants",) else path[:3]
    node, below = document.node((*user, "shape")), path[len(user):]
    return node is not None and node.value is not None and (below == ("workers",) or "workers" in below[1:-1])


def _finding(document: Document, error: ErrorDetails) -> Refusal:
    """Return a pydantic error with its path in the file, up to the last part that exists."""
    loc = [part for part in error["loc"] if part not in _FORMS]
    on_key = loc[-1:] == ["[key]"]
    path = loc[:-1] if on_key else loc
    while path and error["type"] != "missing" and document.node(tuple(path)) is None:
        path.pop()
    return Refusal(document, tuple(path), document.node(tuple(path)), on_key or error["type"] == "extra_forbidden",
                   error["type"], error["msg"], error.get("ctx") or {})
