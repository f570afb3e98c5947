"""Evaluates house rules in a process of its own, which ends within its time and memory, whatever the rules are.

A rule is text of the author of a change: a pattern such as `^([a-z]+)+$`, or references that double forty times, never
ends. This module is that process; it knows JSON Schema and plain values, but neither positions nor messages, and
imports no models: a process with jsonschema starts in 0.15 s, one with the fleet file's models in 0.4 s.
Python's `re` looks for signals while it matches, so the process itself says which rule it was at. Where a signal waits,
such as in one long call of C code, the caller ends the process soon after.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from itertools import islice
from operator import getitem
from pathlib import Path
from typing import Any, NoReturn

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend as _untyped_extend
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, Schema, SchemaResource

from fleetctl.fleetfile.rule_result import Result, Steps

DRAFT = "https://json-schema.org/draft/2020-12/schema"
MAX_RESULTS = 1001
"""The most results of one file of rules: more than a run lists."""
MAX_CHARACTERS = 1 << 20
"""The most characters in the results of one file. One result may be longer, as it has one key of the fleet."""
MAX_MESSAGE = 1000
CHECKS_BETWEEN = 256
"""How many checks of a keyword lie between two looks at the memory in use."""
BACKSTOP = 4
"""The address space may be so many times the memory: code that runs out of address space may crash without a word."""
MAX_ALLOWED = 200
_PR_SET_PDEATHSIG = 1
"""Of prctl(2): the caller may be killed, such as the loading process of a watch, and then ends nothing any more."""
_MESSAGE = "fleetctl_message"
"""The attribute of a ValidationError that holds the schema's own description of the rule."""
_TYPES = {"object": "a mapping", "array": "a list", "string": "text", "integer": "a whole number",
          "number": "a number", "boolean": "true or false", "null": "nothing"}


