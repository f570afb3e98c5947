"""What the checks of weights on a node cost a start, and how soon they find a change: `--mib 1024 --rounds 7 --json`.

A node has a model on its disk. In random order (`--seed`), nothing is changed, all files get another ctime or another
mtime, or eight bytes of the last file change and its mtime is put back. Then the time of a start is measured: weights
made ready, and an engine that reads all files. After it the check runs in the background; measured is how long until it
reports. The files are in the page cache. The allowed time is one minute and one second for each 1.5 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import random
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleetctl.agent.weights import check
from fleetctl.agent.weights.check import BackgroundCheck, CheckedEntry, CheckResult, Verified
from fleetctl.agent.weights.fetch import Fetch, Fetched, Wanted
from fleetctl.agent.weights.index import write_index
from fleetctl.agent.weights.store import Entry
from tests.benchmarks.machine import machine_text

SECRET, SHARDS = b"of this benchmark", 4
ENGINE = "import sys\nfor path in sys.argv[1:]:\n  with open(path, 'rb') as file:\n    while file.read(1 << 20): pass\n"


def model(folder: Path, mib: int) -> str:
    """Write a model of SHARDS files and return its artifact."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for number in range(SHARDS):
        with (folder / f"shard-{number}").open("wb") as file:
            for _ in range(mib // SHARDS):
                file.write(os.urandom(1 << 20))
    return write_index(str(folder))


def start(root: Path, wanted: Wanted) -> tuple[Fetched, float]:
    """Make the weights ready and let an engine read them; return the seconds that it took."""
    begun = time.monotonic()
    got = Fetch(str(root), wanted, begun + 600, lambda _: None).run()
    files = [got.entry.path(file.path) for file in got.held.files]
    subprocess.run([sys.executable, "-I", "-S", "-c", ENGINE, *files], check=True)
    return got, time.monotonic() - begun


def after(root: Path, wanted: Wanted, got: Fetched) -> list[tuple[str, float, float]]:
    """Run the check as an actor does, until all is verified.

    Returns what it reported, each with the seconds and the processor seconds until then.
    """
    said: queue.Queue[tuple[str, float, float]] = queue.Queue()
    verified = Verified(str(root), wanted.artifact, SECRET)
    if not verified.due(got.entry, got.held):
        return []
    begun, cpu = time.monotonic(), time.process_time()

    def fetch_again(_: Entry) -> None:
        Fetch(str(root), wanted, time.monotonic() + 600, lambda _: None).run()

    def report(finding: CheckResult) -> None:
        said.put((finding.what, time.monotonic() - begun, time.process_time() - cpu))

    checked = BackgroundCheck(lambda: [CheckedEntry(got.entry, got.held)], verified, fetch_again, report)
    checked.start()
    found = [said.get(timeout=600)]
    while found[-1][0] != "verified":
        found.append(said.get(timeout=600))
    checked.close()
    return found


def each(change: Callable[[Path], None]) -> Callable[[Fetched], None]:
    def change_all(got: Fetched) -> None:
        for file in got.held.files:
            change(Path(got.entry.path(file.path)))

    return change_all


def eight_bytes(got: Fetched) -> None:
    path = Path(got.entry.path(f"shard-{SHARDS - 1}"))
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(os.urandom(8))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Fetched], None]] = {
    "unchanged": lambda _: None, "another ctime": each(lambda path: path.chmod(0o444)),
    "another mtime": each(Path.touch), "eight bytes": eight_bytes,
}


def spread(values: list[float], digits: int = 2) -> dict[str, float]:
    return {"median": round(statistics.median(values), digits), "min": round(min(values), digits),
            "max": round(max(values), digits)}


def measured(root: Path, artifact: str, mib: int, rounds: int, seed: int) -> dict[str, Any]:
    wanted = Wanted(artifact, None, 0, 1, [{"path": str(root / "origin")}], [], SECRET)
    node, order = root / "node", random.Random(seed)
    got, _ = start(node, wanted)
    after(node, wanted, got)
    starts: dict[str, list[float]] = {name: [] for name in CHANGES}
    speeds, costs, found = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        for name in order.sample(list(CHANGES), len(CHANGES)):
            CHANGES[name](got)
            got, took = start(node, wanted)
            starts[name].append(took)
            said = after(node, wanted, got)
            if name == "eight bytes":
                found.append(next(at for what, at, _ in said if what == "wrong"))
            elif said:
                speeds.append(got.held.size / said[0][1] / 1e9)
                costs.append(got.held.size / said[0][2] / 1e9)
    return {"start_s": {name: spread(values, 3) for name, values in starts.items()},
            "checked_gb_per_s": spread(speeds), "checked_gb_per_processor_s": spread(costs),
            "found_after_s": spread(found), "allowed_s": round(60 + (mib << 20) / 1.5e9, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        found = measured(root, model(root / "origin", options.mib), options.mib, options.rounds, options.seed)
    found |= {"mib": options.mib, "rounds": options.rounds, "seed": options.seed, "threads": check.cores(),
              "load": [round(load, 1), round(os.getloadavg()[0], 1)], "machine": machine_text(),
              "sha": "sha_ni" in Path("/proc/cpuinfo").read_text(), "python": platform.python_version(),
              "openssl": ssl.OPENSSL_VERSION, "kernel": platform.release()}
    print(json.dumps(found) if options.json else "\n".join(f"{name:18} {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
