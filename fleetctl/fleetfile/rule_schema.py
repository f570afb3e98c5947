"""One file of house rules, a JSON Schema of draft 2020-12: read, checked and applied. Nothing is ever fetched.

Only `house_rules` imports this, and only for a fleet that names such a file: jsonschema takes a while to load.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend as _untyped_extend
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, Schema, SchemaResource

from fleetctl.documents.position import Path
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.compose import Composed, compose
from fleetctl.fleetfile.mapping import DUPLICATE_KEY
from fleetctl.fleetfile.nodes import Document, Node, Value
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.fleetfile.text import SourceText, decode
from fleetctl.problem import Problem

UNUSABLE = "FL037"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
_WORDS = "words"

_Check = Callable[[Any, Any, Any, Any], Any]
"""How jsonschema checks one keyword: validator, value of the keyword, instance, schema."""


@dataclass(frozen=True, slots=True)
class RuleSchema:
    """A sound schema; `document` holds the place of everything in its file."""

    document: Document
    schema: dict[str, Any]

    def errors(self, fleet: Value) -> list[ValidationError]:
        """Return what breaks a rule; raises FleetFileError for a schema that refers to itself without end."""
        try:
            return list(_RULES(self.schema, registry=Registry()).iter_errors(fleet))
        except (RecursionError, Unresolvable):
            raise FleetFileError([self.document.problem(
                UNUSABLE, (), "a reference of this schema leads back to itself, or nowhere")]) from None


def words_of(error: ValidationError) -> str | None:
    """Return the `description` nearest around the rule that was broken."""
    words: str | None = getattr(error, _WORDS, None)
    return words


def read_schema(source: SourceBytes, word: Callable[[Document, ValidationError], Iterator[Problem]]) -> RuleSchema:
    """Return the schema in a file; raises FleetFileError. `word` words the errors of the schema itself."""
    text = decode(source)
    try:
        composed, schema = compose(text), json.loads(text.text)
        document = _document(text, composed)
        problems = [*_duplicate_keys(composed), *_problems(document, schema, word)]
    except json.JSONDecodeError as error:
        at = min(error.pos, len(text.text))
        raise FleetFileError([text.problem(UNUSABLE, at, f"this is not JSON: {error.msg}")]) from None
    except RecursionError:
        raise FleetFileError([text.problem(UNUSABLE, 0, "this schema is nested too deeply")]) from None
    except ValueError:
        raise FleetFileError([text.problem(UNUSABLE, 0, "a number in this schema is too long")]) from None
    if problems:
        raise FleetFileError(problems)
    # with "$schema" jsonschema would follow a $ref to the whole file with rules that keep no description
    return RuleSchema(document, {key: value for key, value in schema.items() if key != "$schema"})


def _problems(document: Document, schema: Any, word: Callable[[Document, ValidationError], Iterator[Problem]]  # noqa: ANN401
              ) -> Iterator[Problem]:
    if not isinstance(schema, dict):
        yield document.problem(UNUSABLE, (), "this is not a JSON Schema", allowed="a JSON object")
        return
    draft = schema.get("$schema", DRAFT)
    if isinstance(draft, str) and draft.rstrip("#") != DRAFT:
        yield document.problem(UNUSABLE, ("$schema",), "house rules are JSON Schema of draft 2020-12", allowed=DRAFT)
        return
    check = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
    errors = list(check.iter_errors(schema))
    for error in errors:
        yield from word(document, error)
    if not errors:
        yield from _unknown_references(document, schema)


def _document(text: SourceText, composed: Composed) -> Document:
    """Return the file with the places of its values: JSON is YAML too, but for rare escapes, which have no place."""
    return composed.documents[0] if composed.documents else Document(text, Node(0, {}))


def _duplicate_keys(composed: Composed) -> Iterator[Problem]:
    """Yield the keys that a mapping has twice: of each rule JSON would keep the last alone."""
    return (replace(one, code=UNUSABLE) for one in composed.problems if one.code == DUPLICATE_KEY)


def _unknown_references(document: Document, schema: dict[str, Any]) -> Iterator[Problem]:
    """Yield every `$ref` that leads out of the file or nowhere, also where no fleet has got to it yet."""
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


def _keeping_words(name: str, check: _Check) -> _Check:
    """Let an error keep the first description it meets on its way out of the schema, through references too."""

    def keeping(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401
        if name in ("properties", "patternProperties"):  # for `false` jsonschema names the mapping, not the key
            value = {key: {"not": {}} if rule is False else rule for key, rule in value.items()}
        for error in check(validator, value, instance, schema) or ():
            if words_of(error) is None and isinstance(schema.get("description"), str):
                setattr(error, _WORDS, schema["description"])
            yield error

    return keeping


_extend: Any = _untyped_extend
_RULES = _extend(Draft202012Validator,
                 {name: _keeping_words(name, check) for name, check in Draft202012Validator.VALIDATORS.items()})
