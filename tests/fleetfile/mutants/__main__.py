"""Mutated fleet files through `fmt`: `python -m tests.fleetfile.mutants --count 100000`. Exit code 1 = a fault."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter

from .mutate import Mutator
from .trial import trial

MOST_SHOWN = 10


def main() -> int:
    """Print each file with a fault, and one JSON object at the end."""
    parser = argparse.ArgumentParser(prog="python -m tests.fleetfile.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100_000)
    options = parser.parse_args()
    mutator, ends, faults = Mutator(options.seed), Counter[str](), 0
    for number in range(options.count):
        text = mutator.mutant()
        end, fault = trial(text)
        ends[end] += 1
        if fault and (faults := faults + 1) <= MOST_SHOWN:
            print(json.dumps({"number": number, "fault": fault, "text": text}), flush=True)
    report = {"seed": options.seed, "files": options.count, "ends": dict(ends.most_common()), "harmed": faults}
    print(json.dumps(report))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
