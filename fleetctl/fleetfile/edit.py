"""Edits a fleet file in place: replica counts and added models. Comments and layout stay byte for byte."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from fleetctl.documents.fleet import API_VERSION
from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.load import LoadedFleet, inspect_bytes
from fleetctl.fleetfile.nodes import Document, Raw, models
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.fleetfile.rules import OVER_LIMITS
from fleetctl.fleetfile.sources import SourceBytes, SourceText, decode, read_sources

NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Edit:
    """One file before and after the edit."""

    file: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class _Splice:
    """The characters of a file from `start` to `end`, and the text that replaces them."""

    source: SourceText
    start: int
    end: int
    text: str


def edit_fleet(
    files: Sequence[str], loaded: LoadedFleet, wanted: Mapping[str, int], added: Mapping[str, str] = NOTHING
) -> list[Edit]:
    """Return the changed files: new replica counts for the models of `wanted`, and the models of `added`.

    `loaded` = the valid fleet in `files`; `added` = the text of each new model by its key, a list item that begins in
    the first column. Nothing else changes. Raises FleetctlError, with the place, for a count that is not a literal
    number, such as an alias, and if no file has a block list of models to append to.
    """
    read, _ = read_sources(files, None)
    given = {source.file: source for source in read}
    splices = [_splice(model, wanted[str(model.text("key"))], given) for document in loaded.documents
               for model in models(document) if model.text("key") in wanted]
    splices += [_appended(loaded.documents, given, added)] if added else []
    changed: dict[str, str] = {}
    for splice in sorted(splices, key=lambda splice: splice.start, reverse=True):
        text = changed.get(splice.source.file, splice.source.text)
        changed[splice.source.file] = text[:splice.start] + splice.text + text[splice.end:]
    after = [SourceBytes(source.file, changed.get(source.file, "").encode() or source.data) for source in read]
    _check(after, loaded, wanted, added)
    edits = []
    for file, text in changed.items():
        mark = "\ufeff" if given[file].data.startswith(BOM_UTF8) else ""  # `decode` removes it
        edits.append(Edit(file, mark + decode(given[file]).text, mark + text))
    return [edit for edit in edits if edit.before != edit.after]


def _splice(model: Raw, replicas: int, given: Container[str]) -> _Splice:
    """Return the change of one replica count in a given file; a count inherited from a base is overridden there."""
    document, path = model.document, (*model.path, "replicas")
    node, (source, start) = document.node(path), document.locate(path)
    if source.file not in given:
        own, at = document.locate((*model.path, "key"), key=True)
        if own.file in given:  # a new entry: before the key in a flow mapping, or on the line below it
            if own.text[:at].rstrip().endswith(("{", ",")):
                name = '"replicas"' if own.text.startswith('"', at) else "replicas"
                return _Splice(own, at, at, f"{name}: {replicas}, ")
            line, column = own.position(at)
            end = own.line_starts[line - 1] + len(own.line(line))
            return _Splice(own, end, end, f"{_newline(own)}{' ' * (column - 1)}replicas: {replicas}")
        raise _refusal(source, start, "is in a file that -f does not name, and other fleets may use it")
    if node is None or not node.raw or not source.text.startswith(node.raw, start):
        raise _refusal(source, start, "is not written as a number")
    return _Splice(source, start, start + len(node.raw), str(replicas))


def _appended(documents: Sequence[Document], given: Container[str], added: Mapping[str, str]) -> _Splice:
    """Return the new models, appended after the last model that a given file lists."""
    for document in reversed(documents):
        places = [document.locate(model.path) for model in models(document)]
        source, at = next((place for place in reversed(places) if place[0].file in given), (document.source, 0))
        before = source.text[source.line_starts[source.position(at)[0] - 1]:at]
        if before.strip() == "-":
            margin, newline = " " * before.index("-"), _newline(source)
            end = _end_of_entry(source, at, len(margin))
            last_newline = "" if source.text[:end].endswith("\n") else newline
            lines = "\n".join(added.values()).splitlines()
            text = "".join((margin + line if line else "") + newline for line in lines)
            return _Splice(source, end, end, last_newline + newline + text)
    raise FleetctlError("no file given with -f lists its models on lines of their own, so none can be appended",
                        hint="write the last model as a block that begins with `- key:`")


def _end_of_entry(source: SourceText, at: int, column: int) -> int:
    """Return the offset at which a list item ends whose `-` is in `column`, on the line of `at`."""
    number, end = source.position(at)[0], len(source.text)
    for later in range(number + 1, len(source.line_starts) + 1):
        line = source.line(later)
        if line.strip() and len(line) - len(line.lstrip(" ")) <= column:
            break
        if line.strip():
            number = later
    return source.line_starts[number] if number < len(source.line_starts) else end


def _newline(source: SourceText) -> str:
    return "\r\n" if "\r\n" in source.text else "\n"


def _check(
    sources: Sequence[SourceBytes], loaded: LoadedFleet, wanted: Mapping[str, int], added: Mapping[str, str]
) -> None:
    """Raise FleetctlError unless the new files mean the old fleet with these counts and the models of `added`."""
    after = inspect_bytes(sources)
    if limits := [problem for problem in after.errors if problem.code == OVER_LIMITS]:
        raise FleetctlError(limits[0].message, hint=f"allowed: {limits[0].allowed}")
    if after.fleet is None and added:
        raise FleetctlError(f"the edited file would not be valid: {after.errors[0].message}",
                            hint="edit it by hand: `fleetctl import` prints the live models as a file of their own")
    kept = [model for model in after.fleet.models if model.key not in added] if after.fleet else []
    if after.fleet is None or _meaning(kept, {}) != _meaning(loaded.sound().models, wanted):
        raise FleetctlError("the file cannot be edited without changing more than was asked for",
                            hint="edit it by hand, and check the change with `fleetctl diff`")
    own = _own_hashes(added)
    if changed := [model.key for model in after.fleet.models
                   if model.key in added and model.spec_hash != own.get(model.key)]:
        raise FleetctlError(f"the file's spec.defaults would change the spec of {', '.join(changed)}, so its live "
                            "replicas would be outdated", hint="set the placement in each model, not in spec.defaults")


def _own_hashes(added: Mapping[str, str]) -> dict[str, str]:
    """Return the spec hash of each model in a file without defaults; empty if that file is not valid."""
    text = "\n".join([f"apiVersion: {API_VERSION}\nkind: Fleet\nmetadata: {{name: own}}\nspec:\n  models:",
                      *("  " + line for model in added.values() for line in model.splitlines())])
    fleet = inspect_bytes([SourceBytes("own", text.encode())]).fleet
    return {model.key: model.spec_hash for model in fleet.models} if fleet else {}


def _meaning(resolved: Sequence[ResolvedModel], wanted: Mapping[str, int]) -> list[ResolvedModel]:
    return [replace(model.with_changes(source=resolved[0].source, replicas=wanted.get(model.key, model.replicas)),
                    source=resolved[0].source) for model in resolved]


def _refusal(source: SourceText, offset: int, why: str) -> FleetctlError:
    line, column = source.position(offset)
    return FleetctlError(f"{source.file}:{line}:{column}: the number of replicas {why}", hint="edit it there by hand")
