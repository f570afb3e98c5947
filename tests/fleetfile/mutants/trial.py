"""One file through `fmt`: refused, or formatted with all comments, the same meaning, and a stable result."""

from __future__ import annotations

import yaml

from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.format import format_source
from fleetctl.fleetfile.sources import SourceBytes

from .judge import content


def trial(text: str) -> tuple[str, str]:
    """Return the outcome for a file, and its fault or ''.

    The first is `formatted`, `tidy` (it was already), the code of the problem that it was refused for, or `not judged`:
    PyYAML in Python refuses some that libyaml reads, such as a tab behind a colon.
    """
    try:
        formatted = format_source(SourceBytes("fleet.yaml", text.encode()))
    except FleetFileError as error:
        return error.problems[0].code, ""
    if not formatted.changed:
        return "tidy", ""
    try:
        before = content(text)
    except yaml.YAMLError:
        return "not judged", ""
    return "formatted", _fault(before, formatted.after)


def _fault(before: object, text: str) -> str:
    try:
        after = content(text)
        again = format_source(SourceBytes("fleet.yaml", text.encode())).after
    except (yaml.YAMLError, FleetFileError) as error:
        return f"cannot be read again: {error}"
    return "" if after == before and again == text else (
        "not settled after once" if after == before else f"{before} became {after}")
