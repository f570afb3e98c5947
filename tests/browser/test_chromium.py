"""The choice of the browser, and that CI cannot skip these tests silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.chromium import find_chromium
from tests.external_programs import must_not_be_skipped


def program(folder: Path, name: str) -> str:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_named_browser_wins(tmp_path: Path) -> None:
    program(tmp_path, "chromium")
    named = program(tmp_path, "my-chrome")
    assert find_chromium({"PATH": str(tmp_path), "FLEETCTL_CHROMIUM": named}) == named


def test_without_a_named_browser_the_first_on_the_path_is_used(tmp_path: Path) -> None:
    chrome = program(tmp_path, "google-chrome")
    assert find_chromium({"PATH": str(tmp_path)}) == chrome
    chromium = program(tmp_path, "chromium")
    assert find_chromium({"PATH": str(tmp_path)}) == chromium


def test_a_wrong_name_is_not_replaced_by_another_browser(tmp_path: Path) -> None:
    program(tmp_path, "chromium")
    assert find_chromium({"PATH": str(tmp_path), "FLEETCTL_CHROMIUM": str(tmp_path / "gone")}) is None


@pytest.mark.parametrize(("value", "fails"), [
    ("true", True), ("1", True), ("", False), ("false", False), (None, False)])
def test_in_ci_a_missing_browser_is_a_failure(value: str | None, fails: bool) -> None:
    assert must_not_be_skipped({} if value is None else {"CI": value}) is fails
