"""Every file in `cases/` is an invalid or unusual fleet file that lists its expected problems at the top.

`# why:` describes the case; each `# expect: FL020 @ 12:5` is a code with its line and column. A case of
several files is a folder: its `fleet.yaml` is loaded, and each file lists its own problems. A new case is a
new file.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.problem import CODES

FOLDER = Path(__file__).parent / "cases"
CASES = sorted([*FOLDER.glob("*.yaml"), *FOLDER.glob("*/fleet.yaml")])
EXPECT = re.compile(r"^# expect: (FL\d{3}) @ (\d+):(\d+)$", re.MULTILINE)
# codes for missing, duplicate, huge and binary files, for huge texts, and for endless rules, which cannot be here: see
# test_sources.py, test_limits.py and test_rule_process.py
NOT_TEXT = {"FL001", "FL002", "FL003", "FL004", "FL005", "FL006", "FL017", "FL019", "FL087", "FL090"}


def name(case: Path) -> str:
    return str(case.relative_to(FOLDER).with_suffix("")).removesuffix("/fleet")


def files(case: Path) -> list[Path]:
    return [case] if case.parent == FOLDER else sorted(case.parent.rglob("*.yaml"))


@pytest.mark.parametrize("case", CASES, ids=name)
def test_a_case_has_exactly_the_problems_it_announces(case: Path) -> None:
    expected = {str(file): [(code, int(line), int(column)) for code, line, column in EXPECT.findall(file.read_text())]
                for file in files(case)}
    found: dict[str, list[tuple[str, int, int]]] = {file: [] for file in expected}
    problems = inspect_fleet([str(case)]).problems
    for problem in problems:
        found[problem.file].append((problem.code, problem.line, problem.column))
    assert found == expected, "\n".join(map(str, problems))
    pydantic = re.compile(r"[Ii]nput should|valid (dictionary|string|integer)|function-|Extra inputs|FromNode\b")
    assert [str(problem) for problem in problems if pydantic.search(str(problem))] == []


def test_every_case_says_what_it_is_about() -> None:
    assert [case.name for case in CASES if not case.read_text().startswith("# why: ")] == []


def test_every_code_has_a_case() -> None:
    shown = {code for case in CASES for file in files(case) for code, _, _ in EXPECT.findall(file.read_text())}
    assert sorted(set(CODES) - shown - NOT_TEXT) == []
    assert sorted(shown & NOT_TEXT) == []
