"""The sources of the token in Ray's order; the token is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.errors import InventoryError
from fleetctl.inventory.access import find_token


def home_with(tmp_path: Path, text: str) -> Path:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text(text)
    return tmp_path


def test_without_any_source_there_is_no_token(tmp_path: Path):
    assert find_token({}, tmp_path) is None


def test_the_variable_wins_over_the_named_file_and_that_over_the_default(tmp_path: Path):
    home = home_with(tmp_path, "from-home\n")
    named = tmp_path / "token"
    named.write_text("  from-file\n")
    both = {"RAY_AUTH_TOKEN": " from-variable ", "RAY_AUTH_TOKEN_PATH": str(named)}
    assert find_token(both, home) == "from-variable"
    assert find_token({**both, "RAY_AUTH_TOKEN": ""}, home) == "from-file"
    assert find_token({}, home) == "from-home"


def test_a_named_token_file_that_does_not_exist_is_an_error_and_ends_the_search(tmp_path: Path):
    home = home_with(tmp_path, "from-home")
    with pytest.raises(InventoryError, match="missing cannot be read: No such file"):
        find_token({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "missing")}, home)


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_token_file_is_an_error(tmp_path: Path, text: str):
    with pytest.raises(InventoryError, match="is empty"):
        find_token({}, home_with(tmp_path, text))


@pytest.mark.parametrize("token", ["two words", "two\nlines", "schl\u00fcssel", "bell\x07"])
def test_a_token_that_is_invalid_in_a_header_is_refused_without_showing_it(tmp_path: Path, token: str):
    with pytest.raises(InventoryError) as caught:
        find_token({"RAY_AUTH_TOKEN": token}, tmp_path)
    assert token not in caught.value.message
