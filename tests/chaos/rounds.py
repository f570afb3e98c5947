"""Round after round: apply while faults hit, then in the calm one repair apply; then nothing may be wrong."""

from __future__ import annotations

import itertools
import random
import subprocess
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.fleet import Fleet, Name, Watched, left_out, wrong_now, wrongly_ready
from tests.chaos.kinds import KINDS, PROXY, RARE, Storm
from tests.chaos.proxy import Proxy
from tests.e2e.cluster import RayCluster

SHAPES = [
    {"one": [1.0], "gang": [1.0, 1.0], "small": [0.0]},
    {"half": [0.5], "one": [1.0], "gang": [1.0, 1.0]},
    {"one": [1.0], "two": [2.0], "trio": [1.0, 1.0, 1.0]},
]
"""Models of an epoch with the cards of each member."""
NODES = 4
ROUNDS_OF_EPOCH = 3
GONE_S = 30.0
"""How long what is on its way out may take."""
LONG_S = 45.0
FROZEN_S = 6.0
"""How long a liveness probe takes to end an engine that is frozen."""


@dataclass
class Report:
    """What was done and seen. `violations` must stay empty."""

    faults: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    repairs: Counter[int] = field(default_factory=Counter)
    second_repairs: int = 0
    violations: list[str] = field(default_factory=list)


