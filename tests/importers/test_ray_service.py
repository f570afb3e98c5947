"""A Serve config inside a RayService is read like a separate file, and its losses have their places."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from import_cases import FOLDER, imported, sources

from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.draft import Loss

HEAD = "apiVersion: ray.io/v1\nkind: RayService\nspec:\n  serveConfigV2: |\n"
CONFIGS = sorted(path for path in FOLDER.iterdir() if path.is_dir() and path.name.startswith("serve"))


def moved(loss: Loss) -> Loss:
    """Return a loss of a separate config as reported for the config inside HEAD."""
    assert loss.place is not None
    place = loss.place.model_copy(update={"line": loss.place.line + 4, "column": loss.place.column + 4})
    return replace(loss, place=place, path=f"spec.serveConfigV2.{loss.path}")


@pytest.mark.parametrize("case", CONFIGS, ids=lambda case: case.name)
def test_a_config_means_the_same_inside_a_ray_service(case: Path) -> None:
    (alone,) = sources(case)
    text = HEAD + textwrap.indent(alone.data.decode(), "    ")
    found, inside = imported([alone]).draft, imported([SourceBytes(alone.file, text.encode())]).draft
    assert [model.value for model in inside.models] == [model.value for model in found.models]
    assert inside.losses == [moved(loss) for loss in found.losses]


@pytest.mark.parametrize("text", ["", "applications: [", "hello", "a: 1\n---\nb: 2\n", "- 1"])
def test_text_that_is_not_a_config_is_reported_at_its_service(text: str) -> None:
    source = SourceBytes("a.yaml", (HEAD.replace("|\n", "") + repr(text).replace("'", '"') + "\n").encode())
    losses = imported([source]).draft.losses
    assert [loss.kind for loss in losses] == ["lost"]
    assert losses[0].path in ("", "spec.serveConfigV2")


def test_a_config_that_is_not_yaml_is_reported_with_its_line() -> None:
    source = SourceBytes("a.yaml", (HEAD + "    applications:\n    - {name: {{ .Values.name }}}\n").encode())
    assert "line 6" in imported([source]).draft.losses[0].message
