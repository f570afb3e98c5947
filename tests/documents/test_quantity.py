from __future__ import annotations

from typing import Any

import pytest
from pydantic_core import PydanticCustomError

from fleetctl.documents.quantity import (
    format_bytes,
    format_price,
    format_share,
    parse_bytes,
    parse_cpus,
    parse_duration,
    parse_gpus,
    parse_price,
    version_numbers,
)


@pytest.mark.parametrize(("text", "count"), [
    ("16Gi", 16 << 30), ("16384Mi", 16 << 30), ("500M", 500_000_000), ("1k", 1000), ("1.5Ki", 1536), (1024, 1024),
    ("0", 0), ("1e3", 1000), ("0.1Ki", 103), ("1Pi", 1 << 50),
])
def test_bytes_are_read_as_in_kubernetes(text: Any, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["16GB", "16 Gi", "-1", -1, "", "Gi", True, 1.5, None, [], "1K", "9" * 50, "nan"])
def test_invalid_bytes_are_refused(text: Any) -> None:
    with pytest.raises(PydanticCustomError):
        parse_bytes(text)


@pytest.mark.parametrize(("value", "share"), [
    (0, 0), (1, 10_000), (0.25, 2500), (0.0001, 1), (8, 80_000), (2.0, 20_000),
])
def test_gpus_are_a_share_of_one_card_or_whole_cards(value: Any, share: int) -> None:
    assert parse_gpus(value) == share


@pytest.mark.parametrize("value", [1.5, 0.00001, -1, True, "1", float("nan"), float("inf"), 10_000_000, None])
def test_gpus_that_no_cards_add_up_to_are_refused(value: Any) -> None:
    with pytest.raises(PydanticCustomError):
        parse_gpus(value)


@pytest.mark.parametrize(("value", "share"), [(2, 20_000), ("500m", 5000), ("0.5", 5000), (1.25, 12_500), ("1m", 10)])
def test_cpus_are_read_as_in_kubernetes(value: Any, share: int) -> None:
    assert parse_cpus(value) == share


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("1h30m", 5400), ("500ms", 0.5), ("1d", 86_400), ("0s", 0)])
def test_durations_are_read_in_seconds_with_their_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert isinstance(parse_duration(text), int) == (seconds == int(seconds))


@pytest.mark.parametrize("text", [30, "30", "s", "1h 30m", "-1s", "31d", None, True, "1w"])
def test_invalid_durations_are_refused(text: Any) -> None:
    with pytest.raises(PydanticCustomError):
        parse_duration(text)


def test_amounts_are_shown_in_readable_units() -> None:
    assert [format_bytes(count) for count in (16 << 30, 23034 << 20, 1536, 500)] == ["16Gi", "22.49Gi", "1.50Ki", "500"]
    assert [format_share(share) for share in (10_000, 2500, 1, 80_000)] == ["1", "0.25", "0.0001", "8"]


@pytest.mark.parametrize(("text", "numbers"), [
    ("2.60.0", (2, 60, 0)), ("2.60.0rc1", (2, 60, 0)), ("0.1.0+local", (0, 1, 0)), ("3.0.0.dev0", (3, 0, 0)),
    ("4", (4,)), ("nightly", ()), ("", ()),
])
def test_versions_are_compared_by_the_numbers_they_begin_with(text: str, numbers: tuple[int, ...]) -> None:
    assert version_numbers(text) == numbers


@pytest.mark.parametrize(("value", "micro"), [
    (0, 0), (12.5, 12_500_000), (0.1, 100_000), (0.000001, 1), (7, 7_000_000), (1e9, 10 ** 15),
    (4.56789, 4_567_890), (-0.0, 0),
])
def test_prices_are_exact_to_a_millionth(value: Any, micro: int) -> None:
    assert parse_price(value) == micro


@pytest.mark.parametrize("value", ["12.5", "$3", True, None, [], -1, -0.01, float("nan"), float("inf"), 0.0000001,
                                   1_000_000_001, 10 ** 50, 1e300])
def test_prices_that_cost_nothing_sensible_are_refused(value: Any) -> None:
    with pytest.raises(PydanticCustomError):
        parse_price(value)


@pytest.mark.parametrize(("micro", "text"), [
    (0, "0"), (12_500_000, "12.5"), (52_000_000, "52"), (3_333_333, "3.33"), (9_999_999, "10"), (83_333, "0.08333"),
    (1, "0.000001"), (123_456_789_012, "123456.79"), (-7_500_000, "-7.5"), (999_999, "1"), (100_000_000, "100"),
])
def test_prices_are_written_without_noise(micro: int, text: str) -> None:
    assert format_price(micro) == text
