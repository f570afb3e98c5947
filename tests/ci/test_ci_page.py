"""docs/ci.md: its examples use what exists, and its tables match the action."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from action_runner import ROOT, load_action

from fleetctl.forge.change import dotenv

PAGE = (Path(ROOT) / "docs" / "ci.md").read_text(encoding="utf-8")
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def steps(value: Any) -> list[dict[str, Any]]:
    """Every step of a workflow or of a part of it."""
    if isinstance(value, dict):
        return ([value] if "uses" in value else []) + [step for inner in value.values() for step in steps(inner)]
    return [step for inner in value for step in steps(inner)] if isinstance(value, list) else []


def table(heading: str) -> dict[str, list[str]]:
    """The rows of the table with this first column title, by the names in their first cell."""
    rows = re.search(rf"^\| {heading} \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert rows
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[1].splitlines()]
    return {name: row for row in cells for name in re.findall(r"`([^`]+)`", row[0])}


def test_every_example_uses_existing_inputs_of_the_action() -> None:
    inputs = load_action()["inputs"]
    used = [step for step in steps(BLOCKS) if step["uses"].startswith("YOUR-ORG/fleetctl@")]
    assert len(used) > 5
    for step in used:
        assert step["with"].keys() <= inputs.keys(), step


def test_every_example_uses_existing_outputs_of_the_action() -> None:
    named = set(re.findall(r"steps\.fleet\.outputs\.([a-z_]+)", PAGE))
    assert named
    assert named <= load_action()["outputs"].keys()


def test_the_tables_list_the_inputs_and_outputs_of_the_action() -> None:
    action = load_action()
    assert table("input").keys() == action["inputs"].keys()
    assert table("output").keys() == action["outputs"].keys()
    for name, row in table("input").items():
        default = action["inputs"][name]["default"]
        if default and "${{" not in default:
            assert row[1] == f"`{default}`"


def test_no_gitlab_output_is_an_input_of_a_later_job() -> None:
    inputs = {name for path in (ROOT / "fleetctl").rglob("*.py")
              for name in re.findall(r'"(FLEETCTL_[A-Z_]+)"', path.read_text(encoding="utf-8"))}
    assert "FLEETCTL_REPORTS" in inputs
    written = {line.partition("=")[0] for line in dotenv(dict.fromkeys(load_action()["outputs"], "")).splitlines()}
    assert len(written) == 6
    assert written & inputs == set()
    assert written == set(re.findall(r"`(FLEETCTL_OUT_[A-Z_]+)`", PAGE))


def test_the_hooks_and_the_template_of_the_examples_exist() -> None:
    hooks = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    [example] = [block for block in BLOCKS if isinstance(block, dict) and "repos" in block]
    assert {hook["id"] for hook in example["repos"][0]["hooks"]} == hooks
    [included] = [block["include"] for block in BLOCKS if isinstance(block, dict) and "include" in block]
    assert (ROOT / included[0]["remote"].partition("/v1/")[2]).is_file()
