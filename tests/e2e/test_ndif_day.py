"""A day of NDIF's administrator, typed with NDIF's commands and keys: docs/verbs.md shows it."""

from __future__ import annotations

import json
import re
import shlex
from subprocess import CompletedProcess

import httpx
import pytest
from e2e_world import World, member, model
from model_keys import CHECKPOINT, NDIF_KEY

pytestmark = pytest.mark.ray
VISION_KEY = 'VisionLanguageModel:{"repo_id": "org/sees it", "revision": "main"}'


def test_the_day_works_as_printed_by_checkpoint_and_by_key(world: World) -> None:
    world.write(model(NDIF_KEY, 2, member("--plain", gpus=0.5)), model(VISION_KEY, 1, member("--plain", gpus=0.5)))
    address = world.env.pop("FLEETCTL_ADDRESS")
    world.env["COLUMNS"] = "300"  # rows as they are

    def fleetctl(*words: str, code: int = 0, file: bool = True) -> CompletedProcess[str]:
        given = [*words, *(("-f", str(world.file)) if file else ()), "--ray-address", address]
        done = world.run(*given, *(() if words[0] in ("status", "logs") else ("--yes",)))
        assert done.returncode == code, done.stderr
        return done

    def running() -> dict[str, int]:
        return {name: row["restarts"] for name, row in world.actors().items()}

    deployed = fleetctl("deploy", CHECKPOINT)
    assert running() == {f"ModelActor:{NDIF_KEY}:0": 0}
    assert f"note: {NDIF_KEY}: the fleet file wants 2; the next apply starts 1 replica more" in deployed.stderr
    assert f"  + {NDIF_KEY}/0: 0.5 GPU on " in deployed.stdout
    assert "\nApply: 1 ready, 0 removed" in deployed.stdout
    refused = fleetctl("deploy", CHECKPOINT, code=1)
    assert f"has 1 live replica\nhint: `fleetctl scale {CHECKPOINT} --replicas N -f " in refused.stderr
    fleetctl("deploy", VISION_KEY)

    assert running() == {f"ModelActor:{NDIF_KEY}:0": 0, f"ModelActor:{VISION_KEY}:0": 0}

    for shown in (fleetctl("status"), fleetctl("status", file=False), fleetctl("status", CHECKPOINT, file=False)):
        rows = [line for line in shown.stdout.splitlines() if line.startswith(f"{NDIF_KEY}/")]
        assert [line.removeprefix(NDIF_KEY).split()[:2] for line in rows] == [["/0", "ready"]]
    replica = json.loads(fleetctl("status", CHECKPOINT, "--format", "json").stdout)["replicas"][0]
    [seat] = replica["members"]
    started = httpx.get(f"http://{seat['address']}:{seat['port']}/env", timeout=60).json()
    assert (started["FLEETCTL_MODEL"], started["FLEETCTL_REPLICA_ID"]) == (NDIF_KEY, "0")
    assert re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", started["FLEETCTL_NAME"])

    restarted = fleetctl("restart", f"{NDIF_KEY}/0", f"{VISION_KEY}/0")
    assert "Restart: 2 ready" in restarted.stdout
    assert running() == {f"ModelActor:{NDIF_KEY}:0": 1, f"ModelActor:{VISION_KEY}:0": 1}
    assert "fleetctl" not in fleetctl("logs", f"{CHECKPOINT}/0", file=False).stderr, "the log is found"

    unknown = fleetctl("evict", f"{CHECKPOINT}/2", code=1)
    assert f"there is no {NDIF_KEY}/2\nhint: {NDIF_KEY} has 0\n" in unknown.stderr
    evicted = fleetctl("evict", CHECKPOINT, "org/sees it", file=False)
    assert "Evict: 2 gone" in evicted.stdout
    assert running() == {}
    rows = json.loads(world.run("history", "--format", "json", "--address", address).stdout)
    assert f"{NDIF_KEY}/0" in [name for run in rows["runs"] for name in run["replicas"]]
    next_day = world.run("plan", "-f", world.file, "--format", "json", "--ray-address", address)
    ids = {action["id"] for action in json.loads(next_day.stdout)["actions"]}
    assert ids == {f"{NDIF_KEY}/0", f"{NDIF_KEY}/1", f"{VISION_KEY}/0"}
    assert shlex.split(f"fleetctl evict {shlex.quote(NDIF_KEY)}/0")[-1] in ids, "as the documentation types it"
