"""A real update: a client that polls whatever serves sees no failed request, also when the new spec fails."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from conftest import World, member, model

from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.read import Live, read_inventory

pytestmark = pytest.mark.ray


class Poller(threading.Thread):
    """Asks for `/env` again and again, of one ready replica after another; failed = none of them answered."""

    def __init__(self, world: World, key: str) -> None:
        super().__init__(daemon=True)
        self.world, self.key, self.ended = world, key, threading.Event()
        self.answered, self.failed = 0, list[str]()

    def run(self) -> None:
        with DashboardClient(self.world.cluster.address) as client, httpx.Client(timeout=5) as http:
            while not self.ended.is_set():
                seen = read_inventory(Live(client, "2026-01-01T00:00:00Z", self.world.fleet))
                serving = [f"http://{one.address}:{one.port}/env" for replica in seen.replicas
                           if replica.model == self.key and replica.state == "ALIVE" for one in replica.members]
                for _ in range(20):
                    self._ask(http, serving)
                    time.sleep(0.05)

    def _ask(self, http: httpx.Client, serving: list[str]) -> None:
        for turn in range(len(serving)):
            try:
                http.get(serving[(self.answered + turn) % len(serving)]).raise_for_status()
            except httpx.HTTPError:
                continue
            self.answered += 1
            return
        self.failed.append(f"none of {serving} answered")


@contextmanager
def polled(world: World, key: str) -> Iterator[None]:
    """Poll a model meanwhile; every request is answered."""
    poller = Poller(world, key)
    poller.start()
    try:
        yield
    finally:
        poller.ended.set()
        poller.join()
    assert poller.failed == []
    assert poller.answered > 5


def replaced(world: World, key: str, *flags: str) -> dict[str, Any]:
    done = world.run("replace", key, "-f", world.file, "--yes", "--format", "json", *flags)
    assert done.stdout, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    assert summary["exitCode"] == done.returncode
    return summary


def test_an_update_with_room_with_a_failing_spec_and_in_place(world: World) -> None:
    def written(*flags: str, **more: Any) -> None:
        world.write(model("room", 1, member("--plain", *flags, gpus=1, node="b"), **more),
                    model("full", 2, member("--plain", *flags, gpus=1, node="a"), **more))

    written()
    assert world.apply_result()["exitCode"] == 0
    written("--ready-after", "0.5")
    with polled(world, "room"):
        assert [row["outcome"] for row in replaced(world, "room")["outcomes"]] == ["ready", "gone"]
    assert set(world.actors()) == {"ModelActor:room:1", "ModelActor:full:0", "ModelActor:full:1"}

    written("--ready-after", "60", "--exit-code", "3")
    with polled(world, "room"):
        failed = replaced(world, "room")
    assert (failed["exitCode"], failed["outcomes"][0]["code"]) == (3, "ENGINE_EXITED")
    assert "ModelActor:room:1" in world.actors()

    written("--ready-after", "0.5", update={"mode": "surge"})
    refused = replaced(world, "full")
    [blocked] = refused["outcomes"]
    assert (refused["exitCode"], blocked["code"]) == (3, "UPDATE_NEEDS_ROOM")
    assert "(full/0, full/1)" in blocked["message"]
    assert "without one of them 1 of 2 would serve" in blocked["message"]
    with polled(world, "full"):
        in_place = replaced(world, "full", "--in-place", "--drain", "200ms")
    assert [row["outcome"] for row in in_place["outcomes"]] == ["gone", "ready"] * 2
    assert set(world.actors()) == {"ModelActor:room:1", "ModelActor:full:2", "ModelActor:full:3"}
