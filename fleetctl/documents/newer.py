"""Tells a document of a newer fleetctl from a damaged one: a later minor version, or an operation not known here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from fleetctl.documents.base import FORMAT_VERSION
from fleetctl.documents.plan import Action
from fleetctl.version import __version__

OPERATIONS: frozenset[object] = frozenset(get_args(Action.model_fields["op"].annotation))
MOST_SHOWN = 40


def what_is_newer(raw: Mapping[str, Any], problems: str) -> str | None:
    """Say why a document that does not fit needs a newer fleetctl; None where nothing in it tells so.

    `problems` = what does not fit, in words.
    """
    operation = _unknown_operation(raw)
    if operation is not None:
        problems = f'it holds the operation "{operation[:MOST_SHOWN]}", which this one does not know'
    elif _minor(str(raw["formatVersion"])) <= _minor(FORMAT_VERSION):
        return None
    tool = raw.get("toolVersion")
    maker = f", made by fleetctl {tool[:MOST_SHOWN]}," if isinstance(tool, str) else ""
    return (f"{problems}; it is of formatVersion {raw['formatVersion']}{maker} and this is fleetctl {__version__}, "
            f"which knows formatVersion {FORMAT_VERSION}")


def _unknown_operation(raw: Mapping[str, Any]) -> str | None:
    actions = raw.get("actions")
    named = [action.get("op") for action in actions if isinstance(action, dict)] if isinstance(actions, list) else []
    return next((op for op in named if isinstance(op, str) and op and op not in OPERATIONS), None)


def _minor(version: str) -> int:
    return int(version.partition(".")[2])
