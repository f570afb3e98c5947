"""A cluster's record of its applies, on a real Ray: how each ended, and the shapes that `import` writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from cluster import MARK, eventually
from e2e_world import World, member, model

pytestmark = pytest.mark.ray

SINGLE = model("one", 2, member("--plain", gpus=0.5))
GANG = model("gang", 1, member("--plain", role="Leader", gpus=1), member("--plain", role="Worker", gpus=1), priority=5)
BROKEN = model("broken", 1, member("--plain", "--exit-code", "3", gpus=0.5))


def history(world: World, *arguments: str) -> Any:
    done = world.run("history", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def apply_and_kill_the_agent(world: World) -> None:
    killed = world.run_with("while a constructor waits", "apply", "-f", str(world.file), "--yes", "--parallelism", "1")
    assert killed.returncode == 1, killed.stderr


def assert_running_replicas_are_imported(world: World) -> None:
    """Import the running replicas; with values unknown to the cluster filled in, the plan of the result is empty."""
    imported = world.tmp_path / "imported.yaml"
    done = world.run("import", "-o", imported)
    assert done.returncode == 3, done.stderr
    assert done.stderr.count(f"1 env value unknown to the cluster: {MARK}") == 3
    text = imported.read_text()
    assert world.fleet not in text.replace(f"name: {world.fleet}", "").replace(f"namespace: {world.fleet}", "")
    document = yaml.safe_load(text)
    assert {one["key"]: (one["replicas"], one.get("priority")) for one in document["spec"]["models"]} == {
        "one": (2, None), "gang": (1, 5)}

    world.file = imported
    before = world.plan()
    assert (before["actions"], before["blocked"], before["holds"]) == ([], [], [])
    assert {one["code"] for one in before["drift"]} == {"SPEC_CHANGED"}

    whole = text.replace("env: {}", f"env: {{{MARK}: {world.fleet}}}")
    assert whole.count(MARK) == text.count(MARK) + 3
    imported.write_text(whole)
    after = world.plan()
    assert (after["actions"], after["blocked"], after["drift"]) == ([], [], [])


def test_running_replicas_are_imported_with_an_empty_plan_and_the_history_shows_how_every_run_ended(
    world: World
) -> None:
    file = world.write(SINGLE, GANG)
    assert world.apply().returncode == 0
    assert_running_replicas_are_imported(world)

    world.file = file
    world.write(SINGLE, GANG, BROKEN)
    assert world.apply().returncode == 3
    world.write(SINGLE, GANG, model("late", 1, member("--plain", gpus=0.5)))
    apply_and_kill_the_agent(world)
    assert world.run("evict", "one/1", "--yes").returncode == 0

    eventually(lambda: {job["status"] for job in world.jobs() if job["metadata"]["verb"] == "evict"} == {"SUCCEEDED"},
               "Ray has the end of the eviction, which may be a moment after its last event")
    eventually(lambda: history(world, "--fleet", world.fleet)["runs"][1]["counts"] == {"ready": 1},
               "what the dead agent left starting is told as the cluster has it now")
    recorded = history(world, "--fleet", world.fleet)
    assert [(run["verb"], run["state"], run["code"]) for run in recorded["runs"]] == [
        ("evict", "ok", None), ("apply", "unknown", "DIED"), ("apply", "partial", None), ("apply", "ok", None)]
    evicted, died, partial, complete = recorded["runs"]
    assert (complete["counts"], partial["counts"]) == ({"ready": 3}, {"failed": 1})
    assert (complete["create"], died["counts"], evicted["replica"]) == (3, {"ready": 1}, "one/1")
    assert all(run["startedAt"] <= run["endedAt"] and run["seconds"] >= 0 and run["who"] for run in recorded["runs"])

    shown = history(world, "show", partial["planId"][:12])
    assert [(row["model"], row["outcome"], row["code"]) for row in shown["outcomes"]] == [
        ("broken", "failed", "ENGINE_EXITED")]
    assert [event["type"] for event in shown["events"]][:3] == ["version", "lockAcquired", "planAccepted"]
    assert shown["files"][0]["path"] == str(world.file)
    table = world.run("history", "--fleet", world.fleet)
    assert table.stdout.splitlines()[-1] == "Runs: 2 ok, 1 partial, 1 unknown"

    world.cluster.add_ended_runs(fleet=world.fleet, count=20, days=40, drivers=True)
    assert history(world, "--fleet", world.fleet)["total"] == 24
    pruned = world.run("prune", "-f", world.file, "--runs", "--yes", "--format", "json")
    assert pruned.returncode == 0, pruned.stderr
    assert json.loads(pruned.stdout)["runs"] == [], "of a thousand runs all are kept"
    world.file.write_text(world.file.read_text().replace("spec:", "spec:\n  history: {keepRuns: 1, keepFor: 1h}", 1))
    pruned = world.run("prune", "-f", world.file, "--runs", "--yes", "--format", "json")
    assert pruned.returncode == 0, pruned.stderr
    assert [(row["found"], row["removed"]) for row in json.loads(pruned.stdout)["runs"]] == [(20, 20)]
    now = history(world, "--fleet", world.fleet)
    changed = [(name, run[name], before.get(name)) for run, before in zip(now["runs"], recorded["runs"], strict=True)
               for name in run if run[name] != before.get(name)]
    assert (changed, now) == ([], recorded)
