"""The value of --selector: kubectl's label selectors, over the labels of models.

`team=nlp`, `team!=nlp`, `team in (a, b)`, `team notin (a, b)`, `team` and `!team`, separated by commas: all must hold.
As in kubectl, a model without the label matches `!=` and `notin`. The fleet file's form (`team=!nlp`) works, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.documents.selector import LABEL_KEY, parse_requirement, split_commas

ALLOWED = "team=nlp, team!=nlp, team in (a, b), team notin (a, b), team or !team, separated by commas"

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
        raise ValueError(f"{text!r} is not a label selector; allowed: {ALLOWED}")
    return term
