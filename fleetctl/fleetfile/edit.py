"""Changes a fleet file in place: a number, or a model more, so that comments and layout stay byte for byte."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from fleetctl.documents.fleet import API_VERSION
from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.load import LoadedFleet, inspect_bytes
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.raw import Raw, models
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.fleetfile.sources import SourceBytes, read_sources
from fleetctl.fleetfile.text import SourceText, decode

NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Edit:
    """One file as it was and as it is to be."""

    file: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class _Splice:
    """The characters of a file from `start` to `end`, and what is to be there."""

    source: SourceText
    start: int
    end: int
    text: str


def edit_fleet(
    files: Sequence[str], loaded: LoadedFleet, wanted: Mapping[str, int], added: Mapping[str, str] = NOTHING
) -> list[Edit]:
    """Return the files changed so that each model of `wanted` has so many replicas, and those of `added` are there.

    `loaded` = the sound fleet in `files`; `added` = the text of each model, an entry of a list that begins in the first
    column. Nothing else is different. Raises FleetctlError, with the place, for a number that is not written as one
    there, such as an alias, and where no file has a list of models that another could be added to.
    """
    read, _ = read_sources(files, None)
    given = {source.file: source for source in read}
    splices = [_splice(model, wanted[str(model.text("key"))], given) for document in loaded.documents
               for model in models(document) if model.text("key") in wanted]
    splices += [_appended(loaded.documents, given, added)] if added else []
    changed: dict[str, str] = {}
    for one in sorted(splices, key=lambda splice: splice.start, reverse=True):
        text = changed.get(one.source.file, one.source.text)
        changed[one.source.file] = text[:one.start] + one.text + text[one.end:]
    marks = {file: "\ufeff" if given[file].data.startswith(BOM_UTF8) else "" for file in changed}  # no text has it
    edits = [Edit(file, marks[file] + decode(given[file]).text, marks[file] + text) for file, text in changed.items()]
    _check([SourceBytes(one.file, changed.get(one.file, "").encode() or one.data) for one in read], loaded, wanted,
           added)
    return [one for one in edits if one.before != one.after]


def _splice(model: Raw, replicas: int, given: Container[str]) -> _Splice:
    """Return the change of one model, in a file that was given; a number from a base gets a line over it there."""
    document, path = model.document, (*model.path, "replicas")
    node, (source, start) = document.node(path), document.locate(path)
    if source.file not in given:
        own, at = document.locate((*model.path, "key"), key=True)
        if own.file in given:
            return _inserted(own, at, replicas)
        raise _refusal(source, start, "is in a file that -f does not name, and other fleets may use it")
    if node is None or not node.raw or not source.text.startswith(node.raw, start):
        raise _refusal(source, start, "is not written as a number here")
    return _Splice(source, start, start + len(node.raw), str(replicas))


def _inserted(source: SourceText, at: int, replicas: int) -> _Splice:
    """Return `replicas` as a new entry beside the model's key, which is at `at`: on the next line, or on the same."""
    if source.text[:at].rstrip().endswith(("{", ",")):
        return _Splice(source, at, at, f"replicas: {replicas}, ")
    line, column = source.position(at)
    end = source.line_starts[line - 1] + len(source.line(line))
    return _Splice(source, end, end, f"{_newline(source)}{' ' * (column - 1)}replicas: {replicas}")


def _appended(documents: Sequence[Document], given: Container[str], added: Mapping[str, str]) -> _Splice:
    """Return the models behind the last one of the last list of models that is in a file which was given."""
    for document in reversed(documents):
        places = [document.locate(one.path) for one in models(document)]
        source, at = next((one for one in reversed(places) if one[0].file in given), (document.source, 0))
        before = source.text[source.line_starts[source.position(at)[0] - 1]:at]
        if before.strip() == "-":
            end = _end_of_entry(source, at, before.index("-"))
            ends = "" if source.text[:end].endswith("\n") else _newline(source)
            margin, lines = " " * before.index("-"), "\n".join(added.values()).splitlines()
            text = "".join((margin + line if line else "") + _newline(source) for line in lines)
            return _Splice(source, end, end, ends + _newline(source) + text)
    raise FleetctlError("no file that is given has a list of models in lines of their own, to which one can be added",
                        hint="write one of its models as lines, the first of which begins with `- key:`")


def _end_of_entry(source: SourceText, at: int, column: int) -> int:
    """Return where the entry of a list ends that begins before `at` with a `-` in this column."""
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
    """Raise FleetctlError unless the new files mean the old fleet with these numbers and with the models of `added`."""
    was, found = loaded.sound().models, inspect_bytes(sources)
    if found.fleet is None and added:
        raise FleetctlError(f"the file would not be sound: {found.errors[0].message}", hint="write it by hand: "
                            "`fleetctl import` prints what runs as a file of its own")
    if found.fleet is None or _meaning([one for one in found.fleet.models if one.key not in added], {}) != _meaning(
            was, wanted):
        raise FleetctlError("the file cannot be changed without changing more than what was asked for",
                            hint="change it by hand, and look at it with `fleetctl diff`")
    alone = _specs_alone(added)
    if other := [one.key for one in found.fleet.models if one.key in added and one.spec_hash != alone.get(one.key)]:
        raise FleetctlError(f"the file's spec.defaults would make another spec of {', '.join(other)}, and what runs "
                            "would be outdated", hint="set the placement of each model instead of in spec.defaults")


def _specs_alone(added: Mapping[str, str]) -> dict[str, str]:
    """Return the hash of each model's spec in a file without defaults; none where it is not sound there."""
    text = "\n".join([f"apiVersion: {API_VERSION}\nkind: Fleet\nmetadata: {{name: alone}}\nspec:\n  models:",
                      *("  " + line for model in added.values() for line in model.splitlines())])
    fleet = inspect_bytes([SourceBytes("alone", text.encode())]).fleet
    return {one.key: one.spec_hash for one in fleet.models} if fleet else {}


def _meaning(found: Sequence[ResolvedModel], wanted: Mapping[str, int]) -> list[ResolvedModel]:
    return [replace(one, source=found[0].source, replicas=wanted.get(one.key, one.replicas)) for one in found]


def _refusal(source: SourceText, offset: int, why: str) -> FleetctlError:
    line, column = source.position(offset)
    return FleetctlError(f"{source.file}:{line}:{column}: the number of replicas {why}", hint="change it there by hand")
