"""Reads, checks and applies one file of house rules, a JSON Schema of draft 2020-12. Nothing is ever fetched.

Only `house_rules` imports this, and only for a fleet that names such a file: jsonschema is slow to import. No message
repeats the value of an environment variable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend as _untyped_extend
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, Schema, SchemaResource

from fleetctl.documents.mask import is_env_value, variable_of
from fleetctl.documents.position import Path
from fleetctl.documents.quantity import count_of
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.compose import compose
from fleetctl.fleetfile.mapping import DUPLICATE_KEY
from fleetctl.fleetfile.messages import Finding
from fleetctl.fleetfile.nodes import Document, Node
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.fleetfile.text import decode
from fleetctl.problem import Problem

UNUSABLE = "FL037"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
BROKEN = "FL038"
_MESSAGE = "fleetctl_message"
"""The attribute of a ValidationError that holds the schema's own description of the rule."""
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

_Check = Callable[[Any, Any, Any, Any], Any]
"""A keyword check of jsonschema: (validator, value of the keyword, instance, schema) to errors."""


def broken_rules(fleet: Document, source: SourceBytes) -> Iterator[Problem]:
    """Yield the violations of the schema in a file; raises FleetFileError if the file has no valid schema."""
    document, schema = _read(source)
    try:
        errors = list(_RULES(schema, registry=Registry()).iter_errors(fleet.value))
    except (RecursionError, Unresolvable):
        yield document.problem(UNUSABLE, (), "a $ref in this schema is circular or cannot be resolved")
        return
    yield from _problems_of(BROKEN, fleet, errors, f"the house rules in {source.file}")


def _read(source: SourceBytes) -> tuple[Document, dict[str, Any]]:
    """Return the schema in a file, and the document that holds the place of everything in it."""
    text = decode(source)
    try:
        composed, schema = compose(text), json.loads(text.text)
        # JSON is also YAML, except for rare escapes, which have no place
        document = composed.documents[0] if composed.documents else Document(text, Node(0, {}))
        # json.loads silently keeps only the last of duplicate keys
        problems = [replace(one, code=UNUSABLE) for one in composed.problems if one.code == DUPLICATE_KEY]
        problems += _schema_problems(document, schema)
    except json.JSONDecodeError as error:
        at = min(error.pos, len(text.text))
        raise FleetFileError([text.problem(UNUSABLE, at, f"this is not JSON: {error.msg}")]) from None
    except RecursionError:
        raise FleetFileError([text.problem(UNUSABLE, 0, "this schema is nested too deeply")]) from None
    except ValueError:
        raise FleetFileError([text.problem(UNUSABLE, 0, "a number in this schema is too long")]) from None
    if problems:
        raise FleetFileError(problems)
    # with "$schema", jsonschema would follow a $ref to the whole file without our `_keeping_description`
    return document, {key: value for key, value in schema.items() if key != "$schema"}


def _schema_problems(document: Document, schema: Any) -> Iterator[Problem]:  # noqa: ANN401  any JSON value
    if not isinstance(schema, dict):
        yield document.problem(UNUSABLE, (), "this is not a JSON Schema", allowed="a JSON object")
        return
    draft = schema.get("$schema", DRAFT)
    if isinstance(draft, str) and draft.rstrip("#") != DRAFT:
        yield document.problem(UNUSABLE, ("$schema",), "house rules must be JSON Schema draft 2020-12", allowed=DRAFT)
        return
    check = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
    errors = list(check.iter_errors(schema))
    yield from _problems_of(UNUSABLE, document, errors, "JSON Schema")
    if not errors:
        yield from _unknown_references(document, schema)


def _unknown_references(document: Document, schema: dict[str, Any]) -> Iterator[Problem]:
    """Yield every `$ref` that leads outside the file or nowhere, even if no fleet value reaches it."""
    places = dict(_places(schema, ()))
    root: SchemaResource = DRAFT202012.create_resource(schema)
    resources = [(root, Registry().with_resource(root.id() or "", root).resolver(root.id() or ""))]
    while resources:
        resource, resolver = resources.pop()
        resources += ((below, resolver.in_subresource(below)) for below in resource.subresources())
        reference = resource.contents.get("$ref") if isinstance(resource.contents, dict) else None
        try:
            if isinstance(reference, str):
                resolver.lookup(reference)
        except Unresolvable:
            yield document.problem(UNUSABLE, (*places[id(resource.contents)], "$ref"),
                                   f'"{reference}" is not in this schema',
                                   allowed="a reference into the same file, such as #/$defs/NAME; nothing is fetched")


def _places(value: Schema | list[Any], path: Path) -> Iterator[tuple[int, Path]]:
    yield id(value), path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, below in inner:
        yield from _places(below, (*path, part))


def _keeping_description(name: str, check: _Check) -> _Check:
    """Make `check` attach the innermost description around the broken rule to its errors, also through a `$ref`."""

    def keeping(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401
        if name in ("properties", "patternProperties"):  # for `false` jsonschema reports the mapping, not the key
            value = {key: {"not": {}} if rule is False else rule for key, rule in value.items()}
        for error in check(validator, value, instance, schema) or ():
            if getattr(error, _MESSAGE, None) is None and isinstance(schema.get("description"), str):
                setattr(error, _MESSAGE, schema["description"])
            yield error

    return keeping


_extend: Any = _untyped_extend
_RULES = _extend(Draft202012Validator,
                 {name: _keeping_description(name, check) for name, check in Draft202012Validator.VALIDATORS.items()})


def _problems_of(code: str, document: Document, errors: Sequence[ValidationError], rules: str) -> Iterator[Problem]:
    for error in errors:
        for finding in _findings(document, error):
            message = getattr(error, _MESSAGE, None) or _default_message(finding, error, rules)
            yield finding.problem(code, _printable(message), allowed=_allowed(error))


def _findings(document: Document, error: ValidationError) -> Iterator[Finding]:
    """Yield the places of an error: each missing or extra key has its own, but never inside an environment value."""
    path = tuple(error.absolute_path)
    while variable_of(path) and not is_env_value(path):
        path = path[:-1]
    node, keys = document.node(path), list[str]()
    instance: Any = error.instance
    value: Any = error.validator_value
    if is_env_value(path):
        pass  # a key in the value may be an unquoted secret in braces
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


def _default_message(finding: Finding, error: ValidationError, rules: str) -> str:
    """Return the message for a rule without a description; jsonschema's own could hold the value of a variable."""
    if finding.on_key and error.validator == "required":
        return f'the key "{finding.name}" is missing but required by {rules}'
    if finding.on_key:
        return f'the key "{finding.name}" is not allowed by {rules}'
    return f"{finding.name or 'the document'} is {finding.shown}, which is not allowed by {rules}"


def _allowed(error: ValidationError) -> str | None:
    to_text = _ALLOWED.get(str(error.validator))
    text = _printable(to_text(error.validator_value)) if to_text else ""
    return (text if len(text) <= MAX_ALLOWED else text[:MAX_ALLOWED] + "...") or None


def _printable(text: str) -> str:
    """Return the text of a schema on one line, without control characters."""
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
