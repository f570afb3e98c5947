"""The tour: it shows each command, and fails on an unexpected exit code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fleetctl.demo.tour import Stop, Tour, demo_fleet, stops_after_asking, stops_before_asking
from fleetctl.errors import FleetctlError

ROOT = Path(__file__).parents[2]
EXIT_WITH = [sys.executable, "-c", "import sys; sys.exit(int(sys.argv[1]) + len(sys.stdin.read()))"]


def tour_to(lines: list[str]) -> Tour:
    return Tour(EXIT_WITH, {}, lines.append)


def test_a_stop_shows_its_command_and_exit_code() -> None:
    lines: list[str] = []
    tour_to(lines).visit(Stop("Plan", "Why.", ("3",), expect=3, stdin=""))
    assert lines[1] == "$ fleetctl 3"
    assert lines[2].startswith("(exit code 3: partial")


def test_piped_input_arrives_and_is_shown() -> None:
    lines: list[str] = []
    tour_to(lines).visit(Stop("Plan", "Why.", ("1",), expect=3, piped="sed p file | ", stdin="ab"))
    assert lines[1] == "$ sed p file | fleetctl 1"


def test_an_unexpected_exit_code_ends_the_tour() -> None:
    with pytest.raises(FleetctlError, match="exit code 1; the tour expects 0"):
        tour_to([]).visit(Stop("Plan", "Why.", ("1",), stdin=""))


def test_the_path_of_the_fleet_is_shown_as_a_user_types_it() -> None:
    assert demo_fleet(ROOT) == "fleets/demo.yaml"
    assert Path(demo_fleet(Path("/elsewhere"))).is_absolute()


def test_the_stop_for_lower_targets_lowers_them() -> None:
    text = (ROOT / "fleets" / "demo.yaml").read_text()
    less = next(stop.stdin for stop in stops_after_asking("f", text) if stop.stdin)
    assert less != text
    assert "replicas: 3" not in less


def test_only_the_apply_is_expected_to_be_partial() -> None:
    stops = [*stops_before_asking("f"), *stops_after_asking("f", "")]
    assert [stop.arguments[0] for stop in stops if stop.expect] == ["apply"]