class Driver:
    """Runs rounds on one cluster; everything random comes from the seed, what happens when does not."""

    def __init__(self, cluster: RayCluster, folder: Path, seed: int, say: Callable[[str], None],
                 nodes: list[str] | None = None) -> None:
        self.cluster, self.folder, self.seed, self.say = cluster, folder, seed, say
        self.rng = random.Random(seed)
        self.report = Report()
        self._numbers = itertools.count()
        self._nodes: list[str] = [] if nodes is None else nodes
        self._drained: set[str] = set()
        self._proxy = Proxy(cluster.address)

    def run(self, faults: int, seconds: float) -> Report:
        """Go on until so many faults have hit, or for so long once all nodes are there."""
        self._renew_nodes()
        ends = time.monotonic() + seconds
        try:
            while sum(self.report.faults.values()) < faults and time.monotonic() < ends:
                self._epoch(faults, ends)
        finally:
            self._proxy.close()
        return self.report

    def _epoch(self, faults: int, ends: float) -> None:
        self._renew_nodes()
        fleet = Fleet(f"chaos-{self.seed}-{next(self._numbers)}", self.folder, self.rng.choice(SHAPES))
        calm = Watched(self.cluster, fleet, self._proxy.url)
        for _ in range(ROUNDS_OF_EPOCH):
            if sum(self.report.faults.values()) >= faults or time.monotonic() >= ends:
                break
            fleet.grow(self.rng, NODES * 2.0)
            self._round(calm)
        self.cluster.end_foreign()
        self.cluster.sweep(namespaces=[fleet.name])
        self._check(lambda: [*(f"leaked: {one} after all actors went" for one in calm.engines()),
                             *(f"leaked: group {one}" for one in calm.groups())], GONE_S)

    def _renew_nodes(self) -> None:
        for name in self._drained & set(self._nodes):
            self.cluster.kill_node(name=name)
            self._nodes.remove(name)
        self._drained.clear()
        while len(self._nodes) > NODES + 1:
            self.cluster.kill_node(name=self._nodes.pop())
        fresh = [f"n{next(self._numbers)}" for _ in range(NODES - len(self._nodes))]
        self.cluster.add(names=fresh)
        self._nodes += fresh

    def _round(self, watched: Watched) -> None:
        self.report.rounds += 1
        began = time.monotonic()
        before = {name: actor for name, actor in watched.actors().items() if actor.state == "ALIVE"}
        client = watched.start("apply", "-f", str(watched.fleet.file), "--yes")
        storm = Storm(watched, self._proxy, self.rng, client, self._places(watched, before), nodes=self._nodes,
                      drained=self._drained, numbers=lambda: next(self._numbers))
        hits = self._strike(storm)
        out, told = client.communicate(timeout=300)
        storm.calm()
        hits += [PROXY + fault for fault in self._proxy.used]
        self._proxy.used.clear()
        self.report.faults.update(hits)
        self._must(lambda: ["a traceback"] if "Traceback" in told or "a bug in" in told else [], f"{out}\n{told}")
        stormed = time.monotonic()
        if stormed - began > LONG_S:
            self.say(textwrap.indent(f"  the client took long, and said:\n{told}", "    "))
        if "engine frozen" in hits:
            time.sleep(FROZEN_S)
        repair = self._repair(watched)
        repaired = time.monotonic()
        self._check(lambda: [*wrong_now(watched), *wrongly_ready(watched)], GONE_S)
        now = watched.actors()
        lost = [f"lost: {name} was {actor}, is {now.get(name)}, and nobody hit it" for name, actor in before.items()
                if name not in storm.hit and now.get(name) != actor]
        self._must(lambda: lost, f"{repair.stdout}\n{repair.stderr}")
        live = sum(actor.state == "ALIVE" for actor in now.values())
        self.say(f"round {self.report.rounds}: {', '.join(hits) or 'no fault'}; apply {client.returncode}, repair "
                 f"{repair.returncode}, {live} of {sum(watched.fleet.wanted.values())} live; storm "
                 f"{stormed - began:.1f} s, repair {repaired - stormed:.1f} s, "
                 f"checks {time.monotonic() - repaired:.1f} s")
        if repair.returncode:
            self.say(textwrap.indent(repair.stdout, "    "))

    def _places(self, watched: Watched, ready: dict[Name, object]) -> dict[Name, set[str]]:
        if not ready:
            return {}
        rows = watched.answer("inventory")["replicas"]
        return {(row["model"], row["replicaId"]): {member["nodeId"] for member in row["members"]}
                for row in rows if row.get("fleet") == watched.fleet.name}

    def _strike(self, storm: Storm) -> list[str]:
        """Let faults hit at random moments while the client runs, and some after it."""
        weights = [RARE.get(kind, 1.0) for kind in KINDS]
        hits = []
        for _ in range(self.rng.randint(10, 20)):
            time.sleep(self.rng.uniform(0.05, 0.7))
            [kind] = self.rng.choices(list(KINDS), weights)
            if KINDS[kind](storm) is not None and not kind.startswith(PROXY):
                hits.append(kind)
        return hits

    def _repair(self, watched: Watched) -> subprocess.CompletedProcess[str]:
        """Apply in the calm. A second time only if a replica that a fault had hit died meanwhile."""
        for attempt in range(2):
            repair = watched.run("apply", "-f", str(watched.fleet.file), "--yes", "--lock-timeout", "120s")
            self.report.repairs[repair.returncode] += 1
            missing = list(left_out(watched))
            if not missing:
                break
            self.report.second_repairs += attempt == 0
            self.say(f"  second repair: {missing}; the first said:\n{repair.stdout}\n{repair.stderr}")
        self._must(lambda: missing, f"{repair.stdout}\n{repair.stderr}")
        if repair.returncode not in (0, 3):
            self._must(lambda: [f"a repair ended with {repair.returncode}"], f"{repair.stdout}\n{repair.stderr}")
        return repair

    def _check(self, wrong: Callable[[], list[str]], within_s: float) -> None:
        """What is wrong for a moment may be on its way out; what stays wrong is a violation."""
        deadline = time.monotonic() + within_s
        while (found := wrong()) and time.monotonic() < deadline:
            time.sleep(1)
        self._must(lambda: found, "")

    def _must(self, wrong: Callable[[], list[str]], context: str) -> None:
        for one in wrong():
            self.report.violations.append(f"round {self.report.rounds}: {one}")
            self.say(f"VIOLATION in round {self.report.rounds}: {one}\n{context}")
