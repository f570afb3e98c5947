"""A cluster full of lies: `python -m tests.hostile_cluster --cases 500 --seed 1`. Failures: exit code 1."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys

PARTS = ("actors", "connections")
"""Modules of this package. Each has ABOUT, one line, and `run(cases, seed)`, which returns counts and `failures`."""


def main() -> int:
    """Run the parts; the last line is one JSON object."""
    there = [name for name in PARTS if importlib.util.find_spec(f"{__package__}.{name}")]
    parser = argparse.ArgumentParser(prog="python -m tests.hostile_cluster", description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", choices=there, help="only this one")
    options = parser.parse_args()
    results = {}
    for name in [options.part] if options.part else there:
        part = importlib.import_module(f"{__package__}.{name}")
        print(f"{name}: {part.ABOUT}", flush=True)
        results[name] = part.run(options.cases, options.seed)
        for failure in results[name]["failures"]:
            print(f"  FAILED {failure}", flush=True)
    print(json.dumps(results))
    return 1 if any(result["failures"] for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
