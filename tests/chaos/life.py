"""A replica's life on a real Ray: verbs, applies and faults in random order: `python -m tests.chaos.life --steps
200`.

After each step nothing may be lost, duplicated, leaked or reported wrongly, and no replica may have ended that was
not named or hit. While `replace` and `drain` run, the number of ready replicas is watched.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.chaos.fault_kinds import send
from tests.chaos.fleet import Actor, Fleet, Name, Watched, missing_replicas, wrong_now, wrongly_ready
from tests.e2e.cluster import RayCluster, running_cluster

SHAPES = {"one": [1.0], "gang": [1.0, 1.0], "small": [0.0]}
TARGETS = {"one": 2, "gang": 1, "small": 2}
NODES, CALM_EVERY, JOIN_TRIES = 4, 15, 5
GOOD, FAILS = ("v1", "v2", "v3"), "fails"
SETTLE_S = 60.0
"""How long restarting or ending replicas may take."""


@dataclass
class Versions(Fleet):
    """A fleet whose models have a version each; an engine of the version `fails` ends immediately."""

    versions: dict[str, str] = field(default_factory=lambda: dict.fromkeys(SHAPES, GOOD[0]))
    targets: dict[str, int] = field(default_factory=lambda: dict(TARGETS))

    def write(self) -> None:
        """Write the fleet file."""
        models = [self._model(key, count) for key, count in self.targets.items()]
        for model in models:
            for member in model["workers"][0]["members"]:
                version = self.versions[model["key"]]
                member["engine"]["env"]["VERSION"] = version
                member["engine"]["args"] += ["--exit-code", "3"] if version == FAILS else []
        self.file.write_text(yaml.safe_dump({"apiVersion": "fleetctl/v1", "kind": "Fleet",
                                             "metadata": {"name": self.name}, "spec": {"models": models}}))


@dataclass
class Found:
    """What was done and found. `violations` must stay empty."""

    steps: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    disturbances: int = 0
    second_applies: int = 0
    violations: list[str] = field(default_factory=list)


@dataclass
class Step:
    """A command, the replicas it may end, and how many of each model it must leave ready; None = no guarantee."""

    words: list[str]
    may_end: set[Name] = field(default_factory=set)
    least: dict[str, int] | None = None
    model: str = ""
    same_after: bool = False


class Life:
    """Runs steps on one cluster; random choices depend on the seed, timing does not."""

    def __init__(self, cluster: RayCluster, folder: Path, seed: int, log: Callable[[str], None],
                 nodes: list[str] | None = None) -> None:
        self.cluster, self.log, self.rng, self.found = cluster, log, random.Random(seed), Found()
        self.fleet = Versions(f"life-{seed}", folder, SHAPES, Counter(dict.fromkeys(SHAPES, 99)))
        self.watched = Watched(cluster, self.fleet, cluster.address)
        self._numbers, self._nodes, self._summary = itertools.count(), [] if nodes is None else nodes, ""
        self._lost: set[Name] = set()
        """Replicas on a lost node: Ray ends them when it notices, perhaps during a later command."""
        self._shown: dict[str, Any] = {"nodes": [], "replicas": []}
        self._before = self._shown
        """The latest output of `status`, and that after the previous step."""

    def run(self, steps: int, seconds: float) -> Found:
        """Run at most `steps` steps, or stop after `seconds` from the first apply."""
        self._join(NODES - len(self._nodes))
        self.fleet.write()
        self._carry_out(Step(["apply", "-f", self._file, "--yes"]), disturbed=False)
        ends = time.monotonic() + seconds
        for number in range(1, steps + 1):
            if time.monotonic() >= ends:
                break
            kind = self.rng.choices(list(KINDS), list(KINDS.values()))[0]
            self.found.steps[kind] += 1
            began = time.monotonic()
            getattr(self, "_" + kind)()
            self._check(f"step {number} ({kind})")
            if number % CALM_EVERY == 0:
                self._calm(number)
            self.log(f"step {number}: {kind} {self._summary}; {time.monotonic() - began:.1f} s")
        self._calm(steps)
        self.cluster.sweep(namespaces=[self.fleet.name])
        return self.found

    @property
    def _file(self) -> str:
        return str(self.fleet.file)

    # --- steps

    def _apply(self) -> None:
        self._carry_out(Step(["apply", "-f", self._file, "--yes", "--wait-timeout", "60s"]))

    def _start(self) -> None:
        model = self.rng.choice(sorted(SHAPES))
        words = self.rng.choice([["deploy", model], ["scale", model, "--replicas", "3"],
                                 ["scale", model, "--scale-up", "1"]])
        self._carry_out(Step([*words, "-f", self._file, "--yes", "--wait-timeout", "60s"], model=model))

    def _restart(self) -> None:
        if name := self._any():
            self._carry_out(Step(["restart", _text(name), "--yes"], model=name[0], same_after=True))

    def _evict(self) -> None:
        if name := self._any():
            drain = self.rng.choice(["0s", "2s"])
            self._carry_out(Step(["evict", _text(name), "--drain", drain, "--yes", "--lock-timeout", "20s"], {name},
                                 model=name[0]))

    def _replace(self) -> None:
        model = self.rng.choice(sorted(SHAPES))
        if self.rng.random() < 0.8:
            self.fleet.versions[model] = self.rng.choice([*GOOD, FAILS])
            self.fleet.write()
        in_place = self.rng.random() < 0.3
        flags = ["--in-place", "--allow-outage"] if in_place else []
        target, ready = self.fleet.targets[model], self._ready()
        least = {model: max(0, min(target, ready[model]) - in_place)}
        words = ["replace", model, "-f", self._file, "--yes", "--lock-timeout", "20s", "--wait-timeout", "60s",
                 "--drain", self.rng.choice(["0s", "2s"]), *flags]
        self._carry_out(Step(words, {name for name in self.watched.actors() if name[0] == model}, least, model))

    def _drain(self) -> None:
        node = self.rng.choice(self._nodes)
        there = {name for name, nodes in self._places().items() if self.cluster.node_id(name=node) in nodes}
        ready = self._ready()
        least = {key: min(self.fleet.targets[key], ready[key]) for key in SHAPES}
        self._carry_out(Step(["drain", node, "-f", self._file, "--evict", "--yes", "--lock-timeout", "20s",
                              "--wait-timeout", "60s"], there, least))

    def _note(self) -> None:
        node = self.rng.choice(self._nodes)
        chosen = self.rng.choice([["cordon", node, "--reason", "a step"], ["uncordon", node],
                                  ["slots", node, "1", "--yes"], ["slots", node, "--clear"]])
        self._carry_out(Step(chosen), disturbed=False)

    def _crash(self) -> None:
        self._hit("")

    def _node_lost(self) -> None:
        node = self.rng.choice(self._nodes)
        lost = {name for name, nodes in self._places().items() if self.cluster.node_id(name=node) in nodes}
        self._lost |= lost
        self._nodes.remove(node)
        self.cluster.kill_node(name=node)
        self._summary = node

    def _node_back(self) -> None:
        if len(self._nodes) <= NODES:
            self._join(1)

    def _join(self, count: int) -> None:
        names: list[str] = []
        for tried in itertools.count(1):
            if len(names) == count:
                break
            names.append(f"l{next(self._numbers)}")
            try:
                self.cluster.add(names=names[-1:])
            except RuntimeError as error:  # Ray gives a raylet 30 s to start, and the machine may have other work
                self.log(f"{names.pop()} did not join: {error}")
                if tried == count + JOIN_TRIES:
                    raise
        self._nodes += names
        self._summary = ", ".join(names)

    # --- carrying out

    def _carry_out(self, step: Step, *, disturbed: bool | None = None) -> None:
        """Run a command, a third of the time with a disturbance; watch the ready replicas until it ends."""
        before, lowest = self.watched.actors(), Counter(self._ready())
        with ThreadPoolExecutor(1) as pool:
            client = pool.submit(self.watched.run, *step.words)
            other, may_end = self._watch(step, client, lowest, disturbed)
        done = client.result()
        self.found.codes[done.returncode] += 1
        output = f"{' '.join(step.words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        if other:
            output += "\n".join(["", *map(str, other.args[3:]), *other.communicate(timeout=240)])  # type: ignore[index]
        also = " (disturbed)" if other or may_end - step.may_end else ""
        self._summary = f"{' '.join(step.words[:2])} -> {done.returncode}{also}"
        if done.returncode not in (0, 1, 3, 4, 5, 7) or "Traceback" in output or "a bug in" in output:
            self._violation(f"{step.words} ended with {done.returncode}", output)
        unnoticed = {key for key, _ in self._lost & before.keys()}
        for model, least in (step.least or {}).items():
            if model not in unnoticed and lowest[model] < least:
                self._violation(f"{step.words}: {lowest[model]} of {model} were ready, {least} have to be", output)
        self._check_only_named_ended(step, before, may_end | self._lost, output)
        self._lost &= self.watched.actors().keys()

    def _watch(self, step: Step, client: Future[Any], lowest: Counter[str], disturbed: bool | None
               ) -> tuple[subprocess.Popen[str] | None, set[Name]]:
        """Record the lowest number of ready replicas until the command ends; sometimes cause a disturbance."""
        disturbed = self.rng.random() < 0.3 if disturbed is None else disturbed
        meanwhile, other, may_end = time.monotonic() + self.rng.uniform(0.5, 6), None, set(step.may_end)
        while not client.done():
            if disturbed and time.monotonic() >= meanwhile:
                disturbed, self.found.disturbances = False, self.found.disturbances + 1
                other, hit = self._disturb(step)
                may_end |= hit
                step.least = None
            for model, count in self._ready_or_none().items():
                lowest[model] = min(lowest[model], count)
            time.sleep(0.2)
        return other, may_end

    def _check_only_named_ended(self, step: Step, before: dict[Name, Actor], may_end: set[Name], output: str) -> None:
        now = self.watched.actors()
        for name, actor in before.items():
            gone = name not in now or now[name].actor_id != actor.actor_id
            starting = actor.state != "ALIVE"  # its own start may have failed
            if gone and not starting and name not in may_end:
                self._violation(f"{step.words}: {name} has gone, and no command named it", output)
            if gone and step.same_after and name not in may_end and not starting:
                self._violation(f"{step.words}: {name} is another actor now", output)

    def _disturb(self, step: Step) -> tuple[subprocess.Popen[str] | None, set[Name]]:
        """Cause a disturbance; return its process, if it is a command, and the replicas it may end."""
        model = step.model or self.rng.choice(sorted(SHAPES))
        what = self.rng.choice(["crash", "crash", "same", "apply", "evict"])
        of_model = {name for name in self.watched.actors() if name[0] == model}
        if what == "crash":
            return None, self._hit(model)
        if what == "evict" and of_model:
            name = self.rng.choice(sorted(of_model))
            return self.watched.start("evict", _text(name), "--yes", "--lock-timeout", "20s"), {name}
        words = step.words if what == "same" else ["apply", "-f", self._file, "--yes", "--wait-timeout", "60s"]
        return self.watched.start(*words), set(step.may_end)

    def _hit(self, model: str) -> set[Name]:
        """Kill an engine; its replica restarts, or ends if it has no restart left."""
        engines = [one for one in self.watched.engines() if model in ("", one.replica[0])]
        if not engines:
            return set()
        engine = self.rng.choice(engines)
        self._summary = _text(engine.replica)
        return {engine.replica} if send(engine.pid, signal.SIGKILL) else set()

    # --- invariants

    def _check(self, where: str) -> None:
        """A problem may be temporary; one that remains is a violation."""
        deadline = time.monotonic() + SETTLE_S
        while (wrong := list(self._wrong())) and time.monotonic() < deadline:
            time.sleep(1)
        for one in wrong:
            self._violation(f"{where}: {one}")
        self._before = self._shown

    def _wrong(self) -> Iterator[str]:
        yield from wrong_now(self.watched)
        shown = self._shown = self.watched.answer("status", "-f", self._file)
        states = {(row["model"], row["replicaId"]): row["state"] for row in shown["replicas"]}
        real = {name: actor.state for name, actor in self.watched.actors().items()}
        if states != real:
            yield f"status shows {states}, Ray has {real}"
        held = Counter((member["nodeId"], index) for row in shown["replicas"] if row["state"] == "ALIVE"
                       for member in row["members"] for index in member["gpuIndices"])
        yield from (f"{count} replicas have card {card}" for card, count in held.items() if count > 1)
        yield from beyond_slots(self._before, shown)
        if "RESTARTING" not in real.values():
            yield from wrongly_ready(self.watched)

    def _calm(self, number: int) -> None:
        """Remove the notes and make every spec good: one apply must then start everything that has room."""
        noted = {node["name"]: node for node in self.watched.answer("status", "-f", self._file)["nodes"]}
        for name in noted.keys() & set(self._nodes):
            if noted[name]["cordon"]:
                self.watched.run("uncordon", name)
            if noted[name].get("slots"):
                self.watched.run("slots", name, "--clear")
        self.fleet.versions = dict.fromkeys(SHAPES, self.rng.choice(GOOD))
        self.fleet.write()
        while len(self._nodes) > NODES:
            self.cluster.kill_node(name=self._nodes.pop())
        self._join(NODES - len(self._nodes))
        self._check(f"before the calm {number}")
        for _ in range(3):  # Ray takes a while to notice that a node is gone
            done = self.watched.run("apply", "-f", self._file, "--yes", "--lock-timeout", "60s")
            missing = list(missing_replicas(self.watched))
            if not missing:
                break
            self.found.second_applies += 1
            time.sleep(5)
        for one in missing:
            self._violation(f"calm after step {number}: {one}", f"{done.stdout}\n{done.stderr}")
        self._check(f"calm after step {number}")

    def _violation(self, what: str, output: str = "") -> None:
        self.found.violations.append(what)
        self.log(f"VIOLATION: {what}\n{output}")

    # --- queries

    def _ready_or_none(self) -> dict[str, int]:
        ready = self._ready()
        return {model: ready[model] for model in SHAPES}

    def _ready(self) -> Counter[str]:
        return Counter(key for (key, _), actor in self.watched.actors().items() if actor.state == "ALIVE")

    def _places(self) -> dict[Name, set[str]]:
        rows: list[dict[str, Any]] = self.watched.answer("status", "-f", self._file)["replicas"]
        return {(row["model"], row["replicaId"]): {member["nodeId"] for member in row["members"]} for row in rows}

    def _any(self) -> Name | None:
        names = sorted(self.watched.actors())
        return self.rng.choice(names) if names else None


KINDS = {"apply": 2.0, "start": 1.5, "restart": 1.0, "evict": 1.5, "replace": 4.0, "drain": 2.0, "note": 1.5,
         "crash": 1.5, "node_lost": 0.6, "node_back": 0.6}
"""The kinds of step, and their weights."""


def beyond_slots(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Yield replicas created since `before` beyond the slots of their node, if the slots were noted before, too."""
    slots = {node["id"]: node["slots"]["value"] for node in before["nodes"] if node.get("slots")}
    slots = {node["id"]: max(slots[node["id"]], node["slots"]["value"]) for node in now["nodes"]
             if node.get("slots") and node["id"] in slots}
    old = {row["actorId"] for row in before["replicas"]}
    places = [(row, node_id) for row in now["replicas"] for node_id in {one["nodeId"] for one in row["members"]}]
    there = Counter((row["model"], node_id) for row, node_id in places)
    for row, node_id in places:
        count = there[row["model"], node_id]
        if row["actorId"] not in old and count > slots.get(node_id, count):
            yield f"{row['model']}/{row['replicaId']} is on a node of {slots[node_id]} slots, with {count} of its model"


def _text(name: Name) -> str:
    return f"{name[0]}/{name[1]}"


def main() -> int:
    """Run the steps and print what was done; the last line is one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.life", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200, help="end after this many")
    parser.add_argument("--seconds", type=float, default=24 * 3600.0, help="or after this time")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="life-") as folder, running_cluster(Path(folder)) as cluster:
        found = Life(cluster, Path(folder), options.seed, lambda text: print(text, flush=True)).run(
            options.steps, options.seconds)
    print(json.dumps({"seed": options.seed, "steps": sum(found.steps.values()),
                      "kinds": dict(sorted(found.steps.items())), "codes": dict(sorted(found.codes.items())),
                      "atOnce": found.disturbances, "secondApplies": found.second_applies,
                      "seconds": round(time.monotonic() - began), "violations": found.violations}))
    return 1 if found.violations else 0


if __name__ == "__main__":
    sys.exit(main())
