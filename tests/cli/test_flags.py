from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.entry import run
from fleetctl.cli.flags import duration


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("500ms", 0.5), (0.0, 0)])
def test_a_duration_is_parsed_as_seconds(text: str | float, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "1 h", "soon", "-3s"])
def test_an_invalid_duration_is_a_usage_error_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="30s"):
        duration(text)


def test_a_duration_that_is_too_long_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="'31d' is longer than 30d"):
        duration("31d")


def test_model_keys_complete_from_the_files_named_so_far(fleet_file: Path) -> None:
    context = SimpleNamespace(params={"files": [str(fleet_file)]})
    assert complete_model_keys(context, "org/") == ["org/one", "org/two"]
    assert complete_model_keys(context, "org/t") == ["org/two"]


def test_bare_help_fits_a_terminal_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([]) == 64
    assert max(map(len, capsys.readouterr().err.splitlines())) <= 80


@pytest.mark.parametrize("files", [None, [], ["-"], ["/nowhere"], [7]])
def test_completion_never_raises(files: object) -> None:
    assert complete_model_keys(SimpleNamespace(params={"files": files}), "") == []
