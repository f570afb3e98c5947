"""Mutants of the files in which a mistake costs most: `python -m tests.mutants --most 60`. Exit code 1 = a gap.

Each mutant is one small change; the narrow tests of its file must fail on it. Mutants that change nothing are listed
with a reason in survivors.yaml. An unlisted one that survives is a gap, and so is a listed one that is killed or is
none. A run that was ended or ran out of time goes on where it stopped.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.mutants.changes import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
LISTED = Path(__file__).with_name("survivors.yaml")
ENDS = ROOT / "build" / "mutants.jsonl"

FILES: dict[str, tuple[str, ...]] = {
    "fleetctl/planner/live.py": ("tests/planner/test_live_replicas.py", "tests/planner/test_promote.py",
                                 "tests/planner/test_planner_cases.py"),
    "fleetctl/planner/promote.py": ("tests/planner/test_promote.py", "tests/planner/test_live_replicas.py",
                                    "tests/planner/test_stale.py"),
    "fleetctl/planner/reloads.py": ("tests/planner/test_reloads.py",),
    "fleetctl/planner/stale.py": ("tests/planner/test_stale.py", "tests/planner/test_promote.py",
                                  "tests/planner/test_reloads.py"),
    "fleetctl/planner/breaker.py": ("tests/planner/test_breaker.py", "tests/planner/test_cooldowns.py"),
    "fleetctl/planner/pilot.py": ("tests/planner/test_pilot.py",),
    "fleetctl/watch/step.py": ("tests/watch/test_step.py",),
    "fleetctl/watch/pushes.py": ("tests/watch/test_pushes.py",),
    "fleetctl/apply/standby.py": ("tests/apply/test_hand_over.py",),
    "fleetctl/inventory/marks.py": ("tests/inventory/test_marks.py", "tests/inventory/test_names.py"),
    "fleetctl/inventory/uptimes.py": ("tests/inventory/test_uptimes.py",),
    "fleetctl/agent/attempt.py": ("tests/agent/test_attempt.py", "tests/agent/test_attempt_failed.py",
                                  "tests/agent/test_dirty_cards.py"),
    "fleetctl/agent/create.py": ("tests/agent/test_create.py", "tests/agent/test_grants.py",
                                 "tests/agent/test_turns.py", "tests/agent/test_attempt.py"),
    "fleetctl/agent/view.py": ("tests/agent/test_view.py", "tests/agent/test_side_by_side.py"),
    "fleetctl/agent/evict.py": ("tests/agent/test_explicit_verbs.py",),
    "fleetctl/agent/reload.py": ("tests/agent/test_reloading.py",),
    "fleetctl/agent/standby.py": ("tests/agent/test_standby.py",),
    "fleetctl/agent/pilot.py": ("tests/agent/test_pilot_in_run.py",),
    "fleetctl/agent/caches/key.py": ("tests/agent/caches/test_keys.py",),
    "fleetctl/agent/lock.py": ("tests/agent/test_lock.py",),
    "fleetctl/agent/weights/table.py": ("tests/agent/weights/test_table.py",),
}
"""The files that decide what is created, reloaded, taken for ours or allowed to act, and their narrow tests."""
ONLY = {"fleetctl/planner/promote.py": ("is_warm_with", "is_still_warm")}
"""The functions that count, in files of which the rest decides only between equally good plans."""


@dataclass(slots=True)
class Result:
    """The mutants of one file that were tried, by how they ended, and how many there was no time for."""

    killed: list[Mutant] = field(default_factory=list)
    survived: list[Mutant] = field(default_factory=list)
    left: int = 0


def main() -> int:
    """Print each gap with its change, a line per file, and one JSON object at the end."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=60, help="mutants of a file; 0 = all")
    parser.add_argument("--file", action="append", default=[], choices=FILES, help="only this one; repeatable")
    parser.add_argument("--survived", action="store_true", help="only mutants that survived at their last try")
    parser.add_argument("--seconds", type=float, default=3600, help="no mutant is begun after this time")
    options = parser.parse_args()
    deadline, gaps, results = time.monotonic() + options.seconds, 0, list[Result]()
    listed = yaml.safe_load(LISTED.read_text()) or {}
    for file in options.file or FILES:
        mutants = [one for one in mutants_of((ROOT / file).read_bytes())
                   if one.function in ONLY.get(file, (one.function,))]
        reasons = {name: one["reason"] for one in listed.get(file, []) for name in one["mutants"]}
        chosen = mutants if not 0 < options.most < len(mutants) else sorted(
            random.Random(f"{options.seed} {file}").sample(mutants, options.most), key=lambda one: one.start)
        results.append(tried(file, chosen, deadline, again=options.survived))
        gaps += shown(file, results[-1], mutants, reasons)
    killed, survived, left = (sum(len(one.killed) for one in results), sum(len(one.survived) for one in results),
                              sum(one.left for one in results))
    print(json.dumps({"seed": options.seed, "killed": killed, "survived": survived, "gaps": gaps, "left": left,
                      "killedPercent": round(100 * killed / max(1, killed + survived), 1)}))
    return 1 if gaps or left else 0


