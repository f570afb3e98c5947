"""Faults of every kind on a real Ray of this machine: `python -m tests.chaos --faults 500`. Violations: exit code 1."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.chaos.fault_kinds import KINDS
from tests.chaos.rounds import Driver
from tests.e2e.cluster import running_cluster


def main() -> int:
    """Run the driver and print what it did; the last line is one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=500, help="end after this many have hit")
    parser.add_argument("--only", nargs="*", default=sorted(KINDS), metavar="KIND", help="only these kinds of fault")
    parser.add_argument("--seconds", type=float, default=24 * 3600.0, help="or after this time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, running_cluster(Path(folder)) as cluster:
        driver = Driver(cluster, Path(folder), options.seed, lambda text: print(text, flush=True),
                        without=KINDS.keys() - options.only)
        report = driver.run(options.faults, options.seconds)
    print(json.dumps({"seed": options.seed, "rounds": report.rounds, "faults": sum(report.faults.values()),
                      "kinds": dict(sorted(report.faults.items())), "repairs": dict(report.repairs),
                      "secondRepairs": report.second_repairs, "violations": report.violations}))
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
