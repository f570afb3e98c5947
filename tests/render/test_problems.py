from __future__ import annotations

import io

from rich.console import Console

from fleetctl.problem import Problem
from fleetctl.render.problems import render_problems

PROBLEM = Problem("FL020", "unknown key 'replica'", "fleets/a.yaml", 7, 5, allowed="key, replicas",
                  suggestion="replicas", source_line="    replica: 3")


def shown(problem: Problem, **console: object) -> str:
    out = io.StringIO()
    render_problems([problem], Console(file=out, width=80, **console))
    return out.getvalue()


def test_a_problem_starts_with_a_place_an_editor_can_jump_to() -> None:
    assert shown(PROBLEM).splitlines() == [
        "fleets/a.yaml:7:5: error FL020: unknown key 'replica'",
        "    allowed: key, replicas",
        "    did you mean replicas?",
    ]


def test_a_terminal_shows_the_line_and_points_at_the_column() -> None:
    lines = shown(PROBLEM, force_terminal=True, color_system=None).splitlines()
    assert lines[1] == "        replica: 3"
    assert lines[2].index("^") == 4 + 5 - 1


def test_a_message_cannot_command_the_terminal() -> None:
    assert "\x1b" not in shown(Problem("FL020", "\x1b[2J", "f\x1b.yaml", 1, 1))
