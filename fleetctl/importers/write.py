"""Turns a draft into the text of a fleet file: small values on one line, equal workers once, each loss as a comment."""

from __future__ import annotations

import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from fleetctl.documents.canonical import canonical_json
from fleetctl.documents.fleet import API_VERSION
from fleetctl.documents.position import Path
from fleetctl.fleetfile.layout import Piece, block_style, write_yaml
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.draft import Draft, DraftModel, Loss, filled
from fleetctl.problem import Problem

MODELINE = "# yaml-language-server: $schema=fleet.schema.json"
WIDTH = 116
FOLD_FROM = 100
"""A text longer than this is folded over several lines, if it only has single spaces."""

_OPEN_KEYS = frozenset({"spec", "shapes", "models", "workers", "members", "nodes", "engine"})
"""Keys whose values are never written on one line."""

Comments = Mapping[Path, Sequence[str]]
SHAPE_FROM = 3
"""A shape is written for at least this many models with equal workers."""


def write_draft(draft: Draft) -> str:
    """Return the draft as a fleet file, with a comment for everything that was lost, changed or left to do.

    The text is a fixed point of `fmt`, but not always a valid fleet: see `problems_of`.
    """
    shapes, models = shared_shapes(draft)
    spec = {**filled({"cluster": draft.cluster, "shapes": shapes}), "models": models}
    document = {"apiVersion": API_VERSION, "kind": "Fleet", "metadata": {"name": draft.name}, "spec": spec}
    words = [f"{sum(loss.kind == kind for loss in draft.losses)} {word}"
             for kind, word in (("lost", "lost"), ("todo", "to do"), ("changed", "changed"))]
    shown = ", ".join(word for word in words if not word.startswith("0 ")) or "nothing lost"
    notes = [f"Made by `fleetctl import` from {draft.made_from}: {shown}.", *draft.notes]
    header = [MODELINE, *(line for note in notes for line in comment_lines(note, 0))]
    return "\n".join(header) + "\n" + block(document, _comments(draft))


def model_text(model: DraftModel, losses: Sequence[Loss]) -> str:
    """Return one model as a list item that begins in the first column, with its comments above."""
    text = write_draft(Draft("alone", "", models=[model], losses=[loss for loss in losses if loss.model == model.key]))
    lines = text.partition("\n  models:\n")[2].splitlines(keepends=True)
    return "".join(line[2:] if line.strip() else line for line in lines)


def block(value: Mapping[str, Any], comments: Comments) -> str:
    """Return a document as text, with `comments` above the values at their paths."""
    return write_yaml(_piece(value, (), 0, 0, comments))


def comment_lines(text: str, indent: int) -> list[str]:
    """Return the lines of a comment; non-printable characters, which could end it or hide in it, are escaped."""
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
    return textwrap.wrap(shown, max(40, WIDTH - indent), initial_indent="# ", subsequent_indent="#   ",
                         break_long_words=False, break_on_hyphens=False) or ["#"]


def problems_of(text: str, file: str) -> tuple[Problem, ...]:
    """Return the errors of the text as a fleet file with the name `file`."""
    return inspect_bytes([SourceBytes(file, text.encode())]).errors


def _comments(draft: Draft) -> dict[Path, list[str]]:
    """Return all comments by the path they are above: a loss is above its home, or the nearest existing ancestor."""
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
    """Return the longest prefix of `home` that exists in the model."""
    value: Any = model.value
    for depth, part in enumerate(home):
        found = part in value if isinstance(value, dict) else (
            isinstance(value, list) and isinstance(part, int) and part < len(value))
        if not found:
            return home[:depth]
        value = value[part]
    return home


def _piece(value: object, path: Path, indent: int, used: int, comments: Comments) -> Piece:
    """Return a value to write. `indent` = the column of its entries; `used` = the width of its line before it."""
    if isinstance(value, str):
        return _text(value, indent, used)
    if not isinstance(value, (Mapping, list)):
        return Piece(json.dumps(value), is_text=False)
    content: dict[str, Piece] | list[Piece]
    if isinstance(value, Mapping):
        content = {key: _piece(item, (*path, key), indent if isinstance(item, list) else indent + 2,
                               indent + len(key) + 2, comments) for key, item in value.items()}
    else:
        content = [_piece(item, (*path, at), indent + 2, indent + 2, comments) for at, item in enumerate(value)]
    for key, part in content.items() if isinstance(content, dict) else enumerate(content):
        apart = [""] if path[-1:] == ("models",) and key != 0 else []
        part.above = apart + [line for text in comments.get((*path, key), ()) for line in comment_lines(text, indent)]
    found = Piece(content)
    is_item = isinstance(content, dict) and (path[-2:-1] == ("shapes",) or isinstance(path[-1], int)) if path else True
    is_open = is_item or path[-1] in _OPEN_KEYS
    found.one_line = not is_open and used + found.width <= WIDTH
    return found


def _text(text: str, indent: int, used: int) -> Piece:
    style = block_style(text)
    is_long = len(text) > FOLD_FROM or used + len(text) > WIDTH
    if style or not is_long or not text.isprintable() or "  " in text or text != text.strip():
        return Piece(text, style=style)
    lines = textwrap.wrap(text, WIDTH - indent, break_long_words=False, break_on_hyphens=False)
    return Piece("\n".join(lines), style=">")


def shared_shapes(draft: Draft) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the shapes of a draft by name, and its models, in which a shape replaces equal workers.

    A model with a comment inside its workers keeps them, as the place of the comment.
    """
    commented = {loss.model for loss in draft.losses if loss.home[:1] == ("workers",)}
    alike: defaultdict[bytes, list[int]] = defaultdict(list)
    for index, model in enumerate(draft.models):
        if model.key not in commented and model.value.get("workers"):
            alike[canonical_json(model.value["workers"])].append(index)
    shapes: dict[str, Any] = {}
    models = [model.value for model in draft.models]
    for indices in alike.values():
        if len(indices) < SHAPE_FROM:
            continue
        workers = models[indices[0]]["workers"]
        name = base = _name(workers)
        number = 1
        while name in shapes:
            number += 1
            name = f"{base}-{number}"
        shapes[name] = {"workers": workers}
        for index in indices:
            models[index] = {key: value for key, value in models[index].items() if key != "workers"} | {"shape": name}
    return shapes, models


def _name(workers: list[dict[str, Any]]) -> str:
    """Return a short name after the first member: `vllm-2gpu`, `sglang-2x8gpu`, `serve-share`, `serve-cpu`."""
    members = workers[0].get("members") or [{}]
    command = str((members[0].get("engine", {}).get("command") or ["engine"])[0]).rpartition("/")[2]
    engine = re.sub("[^a-z0-9]+", "-", command.lower()).strip("-")[:40].strip("-") or "engine"
    claims, count = members[0].get("resources", {}), sum(member.get("count", 1) for member in members)
    gpus = claims.get("gpus", 0)
    size = f"{gpus}gpu" if isinstance(gpus, int) and gpus else "share" if gpus or claims.get("vram") else "cpu"
    return f"{engine}-{f'{count}x' if count > 1 else ''}{size}"
