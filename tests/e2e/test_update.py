"""A real update: no request through nginx fails while `endpoints --follow` keeps its file up to date."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from e2e_world import World, member, model
from poller import Poller

from tests.external_programs import Nginx, eventually

pytestmark = pytest.mark.ray
DRAIN = ("--drain", "15s")
"""Longer than the sum of `--interval`, a read of the cluster, and a reload of nginx, also on a busy machine."""


@contextmanager
def polling(world: World, key: str) -> Iterator[None]:
    """Send requests to a model through nginx in the meantime; every request must be answered."""
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
        _, errors = follower.communicate(timeout=600)
    assert "warning" not in errors
    assert [poller.failed for poller in pollers] == [[], []], errors
    assert all(poller.answered > 5 for poller in pollers)


def replace(world: World, key: str, *flags: str) -> dict[str, Any]:
    done = world.run("replace", key, "-f", world.file, "--yes", "--format", "json", *flags)
    assert done.stdout, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    assert summary["exitCode"] == done.returncode
    return summary


def test_an_update_with_room_with_a_failing_spec_and_in_place(world: World) -> None:
    def write(*flags: str, **more: Any) -> None:
        world.write(model("room", 1, member("--plain", *flags, gpus=1, node="b"), **more),
                    model("full", 2, member("--plain", *flags, gpus=1, node="a"), **more))

    write()
    assert world.apply_result()["exitCode"] == 0
    write("--ready-after", "0.5")
    with polling(world, "room"):
        assert [row["outcome"] for row in replace(world, "room", *DRAIN)["outcomes"]] == ["ready", "gone"]
        assert set(world.actors()) == {"ModelActor:room:1", "ModelActor:full:0", "ModelActor:full:1"}
        write("--ready-after", "60", "--exit-code", "3")
        failed = replace(world, "room", *DRAIN)
    assert (failed["exitCode"], failed["outcomes"][0]["code"]) == (3, "ENGINE_EXITED")
    status = world.run("status", "-f", world.file).stdout
    assert "--ready-after 0.5 -> … --ready-after 60 --exit-code 3" in status, "the running spec and that of the file"
    assert "ModelActor:room:1" in world.actors()

    write("--ready-after", "0.5", update={"mode": "surge"})
    refused = replace(world, "full")
    [blocked] = refused["outcomes"]
    assert (refused["exitCode"], blocked["code"]) == (3, "UPDATE_NEEDS_ROOM")
    assert "(full/0, full/1)" in blocked["message"]
    assert "without one of them 1 of 2 would serve" in blocked["message"]
    with polling(world, "full"):
        in_place = replace(world, "full", "--in-place", *DRAIN)
    assert [row["outcome"] for row in in_place["outcomes"]] == ["gone", "ready"] * 2
    assert set(world.actors()) == {"ModelActor:room:1", "ModelActor:full:2", "ModelActor:full:3"}
