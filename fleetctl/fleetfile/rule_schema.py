"""The house rules of a fleet, files with a JSON Schema of draft 2020-12: each result of their process as a problem.

No message repeats the value of an environment variable. Nothing is ever fetched.
"""

from __future__ import annotations

import json
import pickle
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from fleetctl.child import run_module
from fleetctl.documents.mask import is_env_value, variable_of
from fleetctl.errors import FleetctlError, FleetFileError
from fleetctl.fleetfile.compose import DUPLICATE_KEY, compose
from fleetctl.fleetfile.nodes import Document, Node
from fleetctl.fleetfile.rule_result import Result
from fleetctl.fleetfile.sources import SourceBytes, SourceText, decode
from fleetctl.fleetfile.validate import Refusal
from fleetctl.problem import Problem

UNUSABLE, BROKEN, ENDLESS = "FL037", "FL038", "FL087"
LONGEST_S = 10.0
"""How long the rules of a fleet may take, all files together."""
GRACE_S = 2.0
"""How long their process may take beyond that: to start, and to notice that its time is over."""
MOST_MEMORY = 128 << 20
"""The memory of the process, in bytes; with the interpreter, jsonschema and a small fleet it has some 40 MiB."""
_THAT_END = ("rules that end: no repetition inside a repetition, such as ([a-z]+)+, and no references that lead to "
             "several others over and over")


def problems_of_rules(fleet: Document, sources: Sequence[SourceBytes]) -> list[Problem]:
    """Return the problems of the files with rules, and the violations of these rules in a rendered fleet."""
    problems: list[Problem] = []
    files: list[_Rules] = []
    for source in sources:
        try:
            files.append(_Rules(decode(source)))
        except FleetFileError as error:
            problems += error.problems
    try:
        results = evaluate([rules.text.text for rules in files], fleet.value) if files else []
    except FleetctlError as error:
        return [*problems, files[0].text.problem(ENDLESS, 0, error.message, allowed=_THAT_END)]
    for rules, found in zip(files, results, strict=False):
        for result in found:
            problems += rules.problems(result, fleet)
    return problems


def evaluate(rules: Sequence[str], fleet: Any) -> list[list[Result]]:  # noqa: ANN401  any JSON value
    """Return the results of each file of rules, the last of them the one that took too long.

    Raises FleetctlError if the process had to be ended, or ended by itself.
    """
    try:
        answer = run_module("fleetctl.fleetfile.rule_process", pickle.dumps((LONGEST_S, MOST_MEMORY, rules, fleet)),
                            LONGEST_S + GRACE_S)
    except subprocess.TimeoutExpired:
        raise FleetctlError(f"the house rules were ended after {LONGEST_S + GRACE_S:g} s") from None
    except OSError as error:
        raise FleetctlError(f"the process that checks house rules {error}") from None
    return [[Result(kind, in_schema, tuple(path), *rest) for kind, in_schema, path, *rest in found]
            for found in json.loads(answer)]


class _Rules:
    """One file of rules."""

    def __init__(self, text: SourceText) -> None:
        self.text = text

    @cached_property
    def document(self) -> Document:
        """The document that holds the place of everything in the file, read only if there is something to place."""
        found = compose(self.text).documents
        # JSON is also YAML, except for rare escapes, which have no place
        return found[0] if found else Document(self.text, Node(0, {}))

    def problems(self, result: Result, fleet: Document) -> Iterator[Problem]:
        """Yield the problems of one result; duplicate keys may be several."""
        if result.kind == "broken":
            yield _violation(BROKEN, fleet, result, f"the house rules in {self.text.file}")
        elif result.kind == "invalid":
            yield _violation(UNUSABLE, self.document, result, "JSON Schema")
        elif result.kind == "duplicate":
            found = [problem for problem in compose(self.text).problems if problem.code == DUPLICATE_KEY]
            yield from ([replace(problem, code=UNUSABLE) for problem in found]
                        or [self.text.problem(UNUSABLE, 0, "this schema has a duplicate key")])
        elif result.kind == "json":
            at = min(int(result.path[0]), len(self.text.text))
            yield self.text.problem(UNUSABLE, at, f"this is not JSON: {result.message}")
        else:
            code, message, allowed = _ABOUT_SCHEMAS[result.kind]
            yield self.document.problem(code, result.path, message.format(_printable(result.message or "")),
                                        allowed=allowed)


_ABOUT_SCHEMAS: dict[str, tuple[str, str, str | None]] = {
    "deep": (UNUSABLE, "this schema is nested too deeply", None),
    "number": (UNUSABLE, "a number in this schema is too long", None),
    "not a schema": (UNUSABLE, "this is not a JSON Schema", "a JSON object"),
    "draft": (UNUSABLE, "house rules must be JSON Schema draft 2020-12", "https://json-schema.org/draft/2020-12/schema"),
    "reference": (UNUSABLE, "a $ref in this schema is circular or cannot be resolved", None),
    "unknown reference": (UNUSABLE, '"{}" is not in this schema',
                          "a reference into the same file, such as #/$defs/NAME; nothing is fetched"),
    "time": (ENDLESS, "the house rules were ended after {} s, while this was checked", _THAT_END),
    "memory": (ENDLESS, f"the house rules were ended at {MOST_MEMORY >> 20} MiB of memory, while this was checked",
               _THAT_END),
}
"""The code, the message and what is allowed for each kind of result that is about the schema as such."""


def _violation(code: str, document: Document, result: Result, rules: str) -> Problem:
    path = result.path
    while variable_of(path) and not is_env_value(path):  # never inside the value of a variable
        path = path[:-1]
    node = document.node(path)
    finding = Refusal(document, path, node, on_key=False)
    if result.key is not None and not is_env_value(path):  # a key in the value may be an unquoted secret in braces
        finding = Refusal(document, (*path, result.key), node.child(result.key) if node else None, on_key=True)
    message = result.message or _default_message(finding, result.keyword, rules)
    return finding.problem(code, _printable(message), allowed=_printable(result.allowed or "") or None)


def _default_message(finding: Refusal, keyword: str, rules: str) -> str:
    """Return the message for a rule without a description; jsonschema's own could hold the value of a variable."""
    if finding.on_key and keyword == "required":
        return f'the key "{finding.name}" is missing but required by {rules}'
    if finding.on_key:
        return f'the key "{finding.name}" is not allowed by {rules}'
    return f"{finding.name or 'the document'} is {finding.shown}, which is not allowed by {rules}"


def _printable(text: str) -> str:
    """Return the text of a schema on one line, without control characters."""
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
