"""Hostile changes through the commands that read them: `python -m tests.hostile --cases 500`. Violations: exit 1."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.hostile.driver import Report, driver
from tests.hostile.judge import MAX_S, Limits
from tests.hostile.kinds import KINDS


def main() -> int:
    """Run the cases and print what was found; the last line is one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--case", type=int, help="only this one, and keep its folder")
    parser.add_argument("--scale", type=float, default=1.0, help="of what is large")
    parser.add_argument("--kind", action="append", default=[], choices=sorted(KINDS), help="of these kinds; repeatable")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="cases at once")
    parser.add_argument("--seconds", type=float, default=MAX_S, help="the longest time of a command, on a calm machine")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    wanted = [options.case] if options.case is not None else range(1, options.cases + 1)
    queue = iter(wanted)  # each job takes its next one: to look first whether there is one could be too late

    def work(job: int) -> Report:
        with driver(folder / f"job-{job}", options.seed, Limits(options.seconds, 4 * options.seconds),
                    lambda text: print(text, flush=True), scale=options.scale) as made:
            for number in queue:
                made.run(number, options.kind)
            return made.report

    jobs = min(options.jobs, len(wanted))
    with ThreadPoolExecutor(jobs) as pool:
        reports = list(pool.map(work, range(jobs)))
    print(json.dumps(_together(reports, options.seed)))
    return 1 if any(report.violations for report in reports) else 0


def _together(reports: list[Report], seed: int) -> dict[str, object]:
    commands, answered, kinds = Counter[str](), Counter[str](), Counter[str]()
    for report in reports:
        commands, answered, kinds = commands + report.commands, answered + report.answered, kinds + report.kinds
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    return {
        "seed": seed, "cases": sum(report.cases for report in reports), "kinds": dict(sorted(kinds.items())),
        "commands": dict(sorted(commands.items())), "answered": dict(sorted(answered.items())),
        "worstMemory": dict(zip(("mib", "of"), max(report.worst_mib for report in reports), strict=True)),
        "worstTime": dict(zip(("seconds", "of"), max(report.worst_s for report in reports), strict=True)),
        "worstCpu": dict(zip(("seconds", "of"), max(report.worst_cpu_s for report in reports), strict=True)),
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
                    "git": git},
        "violations": [violation for report in reports for violation in report.violations]}


if __name__ == "__main__":
    sys.exit(main())
