"""Turns a draft into the text of a fleet file: the project's own layout, every loss a comment where it belongs."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from fleetctl.documents.fleet import API_VERSION
from fleetctl.documents.position import Path
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.format import format_source
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.draft import Draft, DraftModel, Loss
from fleetctl.importers.yaml_text import block, comment_lines
from fleetctl.problem import Problem

MODELINE = "# yaml-language-server: $schema=fleet.schema.json"


def write_draft(draft: Draft) -> str:
    """Return the draft as a fleet file, with a comment for everything in it that was lost, changed or left to do.

    The text is a fixed point of `fmt`. Whether it loads is another question: see `problems_of`.
    """
    header = [MODELINE, *(line for note in _header(draft) for line in comment_lines(note, 0))]
    text = "\n".join(header) + "\n" + block(_document(draft), _comments(draft))
    try:
        return format_source(SourceBytes("the imported fleet", text.encode())).after
    except FleetFileError:
        return text  # `problems_of` says what is wrong with it


def problems_of(text: str, file: str) -> tuple[Problem, ...]:
    """Return what keeps the text from being a sound fleet file called `file`."""
    return inspect_bytes([SourceBytes(file, text.encode())]).errors


def _document(draft: Draft) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if draft.cluster:
        spec["cluster"] = draft.cluster
    if draft.nodes:
        spec["nodes"] = draft.nodes
    spec["models"] = [model.value for model in draft.models]
    return {"apiVersion": API_VERSION, "kind": "Fleet", "metadata": {"name": draft.name}, "spec": spec}


def _header(draft: Draft) -> list[str]:
    counts = {kind: sum(loss.kind == kind for loss in draft.losses) for kind in ("lost", "changed", "todo")}
    words = [f"{counts['lost']} lost", f"{counts['todo']} to do", f"{counts['changed']} changed"]
    shown = ", ".join(word for word in words if not word.startswith("0 ")) or "nothing lost"
    return [f"Made by `fleetctl import` from {draft.made_from}: {shown}.", *draft.notes]


def _comments(draft: Draft) -> dict[Path, list[str]]:
    """Return every comment by the path it stands above; where that path leads nowhere, above what it is in."""
    comments: defaultdict[Path, list[str]] = defaultdict(list)
    losses: defaultdict[str, list[Loss]] = defaultdict(list)
    for loss in draft.losses:
        if loss.model is not None:
            losses[loss.model].append(loss)
    for index, model in enumerate(draft.models):
        path: Path = ("spec", "models", index)
        if model.place is not None or model.notes:
            comments[path] += [f"from {model.place.file}:{model.place.line}"] if model.place else []
            comments[path] += model.notes
        for loss in losses[model.key]:
            place = (*path, *_existing(model, loss.home))
            about = f"{loss.field}: " if loss.place and loss.field else ""
            text = f"{loss.kind}: {about}{loss.message}"
            if text not in comments[place]:
                comments[place].append(text)
    return dict(comments)


def _existing(model: DraftModel, home: Path) -> Path:
    """Return the longest beginning of `home` that leads to something in the model."""
    value: Any = model.value
    for depth, part in enumerate(home):
        found = part in value if isinstance(value, dict) else (
            isinstance(value, list) and isinstance(part, int) and part < len(value))
        if not found:
            return home[:depth]
        value = value[part]
    return home
