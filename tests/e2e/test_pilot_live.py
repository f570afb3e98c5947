"""Pilots on a real Ray: one failure instead of forty, and one replica, then all others, in one apply."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from cluster import eventually
from e2e_world import World, member, model
from test_failing_engines import failing_while

pytestmark = pytest.mark.ray

SHARE = 0.1


def write(world: World, *models: dict[str, Any], **pilot: int) -> None:
    document = yaml.safe_load(world.write(*models).read_text())
    document["spec"]["policy"] = {"pilot": pilot}
    world.file.write_text(yaml.safe_dump(document))


def rows(summary: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(row["outcome"], row.get("code"), row["replicas"]) for row in summary["outcomes"]]


def test_of_forty_replicas_with_a_wrong_engine_line_one_fails_and_none_of_the_others_is_started(world: World) -> None:
    write(world, model("forty", 40, failing_while(world.tmp_path / "bad", gpus=SHARE)))
    planned = world.run("plan", "-f", world.file, "--detailed-exitcode", "--format", "json")
    plan = json.loads(planned.stdout)
    assert (planned.returncode, len(plan["actions"]), len(plan["afterPilot"]), plan["blocked"]) == (2, 1, 39, [])
    summary = world.apply_result()
    assert summary["exitCode"] == 3
    assert rows(summary) == [("failed", "ENGINE_EXITED", 1), ("skipped", "PILOT_FAILED", 39)]
    assert summary["outcomes"][1]["message"].startswith("their pilot forty/0 failed: ENGINE_EXITED: ")
    failed = [(one["model"], one["replicaId"]) for one in world.inventory()["failures"] if one["fleet"] == world.fleet]
    assert (failed, world.replicas()) == ([("forty", 0)], []), "Ray has seen no other"
    assert world.engines() == []
    eventually(lambda: all(world.cluster.is_free(node=name) for name in "abc"), "the cards are free")
    again = world.plan()
    assert (len(again["actions"]), len(again["afterPilot"])) == (1, 39), "the next apply tries one again"
    shown = world.run("history", "show", world.jobs()[0]["submission_id"]).stdout
    assert "PILOT_FAILED" in shown


def test_one_apply_starts_the_pilot_and_then_all_others(world: World) -> None:
    write(world, model("eight", 8, member("--plain", gpus=SHARE)))
    done = world.apply("--format", "jsonl")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, rows(events[-1])) == (0, [("ready", None, 1)] * 8), done.stderr
    steps = [(one["type"], one["replicaId"]) for one in events if one["type"] in ("replicaCreated", "replicaReady")]
    assert steps[:2] == [("replicaCreated", 0), ("replicaReady", 0)], "nothing else was created before it was ready"
    assert len(steps) == 16
    [asked] = [one["message"] for one in events if one["type"] == "replanWanted"]
    assert asked == "pilot eight/0 is ready: planning again for 7 replicas"
    assert (world.plan()["actions"], world.plan().get("afterPilot")) == ([], None)
    write(world, model("eight", 12, member("--plain", gpus=SHARE)))
    more = world.plan()
    assert (len(more["actions"]), more.get("afterPilot")) == (4, None), "its spec has run"


def test_what_a_run_that_does_not_wait_leaves_the_next_apply_does_once_the_pilot_is_ready(world: World) -> None:
    write(world, model("five", 5, member(*world.loads, gpus=SHARE)), replicas=2)
    first = world.apply_result("--no-wait")
    assert (first["exitCode"], rows(first)) == (0, [("starting", None, 1)] * 2 + [("skipped", "AFTER_PILOT", 3)])
    plan = world.plan()
    assert (plan["actions"], len(plan["afterPilot"]), plan["exitCode"]) == ([], 3, 2)
    assert "create 3 once a pilot is ready: 2 of 5 live, 2 starting" in plan["models"][0]["reason"]
    second = world.start("apply", "-f", world.file, "--yes", "--format", "json")
    eventually(lambda: len(world.jobs()) == 2, "it awaits the pilots")
    world.loaded.touch()
    written, said = second.communicate(timeout=600)
    assert second.returncode == 0, said
    created = {row["replicaId"] for row in json.loads(written)["outcomes"]}
    assert created >= {2, 3, 4}, "and the pilots, if it has seen them start"
    assert [row["state"] for row in world.replicas()] == ["ALIVE"] * 5
