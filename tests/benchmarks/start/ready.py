"""Whether starts take as long as plans say: `python -m tests.benchmarks.start.ready --json`.

On a real Ray, replicas of one model start one after another on one node. Each engine reads the bytes of its weights
from the disk, not from the page cache, and hashes them. Before each start a plan says the range that the earlier ones
give. `own` = the engine finds its files itself; `weights` = fleetctl has fetched them, and later starts find them on
the disk. With --json the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from fleetctl.agent.weights.index import write_index
from fleetctl.version import __version__
from tests.benchmarks.machine import machine_text
from tests.benchmarks.start.__main__ import moment
from tests.e2e.cluster import running_cluster

ENGINE = """\
import hashlib, http.server, os, pathlib, sys
for path in sorted(pathlib.Path(os.environ.get("FLEETCTL_MODEL_DIR") or sys.argv[2]).glob("*.safetensors")):
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while block := file.read(8 << 20):
            hashlib.sha256(block)
http.server.HTTPServer(("", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def model(folder: Path, mib: int) -> str:
    """Write a model of one tensor of random bytes; returns the hash of its index."""
    folder.mkdir()
    header = json.dumps({"w": {"dtype": "U8", "shape": [mib << 20], "data_offsets": [0, mib << 20]}}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(mib):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
    return write_index(str(folder))


def measured(folder: Path, kind: str, count: int, mib: int) -> list[dict[str, Any]]:
    """Start `count` replicas one after another; return what the plan before each said, and how long it took."""
    origin = folder / "origin"
    index = model(origin, mib)
    (folder / "engine.py").write_text(ENGINE)
    engine = {"command": [sys.executable, str(folder / "engine.py")], "args": ["$(FLEETCTL_PORT)", str(origin)],
              "readiness": {"http": {"path": "/"}}}
    weights = {"weights": {"from": [{"path": str(origin)}], "index": index}} if kind == "weights" else {}
    member = {"resources": {"gpus": 1}, "engine": engine, **weights}
    file, rows = folder / "fleet.yaml", list[dict[str, Any]]()
    with running_cluster(folder) as cluster:
        cluster.add(names=["n0"], gpus=count)
        env = {**os.environ, "FLEETCTL_ADDRESS": cluster.address, "FLEETCTL_NAMESPACE": "bench"}

        def fleetctl(*arguments: str) -> str:
            return subprocess.run([sys.executable, "-m", "fleetctl", *arguments], env=env, capture_output=True,
                                  text=True, check=True).stdout

        for number in range(count):
            file.write_text(yaml.safe_dump({
                "apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "bench"},
                "spec": {"models": [{"key": "bench", "replicas": number + 1,
                                     "workers": [{"name": "main", "members": [member]}]}]}}))
            [action] = json.loads(fleetctl("plan", "-f", str(file), "--format", "json"))["actions"]
            events = [json.loads(line) for line in fleetctl(
                "apply", "-f", str(file), "--yes", "--format", "jsonl").splitlines()]
            at = {event["type"]: moment(event["time"]) for event in events}
            newest = json.loads(fleetctl("inventory", "--format", "json"))["starts"][-1]
            said = action.get("readyIn", {})
            rows.append({"took": newest["seconds"], "created to ready": round(
                at["replicaReady"] - at["replicaCreated"], 1), "weights": newest["weights"], **said})
            print(rows[-1], flush=True)
        cluster.sweep(namespaces=["bench"])
    return rows


def within(rows: list[dict[str, Any]], taken: str) -> str:
    """How many of the starts with a range are in it."""
    ranged = [row for row in rows if "most" in row]
    return f"{sum(row['least'] <= row[taken] <= row['most'] for row in ranged)} of {len(ranged)}"


def main() -> None:
    """Start replicas of both kinds, and print how many starts took as long as the plan before them said."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.start.ready", description=__doc__)
    parser.add_argument("--starts", type=int, default=24)
    parser.add_argument("--mib", type=int, default=4096, help="size of the weights")
    parser.add_argument("--kind", choices=("own", "weights"), action="append", help="only this; may be repeated")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for kind in options.kind or ("own", "weights"):
        with tempfile.TemporaryDirectory() as name:
            rows = measured(Path(name), kind, options.starts, options.mib)
        times = sorted(row["took"] for row in rows[1:])
        wide = sorted(row["most"] / row["least"] for row in rows if row.get("least"))
        results[kind] = {
            "in range": within(rows, "took"), "as the apply sees it": within(rows, "created to ready"),
            "first": rows[0]["took"], "least": times[0], "median": times[len(times) // 2], "most": times[-1],
            "width": round(wide[len(wide) // 2], 2) if wide else None}
        print(kind, json.dumps(results[kind]))
    if options.json:
        print(json.dumps({"benchmark": "ready", "version": __version__, "python": platform.python_version(),
                          "machine": machine_text(), "mib": options.mib, "starts": options.starts, **results}))


if __name__ == "__main__":
    main()
