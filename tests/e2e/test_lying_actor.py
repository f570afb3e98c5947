"""Actors on a real Ray that any job may create, and that say of themselves what is not true."""

from __future__ import annotations

import json

import pytest
from e2e_world import World, member, model

from fleetctl.render.endpoint_formats import FORMATS

pytestmark = pytest.mark.ray

INJECTED = ("10.0.0.1; } server { listen 8089; location / { root /etc; autoindex on; } } upstream owned { "
            "server 10.0.0.2")


def says(world: World, *members: dict[str, object]) -> str:
    each = [{"group": "main", "copy": 0, "role": "Standalone", "rank": rank, "nodeId": "THIS NODE", "port": 8000, **one}
            for rank, one in enumerate(members)]
    return json.dumps({"v": 1, "fleet": world.fleet, "namespace": world.fleet, "specHash": "0" * 64,
                       "readyAt": "2026-03-04T12:00:00Z", "members": each})


def test_only_replicas_that_say_what_ray_says_get_requests(world: World) -> None:
    world.write(model("gang", 1, member("--plain", role="Leader", gpus=1), member("--plain", role="Worker", gpus=1)))
    assert world.apply().returncode == 0
    [honest] = world.replicas()
    own = honest["members"][0]["address"]
    assert own

    def lie(replica_id: int, *members: dict[str, object]) -> None:
        world.cluster.lie(namespace=world.fleet, name=f"ModelActor:gang:{replica_id}", node="a",
                          says=says(world, *members))

    lie(1, {"ip": INJECTED})
    lie(2, {"ip": "192.0.2.66"})
    lie(3, {"ip": own, "port": "8000; }"})
    lie(4, {"ip": own}, {"ip": own, "nodeId": world.cluster.node_id(name="b")})
    endpoints = json.loads(world.run("endpoints", "--format", "json", "-f", world.file).stdout)
    found = {(one["replicaId"], one["address"], one["port"]) for one in endpoints["models"][0]["endpoints"]}
    assert found == {(0, own, honest["members"][0]["port"]), (4, own, 8000)}
    for output_format in FORMATS:
        text = world.run("endpoints", "--format", output_format).stdout
        assert "8089" not in text
        assert "192.0.2.66" not in text
    refused = {one["replicaId"]: one.get("refused", []) for one in world.replicas()}
    assert [len(refused[number]) for number in range(5)] == [0, 1, 1, 1, 1]
    assert refused[4][0].endswith(f"but Ray lists no actor of it on node {world.cluster.node_id(name='b')}")
    doctor = json.loads(world.run("doctor", "--format", "json").stdout)
    assert {one["subject"] for one in doctor["findings"] if one["code"] == "CLAIM_REFUSED"} == {
        f"ModelActor:gang:{number}" for number in (1, 2, 3, 4)}
