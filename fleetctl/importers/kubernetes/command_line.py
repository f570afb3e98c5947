"""Command lines of containers: the variables another system sets become ours, the rest stays, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from fleetctl.documents.position import Path
from fleetctl.importers.reading import Reading

_VARIABLE = re.compile(r"\$\$|\$(?P<open>[({]?)(?P<name>[A-Z][A-Z0-9_]*)\b")  # `$$` is an escape
_PORT = re.compile(r"--port(?:=|\s+)([0-9]+)\b")
_LEADER_PORT = re.compile(r"_LEADER_ADDRESS[)}]?:([0-9]+)\b")

OURS = "FLEETCTL_"
Variables = Mapping[str, str]
"""Another system's variables by name, each with ours; its others are recognised by their prefix."""


def texts_with_our_variables(
    container: Reading, key: str, variables: Variables, environment: Collection[str]
) -> list[str]:
    """Return the list of texts under a key, with `$(NAME)`, `${NAME}` and `$NAME` of `variables` renamed.

    Every renaming is reported, and so are a `$(NAME)` that neither fleetctl nor `environment` sets, and fixed ports.
    """
    found = container.texts(key)
    renamed = [_renamed(text, path, container, variables, environment) for text, path in found]
    for number, (text, path) in enumerate(found):
        previous = found[number - 1][0] if number else ""
        _report_fixed_ports(text, previous, path, container)
    return renamed


def _renamed(
    text: str, path: Path, container: Reading, variables: Variables, environment: Collection[str]
) -> str:
    prefixes = tuple({name.partition("_")[0] + "_" for name in variables})

    def ours(match: re.Match[str]) -> str:
        name = match["name"] or ""
        if name in variables:
            container.at(path).note(None, f"${name} is written ${variables[name]}", "changed")
            return f"${match['open']}{variables[name]}"
        reference = match["open"] == "(" and not name.startswith(OURS)
        if name not in environment and (reference or name.startswith(prefixes)):
            container.at(path).note(None, f"{name} is not set here: replace it", "todo")
        return match[0]

    return _VARIABLE.sub(ours, text)


def _report_fixed_ports(text: str, previous: str, path: Path, container: Reading) -> None:
    match = _PORT.search(text)
    port = match[1] if match else text if previous == "--port" and text.isdigit() else None
    if port is not None:
        container.at(path).note(None, f"port {port} is fixed, and members on one node share its ports; "
                                      "$(FLEETCTL_PORT) is free for each member", "todo")
    leader = _LEADER_PORT.search(text)
    if leader:
        container.at(path).note(None, f"port {leader[1]} of the Leader is fixed, and two gangs may lead from one node; "
                                      "$(FLEETCTL_LEADER_PORT) is free for each gang", "todo")
