"""What reading, planning and showing a large cluster costs: `python -m tests.benchmarks.large_cluster --json`.

Runs `fleetctl inventory`, `plan` and `status` as a user would, against a process that answers as the dashboard of such
a cluster does. What they say must be right, or the run ends with an error. With --json the last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fleetctl.fleetfile.load import load_fleet
from fleetctl.version import __version__
from tests.benchmarks.large.world import World
from tests.benchmarks.machine import machine_text

WORLDS = {
    "small": World(nodes=20, models=10, starting=10),
    "thousand": World(nodes=200, models=20, starting=20, idle=100),
    "groups": World(nodes=20, models=10, starting=10, groups=10_200),
    "crowded": World(nodes=20, models=10, starting=10, foreign=12_000, named=5_000, groups=10_200),
    "large": World(nodes=2_000, models=100, starting=300),
}
MORE = {"whole": 4, "half": 6, "gang": 2}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run of a command took: seconds by the clock and of processor, and the most memory it had."""

    seconds: float
    processor: float
    peak_mib: float


@contextmanager
def dashboard(world: World) -> Iterator[str]:
    """Run the stand-in in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.large.dashboard", json.dumps(asdict(world))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdin
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait()


def measured(arguments: Sequence[str], folder: Path) -> tuple[Cost, Any]:
    """Run one command; return its cost, and the JSON or the text it wrote."""
    with (folder / "out.json").open("w+b") as out:
        began = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-m", "fleetctl", *arguments], stdout=out)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"{arguments[0]} ended with {process.returncode}"
        out.seek(0)
        said = out.read().decode()
        return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024), (
            json.loads(said) if "json" in arguments else said)


def check_inventory(world: World, seen: Any) -> None:
    """Raise AssertionError unless everything was seen, each once."""
    assert seen["complete"], seen["warnings"]
    assert len(seen["nodes"]) == world.nodes
    ours = {(one["model"], one["replicaId"]): one for one in seen["replicas"] if one.get("fleet") == "lab"}
    assert len(ours) == len(world.replicas) == sum(one.get("fleet") == "lab" for one in seen["replicas"])
    for placed in world.replicas:
        one = ours[placed.model, placed.replica_id]
        assert (one["state"] != "ALIVE") == placed.starting
        assert len(one["members"]) == len(placed.seats)
    assert len(seen["replicas"]) == len(world.replicas) + world.named


def check_plan(world: World, plan: Any) -> None:
    """Raise AssertionError unless the plan creates what is wanted more than runs, and nothing else."""
    created = sorted(action["model"] for action in plan["actions"])
    assert created == sorted(world.model(kind, number) for kind, count in MORE.items() for number in range(count))
    assert not plan["blocked"]
    assert not plan["drift"]
    assert plan["summary"]["live"] == len(world.replicas)


def check_status(world: World, shown: str) -> None:
    """Raise AssertionError unless every replica has its row."""
    starting = sum(one.starting for one in world.replicas)
    assert shown.splitlines()[-1] == f"Replicas: {len(world.replicas) - starting} ready, {starting} starting"
    assert sum(line.startswith("org/") for line in shown.splitlines()) == len(world.replicas) + 3 * world.models


def with_hashes(world: World, path: Path) -> World:
    """Write the fleet file of a world; what runs there was started with its specs."""
    path.write_text(world.fleet_text(MORE))
    return replace(world, spec_hashes={model.key: model.spec_hash for model in load_fleet([str(path)]).models})


def measure(world: World, rounds: int) -> dict[str, list[Cost]]:
    """Run the commands `rounds` times against a world."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fleet = folder / "fleet.yaml"
        world = with_hashes(world, fleet)
        costs: dict[str, list[Cost]] = {"inventory": [], "plan": [], "status": []}
        with dashboard(world) as url:
            for _ in range(rounds):
                cost, seen = measured(["inventory", "--address", url, "--format", "json"], folder)
                check_inventory(world, seen)
                costs["inventory"].append(cost)
                cost, plan = measured(["plan", "--address", url, "-f", str(fleet), "--format", "json"], folder)
                check_plan(world, plan)
                costs["plan"].append(cost)
                cost, shown = measured(["status", "--address", url, "-f", str(fleet)], folder)
                check_status(world, shown)
                costs["status"].append(cost)
    return costs


def told(costs: Sequence[Cost]) -> dict[str, Any]:
    """The middle of all runs, and how far they lie apart."""
    by_part = {part: [getattr(cost, part) for cost in costs] for part in ("seconds", "processor", "peak_mib")}
    return {part: {"median": round(statistics.median(values), 2), "least": round(min(values), 2),
                   "most": round(max(values), 2)} for part, values in by_part.items()}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", choices=[*WORLDS, "all"], default="all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    flags = parser.parse_args()
    results = {}
    for name in WORLDS if flags.world == "all" else [flags.world]:
        results[name] = {command: told(costs) for command, costs in measure(WORLDS[name], flags.rounds).items()}
        for command, cost in results[name].items():
            seconds, processor, peak = (cost[part]["median"] for part in ("seconds", "processor", "peak_mib"))
            print(f"{name:8} {command:9} {seconds:6.2f} s  {processor:6.2f} s of processor  {peak:5.0f} MiB")
    if flags.json:
        print(json.dumps({
            "benchmark": "large_cluster", "rounds": flags.rounds, "seeds": "none: nothing is random",
            "worlds": {name: {key: value for key, value in asdict(WORLDS[name]).items() if key != "spec_hashes"}
                       for name in results},
            "machine": machine_text(),
            "versions": {"fleetctl": __version__, "python": platform.python_version()}, "results": results,
        }))


if __name__ == "__main__":
    main()
