"""docs/import.md shows real output, and lists everything that can be imported."""

from __future__ import annotations

import io
from pathlib import Path

from import_cases import FOLDER, imported, sources
from rich.console import Console

from fleetctl.importers.draft import PLACEHOLDER
from fleetctl.importers.ndif import _LOST
from fleetctl.importers.read import KINDS, WORDS
from fleetctl.render.problems import render_losses

PAGE = (Path(__file__).parents[2] / "docs" / "import.md").read_text(encoding="utf-8")
CASE = FOLDER / "the-page"


def test_the_example_on_the_page_is_the_real_output() -> None:
    assert (CASE / "llama.yaml").read_text() in PAGE
    assert CASE.with_suffix(".fleet.yaml").read_text() in PAGE
    output = io.StringIO()
    render_losses(imported(sources(CASE)).draft.losses, Console(file=output, width=500))
    assert output.getvalue() in PAGE


def test_every_kind_of_source_and_the_placeholder_are_on_the_page() -> None:
    assert set(KINDS) == set(WORDS)
    assert [word for word in (*KINDS, PLACEHOLDER) if f"`{word}`" not in PAGE] == []
    assert [field for field in _LOST if f"`{field}`" not in PAGE] == []
