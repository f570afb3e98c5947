"""Environments of containers: literal values are copied, references are left to the node; no message shows a value."""

from __future__ import annotations

from typing import Any

from fleetctl.importers.kubernetes.command_line import foreign_names
from fleetctl.importers.reading import Reading

RESERVED = "FLEETCTL_"
SET_BY_US = "CUDA_VISIBLE_DEVICES"
_SOURCES = {"secretKeyRef": "secret", "configMapKeyRef": "config map"}


def environment(container: Reading) -> dict[str, Any]:
    """Return the `env` of an engine; a name that is given twice keeps its last value, as in Kubernetes."""
    env: dict[str, Any] = {}
    entries = container.items("env")
    last = {entry.peek("name"): number for number, entry in enumerate(entries) if isinstance(entry.peek("name"), str)}
    for number, entry in enumerate(entries):
        name = entry.text("name")
        if name is None or "=" in name or name.startswith(RESERVED) or name == SET_BY_US:
            entry.lose(None, _refusal(name))
            continue
        if last[name] != number:
            entry.lose(None, f"{name} is given again below, and the last one counts")
            continue
        value = _referenced(entry, name) if "valueFrom" in entry else _literal(entry, name)
        if value is not None:
            env[name] = value
    container.lose("envFrom", "all variables of a config map or secret: give each of them in env, as {fromNode: NAME}",
                   "todo")
    return env


def _refusal(name: str | None) -> str:
    if name is None:
        return "a variable without a name"
    return f"{name} is set by fleetctl itself" if name == SET_BY_US or name.startswith(RESERVED) else (
        "not the name of a variable")


def _literal(entry: Reading, name: str) -> str:
    value = entry.scalar("value") if "value" in entry else ""
    if value and "$(" in value.replace("$$(", ""):
        entry.note("value", f"{name} refers to a variable as $(NAME), which is not replaced in an environment here",
                   "todo")
    elif value and (foreign := foreign_names(value)):
        entry.note("value", f"{name} holds {foreign[0]}, which is not set here: replace it", "todo")
    return value or ""


def _referenced(entry: Reading, name: str) -> dict[str, str] | None:
    """Return where the node has the value; None where a node cannot know it."""
    source = entry.child("valueFrom")
    for kind, words in _SOURCES.items():
        if kind in source:
            reference = source.child(kind)
            where = f"key {reference.text('key')} of the {words} {reference.text('name')}"
            reference.skip("optional")
            source.note(kind, f"{name} came from {where}: set {name} in the environment of the Ray nodes", "todo")
            return {"fromNode": name}
    entry.lose("valueFrom", f"{name} came from its pod or container, and here there is neither")
    return None