def tried(file: str, mutants: Sequence[Mutant], deadline: float, *, again: bool) -> Result:
    """Try mutants of a file, except those that were tried before with this file and these tests.

    `again` = only those that survived their last try, whatever the tests were then.
    """
    source, before = (ROOT / file).read_bytes(), dict[str, bool]()
    texts = [source, *((ROOT / name).read_bytes() for name in FILES[file])]
    digest = hashlib.sha256(b"\0".join(texts)).hexdigest()
    for line in ENDS.read_text().splitlines() if ENDS.exists() else []:
        row = json.loads(line)
        if row["file"] == file and (again or row["digest"] == digest):
            before[row["name"]] = row["killed"]
    if again:
        mutants, before = [one for one in mutants if before.get(one.name) is False], {}
    new = [one for one in mutants if one.name not in before]
    ENDS.parent.mkdir(exist_ok=True)
    with ENDS.open("a") as written:
        for mutant, killed in zip(new, trials(file, source, new, deadline), strict=False):
            before[mutant.name] = killed
            print(json.dumps({"file": file, "digest": digest, "name": mutant.name, "killed": killed}),
                  file=written, flush=True)
    known = [one for one in mutants if one.name in before]
    return Result([one for one in known if before[one.name]], [one for one in known if not before[one.name]],
                  len(mutants) - len(known))


def trials(file: str, source: bytes, mutants: Sequence[Mutant], deadline: float) -> Iterator[bool]:
    """Yield for each mutant whether it was killed, until the deadline."""
    if not mutants:
        return
    asked = {"file": file, "tests": FILES[file],
             "mutants": [(one.function, one.applied(source).decode()) for one in mutants]}
    environment = {**os.environ, "FLEETCTL_TEST_CASES": "0.1", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, "-m", "tests.mutants.trial"], cwd=ROOT, env=environment, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trial:
        assert trial.stdin and trial.stdout  # noqa: PT018
        with trial.stdin:
            json.dump(asked, trial.stdin)
        for line in trial.stdout:
            yield line == "killed\n"
            if time.monotonic() > deadline:
                trial.terminate()
                return
    if trial.returncode:
        print(f"{file}: its tests fail without any change")


def shown(file: str, result: Result, mutants: Sequence[Mutant], reasons: dict[str, str]) -> int:
    """Print a file's gaps and its line of the table; returns the number of gaps."""
    source, known = (ROOT / file).read_bytes(), {one.name for one in mutants}
    gaps = [one for one in result.survived if one.name not in reasons]
    for mutant in gaps:
        print(f"{file}:{mutant.line}: survived: {mutant.name}")
        was, now = (text.decode().splitlines() for text in (source, mutant.applied(source)))
        print(*list(difflib.unified_diff(was, now, n=0, lineterm=""))[2:], sep="\n")
    wrong = [f"is listed and was killed: {one.name}" for one in result.killed if one.name in reasons]
    wrong += [f"is listed and is no mutant: {name}" for name in reasons if name not in known]
    for text in wrong:
        print(f"{file}: {text}")
    print(f"{file}: {len(mutants)} mutants, {len(result.killed)} killed, {len(result.survived)} survived, "
          f"{len(result.survived) - len(gaps)} of them listed, {result.left} left", flush=True)
    return len(gaps) + len(wrong)


if __name__ == "__main__":
    sys.exit(main())
