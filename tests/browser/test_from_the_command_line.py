"""The page as a user makes it: one command writes the page and JSON with the same content."""

from __future__ import annotations

import json
from pathlib import Path

from tests.browser.conftest import OpenPage
from tests.browser.reading import cells, replicas, totals
from tests.conftest import RunCli


def test_plan_writes_the_page_with_the_whole_fleet(
    open_page: OpenPage, run_cli: RunCli, fleet_file: Path, snapshot_file: Path, tmp_path: Path
) -> None:
    done = run_cli("plan", "-f", fleet_file, "--inventory", snapshot_file, "--format", "json",
                   "--report", f"html={tmp_path / 'plan.html'}")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    page = open_page((tmp_path / "plan.html").read_text(encoding="utf-8"))
    read = totals(page)
    assert {name: read[name] for name in plan["summary"]} == plan["summary"]
    assert replicas(page, "new") == {action["id"] for action in plan["actions"]}
    assert cells(page, "before") == {"node-a": ["·"] * 8, "node-b": ["·"] * 8}
    assert page.locator("main").get_attribute("data-exit-code") == str(plan["exitCode"])
    assert "hush-hush" not in page.content()


def test_a_saved_plan_has_a_page_too(
    open_page: OpenPage, run_cli: RunCli, fleet_file: Path, snapshot_file: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "lab.fleetplan"
    assert run_cli("plan", "-f", fleet_file, "--inventory", snapshot_file, "--out", saved).returncode == 0
    done = run_cli("show", saved, "--format", "html")
    assert done.returncode == 0, done.stderr
    page = open_page(done.stdout)
    assert replicas(page, "new") == {action["id"] for action in json.loads(saved.read_text())["actions"]}
    assert "Made from the plan alone" in page.locator("#map").inner_text()
    assert "hush-hush" not in page.content()
