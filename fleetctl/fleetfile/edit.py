"""Changes a fleet file in place: only the characters of a value, so that comments and layout stay byte for byte."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.load import LoadedFleet, inspect_bytes
from fleetctl.fleetfile.raw import Raw, models
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.fleetfile.sources import SourceBytes, read_sources
from fleetctl.fleetfile.text import SourceText, decode


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


def edit_replicas(files: Sequence[str], loaded: LoadedFleet, wanted: Mapping[str, int]) -> list[Edit]:
    """Return the files changed so that each model of `wanted` has so many replicas, and nothing else is different.

    `loaded` = the sound fleet in `files`. Raises FleetctlError, with the place, for a number that is not written as one
    there, such as an alias.
    """
    read, _ = read_sources(files, None)
    given = {source.file: source for source in read}
    splices = [_splice(model, wanted[str(model.text("key"))], given) for document in loaded.documents
               for model in models(document) if model.text("key") in wanted]
    changed: dict[str, str] = {}
    for one in sorted(splices, key=lambda splice: splice.start, reverse=True):
        text = changed.get(one.source.file, one.source.text)
        changed[one.source.file] = text[:one.start] + one.text + text[one.end:]
    edits = [_edit(given[file], text) for file, text in changed.items()]
    _check([SourceBytes(one.file, changed.get(one.file, "").encode() or one.data) for one in read], loaded, wanted)
    return [one for one in edits if one.before != one.after]


def _edit(given: SourceBytes, after: str) -> Edit:
    """Return the change of a file, with its byte order mark, which no text has."""
    mark = given.data[:len(BOM_UTF8)].decode("utf-8") if given.data.startswith(BOM_UTF8) else ""
    return Edit(given.file, mark + decode(given).text, mark + after)


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
    newline = "\r\n" if source.text.startswith("\r", end) else "\n"
    return _Splice(source, end, end, f"{newline}{' ' * (column - 1)}replicas: {replicas}")


def _check(sources: Sequence[SourceBytes], loaded: LoadedFleet, wanted: Mapping[str, int]) -> None:
    """Raise FleetctlError unless the new files mean the old fleet with these numbers of replicas."""
    was, now = loaded.sound().models, inspect_bytes(sources).fleet
    if now is None or _meaning(now.models, {}) != _meaning(was, wanted):
        raise FleetctlError("the file cannot be changed without changing more than the number of replicas",
                            hint="change it by hand, and look at it with `fleetctl diff`")


def _meaning(found: Sequence[ResolvedModel], wanted: Mapping[str, int]) -> list[ResolvedModel]:
    return [replace(one, source=found[0].source, replicas=wanted.get(one.key, one.replicas)) for one in found]


def _refusal(source: SourceText, offset: int, why: str) -> FleetctlError:
    line, column = source.position(offset)
    return FleetctlError(f"{source.file}:{line}:{column}: the number of replicas {why}", hint="change it there by hand")
