"""Shapes of a draft: what many of its models run in the same way is written once, and each of them names it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from fleetctl.documents.canonical import canonical_json
from fleetctl.importers.draft import Draft, Mapping

WORTH_IT = 3
"""Models with equal workers from which on a shape makes a file shorter to read."""


def shared_shapes(draft: Draft) -> tuple[Mapping, list[Mapping]]:
    """Return the shapes of a draft by name, and its models, of which those with equal workers name one.

    A model with a comment inside its workers keeps them, and with them the place of the comment.
    """
    commented = {loss.model for loss in draft.losses if loss.home[:1] == ("workers",)}
    alike: defaultdict[bytes, list[int]] = defaultdict(list)
    for index, model in enumerate(draft.models):
        if model.key not in commented and model.value.get("workers"):
            alike[canonical_json(model.value["workers"])].append(index)
    shapes: Mapping = {}
    models = [model.value for model in draft.models]
    for indices in alike.values():
        if len(indices) < WORTH_IT:
            continue
        workers = models[indices[0]]["workers"]
        name = _new_name(_name(workers), shapes)
        shapes[name] = {"workers": workers}
        for index in indices:
            models[index] = {key: value for key, value in models[index].items() if key != "workers"} | {"shape": name}
    return shapes, models


def _name(workers: list[dict[str, Any]]) -> str:
    """Return what the first member is, in short: `vllm-2gpu`, `sglang-2x8gpu`, `serve-share`, `serve-cpu`."""
    members = workers[0].get("members") or [{}]
    command = str((members[0].get("engine", {}).get("command") or ["engine"])[0]).rpartition("/")[2]
    engine = re.sub("[^a-z0-9]+", "-", command.lower()).strip("-")[:40].strip("-") or "engine"
    claims, count = members[0].get("resources", {}), sum(member.get("count", 1) for member in members)
    gpus = claims.get("gpus", 0)
    size = f"{gpus}gpu" if isinstance(gpus, int) and gpus else "share" if gpus or claims.get("vram") else "cpu"
    return f"{engine}-{f'{count}x' if count > 1 else ''}{size}"


def _new_name(name: str, taken: Mapping) -> str:
    return next(one for one in (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3))) if one not in taken)
