"""Saved plans on a real Ray: applied once, by a job that names plan and commit, and refused if their basis changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkout import git, make_remote
from e2e_world import World, member, model

pytestmark = pytest.mark.ray


def test_a_saved_plan_is_applied_once_and_refused_only_if_its_basis_has_changed(world: World) -> None:
    remote = make_remote(world.tmp_path)
    desk = remote.desk

    def saved(name: str, only: str) -> Path:
        """Save a plan for one model of the file as it is committed by that name."""
        # other bytes, because two plans of the same second would be identical
        remote.commit("main", f"{world.file.read_text()}# {name}\n")
        path = world.tmp_path / f"{name}.fleetplan"
        done = world.run("plan", "-f", "fleet.yaml", "--target", only, "--out", path, folder=desk, CI="true")
        assert done.returncode == 0, done.stderr
        return path

    world.write(model("one", 1, member("--plain", node="a")))
    assert world.apply_result()["exitCode"] == 0
    world.write(model("one", 2, member("--plain", node="a")), model("two", 1, member("--plain", node="b")))
    filled, appeared, planned = (saved(name, only) for name, only in (
        ("filled", "two"), ("appeared", "one"), ("planned", "one")))
    commit = git(desk, "rev-parse", "HEAD")

    world.cluster.hold(namespace=world.fleet, name="somebody", node="b", gpus=2)
    refused = world.run("apply", filled, "--yes", folder=desk)
    assert refused.returncode == 6
    assert "moved: node b: less is free than two/0 claims" in refused.stderr

    accepted = world.run("apply", planned, "--yes", folder=desk)
    assert accepted.returncode == 0, accepted.stderr
    plan_id = json.loads(planned.read_text())["planId"]
    [job] = [job for job in world.jobs() if job["metadata"]["planId"] == plan_id]
    assert job["metadata"]["commit"] == commit

    used = world.run("apply", planned, "--yes", folder=desk)
    assert used.returncode == 6
    assert f"already applied by job {job['submission_id']}" in used.stderr
    refused = world.run("apply", appeared, "--yes", folder=desk)
    assert refused.returncode == 6
    assert "moved: one: 1 live when planned, 2 now" in refused.stderr
    assert {name for name in world.actors() if name != "somebody"} == {"ModelActor:one:0", "ModelActor:one:1"}
