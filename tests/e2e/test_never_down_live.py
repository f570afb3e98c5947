"""Planning and applying never remove capacity, whatever the fleet file or the view of the cluster looks like."""

from __future__ import annotations

import json
import shlex
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from cluster import eventually
from e2e_world import World, member, model

pytestmark = pytest.mark.ray


@contextmanager
def cut_off_after(address: str, limit: int) -> Iterator[str]:
    """A proxy that hangs up after `limit` bytes of each response."""
    target = urlsplit(address)
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=forward, args=(client,), daemon=True).start()

    def forward(client: socket.socket) -> None:
        with client, socket.create_connection((target.hostname, target.port)) as upstream:
            upstream.sendall(client.recv(65536).replace(b"keep-alive", b"close"))
            left = limit
            while left > 0 and (data := upstream.recv(min(left, 65536))):
                client.sendall(data)
                left -= len(data)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.close()


def test_no_replica_is_removed_whatever_happens_to_the_file_or_the_view_of_the_cluster(world: World) -> None:
    def fleet(replicas: int) -> None:
        world.write(model("one", replicas, member("--plain", gpus=1)),
                    model("two", 1, member("--plain", gpus=1)))

    fleet(2)
    assert world.apply_result()["exitCode"] == 0
    running, submitted = world.actors(), len(world.jobs())
    assert len(running) == 3

    def assert_unchanged() -> None:
        assert world.actors() == running
        assert len(world.jobs()) == submitted, "without work or a whole view of the cluster, no job is submitted"

    fleet(1)
    lowered = world.apply()
    assert lowered.returncode == 0
    assert world.plan()["holds"] == [{"model": "one", "wanted": 1, "live": 2, "surplus": 1}]
    assert_unchanged()

    world.write(model("one", 2, member("--plain", gpus=1)))
    assert world.apply().returncode == 0
    assert [row["model"] for row in world.plan()["unmanaged"]] == ["two"]
    assert_unchanged()

    for broken in ("", "spec: [", "apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: x}\nspec: {modells: []}\n"):
        world.file.write_text(broken)
        done = world.apply()
        assert done.returncode == 1, done.stderr
        assert "fleet.yaml:" in done.stderr
        assert_unchanged()

    fleet(4)
    for limit in (0, 100, 900, 3000):
        with cut_off_after(world.cluster.address, limit) as proxy:
            done = world.apply("--address", proxy)
            assert done.returncode == 1, (limit, done.stderr)
            assert "Traceback" not in done.stderr
        assert_unchanged()


def test_a_replica_on_a_lost_node_is_reported_and_the_next_apply_places_another(world: World) -> None:
    world.cluster.add(names=["e"])
    world.write(model("one", 1, member("--plain", gpus=1, nodeSelector={"fleet.io/node": "in(e, a)"}),
                      placement={"spread": "fleet.io/node"}))
    world.cluster.hold(namespace=f"{world.fleet}-foreign", name="foreign", node="a", gpus=2)
    try:
        assert world.apply_result()["exitCode"] == 0
        world.cluster.remove(name="e")
    finally:
        world.cluster.sweep(namespaces=[f"{world.fleet}-foreign"])
    eventually(lambda: not world.engines(), "the engine went with its node")
    status = world.run("status", "-f", world.file)
    plan = world.plan()
    lost = [(row["model"], row["replicaId"]) for row in plan["lost"]]
    if lost:  # Ray still has its record: the replica counts as lost, and its id is not used again
        assert "lost" in status.stdout
        assert [action["replicaId"] for action in plan["actions"]] == [lost[0][1] + 1]
    assert len(plan["actions"]) == 1
    assert world.apply_result()["exitCode"] == 0

    def repair_commands() -> list[str]:
        findings = json.loads(world.run("doctor", "--format", "json").stdout)["findings"]
        return [one["command"] for one in findings
                if one["code"] == "REPLICA_LOST" and one["subject"].startswith("one/")]

    for command in repair_commands():
        assert world.run(*shlex.split(command)[1:], "--yes").returncode == 0
    eventually(lambda: repair_commands() == [], "the doctor's commands repair it")
    alive = [row for row in world.actors().values() if row["state"] == "ALIVE"]
    assert len(alive) == 1
