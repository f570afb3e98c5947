"""The COLD floor on a real Ray: nodes without weights fetch them, and Ray then lists which weights they have."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from e2e_world import World, member, model

pytestmark = pytest.mark.ray


def test_every_node_has_the_weights_without_running_a_replica(
    world: World, disks: dict[str, Path], tmp_path: Path
) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    (origin / "config.json").write_text("{}")
    weights = yaml.safe_load(world.run("weights", "index", str(origin)).stdout)["weights"]
    two = ("a", "b")
    meant = {"nodes": {"fleet.io/node": f"in({', '.join(two)})"}}
    world.write(model("one", 1, member("--plain", node="a", gpus=0, weights=weights), cold=meant))
    [fetched] = [one["members"] for one in world.plan()["actions"] if one["op"] == "prefetch"]
    assert [one["node"] for one in fetched] == [*two]
    rows = world.apply_result()["outcomes"]
    assert {(row["outcome"], row.get("level"), *row["nodes"]) for row in rows} == {
        ("ready", None, "a"), ("ready", "COLD", "a"), ("ready", "COLD", "b")}
    assert all((disks[name] / weights["index"] / "files" / "config.json").exists() for name in two)
    plan = world.plan()
    assert (plan["exitCode"], plan["actions"]) == (0, [])
