"""docs/ci.md: its examples use what exists, and its tables match the action."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from action_runner import ROOT, load_action

from fleetctl.forge.forges import dotenv

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
    [[included]] = [block["include"] for block in BLOCKS if isinstance(block, dict) and "include" in block]
    template = ROOT / included["remote"].partition("/COMMIT/")[2]
    declared = next(yaml.safe_load_all(template.read_text()))["spec"]["inputs"]
    assert included["inputs"].keys() == declared.keys()
    assert re.search(declared["image"]["regex"], included["inputs"]["image"].replace("DIGEST", "0" * 64))
    assert not re.search(declared["image"]["regex"], included["inputs"]["image"])


def workflow_jobs() -> list[tuple[str, dict[str, Any]]]:
    """Every job of every workflow on the page."""
    return [(name, job) for block in BLOCKS if isinstance(block, dict)
            for name, job in block.get("jobs", {}).items()]


def test_only_the_apply_gets_the_clusters_token_and_only_from_an_environment() -> None:
    jobs = workflow_jobs()
    assert {name for name, _ in jobs} == {"review", "apply", "drift"}
    for name, job in jobs:
        assert ("RAY_AUTH_TOKEN" in str(job)) == ("environment" in job) == (name == "apply")
        assert ("ray-head" in str(job)) == (name == "apply")
        assert ("FLEET_READER_TOKEN" in str(job)) == (name != "apply")
    assert "http://" not in "".join(re.findall(r"```yaml\n.*?```", PAGE, re.DOTALL))


def test_no_example_starts_a_job_of_a_fork_on_a_runner_of_its_own_or_with_a_secret() -> None:
    [review] = [job for name, job in workflow_jobs() if name == "review"]
    assert "head.repo.full_name == github.repository" in review["if"]
    assert not re.search(r"^ *(pull_request_target|workflow_run):", PAGE, re.MULTILINE)
    [of_forks] = [block for block in BLOCKS if isinstance(block, list) and "gh run download" in str(block)]
    assert "secrets." not in str(of_forks)
    assert "--event push" in str(of_forks)
    assert of_forks[-1]["with"]["inventory"].startswith("${{ runner.temp }}/")


def test_no_checkout_of_the_page_keeps_the_forges_token() -> None:
    checkouts = [step for step in steps(BLOCKS) if step["uses"].startswith("actions/checkout@")]
    assert len(checkouts) == 5
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_the_variables_for_gitlab_are_in_the_environments_of_the_template() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(fleet/\w+)` \| (yes|no) \| (yes|no) \|", PAGE, re.MULTILINE)
    text = (ROOT / "templates" / "gitlab" / "fleetctl.gitlab-ci.yml").read_text()
    assert {place for _, place, _, _ in rows} == set(re.findall(r"environment: \{name: ([^,}]+)", text))
    assert [row for row in rows if row[0] == "RAY_AUTH_TOKEN"] == [
        ("RAY_AUTH_TOKEN", "fleet/read", "no", "yes"), ("RAY_AUTH_TOKEN", "fleet/apply", "yes", "yes"),
        ("RAY_AUTH_TOKEN", "fleet/rollout", "yes", "yes")]
    assert {place for name, place, _, _ in rows if name == "GITLAB_TOKEN"} == {"fleet/read"}
