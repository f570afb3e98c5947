"""`fleetctl mcp` on a real Ray: the SDK's client lists and calls every tool, which start nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import anyio
import pytest
from e2e_world import World, member, model
from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import CallToolResult

pytestmark = pytest.mark.ray

CALLS: dict[str, dict[str, Any]] = {
    "plan": {"base": "HEAD"}, "why": {"model": "one"}, "capacity": {"shapes": ["1"]},
    "what_if": {"lose_node": ["a"], "scale": {"one": 2}}, "diff": {}, "status": {"members": True}}


def answers(world: World, *calls: tuple[str, dict[str, Any]]) -> tuple[set[str], list[CallToolResult]]:
    """Return the tools that a server lists, and its answers to calls."""
    server = StdioServerParameters(command=sys.executable, args=["-m", "fleetctl", "mcp", "-f", str(world.file)],
                                   env=world.env, cwd=world.tmp_path)

    async def ask() -> tuple[set[str], list[CallToolResult]]:
        with anyio.fail_after(120):
            async with Client(stdio_client(server)) as client:
                listed = {tool.name for tool in (await client.list_tools()).tools}
                return listed, [await client.call_tool(tool, arguments) for tool, arguments in calls]

    return anyio.run(ask)


def text_of(result: CallToolResult) -> str:
    return "\n".join(part.text for part in result.content)  # type: ignore[union-attr]


def test_a_client_calls_every_tool_and_what_runs_stays_as_it_is(world: World) -> None:
    world.write(model("one", 1, member("--plain", gpus=1, node="a")))
    assert world.apply().returncode == 0
    for command in (["init", "--quiet"], ["add", "fleet.yaml"], ["commit", "--quiet", "-m", "a"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], cwd=world.tmp_path, check=True,
                       env=world.env)
    world.write(model("one", 2, member("--plain", gpus=1, node="a")))
    before, jobs = world.actors(), {job["submission_id"] for job in world.jobs()}

    listed, found = answers(world, *CALLS.items(), ("status", {"form": "json"}), ("apply", {}), ("what_if", {
        "lose_node": ["nowhere"]}))
    assert listed == CALLS.keys()
    said = dict(zip(CALLS, map(text_of, found), strict=False))
    assert [one.is_error for one in found] == [False] * (len(CALLS) + 1) + [True, True], said
    assert "one/1: 1 GPU on a" in said["plan"]
    assert "This change alone" in said["plan"]
    assert "one/0" in said["why"]
    assert "one/1: 1 GPU on a" in said["why"]
    assert "one" in said["capacity"] or "GPU" in said["capacity"]
    assert "replicas" in said["diff"]
    address, = (place["address"] for row in world.replicas() for place in row["members"])
    assert address in said["status"]
    document = json.loads(found[len(CALLS)].content[1].text)  # type: ignore[union-attr]
    assert [(row["model"], row["replicaId"], row["state"]) for row in document["replicas"]] == [("one", 0, "ALIVE")]
    assert "lose_node nowhere: the inventory has no such node" in text_of(found[-1])
    assert (world.actors(), {job["submission_id"] for job in world.jobs()}) == (before, jobs)
