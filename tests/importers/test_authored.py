"""A recorded shape is written as in a hand-written file, with exactly the same meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.documents.fleet import Lifecycle
from fleetctl.documents.quantity import (
    MAX_BYTES,
    MAX_SECONDS,
    parse_bytes,
    parse_cpus,
    parse_duration,
    parse_gpus,
    share_number,
)
from fleetctl.importers.draft import (
    authored_lifecycle,
    authored_resources,
    bytes_text,
    duration_text,
)


@given(st.integers(0, MAX_BYTES))
def test_written_bytes_are_read_unchanged(count: int) -> None:
    assert parse_bytes(bytes_text(count)) == count


@given(st.integers(0, 1_000_000))
def test_written_gpu_amounts_are_read_unchanged(share: int) -> None:
    assert parse_cpus(share_number(share)) == share


@given(st.integers(0, 10_000))
def test_written_shares_of_a_card_are_read_unchanged(share: int) -> None:
    assert parse_gpus(share_number(share)) == share


@given(st.integers(0, MAX_SECONDS) | st.integers(0, 10_000_000).map(lambda milli: milli / 1000))
def test_written_durations_are_read_unchanged(seconds: float) -> None:
    assert parse_duration(duration_text(seconds)) == seconds


@pytest.mark.parametrize(("found", "written"), [
    (bytes_text(16 << 30), "16Gi"), (bytes_text(1_500_000), 1_500_000), (bytes_text(0), 0),
    (duration_text(900), "15m"), (duration_text(900.0), "15m"), (duration_text(90), "90s"), (duration_text(0), "0s"),
    (duration_text(7200), "2h"), (duration_text(0.2), "0.2s"), (share_number(10_000), 1), (share_number(2_500), 0.25),
])
def test_amounts_are_written_in_readable_units(found: object, written: object) -> None:
    assert found == written


def test_cards_come_first_among_resources() -> None:
    recorded = {"cpus": 20_000, "gpus": 10_000, "memory": 8 << 30, "vram": 16 << 30}
    assert list(authored_resources(recorded).items()) == [
        ("gpus", 1), ("vram", "16Gi"), ("cpus", 2), ("memory", "8Gi")]


def test_defaults_are_not_written() -> None:
    usual = Lifecycle(startup_timeout=1800, scheduling_timeout=60, restart_max=5, restart_backoff=10)
    assert authored_lifecycle(usual, 0) == {}
    other = usual.model_copy(update={"restart_max": 0, "scheduling_timeout": 1.5})
    assert authored_lifecycle(other, -3) == {"priority": -3, "schedulingTimeout": "1.5s", "restart": {"max": 0}}
