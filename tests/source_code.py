"""The source files of fleetctl, for tests that read code; each file is parsed once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fleetctl"


@cache
def sources(folder: Path = PACKAGE) -> tuple[Path, ...]:
    """All Python files below a folder, in order."""
    return tuple(sorted(folder.rglob("*.py")))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file's tree."""
    return tuple(ast.walk(parsed(path)))


def place(path: Path, line: int) -> str:
    """`cli/plan.py:12`, the form in which offenders are listed."""
    return f"{path.relative_to(PACKAGE)}:{line}"


def listed(rule: str, offenders: list[str]) -> str:
    """The message of a failed test: the rule, and every offender on a line of its own."""
    return "\n".join([rule, *offenders])
