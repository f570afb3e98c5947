"""Cases one after the other: compose kinds, make the repositories, run the commands, judge each."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster_stand_in import ClusterStandIn, serve
from tests.github_stand_in import GitHubStandIn
from tests.hostile import kinds_of_files, kinds_of_objects, kinds_of_repositories  # noqa: F401  they register kinds
from tests.hostile.canary import Canary, listening
from tests.hostile.case import SECRETS, Case, begin, finish
from tests.hostile.judge import Limits, files_of, violations
from tests.hostile.kinds import KINDS, Kind
from tests.hostile.launcher import Launcher
from tests.hostile.steps import steps_of
from tests.stand_in_server import serving

FRESH = 0.1
"""How many commands start as a user's do; the others are forked from a process that has imported fleetctl."""
SHA256 = "a checkout with sha256"
FIRST = ("another cluster", "another cluster over tls", "one hostile text in a good fleet")
"""Kinds that change the numbers or the address of the fleet, from which others forge their bases."""
ORDER = ("fleet", "rules", "objects", "place", "repository")


@dataclass
class Report:
    """What was done and found. `violations` must stay empty; `answered` = the commands that did not refuse."""

    cases: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    worst_mib: tuple[int, str] = (0, "")
    worst_s: tuple[float, str] = (0.0, "")
    worst_cpu_s: tuple[float, str] = (0.0, "")
    violations: list[str] = field(default_factory=list)


@dataclass
class Driver:
    """One canary, one forge, one cluster and one launcher: a case at a time."""

    folder: Path
    seed: int
    limits: Limits
    canary: Canary
    forge: GitHubStandIn
    cluster: ClusterStandIn
    launcher: Launcher
    log: Callable[[str], None]
    rules_s: float | None = None
    scale: float = 1.0
    report: Report = field(default_factory=Report)

    def run(self, number: int, chosen: Sequence[str] = (), most_steps: int | None = None) -> list[str]:
        """Run one case and return its violations; `chosen` = its kinds, else they are random."""
        rng = random.Random(f"{self.seed}/{number}")
        kinds = [KINDS[name] for name in chosen] or _composed(rng)
        kinds = sorted(kinds, key=lambda one: (one.name not in FIRST, ORDER.index(one.slot)))
        folder = self.folder / f"case-{number}"
        case = begin(folder, number, rng, self.canary, self.cluster.url,
                     "sha256" if any(one.name == SHA256 for one in kinds) else "sha1", self.scale)
        case.kinds = [one.name for one in kinds]
        for one in kinds:
            one.alter(case)
        finish(case)
        found = list(self._judged(case, rng, most_steps))
        self.report.cases += 1
        self.report.kinds.update(case.kinds)
        self.report.violations += found
        for one in found:
            self.log(f"VIOLATION in {one}")
        if found:
            self.log(f"  to see it again: python -m tests.hostile --seed {self.seed} --case {number}"
                     + "".join(f' --kind "{name}"' for name in chosen) + f"; its folder: {folder}")
        else:
            shutil.rmtree(folder)
        return found

    def _judged(self, case: Case, rng: random.Random, most_steps: int | None) -> Iterator[str]:
        forge = {**self.forge.environment(SECRETS["GITHUB_TOKEN"])}
        steps = steps_of(case, forge)
        if most_steps is not None and len(steps) > most_steps:
            chosen = set(rng.sample(range(len(steps)), most_steps))
            steps = [step for number, step in enumerate(steps) if number in chosen]
        for step in steps:
            for name in ("output", "summary", "review.json"):
                (case.folder / "tmp" / name).unlink(missing_ok=True)
            self.canary.taken()
            self.forge.requests.clear()
            before = files_of(case)
            where = step.folder if step.folder.is_dir() else case.folder / "home"
            env = {**step.env, "PWD": str(where)}  # as a shell has it
            ended = self.launcher.run(step.words, env, where, case.folder / "tmp/step", self.limits.kill_s,
                                      fresh=(case.fresh or rng.random() < FRESH) and step.name != "watch",
                                      rules_s=self.rules_s)
            name = f"case {case.number}: {step.name} [{', '.join(case.kinds)}]"
            self._count(step.name, ended.code, name, ended.peak_bytes >> 20, ended.wall_s, ended.cpu_s)
            sent = [one.body for one in self.forge.requests]
            yield from (f"{name}: {one}" for one in violations(case, step, ended, self.limits, before, sent))

    def _count(self, step: str, code: int | None, name: str, mib: int, wall_s: float, cpu_s: float) -> None:
        report = self.report
        report.commands[step] += 1
        report.answered[step] += code not in (None, 1, 64)
        report.worst_mib = max(report.worst_mib, (mib, name))
        report.worst_s = max(report.worst_s, (round(wall_s, 1), name))
        report.worst_cpu_s = max(report.worst_cpu_s, (round(cpu_s, 1), name))


@contextmanager
def driver(folder: Path, seed: int, limits: Limits, log: Callable[[str], None], rules_s: float | None = None,
           scale: float = 1.0) -> Iterator[Driver]:
    """Yield a driver whose cases lie in `folder`; `rules_s` = a shorter limit for house rules than the product's."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster, forge = ClusterStandIn(), GitHubStandIn(logins={SECRETS["GITHUB_TOKEN"]: "github-actions[bot]"})
    for name in "abcd":
        cluster.add_node(name)
    with ExitStack() as stack:
        stack.enter_context(serve(cluster))
        stack.enter_context(serving(forge))
        (folder / "pairs").mkdir(exist_ok=True)
        canary = stack.enter_context(listening(folder / "pairs"))
        yield Driver(folder, seed, limits, canary, forge, cluster, stack.enter_context(Launcher()), log, rules_s, scale)


def _composed(rng: random.Random) -> list[Kind]:
    """Choose what a case is made of: up to three repositories, and of the other slots at most one kind each."""
    by_slot: dict[str, list[Kind]] = {}
    for one in KINDS.values():
        by_slot.setdefault(one.slot, []).append(one)
    found = rng.sample(by_slot["repository"], rng.choice([0, 1, 1, 1, 2, 3]))
    for slot, share in (("place", 0.25), ("objects", 0.5)):
        found += [rng.choice(by_slot[slot])] if rng.random() < share else []
    if rng.random() < 0.5:
        found.append(rng.choice(by_slot[rng.choice(["fleet", "rules"])]))
    return found or [rng.choice(list(KINDS.values()))]