def _as_json(value: Any) -> str:  # noqa: ANN401  any JSON value
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _count(number: float, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_ALLOWED: dict[str, Callable[[Any], str]] = {
    "type": lambda types: " or ".join(
        _TYPES.get(kind, kind) for kind in ([types] if isinstance(types, str) else types)),
    "enum": lambda values: ", ".join(map(_as_json, values[:MAX_ALLOWED])),
    "const": _as_json,
    "minimum": "at least {}".format,
    "maximum": "at most {}".format,
    "exclusiveMinimum": "more than {}".format,
    "exclusiveMaximum": "less than {}".format,
    "multipleOf": "a multiple of {}".format,
    "pattern": "text that matches {}".format,
    "minLength": lambda least: f"at least {_count(least, 'character')}",
    "maxLength": lambda most: f"at most {_count(most, 'character')}",
    "minItems": lambda least: f"at least {_count(least, 'item')}",
    "maxItems": lambda most: f"at most {_count(most, 'item')}",
    "uniqueItems": lambda _: "each item once",
    "minProperties": lambda least: f"at least {_count(least, 'key')}",
    "maxProperties": lambda most: f"at most {_count(most, 'key')}",
}

_Check = Callable[[Any, Any, Any, Any], Any]
"""A keyword check of jsonschema: (validator, value of the keyword, instance, schema) to errors."""


class _Progress:
    """The results of each file so far, and the rule that is being checked: its schema, by identity, and its keyword."""

    def __init__(self) -> None:
        self.results: list[list[Result]] = []
        self.schema: Any = None
        self.at: tuple[int, str] | None = None
        self.limit = ""
        self.memory = sys.maxsize
        self.checks = 0

    def begin(self, schema: Any, name: str) -> None:  # noqa: ANN401
        """Note the rule that is now being checked; raises MemoryError if the process has too much memory."""
        self.at = id(schema), name
        self.checks += 1
        if self.checks % CHECKS_BETWEEN == 0 and _resident() > self.memory:
            raise MemoryError

    def place(self) -> Steps:
        """Return the path of the rule that is being checked."""
        if self.at is None:
            return ()
        found = next((path for known, path in _places(self.schema, ()) if known == self.at[0]), ())
        return (*found, self.at[1])


def _resident() -> int:
    """Return the memory of this process in bytes; 0 if the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


_progress = _Progress()


def evaluate_here(rules: Sequence[str], fleet: Any) -> list[list[Result]]:  # noqa: ANN401  any JSON value
    """Return the results of each file of rules, in the same order; `fleet` = the rendered fleet as plain values."""
    _progress.results = []
    for text in rules:
        _progress.schema, _progress.at = None, None
        found: list[Result] = []
        _progress.results.append(found)
        try:
            _collect(found, _results(text, fleet))
        except MemoryError:
            found[:] = [Result("memory", in_schema=True, path=_progress.place())]
    return _progress.results


def _collect(found: list[Result], results: Iterable[Result]) -> None:
    characters = 0
    for result in islice(results, MAX_RESULTS):
        found.append(result)
        characters += sum(len(str(part)) for part in (*result.path, result.key or "", result.message or ""))
        if characters > MAX_CHARACTERS:
            return


def _results(text: str, fleet: Any) -> Iterator[Result]:  # noqa: ANN401
    duplicates: list[str] = []

    def noting_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)  # json.loads alone silently keeps only the last of duplicate keys
        if len(found) < len(pairs):
            duplicates.append("")
        return found

    try:
        schema = json.loads(text, object_pairs_hook=noting_duplicates)
        problems = [Result("duplicate", in_schema=True)] if duplicates else []
        problems += islice(_schema_problems(schema), MAX_RESULTS)
    except json.JSONDecodeError as error:
        problems = [Result("json", in_schema=True, path=(error.pos,), message=error.msg)]
    except RecursionError:
        problems = [Result("deep", in_schema=True)]
    except ValueError:
        problems = [Result("number", in_schema=True)]
    if problems:
        yield from problems
        return
    _progress.schema = schema
    # with "$schema", jsonschema would follow a $ref to the whole file without our `_watched`
    rules = {key: value for key, value in schema.items() if key != "$schema"}
    try:
        errors = list(islice(_RULES(rules, registry=Registry()).iter_errors(fleet), MAX_RESULTS))
    except (RecursionError, Unresolvable):
        yield Result("reference", in_schema=True)
        return
    for broken in errors:
        yield from _of_error("broken", fleet, broken)


def _schema_problems(schema: Any) -> Iterator[Result]:  # noqa: ANN401  any JSON value
    if not isinstance(schema, dict):
        yield Result("not a schema", in_schema=True)
        return
    draft = schema.get("$schema", DRAFT)
    if isinstance(draft, str) and draft.rstrip("#") != DRAFT:
        yield Result("draft", in_schema=True, path=("$schema",))
        return
    check = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
    errors = list(islice(check.iter_errors(schema), MAX_RESULTS))
    for error in errors:
        yield from _of_error("invalid", schema, error)
    if not errors:
        yield from _unknown_references(schema)


def _unknown_references(schema: dict[str, Any]) -> Iterator[Result]:
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
            yield Result("unknown reference", in_schema=True, path=(*places[id(resource.contents)], "$ref"),
                         message=reference)


def _places(value: Schema | list[Any], path: Steps) -> Iterator[tuple[int, Steps]]:
    yield id(value), path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, below in inner:
        yield from _places(below, (*path, part))


def _watched(name: str, check: _Check) -> _Check:
    """Make `check` note what is being checked, and attach the innermost description around the broken rule to its
    errors, also through a `$ref`.
    """

    def watched(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401
        _progress.begin(schema, name)
        if name in ("properties", "patternProperties"):  # for `false` jsonschema reports the mapping, not the key
            value = {key: {"not": {}} if rule is False else rule for key, rule in value.items()}
        for error in check(validator, value, instance, schema) or ():
            if getattr(error, _MESSAGE, None) is None and isinstance(schema.get("description"), str):
                setattr(error, _MESSAGE, schema["description"][:MAX_MESSAGE])
            yield error

    return watched


_extend: Any = _untyped_extend
_RULES = _extend(Draft202012Validator,
                 {name: _watched(name, check) for name, check in Draft202012Validator.VALIDATORS.items()})


def _of_error(kind: str, whole: Any, error: ValidationError) -> Iterator[Result]:  # noqa: ANN401
    """Yield the places of an error in `whole`: each missing or extra key has its own."""
    path = tuple(error.absolute_path)
    keys: Iterator[str] = iter(())
    instance: Any = error.instance
    schema: Any = error.schema
    wanted: Any = error.validator_value
    if error.validator == "required":
        keys = (key for key in wanted if key not in instance)
    elif error.validator == "additionalProperties" and wanted is False:
        known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        keys = (key for key in instance
                if key not in known and not any(re.search(pattern, key) for pattern in patterns))
    elif isinstance(instance, str) and isinstance(reduce(getitem, path, whole), dict):
        keys = iter((instance,))  # propertyNames: the key itself breaks the rule
    result = Result(kind, kind != "broken", path, None, getattr(error, _MESSAGE, None), str(error.validator),
                    _allowed(error))
    found = False
    for key in keys:
        found = True
        yield result._replace(key=key)
    if not found:
        yield result


def _allowed(error: ValidationError) -> str | None:
    to_text = _ALLOWED.get(str(error.validator))
    text = to_text(error.validator_value) if to_text else ""
    return (text if len(text) <= MAX_ALLOWED else text[:MAX_ALLOWED] + "...") or None


def _end(_signal: int, _frame: object) -> NoReturn:
    """Answer with the results so far; of the last file only the rule that was being checked."""
    sys.setrecursionlimit(100_000)  # the rules may have used up the usual one
    resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[1],) * 2)
    _progress.results[-1][:] = [Result("time", in_schema=True, path=_progress.place(), message=_progress.limit)]
    _answer(_progress.results)


def _answer(results: list[list[Result]]) -> NoReturn:
    sys.stdout.buffer.write(json.dumps(results).encode())
    sys.stdout.buffer.flush()
    os._exit(0)  # without freeing what the rules have made


def _main() -> NoReturn:
    with suppress(AttributeError):  # only Linux ends a process with its parent; elsewhere the limit does
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    limit_s, memory, rules, fleet = pickle.loads(sys.stdin.buffer.read())  # noqa: S301  from our own process
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    backstop = BACKSTOP * memory
    with suppress(ValueError):  # macOS counts what all processes share, and refuses a limit below that
        resource.setrlimit(resource.RLIMIT_AS, (backstop if hard < 0 else min(backstop, hard), hard))
    _progress.results.append([])
    _progress.limit, _progress.memory = f"{limit_s:g}", memory
    signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    _answer(evaluate_here(rules, fleet))


if __name__ == "__main__":
    _main()
