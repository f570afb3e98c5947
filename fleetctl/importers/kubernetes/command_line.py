"""Command lines of containers: variables set by another system are renamed to ours, the rest stays byte for byte."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from fleetctl.documents.position import Path
from fleetctl.importers.reading import Reading

_NAME = re.compile(r"(?P<mark>\$?\$[({]?|)(?<![A-Za-z0-9_])(?P<name>[A-Z][A-Z0-9_]*)\b")  # `$$` is an escape
_ARITHMETIC = re.compile(r"\$\(\((?:[^()]|\([^()]*\))*\)\)")
"""A shell's `$((N * 2))`, in which a name without `$` is a variable."""
_PORT = re.compile(r"--port(?:=|\s+)([0-9]+)\b")
_LEADER_PORT = re.compile(r"_LEADER_ADDRESS[)}]?:([0-9]+)\b")

OURS = "FLEETCTL_"
_FOREIGN = ("LWS_", "MODELPLANE_")
Variables = Mapping[str, str]
"""Our name for each variable of another system; other names with a prefix in _FOREIGN are reported."""


def texts_with_our_variables(
    container: Reading, key: str, variables: Variables, environment: Collection[str]
) -> list[str]:
    """Return the list of texts under a key, with the variables in `$(NAME)`, `${NAME}`, `$NAME`, `$((NAME))` renamed.

    Reported are: every renaming, a `$(NAME)` that neither fleetctl nor `environment` sets, every other word that is a
    variable of another system, and fixed ports.
    """
    found = container.texts(key)
    renamed = [_renamed(text, path, container, variables, environment) for text, path in found]
    for number, (text, path) in enumerate(found):
        previous = found[number - 1][0] if number else ""
        _report_fixed_ports(text, previous, path, container)
    return renamed


def foreign_names(text: str) -> list[str]:
    """Return the words of a text that are variables of another system, judged by their prefix."""
    return [match["name"] for match in _NAME.finditer(text) if match["name"].startswith(_FOREIGN)]


def _renamed(text: str, path: Path, container: Reading, variables: Variables, environment: Collection[str]) -> str:
    arithmetic = [match.span() for match in _ARITHMETIC.finditer(text)]

    def ours(match: re.Match[str]) -> str:
        name, mark = match["name"], match["mark"]
        is_reference = mark in ("$", "$(", "${") or (
            not mark and any(start < match.start() < end for start, end in arithmetic))
        if name in variables and is_reference:
            container.at(path).note(None, f"${name} is written ${variables[name]}", "changed")
            return mark + variables[name]
        if name not in environment and (name.startswith(_FOREIGN) or (mark == "$(" and not name.startswith(OURS))):
            instead = f"use {variables[name]}" if name in variables else "replace it"
            container.at(path).note(None, f"{name} is not set here: {instead}", "todo")
        return match[0]

    return _NAME.sub(ours, text)


def _report_fixed_ports(text: str, previous: str, path: Path, container: Reading) -> None:
    match = _PORT.search(text)
    port = match[1] if match else text if previous == "--port" and text.isdecimal() else None
    if port is not None:
        container.at(path).note(None, f"port {port} is fixed, but members on one node share its ports: use "
                                      "$(FLEETCTL_PORT), a free port for each member", "todo")
    leader = _LEADER_PORT.search(text)
    if leader:
        container.at(path).note(None, f"port {leader[1]} of the Leader is fixed, but two Leaders may share a node: use "
                                      "$(FLEETCTL_LEADER_PORT), a free port for each gang", "todo")
