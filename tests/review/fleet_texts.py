"""Fleet files as text, for the tests of this folder."""

from __future__ import annotations

import json
import textwrap
from typing import Any

HEAD = "apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: lab}\nspec:\n"
SECRET = "hunter2-secret"


def model(key: str = "org/a", **more: Any) -> str:
    """One model as text: a Standalone with one GPU; `more` sets other keys to any JSON value."""
    document = {"key": key, "replicas": 1, "workers": [
        {"name": "main", "members": [{"resources": {"gpus": 1, "vram": "16Gi"}, "engine": engine(key)}]}]}
    if "variants" in more:
        del document["workers"]
    return _item({**document, **more})


def engine(key: str = "org/a", **more: Any) -> dict[str, Any]:
    return {"command": ["serve", key], "args": ["--port", "$(FLEETCTL_PORT)", "--len", "8192"],
            "env": {"TOKEN": SECRET, "FROM": {"fromNode": "HF_TOKEN"}}, "readiness": {"http": {"path": "/health"}},
            **more}


def member(role: str = "Standalone", **more: Any) -> dict[str, Any]:
    return {"role": role, "resources": {"gpus": 1}, "engine": engine(), **more}


def group(name: str = "main", *members: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, **more, "members": list(members) or [member()]}


def fleet(*models: str, spec: str = "", replicas: int | None = None) -> str:
    """A document of models as text, or of one model by its key; `spec` is text before the models."""
    texts = [model(one, replicas=replicas or 1) if "\n" not in one else one for one in models]
    return HEAD + textwrap.indent(textwrap.dedent(spec), "  ") + "  models:\n" + "".join(texts)


def _item(document: dict[str, Any]) -> str:
    lines = [f"{key}: {json.dumps(value)}" for key, value in document.items()]
    return "".join(f"  {'- ' if number == 0 else '  '}{line}\n" for number, line in enumerate(lines))
