"""The breaker on a real Ray: a spec that keeps failing is not started again, and the reason is kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster import eventually
from e2e_world import ENGINE, World, member, model

pytestmark = pytest.mark.ray


def failing_while(bad: Path, gpus: float = 0.5) -> dict[str, Any]:
    """A member whose engine ends immediately while a file exists."""
    bad.touch()
    failing = member("--plain", gpus=gpus)
    failing["engine"]["command"] = [
        "sh", "-c", f'test ! -e {bad} || {{ echo "CUDA error: uncorrectable ECC error"; exit 7; }}; exec "$@"', "sh",
        sys.executable, ENGINE]
    return failing


def outcomes(summary: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((row["outcome"], row.get("code", "")) for row in summary["outcomes"])


def test_a_crashing_engine_is_not_started_again_until_its_spec_is_fixed_or_has_been_ready(
    world: World,
) -> None:
    bad = world.tmp_path / "bad"
    world.write(model("loop", 3, failing_while(bad, gpus=1)))
    first = world.apply_result()
    assert outcomes(first) == [("failed", "ENGINE_EXITED")] * 3
    assert {row["state"] for row in world.actors().values()} <= {"DEAD"}

    for _ in range(2):
        again = world.apply_result()
        assert again["exitCode"] == 3
        assert outcomes(again) == [("blocked", "COOLING_DOWN")]
    assert len(world.actors()) <= 3
    why = world.plan()["blocked"][0]["message"]
    assert "3 x ENGINE_EXITED: CUDA error: uncorrectable ECC error (" in why
    shown = " ".join(world.run("status", "-f", world.file).stdout.split())
    assert "uncorrectable ECC error" in shown
    assert "cooling until" in shown
    assert len(world.plan("--ignore-cooldown")["actions"]) == 3

    world.write(model("loop", 1, member("--plain")))
    assert outcomes(world.apply_result()) == [("ready", "")]

    world.write(model("loop", 2, failing_while(bad, gpus=1)))
    bad.unlink()
    assert outcomes(world.apply_result("--ignore-cooldown")) == [("ready", "")]
    assert world.run("evict", "loop/1", "--yes").returncode == 0
    assert (len(world.plan()["actions"]), world.plan()["blocked"]) == (1, []), "it was ready, so it did not fail"


@pytest.mark.long
def test_a_spec_that_fails_on_one_node_only_goes_to_another(world: World) -> None:
    bad = world.tmp_path / "bad"
    file = world.write(model("unlucky", 3, failing_while(bad)))
    text = file.read_text()
    only_a = {"selector": {"fleet.io/node": "in(b, c, head)"}, "cordon": True}
    file.write_text(yaml.safe_dump({**(fleet := yaml.safe_load(text)), "spec": {**fleet["spec"], "nodes": [only_a]}}))
    assert [row["nodes"] for row in world.apply_result()["outcomes"]] == [["a"]] * 3
    bad.unlink()
    file.write_text(text.replace("replicas: 3", "replicas: 1"))
    again = world.apply_result()
    assert outcomes(again) == [("ready", "")]
    assert ["a"] not in [row["nodes"] for row in again["outcomes"]]


def contained(lacking: Path, **more: Any) -> dict[str, Any]:
    """A member whose engine ends as podman does without its image, on the nodes that a file lists by name."""
    found = member("--plain", gpus=0.5, **more)
    script = f'grep -qx "$FLEETCTL_NODE" {lacking} && {{ echo "Error: eng:1: image not known"; exit 125; }}; exec "$@"'
    found["engine"]["command"] = ["sh", "-c", script, "sh", sys.executable, ENGINE]
    return found


def test_a_node_without_the_image_is_left_in_the_same_apply_and_nothing_cools(world: World) -> None:
    lacking = world.tmp_path / "lacking"
    world.write(model("one", 1, contained(lacking)),
                model("gang", 1, contained(lacking, role="Leader"), contained(lacking, role="Worker")))
    [node] = {action["members"][0]["node"] for action in world.plan()["actions"] if action["model"] == "one"}
    lacking.write_text(f"{node}\n")
    summary = world.apply_result()
    assert outcomes(summary) == [("ready", "")] * 2, summary
    assert node not in [one for row in summary["outcomes"] for one in row["nodes"]]
    assert {one["code"] for one in world.inventory()["failures"]} == {"IMAGE_MISSING"}
    assert "cooling" not in world.run("doctor", "-f", world.file).stdout

    lacking.write_text("a\nb\nc\nhead\n")
    world.write(model("nowhere", 1, contained(lacking)))
    [row] = world.apply_result("--ignore-cooldown")["outcomes"]
    assert (row["outcome"], row["code"]) in (("blocked", "IMAGE_MISSING"), ("failed", "IMAGE_MISSING"))
    assert "eng:1: image not known" in row["message"]


def test_a_crash_now_and_then_does_not_use_up_the_restarts(world: World) -> None:
    """Each life but the first is long enough for its row of restarts to end."""
    world.write(model("late", 1, member("--plain", "--exit-code", "3", "--exit-after", "4"),
                      restart={"max": 1, "backoff": "100ms"}))
    done = world.run_with("a second of readiness ends a row of restarts", "apply", "-f", str(world.file), "--yes")
    assert done.returncode == 0, done.stderr
    eventually(lambda: world.actors()["ModelActor:late:0"]["restarts"] == 3, "it is restarted every time")


def test_a_replica_that_fails_after_it_was_ready_uses_its_restarts_keeps_its_reason_and_is_replaced(
    world: World
) -> None:
    restart = {"restart": {"max": 1, "backoff": "100ms"}}
    world.write(
        model("late", 1, member("--plain", "--exit-code", "3", "--exit-after", "3"), **restart),
        model("gang", 1, member("--plain", "--exit-code", "3", "--exit-after", "3", role="Leader"),
              member("--plain", role="Worker"), **restart))
    assert outcomes(world.apply_result()) == [("ready", "")] * 2

    def failures() -> dict[str, Any] | None:
        found = {one["model"]: one for one in world.inventory()["failures"]}
        return found if len(found) == 2 else None

    found = eventually(failures, "both have used their restart")
    for name, one in found.items():
        assert (one["code"], one["restarts"], one["fleet"]) == ("ENGINE_EXITED", 2, world.fleet), name
        assert one["message"].startswith("the one restart since 2"), "Ray's second one ended at once"
        assert one["at"]
        assert one["specHash"]
        assert len(one["nodeIds"]) == 1
        assert "cannot find the weights" in one["message"]

    eventually(lambda: world.actors() == {}, "after one restart both stay down")
    log = world.run("logs", "late/0").stdout.splitlines()
    ends = [line for line in log if "the engine exited with code 3" in line]
    assert ["the one restart since" in line for line in ends] == [False, False, True]
    assert [action["replicaId"] for action in world.plan()["actions"]] == [0, 0], "the id of a DEAD one is free"
    world.write(model("late", 1, member("--plain"), **restart))
    assert outcomes(world.apply_result()) == [("ready", "")]
