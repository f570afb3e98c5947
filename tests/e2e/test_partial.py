"""Partial success on a real Ray: what fits runs where planned, the rest is explained, the next apply adds the rest."""

from __future__ import annotations

import pytest
from e2e_world import World, member, model

pytestmark = pytest.mark.ray


def test_two_of_three_run_where_planned_and_the_third_runs_on_a_new_node(world: World) -> None:
    world.write(model("org/m:1", 3, member(gpus=2, nodeSelector={"fleet.io/node": "in(a, b, d)"})))
    plan = world.plan()
    planned = {f"ModelActor:{action['model']}:{action['replicaId']}": action["members"][0]["nodeId"]
               for action in plan["actions"]}

    first = world.apply()
    assert first.returncode == 3
    assert {name: row["node"] for name, row in world.actors().items()} == planned
    assert sorted(planned) == ["ModelActor:org/m:1:0", "ModelActor:org/m:1:1"]
    assert "2 ready, 1 blocked, 0 removed" in first.stdout
    assert plan["blocked"][0]["replicas"] == 1
    assert plan["blocked"][0]["message"] in " ".join(first.stdout.split())

    world.cluster.add(names=["d"])
    try:
        before = world.actors()
        second = world.apply_result()
        after = world.actors()
        assert second["exitCode"] == 0
        assert set(after) - set(before) == {"ModelActor:org/m:1:2"}
        assert {name: after[name]["id"] for name in before} == {name: row["id"] for name, row in before.items()}

        applies = len(world.jobs())
        third = world.apply_result()
        assert third["exitCode"] == 0
        assert world.actors() == after
        assert len(world.jobs()) == applies, "an apply with nothing to do submits nothing"
    finally:
        world.cluster.sweep(namespaces=[world.fleet])
        world.cluster.remove(name="d")


def test_a_replica_that_fails_to_start_reports_its_last_output_and_does_not_affect_the_others(world: World) -> None:
    bad = member("--plain", "--exit-code", "7", node="a")
    bad["engine"]["env"] = {"TOKEN": (secret := f"hush-{world.fleet}-hush")}
    world.write(
        model("bad", 1, bad),
        model("good", 1, member("--plain", node="b")),
        model("never", 1, member("--plain", "--ready-after", "900", node="c"), startupTimeout="3s"),
    )
    summary = world.apply_result()
    assert summary["exitCode"] == 3
    by_model = {row["model"]: row for row in summary["outcomes"]}
    assert by_model["good"]["outcome"] == "ready"
    assert by_model["bad"]["outcome"] == "failed"
    assert by_model["bad"]["code"] == "ENGINE_EXITED"
    assert "code 7" in by_model["bad"]["message"]
    assert "cannot find the weights" in by_model["bad"]["message"]
    assert by_model["never"]["code"] == "STARTUP_TIMEOUT"
    assert set(world.actors()) == {"ModelActor:good:0"}

    log = world.run("logs", "bad/0")
    assert "cannot find the weights" in log.stdout
    assert "ENGINE_EXITED" in log.stdout

    # the values of an engine's environment pass only through Ray's memory
    files = [path for path in world.cluster.session.rglob("*") if path.is_file() and not path.is_symlink()]
    assert any("fleetctl" in path.name for path in files), "the search covers Ray's session folder"
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
