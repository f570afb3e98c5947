"""One floor over several variants on a real Ray: what fits is chosen, another fills up, one that fails is replaced."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cluster import eventually
from e2e_world import World, member, model
from test_failing_engines import failing_while, outcomes

pytestmark = pytest.mark.ray

POOL = "fleet.io/pool"
KINDS = {"vh": ["vh-1"], "va": ["va-1"], "vl": ["vl-1", "vl-2"]}
"""The nodes of each kind, with two cards each."""


@pytest.fixture
def kinds(world: World) -> Iterator[None]:
    for kind, names in KINDS.items():
        world.cluster.add(names=names, labels={POOL: kind})
    left = [name for names in KINDS.values() for name in names if name != "vh-1"]  # the test kills that one
    yield
    for name in left:
        world.cluster.remove(name=name)


def variant(name: str, *members: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, **more, "workers": [{"name": "main", "members": list(members)}]}


def floor(replicas: int, *variants: dict[str, Any]) -> dict[str, Any]:
    written = model("one", replicas)
    del written["workers"]
    return {**written, "variants": list(variants)}


def of_kind(name: str, kind: str, *flags: str, gpus: float = 1, **more: Any) -> dict[str, Any]:
    return variant(name, member("--plain", *flags, gpus=gpus, nodeSelector={POOL: kind}), **more)


def running(world: World) -> dict[int, str]:
    """The ids of the fleet's live replicas, each with its variant."""
    return {replica["replicaId"]: replica["variant"] for replica in world.replicas()
            if replica["state"] == "ALIVE" and replica["readyAt"]}


def test_one_floor_of_five_runs_on_three_kinds_and_fills_up_with_another_when_one_disappears(
    world: World, kinds: None
) -> None:
    h100, a100, l4 = of_kind("h100", "vh"), of_kind("a100", "va", gpus=2, min=1), of_kind("l4", "vl")
    world.write(floor(5, h100, a100, l4))
    summary = world.apply_result()
    assert (summary["exitCode"], outcomes(summary)) == (0, [("ready", "")] * 5)
    assert sorted(row["variant"] for row in summary["outcomes"]) == ["a100", "h100", "h100", "l4", "l4"]
    for row in summary["outcomes"]:
        found = world.ask(row)
        assert (found["FLEETCTL_VARIANT"], found["FLEETCTL_MODEL"]) == (row["variant"], "one")
    before = running(world)
    assert sorted(before.values()) == ["a100", "h100", "h100", "l4", "l4"]
    pids = {row["replicaId"]: world.ask(row)["E2E_PID"] for row in summary["outcomes"] if row["variant"] != "h100"}
    address = {row["replicaId"]: row for row in summary["outcomes"]}

    asked = world.run("what-if", "-f", world.file, "--lose-node", "vh-1", "--format", "json")
    told = json.loads(asked.stdout)
    world.cluster.kill_node(name="vh-1")
    plan = eventually(lambda: (found := world.plan())["summary"]["create"] == 2 and found, "both lost ones are missed")
    assert [action["variant"] for action in plan["actions"]] == ["l4", "l4"]
    assert {node for action in plan["actions"] for node in [action["members"][0]["node"]]} <= {"vl-1", "vl-2"}
    assert [(one["variant"], one["members"][0]["node"]) for one in told["created"]] == [
        (action["variant"], action["members"][0]["node"]) for action in plan["actions"]], "what-if said what happens"
    again = world.apply_result()
    assert again["exitCode"] == 0, str(again)
    now = running(world)
    assert sorted(now.values()) == ["a100", "l4", "l4", "l4", "l4"]
    kept = {number: kind for number, kind in before.items() if kind != "h100"}
    assert {number: now.get(number) for number in kept} == kept
    assert {number: world.ask(address[number])["E2E_PID"] for number in pids} == pids, "nothing that runs has moved"

    world.write(floor(5, h100, a100, of_kind("l4", "vl", "--ready-after", "0")))
    drift = world.plan()["drift"]
    assert [(row["code"], row["variant"]) for row in drift] == [("SPEC_CHANGED", "l4")] * 4, "of this variant alone"
    assert world.plan()["actions"] == []


