"""The pages about the command line name what the code has."""

from __future__ import annotations

import re
from pathlib import Path

from fleetctl import errors

ROOT = Path(__file__).parent.parent.parent
INTERNAL = {"FLEETCTL_FAILED"}  # the word the agent's start script ends with, not a variable


def test_every_variable_of_ours_is_documented() -> None:
    used: set[str] = set()
    for path in [*(ROOT / "fleetctl").rglob("*.py"), *(ROOT / "fleetctl").rglob("*.sh")]:
        used |= set(re.findall(r"FLEETCTL_[A-Z_]*[A-Z]", path.read_text(encoding="utf-8")))
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    assert {name for name in used if f"`{name}`" not in page} <= INTERNAL


def test_every_exit_code_of_an_error_is_documented() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    codes = {value.exit_code for value in vars(errors).values()
             if isinstance(value, type) and issubclass(value, errors.FleetctlError)}
    assert [code for code in sorted(codes) if f"\n| {code} | " not in page] == []


def test_every_flag_of_plan_is_on_its_page() -> None:
    source = (ROOT / "fleetctl" / "cli" / "options.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    flags = set(re.findall(r'"(--[a-z-]+)"', source)) - {
        "--file", "--yes", "--parallelism", "--lock-timeout", "--wait-timeout",
    }
    assert [flag for flag in sorted(flags) if flag not in page] == []
