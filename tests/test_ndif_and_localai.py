"""Behaviors of NDIF's replicas and LocalAI's multi-replica nodes: each has a test here, or a sentence that explains
why not.

`ndif_and_localai.yaml` is the list. N = NDIF's own tests, A = defects of its command line, D = its other defects and
wishes, C = behaviors to match and to beat, and of LocalAI's specifications F = keys and logs, L = labels, M =
replicas on a node, S = the state of a new replica, W = names of processes, V = memory and held slots, R = the
breaker, P = how many replicas are placed.
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "import.md"
LAST = {"N": 12, "A": 7, "D": 12, "C": 37, "F": 7, "L": 2, "M": 6, "S": 4, "W": 8, "V": 9, "R": 6, "P": 6}
WANTED = [f"{part}{n}" for part, last in LAST.items() for n in range(1, last + 1)]
ROWS = yaml.safe_load((TESTS / "ndif_and_localai.yaml").read_text())


def test_the_list_has_every_row() -> None:
    assert list(ROWS) == WANTED


def test_every_row_names_an_existing_test_or_sentence() -> None:
    assert [row for row, one in ROWS.items() if not (one.get("tests") or one.get("docs"))] == []
    page = " ".join(PAGE.read_text().split())
    assert [row for row, one in ROWS.items() if one.get("docs", "") not in page] == []
    assert [f"{row}: {place}" for row, one in ROWS.items() for place in one.get("tests", [])
            if not exists(place)] == []


def exists(place: str) -> bool:
    """Whether a case file or a test function exists."""
    file, _, name = place.partition(":")
    if file.startswith("cases/"):
        return (TESTS / "planner" / f"{file}.yaml").is_file()
    return bool(re.search(rf"^def test_{name}\(", (TESTS / f"{file}.py").read_text(), re.MULTILINE))
