"""Planning at scale: `python -m tests.benchmarks.scale --nodes 10000 --replicas 50000 --models 1000 --seed 1 --json`.

Writes a synthetic fleet file and inventory snapshot, runs the real path on them in a fresh process
(see `synthetic/measure.py`) and checks the plan (`synthetic/check.py`). With --json the last line is one flat JSON
object: seconds per stage (`plan_s` with the certificate's in it, `total_s` the whole process), peak memory, and how
many of the planted replicas found a place. --peers adds first-fit and Ray's own scheduler on the same demands, a JSON
line each before it. `docs/benchmarks.md` explains kinds and fields.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

from fleetctl.version import __version__
from tests.benchmarks.machine import machine_text
from tests.benchmarks.synthetic.check import check
from tests.benchmarks.synthetic.fleet import SyntheticFleet, fleet_yaml, inventory_json
from tests.benchmarks.synthetic.kinds import KINDS, build


def main() -> None:
    """Run the benchmark."""
    flags = _flags()
    fleet = build(flags.kind, flags.nodes, flags.replicas, flags.models, Random(flags.seed))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(fleet, folder)
        measured = measure(folder)
        plan = json.loads((folder / "plan.json").read_bytes())
    violations = check(fleet, plan)
    for violation in violations[:10]:
        print("VIOLATION", violation)
    about = {
        "benchmark": "scale", "kind": flags.kind, "nodes": len(fleet.hosts), "models": len(fleet.models),
        "gpus": sum(len(host.cards) for host in fleet.hosts),
        "replicas": sum(model.replicas for model in fleet.models), "seed": flags.seed,
    }
    ours = {**about, **measured, **_outcome(fleet, plan), "violations": len(violations), **machine()}
    if flags.peers:
        from tests.benchmarks.synthetic.peers import run_peers

        for line in run_peers(fleet):
            print(json.dumps({**about, **line}))
    if flags.json:
        print(json.dumps(ours))
    else:
        print("\n".join(f"{name:16} {value}" for name, value in ours.items()))
    sys.exit(1 if violations else 0)


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000, help="of eight cards each")
    parser.add_argument("--replicas", type=int, default=5000)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=sorted(KINDS), default="planted")
    parser.add_argument("--hostile", dest="kind", choices=("fragmented", "selectors", "gangs", "vram"),
                        help="the same as --kind")
    parser.add_argument("--peers", action="store_true", help="also first-fit and Ray's scheduler, which takes minutes")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    return parser.parse_args()


def write(fleet: SyntheticFleet, folder: Path) -> None:
    """Write the fleet file and the snapshot; running replicas have the hash of their spec in the file."""
    from fleetctl.fleetfile.load import load_fleet

    (folder / "fleet.yaml").write_text(fleet_yaml(fleet))
    if fleet.held:
        hashes = {model.key: model.spec_hash for model in load_fleet([str(folder / "fleet.yaml")]).models}
        for held in fleet.held:
            held.spec_hash = hashes.get(held.model)
    (folder / "inventory.json").write_text(inventory_json(fleet))


def measure(folder: Path) -> dict[str, Any]:
    """Run the measured path in a fresh process; `total_s` is the whole process, from start to exit."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "tests.benchmarks.synthetic.measure", str(folder)],
                          check=True, stdout=subprocess.PIPE, text=True)
    total = time.perf_counter() - began
    return {**json.loads(done.stdout.splitlines()[-1]), "total_s": round(total, 4)}


def _outcome(fleet: SyntheticFleet, plan: dict[str, Any]) -> dict[str, Any]:
    certificate = plan["certificate"]
    return {"placed": certificate["placed"], "planted": fleet.planted, "upper_bound": certificate["upperBound"],
            "status": certificate["status"], "method": certificate["method"]}


def machine() -> dict[str, Any]:
    """Return the machine and the versions of a measurement."""
    return {
        "machine": machine_text(),
        "python": platform.python_version(), "fleetctl": __version__,
        **{name: version(name) for name in ("numpy", "scipy", "pydantic", "PyYAML")},
    }


if __name__ == "__main__":
    main()
