"""A real update: no request through nginx fails, whose file `endpoints --follow` keeps, whatever the new spec does."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from e2e_world import World, member, model

from tests.programs import Nginx, eventually

pytestmark = pytest.mark.ray
DRAIN = ("--drain", "7s")
"""Longer than `--interval`, what it takes to read the cluster, and a reload."""


class Poller(threading.Thread):
    """Sends one request after another, which nginx may not repeat: as clients of engines do."""

    def __init__(self, url: str, *, keep_alive: bool) -> None:
        super().__init__(daemon=True)
        self.url, self.ended = url, threading.Event()
        self.headers = {} if keep_alive else {"Connection": "close"}
        self.answered, self.failed = 0, list[str]()

    def run(self) -> None:
        # it does not read the environment, which the commands of the test change meanwhile
        with httpx.Client(timeout=20, headers=self.headers, trust_env=False) as http:
            while not self.ended.wait(0.02):
                try:
                    self._send(http).raise_for_status()
                    self.answered += 1
                except httpx.HTTPError as error:
                    self.failed.append(f"{time.time():.2f} {self.headers} {error!r}")

    def _send(self, http: httpx.Client) -> httpx.Response:
        try:
            return http.post(f"{self.url}/slow", content=b"{}")
        except httpx.RemoteProtocolError:
            if self.headers:
                raise
            # nginx closes idle connections when it reloads, and a request may be on its way: clients send it again
            return http.post(f"{self.url}/slow", content=b"{}")


@contextmanager
def polled(world: World, key: str) -> Iterator[None]:
    """Ask a model through nginx meanwhile; every request is answered."""
    folder = world.tmp_path / f"nginx-{time.monotonic_ns()}"
    folder.mkdir()
    nginx = Nginx(folder, key)
    kept = ("endpoints", "-f", world.file, "--format", "nginx", "--out", nginx.upstreams)
    assert world.run(*kept).returncode == 0
    pollers = [Poller(nginx.url, keep_alive=keep_alive) for keep_alive in (True, False)]
    with nginx.serving(), ExitStack() as stack:
        eventually(lambda: httpx.get(nginx.url).is_success, "nginx forwards", nginx.log)
        follower = stack.enter_context(world.start(*kept, "--follow", "--interval", "2s", "--on-change", nginx.reload))
        stack.callback(follower.terminate)
        for poller in pollers:
            stack.callback(poller.ended.set)
            poller.start()
        yield
        for poller in pollers:
            poller.ended.set()
            poller.join()
        follower.terminate()
        _, said = follower.communicate(timeout=60)
    assert "warning" not in said
    assert [poller.failed for poller in pollers] == [[], []], said
    assert all(poller.answered > 5 for poller in pollers)


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
        assert [row["outcome"] for row in replaced(world, "room", *DRAIN)["outcomes"]] == ["ready", "gone"]
        assert set(world.actors()) == {"ModelActor:room:1", "ModelActor:full:0", "ModelActor:full:1"}
        written("--ready-after", "60", "--exit-code", "3")
        failed = replaced(world, "room", *DRAIN)
    assert (failed["exitCode"], failed["outcomes"][0]["code"]) == (3, "ENGINE_EXITED")
    status = world.run("status", "-f", world.file).stdout
    assert "--ready-after 0.5 -> … --ready-after 60 --exit-code 3" in status, "what runs, and what the file wants"
    assert "ModelActor:room:1" in world.actors()

    written("--ready-after", "0.5", update={"mode": "surge"})
    refused = replaced(world, "full")
    [blocked] = refused["outcomes"]
    assert (refused["exitCode"], blocked["code"]) == (3, "UPDATE_NEEDS_ROOM")
    assert "(full/0, full/1)" in blocked["message"]
    assert "without one of them 1 of 2 would serve" in blocked["message"]
    with polled(world, "full"):
        in_place = replaced(world, "full", "--in-place", *DRAIN)
    assert [row["outcome"] for row in in_place["outcomes"]] == ["gone", "ready"] * 2
    assert set(world.actors()) == {"ModelActor:room:1", "ModelActor:full:2", "ModelActor:full:3"}
