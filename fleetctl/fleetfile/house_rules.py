"""House rules: a team's own JSON Schemas over the rendered fleet; what breaks a rule is a problem at its own place.

`spec.policy.schemas` names the files. A rule sees the fleet as its files write it, with what they extend and
`spec.defaults` merged into each model. No message repeats the value of an environment variable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.documents.mask import is_env_value, variable_of
from fleetctl.documents.position import FleetSource
from fleetctl.documents.quantity import count_of
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.file_tree import FileTree
from fleetctl.fleetfile.merge import join, with_defaults
from fleetctl.fleetfile.messages import Finding
from fleetctl.fleetfile.named_file import NamedFile
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.raw import root
from fleetctl.problem import Problem

if TYPE_CHECKING:  # jsonschema is for fleets with house rules
    from jsonschema import ValidationError

    from fleetctl.fleetfile.rule_schema import RuleSchema

BROKEN = "FL038"
MAX_ALLOWED = 200
_TYPES = {"object": "a mapping", "array": "a list", "string": "text", "integer": "a whole number",
          "number": "a number", "boolean": "true or false", "null": "nothing"}


def _as_json(value: Any) -> str:  # noqa: ANN401  any JSON value
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_ALLOWED: dict[str, Callable[[Any], str]] = {
    "type": lambda types: " or ".join(_TYPES.get(one, one) for one in ([types] if isinstance(types, str) else types)),
    "enum": lambda values: ", ".join(map(_as_json, values)),
    "const": _as_json,
    "minimum": "at least {}".format,
    "maximum": "at most {}".format,
    "exclusiveMinimum": "more than {}".format,
    "exclusiveMaximum": "less than {}".format,
    "multipleOf": "a multiple of {}".format,
    "pattern": "text that matches {}".format,
    "minLength": lambda least: f"at least {count_of(least, 'character')}",
    "maxLength": lambda most: f"at most {count_of(most, 'character')}",
    "minItems": lambda least: f"at least {count_of(least, 'item')}",
    "maxItems": lambda most: f"at most {count_of(most, 'item')}",
    "uniqueItems": lambda _: "each item once",
    "minProperties": lambda least: f"at least {count_of(least, 'key')}",
    "maxProperties": lambda most: f"at most {count_of(most, 'key')}",
}


@dataclass(frozen=True, slots=True)
class HouseRules:
    """The house rules of a fleet: the files they were read from, and the problems."""

    files: tuple[FleetSource, ...] = ()
    problems: tuple[Problem, ...] = ()


def check_house_rules(documents: Sequence[Document], tree: FileTree) -> HouseRules:
    """Check a whole fleet against its house rules, and the files that hold them."""
    schemas: list[RuleSchema] = []
    files: list[FleetSource] = []
    problems: list[Problem] = []
    for name, given in [(name, document.source.file) for document in documents for name in _names(document)]:
        from fleetctl.fleetfile.rule_schema import read_schema

        try:
            name.find(tree, given)
            source = name.read(tree)
            files.append(FleetSource(path=source.file, sha256=source.sha256))
            schemas.append(read_schema(source, _not_a_schema))
        except FleetFileError as error:
            problems += error.problems
    if schemas:
        fleet = with_defaults(join(documents))
        problems += (problem for schema in schemas for problem in _broken(fleet, schema))
    return HouseRules(tuple(files), tuple(problems))


def _names(document: Document) -> Iterator[NamedFile]:
    for path, text in root(document).child("spec").child("policy").texts("schemas"):
        if text:
            yield NamedFile(document, path, text, "FL037")


def _broken(fleet: Document, schema: RuleSchema) -> Iterator[Problem]:
    from fleetctl.fleetfile.rule_schema import words_of

    try:
        errors = schema.errors(fleet.value)
    except FleetFileError as unusable:
        yield from unusable.problems
        return
    against = f"against the house rules in {schema.document.source.file}"
    for error in errors:
        for finding in _findings(fleet, error):
            words = words_of(error) or _plain_words(finding, error, against)
            yield finding.problem(BROKEN, _printable(words), allowed=_allowed(error))


def _not_a_schema(document: Document, error: ValidationError) -> Iterator[Problem]:
    for finding in _findings(document, error):
        words = _plain_words(finding, error, "which JSON Schema has no meaning for")
        yield finding.problem("FL037", _printable(words), allowed=_allowed(error))


def _findings(document: Document, error: ValidationError) -> Iterator[Finding]:
    """Yield the places of an error: each missing or superfluous key has its own, but none in a variable's value."""
    path = tuple(error.absolute_path)
    while variable_of(path) and not is_env_value(path):
        path = path[:-1]
    node = document.node(path)
    instance: Any = error.instance
    value: Any = error.validator_value
    keys: list[str] = []
    if is_env_value(path):
        pass  # a key in the value may be a secret in braces
    elif error.validator == "required":
        keys = [key for key in value if key not in instance]
    elif error.validator == "additionalProperties" and value is False:
        keys = _additional(instance, error.schema)
    elif node is not None and isinstance(node.value, dict) and isinstance(instance, str):
        keys = [instance]  # propertyNames: the key itself breaks the rule
    for key in keys:
        yield Finding(document, (*path, key), node.child(key) if node else None, on_key=True)
    if not keys:
        yield Finding(document, path, node, on_key=False)


def _additional(instance: dict[str, Any], schema: Any) -> list[str]:  # noqa: ANN401  jsonschema's own type
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    return [key for key in instance if key not in known and not any(re.search(one, key) for one in patterns)]


def _plain_words(finding: Finding, error: ValidationError, against: str) -> str:
    """Say what is wrong where the schema does not; jsonschema's own message could hold the value of a variable."""
    if finding.on_key and error.validator == "required":
        return f'the key "{finding.name}" is missing, {against}'
    if finding.on_key:
        return f'the key "{finding.name}" is not allowed, {against}'
    return f"{finding.name or 'the document'} is {finding.shown}, {against}"


def _allowed(error: ValidationError) -> str | None:
    words = _ALLOWED.get(str(error.validator))
    text = _printable(words(error.validator_value)) if words else ""
    return (text if len(text) <= MAX_ALLOWED else text[:MAX_ALLOWED] + "...") or None


def _printable(text: str) -> str:
    """Return text of a schema on one line; its JSON may hold control characters."""
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
