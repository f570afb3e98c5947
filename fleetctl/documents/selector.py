"""Ray's own label selectors: `v`, `!v`, `in(a, b)`, `!in(a, b)`; every key of a selector must hold.

And the value of --selector, kubectl's label selectors over the labels of models: `team=nlp`, `team!=nlp`,
`team in (a, b)`, `team notin (a, b)`, `team` and `!team`, separated by commas: all must hold. As in kubectl, a model
without the label matches `!=` and `notin`. The fleet file's form (`team=!nlp`) works, too.

Semantics follow Ray (`ray.util.scheduling_strategies` label selectors): a missing label matches only the negated forms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from fleetctl.documents.base import full_match, refusal

_VALUE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_EXPRESSION = re.compile(rf"(!?)(?:in\(\s*({_VALUE}(?:\s*,\s*{_VALUE})*)\s*\)|({_VALUE}))")
LABEL_KEY = re.compile(rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_VALUE}")

_COMMA = re.compile(r",(?![^(]*\))")
NODE_ID_LABEL = "ray.io/node-id"
"""The label by which Ray selects one node."""
ACCELERATOR_LABEL = "ray.io/accelerator-type"
"""Ray's own label for the type of card, by which people name such a node."""
SIMULATED_CARDS = ("fleet.io/cards", "simulated")
"""A label and its value: the node has no cards, and declares its GPUs to try things out."""

SELECTOR_ALLOWED = "v, !v, in(a, b) or !in(a, b)"


def split_commas(text: str) -> list[str]:
    """Split at commas outside parentheses, and strip each part."""
    return [part.strip() for part in _COMMA.split(text)]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One selector value, parsed: the label must (or, negated, must not) have one of `values`."""

    negated: bool
    values: frozenset[str]

    def allows(self, value: str | None) -> bool:
        """Return whether a node with this label value (None = no such label) is selected."""
        return (value in self.values) != self.negated


@lru_cache(maxsize=4096)
def parse_requirement(expression: str) -> Requirement:
    """Parse one of `v`, `!v`, `in(a, b)`, `!in(a, b)`; raises ValueError for anything else."""
    match = _EXPRESSION.fullmatch(expression.strip()) if len(expression) <= 8192 else None
    if match is None:
        raise ValueError(f"{expression!r} is not a label selector; allowed: {SELECTOR_ALLOWED}")
    listed = match[2] if match[2] is not None else match[3]
    return Requirement(bool(match[1]), frozenset(part.strip() for part in listed.split(",")))


def in_one_spelling(selector: Mapping[str, str]) -> dict[str, str]:
    """Return a selector with normalized expressions: `in(a, b)` for `in( b,a)`, `a` for `in(a)`."""
    spelled: dict[str, str] = {}
    for key, requirement in ((key, parse_requirement(expression)) for key, expression in selector.items()):
        values = sorted(requirement.values)
        listed = f"in({', '.join(values)})" if len(values) > 1 else values[0]
        spelled[key] = f"!{listed}" if requirement.negated else listed
    return spelled


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether `labels` satisfy every key of `selector`; an empty selector matches every node."""
    for key, expression in selector.items():  # noqa: SIM110  a loop is faster: a large fleet calls this a million times
        if not parse_requirement(expression).allows(labels.get(key)):
            return False
    return True


def _check_expression(expression: str) -> str:
    try:
        parse_requirement(expression)
    except ValueError:
        raise refusal("bad_selector", "{found} is not a label selector", expression, SELECTOR_ALLOWED) from None
    return expression


LabelKey = Annotated[
    str,
    full_match(LABEL_KEY, "bad_label_key", "{found} is not a label key",
               "[prefix/]name, such as ray.io/accelerator-type"),
    WithJsonSchema({"type": "string", "pattern": f"^{LABEL_KEY.pattern}$"}, mode="validation")]
LabelValue = Annotated[
    str,
    full_match(_VALUE, "bad_label_value", "{found} cannot be a label value",
               "1 to 63 letters, digits, dots, hyphens and underscores, a letter or digit first and last"),
    WithJsonSchema({"type": "string", "pattern": f"^{_VALUE}$"}, mode="validation")]
Expression = Annotated[
    str, AfterValidator(_check_expression),
    WithJsonSchema({"type": "string", "pattern": rf"^\s*{_EXPRESSION.pattern}\s*$"}, mode="validation")]
Selector = dict[LabelKey, Expression]


LABELS_ALLOWED = "team=nlp, team!=nlp, team in (a, b), team notin (a, b), team or !team, separated by commas"

_SET = re.compile(r"(\S+)\s+(in|notin)\s*(\(.*\))")
_EQUAL = re.compile(r"([^=!\s]+)\s*(==|=|!=)\s*(.+)")


@dataclass(frozen=True, slots=True)
class _Term:
    """One condition: the label exists, with one of `values` unless None; `negated` inverts it."""

    key: str
    values: frozenset[str] | None
    negated: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        found = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return found != self.negated


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A selector as it was typed, and its terms."""

    text: str
    terms: tuple[_Term, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels satisfy every term."""
        return all(term.holds(labels) for term in self.terms)


def parse_label_selector(text: str) -> LabelSelector:
    """Parse a selector; raises ValueError with the allowed forms for any other text."""
    return LabelSelector(text.strip(), tuple(map(_term, split_commas(text))))


def _term(text: str) -> _Term:
    listed, equal = _SET.fullmatch(text), _EQUAL.fullmatch(text)
    try:
        if listed:
            found = parse_requirement(f"in{listed[3]}")
            term = _Term(listed[1], found.values, listed[2] == "notin")
        elif equal:
            found = parse_requirement(equal[3])
            term = _Term(equal[1], found.values, found.negated != (equal[2] == "!="))
        else:
            term = _Term(text.removeprefix("!").strip(), None, text.startswith("!"))
    except ValueError:
        term = _Term("", None, negated=False)
    if not LABEL_KEY.fullmatch(term.key):
        raise ValueError(f"{text!r} is not a label selector; allowed: {LABELS_ALLOWED}")
    return term
