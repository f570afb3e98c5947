"""Small fleet files for the tests of this folder."""

from __future__ import annotations

import textwrap
from pathlib import Path

from fleetctl.fleetfile.load import load_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet

HEAD = "apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: lab}\nspec:\n"


def model(key: str = "m", **more: str) -> str:
    """One valid model as text; `more` are additional keys as YAML."""
    lines = [f"  - key: {key}", *(f"    {name}: {value}" for name, value in {"replicas": "1", **more}.items())]
    if "workers" not in more:
        lines += ["    workers:", "    - name: main", "      members:",
                  "      - {resources: {gpus: 1}, engine: {command: [serve]}}"]
    return "\n".join(lines) + "\n"


def fleet(*models: str, spec: str = "") -> str:
    """A whole document; `spec` is text before `models`."""
    return HEAD + textwrap.indent(textwrap.dedent(spec), "  ") + "  models:\n" + "".join(models or (model(),))


def loaded(folder: Path, *texts: str) -> ResolvedFleet:
    """Write the texts as files of one fleet and load it."""
    paths = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.yaml"
        path.write_text(text)
        paths.append(str(path))
    return load_fleet(paths)
