"""Loads a stored document (an inventory, a plan) from text, and refuses a damaged one or one of another kind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fleetctl.collector import collector_paused
from fleetctl.documents.base import Versioned
from fleetctl.documents.canonical import plan_id
from fleetctl.documents.names import nearest
from fleetctl.documents.quantity import first_few, parse_bytes
from fleetctl.errors import DocumentError
from fleetctl.version import __version__

if TYPE_CHECKING:
    from fleetctl.documents.plan import Plan

Document = TypeVar("Document", bound=Versioned)

SHOWN_PROBLEMS = 5
OTHER_VERSION_HINT = "use the fleetctl that wrote it, or write it again with this one"
MAX_SHOWN_LENGTH = 40
LONGEST_WITH_PLACES = 8 << 20
"""Characters of a damaged document in which the position of the damage is searched: some seconds."""
_TYPE_WORDS: Mapping[type, str] = {list: "a list", str: "text", int: "a number", float: "a number"}
_WRITTEN_BY = {"Inventory": "`fleetctl inventory --format json` (of a cluster, or with --add-node)",
               "Plan": "`fleetctl plan --out FILE`"}
_JSON_START = re.compile(r"[\ufeff \t\r\n]*[{\[]")
_VERSION = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})")


@collector_paused(lasting=True)
def load_document(text: str, cls: type[Document], *, where: str) -> Document:
    """Return the document in `text`, JSON or YAML. `where` names it in messages.

    Raises DocumentError if the text is cut off, holds another kind of document, has a format this version does not
    know, or does not fit the model.
    """
    return _fast_path(text, cls, where) or _validated(_checked(_parsed(text, where), cls, where), cls, where, text)


def unknown_keys(text: str, cls: type[Versioned], *, where: str) -> list[str]:
    """Return a sentence for each key of a valid document that this version does not know, with a known one like it."""
    raw = _checked(_parsed(text, where), cls, where)
    try:
        cls.model_validate({**raw, "formatVersion": str(raw["formatVersion"])}, extra="forbid")
    except ValidationError as error:
        schema = cls.model_json_schema()
        return [f"{_path(item['loc'])} is not a key of {_article(str(raw['kind']))} and is ignored"
                + (f"; did you mean {near}?" if (near := nearest(str(item["loc"][-1]), _keys_at(schema, item["loc"])))
                   else "") for item in error.errors(include_url=False)]
    return []


def _keys_at(schema: Mapping[str, Any], place: Sequence[str | int]) -> list[str]:
    """Return the keys that a JSON Schema knows beside the last key of `place`."""
    def resolved(part: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        yield part
        if "$ref" in part:
            yield from resolved(schema["$defs"][part["$ref"].rpartition("/")[2]])
        for choice in part.get("anyOf", ()):
            yield from resolved(choice)

    found = list(resolved(schema))
    for step in place[:-1]:
        below = [part["items"] if isinstance(step, int) else part["properties"][step] for part in found
                 if ("items" in part if isinstance(step, int) else step in part.get("properties", ()))]
        found = [part for child in below for part in resolved(child)]
    return [key for part in found for key in part.get("properties", ())]


@collector_paused()
def load_plan(text: str, where: str, *, masked_too: bool = False) -> Plan:
    """Return the saved plan in `text`; see `load_document`. Refuses one that was changed after it was written.

    `masked_too` = also accept the output of `plan --format json`, for display: its id is that of the unmasked plan, so
    it cannot be checked.
    """
    from fleetctl.documents.plan import MaskedPlan, Plan  # slow to import, and few commands need it

    raw = _checked(_parsed(text, where), Plan, where)
    masked = raw.get("masked") is True
    if masked and not masked_too:
        raise DocumentError(f"{where} is what `plan --format json` shows, with the values of env masked",
                            hint="save a plan with `fleetctl plan --out FILE`, and apply that file")
    if not masked and raw.get("planId") != plan_id(raw):
        raise DocumentError(f"{where} was changed after it was written (planId does not match)",
                            hint="make a new plan with `fleetctl plan --out FILE`")
    return _validated(raw, MaskedPlan if masked else Plan, where, text)


def _fast_path(text: str, cls: type[Document], where: str) -> Document | None:
    """Return the document in a JSON text without building plain values first: half the time for a large inventory.

    None if anything is unusual; the slow path then reports it.
    """
    if not text.startswith("{") or "NaN" in text or "Infinity" in text:
        return None
    try:
        document = cls.model_validate_json(text)
    except ValueError:
        return None
    if not {"kind", "format_version"} <= document.model_fields_set:
        return None
    _check_version(document.format_version, cls, where)
    return document


def _parsed(text: str, where: str) -> object:
    if not text or text.isspace():
        raise DocumentError(f"{where} is empty", hint="was it written completely?")
    try:
        if _JSON_START.match(text):
            return json.loads(text.lstrip("\ufeff"), parse_constant=_no_constant)
        return _parse_yaml(text, where)
    except json.JSONDecodeError as error:
        raise _broken_json(error, where) from None
    except RecursionError:
        raise DocumentError(f"{where} is nested too deeply to be a fleetctl document") from None
    except ValueError as error:
        raise DocumentError(f"{where} cannot be read: {error}") from None


def _broken_json(error: json.JSONDecodeError, where: str) -> DocumentError:
    """Return the error: text that ends too early was cut off; a comma before a bracket is a leftover of an edit."""
    text, at = error.doc, error.pos
    if at >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        return DocumentError(f"{where}:{error.lineno}:{error.colno}: incomplete JSON: {error.msg}",
                             hint="was it cut off while it was written or copied?")
    comma = len(text[:at + (text[at] == ",")].rstrip()) - 1
    if text[comma] == "," and text[comma + 1:].lstrip()[:1] in ("}", "]"):
        line = text.count("\n", 0, comma) + 1
        return DocumentError(f"{where}:{line}:{comma - text.rfind(chr(10), 0, comma)}: not JSON: a comma before "
                             f"{text[comma + 1:].lstrip()[:1]}",
                             hint="remove the comma; JSON allows none after the last entry")
    return DocumentError(f"{where}:{error.lineno}:{error.colno}: not JSON: {error.msg}")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not allowed in a document")


def _parse_yaml(text: str, where: str) -> Any:  # noqa: ANN401  any YAML value
    import yaml

    from fleetctl.documents.plain_yaml import load_plain

    try:
        return load_plain(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise DocumentError(f"{where}{place}: not JSON and not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise DocumentError(f"{where}: not JSON and not YAML: {str(error).splitlines()[0]}") from None


def _checked(raw: object, cls: type[Document], where: str) -> dict[str, Any]:
    """Check kind and format version before anything else is read."""
    wanted = cls.model_fields["kind"].default
    if not isinstance(raw, dict):
        raise DocumentError(f"{where} holds {_TYPE_WORDS.get(type(raw), 'a value')}, not a document",
                            hint=f"expected a mapping with kind: {wanted}")
    kind = raw.get("kind")
    if kind != wanted:
        found = f"{where} is {_article(str(kind))}, not {_article(wanted)}" if kind else f"{where} has no kind"
        raise DocumentError(found, hint=f"expected kind: {wanted}, as {_WRITTEN_BY.get(wanted, 'fleetctl')} writes it")
    _check_version(raw.get("formatVersion"), cls, where)
    return raw


def _check_version(version: object, cls: type[Versioned], where: str) -> None:
    newest = cls.model_fields["format_version"].default
    known = newest.partition(".")[0]
    match = _VERSION.fullmatch(str(version))
    if version is None or match is None:
        found = "has no formatVersion" if version is None else f"has formatVersion {version!r}"
        raise DocumentError(f"{where} {found}", hint=f"this fleetctl reads {known}.x, as \"{newest}\"")
    if match[1] != known:
        raise DocumentError(f"{where} has formatVersion {version}, and this fleetctl reads {known}.x",
                            hint=OTHER_VERSION_HINT)


def _validated(raw: dict[str, Any], cls: type[Document], where: str, text: str) -> Document:
    try:
        return cls.model_validate({**raw, "formatVersion": str(raw["formatVersion"])})
    except ValidationError as error:
        found = error.errors(include_url=False)
        problems = [f"{_path(item['loc'])}: {_bytes_meant(item) or _out_of_range(item) or item['msg']}"
                    for item in found]
        shown = "; ".join(first_few(problems, SHOWN_PROBLEMS))
        newer = _why_newer(raw, cls, shown)
        if newer is not None:
            raise DocumentError(f"{where} needs a newer fleetctl: {newer}", hint=OTHER_VERSION_HINT) from None
        raise DocumentError(f"{where}{_place(text, found[0]['loc'])} is damaged: {shown}") from None


def _place(text: str, location: Sequence[str | int]) -> str:
    """Return `:line:column` of a value that does not fit; empty if it is not there, or the text is very long."""
    from fleetctl.documents.plain_yaml import place_in

    place = place_in(text, location) if len(text) <= LONGEST_WITH_PLACES else None
    return f":{place[0]}:{place[1]}" if place else ""


def _out_of_range(error: ErrorDetails) -> str | None:
    """Return a sentence about a number that is too large or too small."""
    limit = error.get("ctx", {}).get("le" if error["type"] == "less_than_equal" else "ge")
    if limit is None or isinstance(error["input"], str):
        return None
    bound = "at most" if error["type"] == "less_than_equal" else "at least"
    whole = int(limit) if limit == int(limit) else limit
    return f"{str(error['input'])[:MAX_SHOWN_LENGTH]} is out of range; expected {bound} {whole}"


def _bytes_meant(error: ErrorDetails) -> str | None:
    """Return a suggestion for a quantity such as 1Ti in a field that holds a number of bytes."""
    if error["type"] != "int_parsing":
        return None
    try:
        return f"{error['input']} is not a number of bytes; did you mean {parse_bytes(error['input'])}?"
    except ValueError:
        return None


def _path(location: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".") or "the document"


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in tuple('aeiou') else 'a'} {noun}"


def _why_newer(raw: Mapping[str, Any], cls: type[Versioned], problems: str) -> str | None:
    """Return why a document that does not fit needs a newer fleetctl; None if nothing in it says so.

    `problems` = what does not fit, in words.
    """
    from fleetctl.documents.plan import Action

    known_version = cls.model_fields["format_version"].default
    known_operations = frozenset(get_args(Action.model_fields["op"].annotation))
    actions = raw.get("actions")
    named = [action.get("op") for action in actions if isinstance(action, dict)] if isinstance(actions, list) else []
    unknown = next((op for op in named if isinstance(op, str) and op and op not in known_operations), None)
    if unknown is not None:
        problems = f'it holds the operation "{unknown[:MAX_SHOWN_LENGTH]}", which this version does not know'
    elif _minor(str(raw["formatVersion"])) <= _minor(known_version):
        return None
    tool = raw.get("toolVersion")
    maker = f" and was made by fleetctl {tool[:MAX_SHOWN_LENGTH]}" if isinstance(tool, str) else ""
    return (f"{problems}; it has formatVersion {raw['formatVersion']}{maker}; this is fleetctl {__version__}, which "
            f"knows formatVersion {known_version}")


def _minor(version: str) -> int:
    return int(version.partition(".")[2])
