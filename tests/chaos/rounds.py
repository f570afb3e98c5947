"""Rounds: an apply while faults hit, then one repairing apply without faults; after it no invariant may be violated."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetctl.documents.base import as_datetime
from tests.chaos.fault_kinds import KINDS, PROXY, RARE, FaultTargets
from tests.chaos.fleet import WEIGHED, Fleet, Name, Watched, missing_replicas, wrong_now, wrongly_ready
from tests.chaos.litter import left_in_table
from tests.chaos.proxy import Proxy
from tests.chaos.surroundings import SKEW_S, Cards, Origin, skewed
from tests.e2e.cluster import RayCluster

SHAPES = [
    {"one": [1.0], "gang": [1.0, 1.0], WEIGHED: [0.0]},
    {"half": [0.5], "one": [1.0], "gang": [1.0, 1.0]},
    {"one": [1.0], "two": [2.0], "trio": [1.0, 1.0, 1.0], WEIGHED: [0.0]},
]
"""The models of an epoch, with the cards of each member."""
POLICIES: list[dict[str, Any]] = [{}, {"pilot": {"replicas": 1, "over": 1}}]
NODES = 4
ROUNDS_OF_EPOCH = 3
GONE_S = 30.0
"""How long an end may take."""
LONG_S = 45.0
TOLD_S = 3.0
"""A summary may be this much older than what has just happened."""
FROZEN_S = 6.0
"""How long a liveness probe takes to end most frozen engines; the check after it waits for the others."""


@dataclass
class Report:
    """What was done and found. `violations` must stay empty."""

    faults: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    repairs: Counter[int] = field(default_factory=Counter)
    second_repairs: int = 0
    violations: list[str] = field(default_factory=list)


class Driver:
    """Runs rounds on one cluster; random choices depend on the seed, timing does not."""

    def __init__(self, cluster: RayCluster, folder: Path, seed: int, log: Callable[[str], None],
                 nodes: list[str] | None = None, *, without: Container[str] = ()) -> None:
        """`nodes` = those that are there already; `without` = kinds of fault to leave out."""
        self.cluster, self.folder, self.seed, self.log = cluster, folder, seed, log
        self.rng = random.Random(seed)
        self.report = Report()
        self._numbers = itertools.count()
        self._nodes: list[str] = [] if nodes is None else nodes
        self._drained: set[str] = set()
        self._kinds = [kind for kind in KINDS if kind not in without]
        self._proxy = Proxy(cluster.address)
        self._cards, self._origin = Cards(folder / "cards"), Origin(folder / "origin")

    def run(self, faults: int, seconds: float) -> Report:
        """Run until `faults` faults have hit, or stop after `seconds` once all nodes have joined."""
        self._renew_nodes()
        ends = time.monotonic() + seconds
        try:
            while sum(self.report.faults.values()) < faults and time.monotonic() < ends:
                self._epoch(faults, ends)
        finally:
            self._proxy.close()
            self._origin.close()
        self._record(lambda: left_in_table(self.cluster, self.log), "")
        return self.report

    def _epoch(self, faults: int, ends: float) -> None:
        self._renew_nodes()
        fleet = Fleet(f"chaos-{self.seed}-{next(self._numbers)}", self.folder, self.rng.choice(SHAPES), varied="one",
                      policy=self.rng.choice(POLICIES))
        calm = Watched(self.cluster, fleet, self._proxy.url)
        for _ in range(ROUNDS_OF_EPOCH):
            if sum(self.report.faults.values()) >= faults or time.monotonic() >= ends:
                break
            if WEIGHED in fleet.shapes:
                fleet.weights = self._origin.renew(f"{fleet.name}-{self.report.rounds}")
            fleet.grow(self.rng, NODES * 2.0)
            self._round(calm)
        self.cluster.end_foreign()
        self.cluster.sweep(namespaces=[fleet.name])
        self._check(lambda: [*(f"leaked: {one} after all actors went" for one in calm.engines()),
                             *(f"leaked: group {one}" for one in calm.groups())], GONE_S)

    def _renew_nodes(self) -> None:
        for name in (self._drained | self._cards.lost.keys()) & set(self._nodes):
            self.cluster.kill_node(name=name)
            self._nodes.remove(name)
        self._drained.clear()
        while len(self._nodes) > NODES + 1:
            self.cluster.kill_node(name=self._nodes.pop())
        fresh = [f"n{next(self._numbers)}" for _ in range(NODES - len(self._nodes))]
        for name in fresh:
            self.cluster.add(names=[name], env=self._cards.env(name), disks=str(self._cards.folder))
        self._nodes += fresh

    def _round(self, watched: Watched) -> None:
        self.report.rounds += 1
        began = time.monotonic()
        before = {name: actor for name, actor in watched.actors().items() if actor.state == "ALIVE"}
        client = watched.start("apply", "-f", str(watched.fleet.file), "--yes", "--format", "json")
        targets = FaultTargets(
            watched, self._proxy, self.rng, client, self._places(watched, before), self._cards, self._origin,
            nodes=self._nodes, drained=self._drained, numbers=lambda: next(self._numbers))
        hits = self._strike(targets)
        out, messages = client.communicate(timeout=300)
        targets.calm()
        told = [*(one.wrong for one in targets.evictions if one.wrong), *self._told_wrongly(targets, hits, out)]
        self._record(lambda: told, f"{out}\n{messages}")
        hits += [PROXY + fault for fault in self._proxy.used]
        self._proxy.used.clear()
        self.report.faults.update(hits)
        self._record(lambda: ["a traceback"] if "Traceback" in messages or "a bug in" in messages else [],
                     f"{out}\n{messages}")
        faults_over = time.monotonic()
        if faults_over - began > LONG_S:
            self.log(textwrap.indent(f"  the client took long, and printed:\n{messages}", "    "))
        if "engine frozen" in hits:
            time.sleep(FROZEN_S)
        repair = self._repair(watched)
        repaired = time.monotonic()
        self._check(lambda: [*wrong_now(watched), *wrongly_ready(watched), *self._cards.wrong(watched)], GONE_S)
        if "client's clock" in hits:
            self._check(lambda: self._plans_by_clock(watched), 0)
        now = watched.actors()
        lost = [f"lost: {name} was {actor}, is {now.get(name)}, and no fault hit it" for name, actor in before.items()
                if name not in targets.hit and now.get(name) != actor]
        self._record(lambda: lost, f"{repair.stdout}\n{repair.stderr}")
        live = sum(actor.state == "ALIVE" for actor in now.values())
        self.log(f"round {self.report.rounds}: {', '.join(hits) or 'no fault'}; apply {client.returncode}, repair "
                 f"{repair.returncode}, {live} of {sum(watched.fleet.wanted.values())} live; faults "
                 f"{faults_over - began:.1f} s, repair {repaired - faults_over:.1f} s, "
                 f"checks {time.monotonic() - repaired:.1f} s")
        if repair.returncode:
            self.log(textwrap.indent(repair.stdout, "    "))

    def _places(self, watched: Watched, ready: dict[Name, object]) -> dict[Name, set[str]]:
        if not ready:
            return {}
        rows = watched.answer("inventory")["replicas"]
        return {(row["model"], row["replicaId"]): {member["nodeId"] for member in row["members"]}
                for row in rows if row.get("fleet") == watched.fleet.name}

    def _told_wrongly(self, targets: FaultTargets, hits: list[str], out: str) -> list[str]:
        """Return what the round's client said that was not so when it said it."""
        try:
            summary = json.loads(out)
        except ValueError:
            return []
        at = as_datetime(summary["time"]).timestamp()
        found = []
        for row in summary["outcomes"]:
            name = row["model"], row.get("replicaId")
            evicted = any(one.name == name and 0 < one.gone_at < at - TOLD_S for one in targets.evictions)
            if row["outcome"] == "ready" and evicted and not {"second client", "client's clock", "source restarted"} & {
                    *hits}:
                found.append(f"wrongly told: {name} is ready, but it was evicted before")
            if row["model"] == WEIGHED and row.get("code") == "STILL_STARTING" and "slow header" in hits:
                found.append(f"held: {name} still starts, long after its startupTimeout: {row.get('message')}")
        return found

    def _plans_by_clock(self, watched: Watched) -> list[str]:
        """Return the plans of clients with another clock that differ from the plan of one without."""
        env, seen = skewed(watched.fleet.folder), {}
        for skew in (0, SKEW_S, -SKEW_S) if env else ():
            out = watched.start("plan", "-f", str(watched.fleet.file), "--format", "json", **(env or {}),
                                SKEW=str(skew)).communicate(timeout=120)[0]
            plan = json.loads(out)
            seen[skew] = sorted(one["id"] for one in plan["actions"]), sorted(one["code"] for one in plan["blocked"])
        return [f"wrongly told: with a clock {skew} s ahead the plan is {plan}, not {seen[0]}"
                for skew, plan in seen.items() if plan != seen[0]]

    def _strike(self, targets: FaultTargets) -> list[str]:
        """Cause faults at random moments while the client runs, and some after it."""
        weights = [RARE.get(kind, 1.0) for kind in self._kinds]
        hits = []
        for _ in range(self.rng.randint(10, 20)):
            time.sleep(self.rng.uniform(0.05, 0.7))
            [kind] = self.rng.choices(self._kinds, weights)
            if KINDS[kind](targets) is not None and not kind.startswith(PROXY):
                hits.append(kind)
        return hits

    def _repair(self, watched: Watched) -> subprocess.CompletedProcess[str]:
        """Apply without faults; a second time only if a replica that a fault had hit has died in between."""
        for attempt in range(2):
            repair = watched.run("apply", "-f", str(watched.fleet.file), "--yes", "--lock-timeout", "120s")
            self.report.repairs[repair.returncode] += 1
            missing = list(missing_replicas(watched, self._cards.working, may_cool=any(self._cards.lost.values())))
            if not missing:
                break
            self.report.second_repairs += attempt == 0
            self.log(f"  second repair: {missing}; the first printed:\n{repair.stdout}\n{repair.stderr}")
        self._record(lambda: missing, f"{repair.stdout}\n{repair.stderr}")
        if repair.returncode not in (0, 3):
            self._record(lambda: [f"a repair ended with {repair.returncode}"], f"{repair.stdout}\n{repair.stderr}")
        return repair

    def _check(self, wrong: Callable[[], list[str]], within_s: float) -> None:
        """A problem may be temporary; one that remains within the time is a violation."""
        deadline = time.monotonic() + within_s
        while (found := wrong()) and time.monotonic() < deadline:
            time.sleep(1)
        self._record(lambda: found, "")

    def _record(self, wrong: Callable[[], list[str]], context: str) -> None:
        for one in wrong():
            self.report.violations.append(f"round {self.report.rounds}: {one}")
            self.log(f"VIOLATION in round {self.report.rounds}: {one}\n{context}")
