"""Every file in `cases/` is a broken (or merely odd) fleet file that says at its top what must be found in it.

`# why:` says what the case is about; each `# expect: FL020 @ 12:5` is a code with its line and column. A new case is a
new file.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleetctl.spec.load import inspect_fleet
from fleetctl.spec.problems import CODES

CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))
EXPECT = re.compile(r"^# expect: (FL\d{3}) @ (\d+):(\d+)$", re.MULTILINE)
# what a text file in this folder cannot show: files that are missing, doubled, huge or no text; see test_sources.py
NOT_TEXT = {"FL001", "FL002", "FL003", "FL004", "FL005", "FL006", "FL017", "FL019"}


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_a_case_has_exactly_the_problems_it_announces(case: Path) -> None:
    expected = [(code, int(line), int(column)) for code, line, column in EXPECT.findall(case.read_text())]
    found = inspect_fleet([str(case)]).problems
    assert [(problem.code, problem.line, problem.column) for problem in found] == expected, "\n".join(map(str, found))


def test_every_case_says_what_it_is_about() -> None:
    assert [case.name for case in CASES if not case.read_text().startswith("# why: ")] == []


def test_every_code_has_a_case() -> None:
    shown = {code for case in CASES for code, _, _ in EXPECT.findall(case.read_text())}
    assert sorted(set(CODES) - shown - NOT_TEXT) == []
    assert sorted(shown & NOT_TEXT) == []


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_no_message_speaks_pydantic(case: Path) -> None:
    for problem in inspect_fleet([str(case)]).problems:
        assert not re.search(r"[Ii]nput should|valid (dictionary|string|integer)|function-|Extra inputs|FromNode\b",
                             str(problem))
