"""Update in place on a real Ray: serving engines load other weights, and none is ended or restarted for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
import yaml
from cluster import eventually
from e2e_world import World, member, model
from poller import Poller

pytestmark = pytest.mark.ray
IN_PLACE = {"mode": "inPlace", "reload": {"http": {"path": "/reload", "body": {"dir": "$(FLEETCTL_NEW_MODEL_DIR)"}}}}


def artifact(world: World, name: str, **more: Any) -> dict[str, Any]:
    """Make a model of that name; return its lines for the fleet file."""
    folder = world.tmp_path / f"origin-{name}"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"name": f"{world.fleet} {name}", **more}))
    weights: dict[str, Any] = yaml.safe_load(world.run("weights", "index", str(folder)).stdout)["weights"]
    return weights


def write(world: World, weights: dict[str, Any], replicas: int = 1, *roles: str) -> None:
    members = [member("--plain", node="a", gpus=0.51 if role else 0.5, weights=weights, role=role)
               for role in roles or (None,)]
    world.write(model("m", replicas, *members, update=IN_PLACE, placement={"ranksPerNode": 2} if roles else {}))


def addresses(world: World) -> list[dict[str, Any]]:
    """Where each replica's engine listens, by id."""
    return [{"address": f"{one['members'][0]['address']}:{one['members'][0]['port']}"}
            for one in sorted(world.replicas(), key=lambda one: one["replicaId"])]


def engine_values(world: World, outcomes: list[dict[str, Any]], *keys: str) -> list[tuple[str, ...]]:
    """The values of these variables in each engine's environment."""
    return [tuple(world.ask(one)[key] for key in keys) for one in outcomes]


@contextmanager
def polling(outcomes: list[dict[str, Any]]) -> Iterator[None]:
    """Send requests to every replica in the meantime; each request must be answered."""
    assert all("address" in one for one in outcomes), outcomes
    pollers = [Poller(f"http://{one['address']}", keep_alive=True) for one in outcomes]
    with ExitStack() as stack:
        for poller in pollers:
            stack.callback(poller.ended.set)
            poller.start()
        yield
        more = [poller.answered + 2 for poller in pollers]
        eventually(lambda: all(one.answered >= least or one.failed for one, least in zip(pollers, more, strict=True)),
                   "requests are answered after the reload")
    for poller in pollers:
        poller.join()
        assert poller.failed == []


def test_serving_replicas_reload_and_a_replica_that_cannot_load_keeps_its_weights(world: World) -> None:
    write(world, artifact(world, "old"), 2)
    before = world.apply_result()["outcomes"]
    pids = engine_values(world, before, "E2E_PID", "FLEETCTL_MODEL_DIR")
    new = artifact(world, "new")
    write(world, new, 2)
    planned = world.run("plan", "-f", world.file, "--format", "json", "--detailed-exitcode")
    assert planned.returncode == 2, planned.stderr
    plan = json.loads(planned.stdout)
    assert ({one["op"] for one in plan["actions"]}, plan["drift"]) == ({"reload"}, [])
    assert [one["id"] for one in plan["actions"]] == ["m/0", "m/1"]
    with polling(before):
        done = world.apply_result()
    assert done["exitCode"] == 0
    assert [(one["outcome"], one["code"]) for one in done["outcomes"]] == [("ready", "RELOADED")] * 2
    assert [one["weights"]["source"] for one in done["outcomes"]] == ["origin", "disk"]
    assert engine_values(world, done["outcomes"], "E2E_PID", "FLEETCTL_MODEL_DIR") == pids  # neither ended nor moved
    assert engine_values(world, done["outcomes"], "E2E_LOADED", "E2E_LOADS") == [(f"{world.fleet} new", "2")] * 2
    again = world.plan()
    assert (again["actions"], again["summary"]["outdated"], again["exitCode"]) == ([], 0, 0)
    assert [each["weights"]["artifact"] for one in world.replicas() for each in one["members"]] == [new["index"]] * 2

    write(world, new, 3)
    [action] = json.loads(world.run("plan", "-f", world.file, "--format", "json").stdout)["actions"]
    assert {one["replica"] for one in action["members"][0]["weights"]["sources"]} == {"m/0", "m/1"}

    write(world, new, 2)
    assert world.run("restart", "m/0", "-f", world.file, "--yes").returncode == 0
    assert world.plan()["summary"]["outdated"] == 0
    before = addresses(world)
    assert engine_values(world, before, "E2E_LOADED", "E2E_LOADS") == [
        (f"{world.fleet} new", "1"), (f"{world.fleet} new", "2")]

    # a replica that cannot load them keeps its weights, and its failure is recorded
    pids = engine_values(world, before, "E2E_PID", "E2E_LOADED")
    write(world, artifact(world, "bad", broken=True), 2)
    with polling(before):
        done = world.apply_result()
    assert done["exitCode"] == 3
    assert [(one["outcome"], one["code"]) for one in done["outcomes"]] == [
        ("failed", "RELOAD_FAILED"), ("skipped", "NOT_BEGUN")]
    assert "HTTP 500: cannot load layer 7" in done["outcomes"][0]["message"]
    assert engine_values(world, before, "E2E_PID", "E2E_LOADED") == pids
    seen = world.inventory()
    assert {(one["replicaId"], one["code"], one["specHash"]) for one in seen["failures"]} == {
        (0, "RELOAD_FAILED", world.plan()["actions"][0]["specHash"])}


@pytest.mark.parametrize("fault", ["right after a reload has begun", pytest.param(
    "before a reload is noted", marks=pytest.mark.long)])
def test_after_an_agent_dies_during_a_reload_the_next_apply_finds_its_result(world: World, fault: str) -> None:
    write(world, artifact(world, "old"))
    [before] = world.apply_result()["outcomes"]
    release = world.tmp_path / "release"
    write(world, artifact(world, "new", waitsFor=str(release)))
    if fault.startswith("before"):
        release.touch()
    killed = world.run_with(fault, "apply", "-f", world.file, "--yes")
    assert killed.returncode == 1, killed.stderr
    if fault.startswith("right"):
        assert engine_values(world, [before], "E2E_LOADS") == [("1",)]
    release.touch()
    done = world.apply_result()
    assert [(one["outcome"], one["code"]) for one in done["outcomes"]] == [("ready", "RELOADED")]
    assert engine_values(world, [before], "E2E_LOADED", "E2E_LOADS") == [(f"{world.fleet} new", "2")], "loaded once"
    assert world.plan()["summary"]["outdated"] == 0


def test_all_members_of_a_gang_fetch_and_only_its_leader_reloads(world: World) -> None:
    write(world, artifact(world, "old"), 1, "Leader", "Worker")
    [before] = world.apply_result()["outcomes"]
    engines = world.engines()
    new = artifact(world, "new")
    write(world, new, 1, "Leader", "Worker")
    with polling([before]):
        [done] = world.apply_result()["outcomes"]
    assert (done["outcome"], done["code"], done["address"]) == ("ready", "RELOADED", before["address"])
    assert "addresses" not in done
    assert world.engines() == engines
    assert engine_values(world, [done], "E2E_LOADED", "E2E_LOADS") == [(f"{world.fleet} new", "2")]
    [replica] = world.replicas()
    assert [each["weights"]["artifact"] for each in replica["members"]] == [new["index"]] * 2
    assert httpx.get(f"http://{done['address']}/health", timeout=60).is_success
    assert world.plan()["summary"]["outdated"] == 0
