from __future__ import annotations

import io

import pytest
from rich.console import Console

from fleetctl.problem import Problem
from fleetctl.render.problems import render_problems

PROBLEM = Problem("FL020", "unknown key 'replica'", "fleets/a.yaml", 7, 5, allowed="key, replicas",
                  suggestion="replicas", source_line="    replica: 3")


def printed(problem: Problem, **console: object) -> str:
    out = io.StringIO()
    render_problems([problem], Console(file=out, width=80, **console))
    return out.getvalue()


def test_a_problem_starts_with_a_position_an_editor_can_open() -> None:
    assert printed(PROBLEM).splitlines() == [
        "fleets/a.yaml:7:5: error FL020: unknown key 'replica'",
        "    allowed: key, replicas",
        "    did you mean replicas?",
    ]


def test_a_terminal_shows_the_line_and_points_at_the_column() -> None:
    lines = printed(PROBLEM, force_terminal=True, color_system=None).splitlines()
    assert lines[1] == "        replica: 3"
    assert lines[2].index("^") == 4 + 5 - 1


@pytest.mark.parametrize(("column", "begins", "ends"), [(5, "        key: x", "…"), (100, "    …", "…"),
                                                        (195, "    …", "xyz")])
def test_a_long_line_is_cut_around_its_column_to_fit_the_window(column: int, begins: str, ends: str) -> None:
    line = "    key: " + "x" * 188 + "xyz"
    problem = Problem("FL020", "no", "f.yaml", 7, column, source_line=line)
    _, excerpt, pointer = printed(problem, force_terminal=True, color_system=None).splitlines()
    assert excerpt.startswith(begins)
    assert excerpt.endswith(ends)
    assert max(len(excerpt), len(pointer)) <= 80
    assert f"{line} "[column - 1] == f"{excerpt} "[pointer.index("^")]


def test_allowed_values_are_one_line_in_a_log_and_wrap_with_an_indent_on_a_terminal() -> None:
    allowed = ", ".join(f"FLEETCTL_NAME_{number}" for number in range(12))
    problem = Problem("FL020", "no", "f.yaml", 7, 5, allowed=allowed)
    assert printed(problem).splitlines()[1:] == [f"    allowed: {allowed}"]
    lines = printed(problem, force_terminal=True, color_system=None).splitlines()[1:]
    assert len(lines) > 2
    assert all(line.startswith("    ") and len(line) <= 80 and line == line.rstrip() for line in lines)
    assert " ".join(line.strip() for line in lines) == f"allowed: {allowed}"


def test_a_message_cannot_control_the_terminal() -> None:
    assert "\x1b" not in printed(Problem("FL020", "\x1b[2J", "f\x1b.yaml", 1, 1))
