"""A ready engine that answers 503 for good: not ready for every reader, no requests, kept; and back when it answers."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from cluster import eventually
from e2e_world import World, member, model

pytestmark = pytest.mark.ray
OFTEN = "ready engines are probed often"


def test_an_engine_that_stops_answering_is_not_ready_until_it_answers_again(world: World) -> None:
    answers = {name: world.tmp_path / name for name in ("m-0", "m-1", "gang")}

    def write(replicas: int, *flags: str) -> None:
        own = ("--plain", "--ready-when", str(world.tmp_path / "m-$(FLEETCTL_REPLICA_ID)"), *flags)
        gang = ("--plain", "--ready-when", str(answers["gang"]))
        world.write(model("m", replicas, member(*own, node="a")),
                    model("g", 1, member(*gang, role="Leader", gpus=1, node="b"),
                          member(*gang, role="Worker", gpus=1, node="c")))

    def apply() -> int:
        return world.run_with(OFTEN, "apply", "-f", world.file, "--yes").returncode

    def not_ready() -> dict[str, Any]:
        return {f"{one['model']}/{one['replicaId']}": one["notReadyReason"] for one in world.replicas()
                if "notReadySince" in one}

    def endpoints() -> list[str]:
        listed = json.loads(world.run("endpoints", "-f", world.file, "--format", "json").stdout)
        return sorted(f"{one['key']}/{each['replicaId']}" for one in listed["models"] for each in one["endpoints"])

    for file in answers.values():
        file.touch()
    write(1)
    assert apply() == 0
    write(2, "--ready-after", "0.1")  # m/0 is outdated from now on
    assert apply() == 0
    assert endpoints() == ["g/0", "m/0", "m/1"]
    pids = {name: row["pid"] for name, row in world.actors().items()}

    for name in ("m-1", "gang"):
        answers[name].unlink()
    eventually(lambda: len(not_ready()) == 2, "both are recorded as not ready")
    assert not_ready()["m/1"].endswith(": HTTP 503")
    assert not_ready()["g/0"].startswith("rank 0 of group main: GET /health on port ")
    assert endpoints() == ["m/0"]
    status = " ".join(world.run("status", "-f", world.file).stdout.split())
    assert "1 ready, 2 not ready" in status or "2 not ready, 1 ready" in status
    assert (world.plan()["actions"], apply()) == ([], 3)
    refused = world.run("replace", "m", "-f", world.file, "--yes", "--in-place")
    assert refused.returncode == 1
    assert "m: no replica would serve while the new one starts" in refused.stderr

    os.kill(pids["ModelActor:m:1"], signal.SIGKILL)  # a new life of the actor does not inherit the record
    answers["m-1"].touch()
    answers["gang"].touch()
    eventually(lambda: not not_ready(), "both answer again")
    eventually(lambda: endpoints() == ["g/0", "m/0", "m/1"], "all serve")
    assert apply() == 0
    assert world.actors()["ModelActor:g:0"]["pid"] == pids["ModelActor:g:0"], "nothing was restarted"
    eventually(lambda: not named(world), "the row is no longer named: plans do not ask for it")


def named(world: World) -> bool:
    """Return whether the row of runs names the row of replicas that are not ready."""
    rows = next(job["metadata"]["rows"] for job in world.listed_jobs()
                if job["submission_id"] == "fleetctl.records.run")
    return f"fleetctl.records.notready.{world.fleet}" in rows