@contextmanager
def counting_ready(world: World) -> Iterator[list[int]]:
    """Count the living replicas meanwhile, again and again; the first count is taken before."""
    def count() -> int:
        return sum(row["state"] == "ALIVE" for row in world.actors().values())

    def sample() -> None:
        try:
            while not ended.wait(0.2):
                counts.append(count())
        except BaseException as error:
            errors.append(error)

    counts, ended, errors = [count()], threading.Event(), list[BaseException]()
    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield counts
    finally:
        ended.set()
        thread.join()
    assert errors == []
    assert len(counts) > 3


def test_a_rollout_on_full_cards_takes_another_variant_first_and_never_fewer_are_ready(world: World) -> None:
    names = {"rh": "rh-1", "ra": "ra-1"}
    for kind, name in names.items():
        world.cluster.add(names=[name], labels={POOL: kind})
    try:
        a100 = of_kind("a100", "ra")
        world.write(floor(2, of_kind("h100", "rh", min=1), a100))
        assert world.apply_result()["exitCode"] == 0
        assert running(world) == {0: "h100", 1: "h100"}, "both cards of the preferred kind are full"

        world.write(floor(2, of_kind("h100", "rh", "--ready-after", "0", min=1), a100))
        said = "one/0 (h100) is replaced by one/2 as a100: there is no room for another h100"
        dry = world.run("rollout", "-f", world.file, "--dry-run")
        assert said in " ".join(dry.stderr.split()), dry.stderr
        with counting_ready(world) as counts:
            done = world.run("rollout", "-f", world.file, "--yes", "--format", "json")
        assert done.returncode == 0, done.stderr
        assert (min(counts), said in " ".join(done.stderr.split())) == (2, True), done.stderr
        rows = [(row["outcome"], row["replicaId"], row["variant"]) for row in json.loads(done.stdout)["outcomes"]]
        assert rows == [("ready", 2, "a100"), ("gone", 0, "h100"), ("ready", 3, "h100"), ("gone", 1, "h100")]
        assert running(world) == {2: "a100", 3: "h100"}
        plan = world.plan()
        assert (plan["drift"], plan["actions"]) == ([], [])
        assert len(world.engines()) == 2
    finally:
        for name in names.values():
            world.cluster.remove(name=name)


def test_a_variant_that_fails_is_replaced_in_the_same_apply(world: World) -> None:
    bad = world.tmp_path / "bad"
    failing = variant("fast", failing_while(bad, gpus=1))
    world.write(floor(3, failing, variant("slow", member("--plain", gpus=1), max=3)))
    summary = world.apply_result()
    assert (summary["exitCode"], outcomes(summary)) == (0, [("ready", "OTHER_VARIANT")] * 3), str(summary)
    assert {row["variant"] for row in summary["outcomes"]} == {"slow"}
    assert all(re.match(r"variant fast failed in its place, as .+/\d: ENGINE_EXITED: ", row["message"])
               for row in summary["outcomes"])
    assert set(running(world).values()) == {"slow"}
    assert len(world.engines()) == 3, "none is doubled"
    assert (world.plan()["actions"], world.plan()["blocked"]) == ([], [])
    shown = world.run("history", "show", world.jobs()[0]["submission_id"]).stdout
    assert "OTHER_VARIANT" in shown


def test_without_a_variant_that_starts_the_failure_is_the_result(world: World) -> None:
    bad = world.tmp_path / "bad"
    world.write(floor(1, variant("fast", failing_while(bad, gpus=1)), variant("slow", failing_while(bad, gpus=2))))
    summary = world.apply_result()
    assert (summary["exitCode"], outcomes(summary)) == (3, [("failed", "ENGINE_EXITED")])
    assert summary["outcomes"][0]["variant"] == "slow", "each was tried once"
    assert world.engines() == []
