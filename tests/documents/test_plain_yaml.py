from __future__ import annotations

import math

import pytest

from fleetctl.documents.plain_yaml import resolve_plain


@pytest.mark.parametrize(("text", "value"), [
    ("", None), ("~", None), ("null", None), ("NULL", None), ("true", True), ("False", False),
    ("0", 0), ("-12", -12), ("+3", 3), ("010", 10), ("0o17", 15), ("0x1F", 31),
    ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("-2.5E-1", -0.25),
    (".inf", math.inf), ("-.INF", -math.inf),
])
def test_values_are_read_as_in_yaml_1_2(text: str, value: object) -> None:
    resolved = resolve_plain(text)
    assert resolved == value
    assert type(resolved) is type(value)


@pytest.mark.parametrize("text", [
    "on", "off", "yes", "No", "y", "nUll", "tRue", "12:30", "1_000", "0b11", "2024-01-02", "1.2.3", "+", "-", ".", "-a",
    "0x", "0xg", "1e", "e3", "=", "<<",
])
def test_words_with_a_special_meaning_in_yaml_1_1_are_text(text: str) -> None:
    assert resolve_plain(text) == text


def test_nan_is_read_as_a_number() -> None:
    resolved = resolve_plain(".nan")
    assert isinstance(resolved, float)
    assert math.isnan(resolved)


def test_excessively_long_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="5000 characters"):
        resolve_plain("9" * 5000)
