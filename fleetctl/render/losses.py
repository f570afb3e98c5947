"""Import losses, changes and tasks left to do: one line each that editors can jump to, or one JSON document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from fleetctl.importers.draft import Draft, Loss
from fleetctl.problem import Problem
from fleetctl.render.visible import visible

STYLES = {"lost": "bold red", "todo": "bold yellow", "changed": "cyan"}


def render_losses(losses: Sequence[Loss], console: Console) -> None:
    """Print each loss as `file:line:column: kind: field: message`, or `kind: path: message` if it has no place."""
    for loss in losses:
        place = f"{visible(str(loss.place))}: " if loss.place else ""
        subject = loss.field if loss.place else loss.path
        about = f"{visible(subject)}: " if subject else ""
        console.print(Text.assemble((place, "bold"), (loss.kind, STYLES[loss.kind]), ": ", (about, "dim"),
                                    visible(loss.message)), soft_wrap=True)


def render_import_json(draft: Draft, file: str | None, problems: Sequence[Problem]) -> str:
    """Return models, losses and problems of an import as JSON; `file` is the fleet file that was written."""
    document = {
        "fleet": draft.name, "file": file, "partial": draft.partial or bool(problems),
        "models": [{"key": model.key, "replicas": model.value.get("replicas"), **_place(model.place)}
                   for model in draft.models],
        "losses": [{"kind": loss.kind, "model": loss.model, **_place(loss.place), "path": loss.path,
                    "message": loss.message} for loss in draft.losses],
        "problems": [problem.as_json() for problem in problems],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _place(place: Any) -> dict[str, Any]:  # noqa: ANN401 (a Position or None)
    return {"source": place.model_dump() if place else None}
