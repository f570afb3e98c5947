"""A replica's life: verbs, applies and faults in random order, also concurrently, with the real client and the real
agent.

Each creation and each end of a replica is checked when it happens. After each command the reported state must match
the cluster.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from command_line import ADDRESS, CommandLine, Done, command_line
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from random_cases import cases
from ray_stand_in import FAILS, Actor, RayStandIn

from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.inventory.dashboard import Live

NODES = {"node-a": 4, "node-b": 4, "node-c": 2}
CARDS = {"one": [1], "two": [2], "none": [0], "pair": [2, 1]}
"""The cards of each model's members: `pair` is a gang."""
ROLES = (("Standalone",), ("Leader", "Worker"))
MODELS, SPECS = st.sampled_from(sorted(CARDS)), st.sampled_from(["--v1", "--v2", "--v3", FAILS])
NODE, WHICH = st.sampled_from(sorted(NODES)), st.integers(0, 9)
MEANWHILE = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12), st.sampled_from(
    ["crash", "crash", "lose", "return", "older", "newer", "evict", "restart", "replace", "rollout", "cordon"]), WHICH),
    max_size=3)
"""Disturbances while a command runs, each (after how many of its jobs, after how many ticks, what, which target)."""

STARTED_WORLDS: dict[bytes, dict[str, Any]] = {}
"""The state of a world after the first apply, by fleet file."""


@lru_cache(maxsize=1000)
def models_of(text: bytes) -> tuple[ResolvedModel, ...]:
    return inspect_bytes([SourceBytes("fleet.yaml", text)]).sound().models


@dataclass
class Command:
    """A running command. `may_end` = the actors it may end; `least` = how many replicas of each model it must leave
    ready.

    `model` = all actors of this model that exist when it submits a job may end, too. `reread` returns current values
    of both: another user may act before the command reads the cluster, so they are taken again when it submits its
    first job.
    """

    may_end: set[str] = field(default_factory=set)
    least: Counter[str] = field(default_factory=Counter)
    jobs: set[str] = field(default_factory=set)
    model: str = ""
    reread: Callable[[], Command] | None = None


class Life(RuleBasedStateMachine):
    """One cluster, one fleet of four models, its users, and faults."""

    def __init__(self, *, reports: bool = False) -> None:
        super().__init__()
        self.world = RayStandIn()
        self._end = ExitStack()
        self.home = Path(self._end.enter_context(tempfile.TemporaryDirectory()))
        self.cli: CommandLine = self._end.enter_context(command_line(self.world, self.home, reports=reports))
        self.world.before_end, self.world.on_create = self._before_end, self._on_create
        self.world.on_tick = self._tick
        submitted = self.world.stand_in.on_submit

        def on_submit(request: dict[str, Any]) -> Any:
            command = self.running[-1]
            if command.reread and not command.jobs:
                now = command.reread()
                command.may_end |= now.may_end
                command.least &= now.least
            command.jobs.add(request["job"])
            command.may_end |= {one.id for one in self.world.actors if one.replica.model == command.model}
            self.ticks = 0
            return submitted(request)

        self.world.stand_in.on_submit = on_submit
        self.commands: list[Command] = []
        self.running: list[Command] = []
        self.meanwhile: list[tuple[int, int, str, int]] = []
        self.disturbed, self.ticks, self.focus = False, 0, ""
        self.specs, self.targets = dict.fromkeys(CARDS, "--v1"), {"one": 2, "two": 1, "none": 2, "pair": 1}
        for name, cards in NODES.items():
            self.world.stand_in.add_node(name, gpus=cards)
        self.file, self.older = self.home / "fleet.yaml", self.home / "older.yaml"
        self._write(self.file)
        self._write(self.older)

    def teardown(self) -> None:
        self.meanwhile.clear()
        try:
            self.world.settle(1)
        finally:
            self._end.close()

    # --- users' commands

    @initialize()
    def begin(self) -> None:
        """Apply the file. Most sequences restore the state after the first such apply, to save a fifth of the time."""
        started = STARTED_WORLDS.get(self.file.read_bytes())
        if started is not None:
            return self.world.restore(started)
        assert self.run("apply", "-f", self.file, "--yes").code == 0
        assert {model: len(self.world.ready(model)) for model in CARDS} == self.targets
        self.world.settle()
        STARTED_WORLDS[self.file.read_bytes()] = self.world.state()
        return None

    @rule(meanwhile=MEANWHILE)
    def apply(self, meanwhile: Any) -> None:
        self.run("apply", "-f", self.file, "--yes", meanwhile=meanwhile)

    @rule(model=MODELS, spec=SPECS, wanted=st.integers(0, 3), older=st.booleans())
    def edit(self, model: str, spec: str, wanted: int, older: bool) -> None:
        if older:
            self._write(self.older)
        self.specs[model], self.targets[model] = spec, wanted
        self._write(self.file)

    @rule(model=MODELS, number=st.integers(1, 4), verb=st.sampled_from(["deploy", "scale", "scale up"]),
          meanwhile=MEANWHILE)
    def start(self, model: str, number: int, verb: str, meanwhile: Any) -> None:
        live, flag = self.live(model), "--scale-up" if verb == "scale up" else "--replicas"
        done = self.run(verb.partition(" ")[0], model, flag, number, "-f", self.file, "--yes", meanwhile=meanwhile,
                        focus=model)
        assert not (live and verb == "deploy") or done.code == 1 or self.disturbed, done

    @rule(which=WHICH, whole_model=st.booleans(), meanwhile=MEANWHILE)
    def restart(self, which: int, whole_model: bool, meanwhile: Any) -> None:
        chosen = self.chosen(which)
        if chosen is None:
            return
        same = self.on_living_nodes()
        words = chosen.replica.model if whole_model else chosen.key
        done = self.run("restart", words, "--yes", meanwhile=meanwhile, focus=chosen.replica.model)
        if done.code == 0 and not self.disturbed:
            assert self.on_living_nodes() == same

    @rule(which=WHICH, whole_model=st.booleans(), drain=st.sampled_from(["0s", "5s"]), meanwhile=MEANWHILE)
    def evict(self, which: int, whole_model: bool, drain: str, meanwhile: Any) -> None:
        chosen = self.chosen(which)
        if chosen is None:
            return
        model = chosen.replica.model
        named = [one for one in self.world.actors if one is chosen or (whole_model and one.replica.model == model)]
        done = self.run("evict", model if whole_model else chosen.key, "--drain", drain, "--yes", meanwhile=meanwhile,
                        command=Command({one.id for one in named}, model=model if whole_model else ""), focus=model)
        if done.code == 0:
            assert not {one.id for one in named} & {one.id for one in self.world.actors}, done

    @rule(model=MODELS, in_place=st.booleans(), allow_outage=st.booleans(), drain=st.sampled_from(["0s", "5s"]),
          spec=st.none() | SPECS, meanwhile=MEANWHILE)
    def replace(self, model: str, in_place: bool, allow_outage: bool, drain: str, spec: str | None,
                meanwhile: Any) -> None:
        if spec is not None:
            self._write(self.older)
            self.specs[model] = spec
            self._write(self.file)
        flags = [*(["--in-place"] if in_place else []), *(["--allow-outage"] if allow_outage else [])]
        done = self.run("replace", model, "-f", self.file, "--yes", "--drain", drain, *flags, meanwhile=meanwhile,
                        focus=model, reread=lambda: self._replacing(self.file, model, in_place=in_place,
                                                                    allow_outage=allow_outage))
        if done.code == 0 and not self.disturbed:
            assert not self.outdated(self.file, model), done
            assert len(self.world.ready(model)) >= self.targets[model], done

    @rule(model=MODELS, in_place=st.booleans(), moment=st.tuples(st.sampled_from([2, 2, 3, 4]), st.integers(0, 12)),
          what=st.sampled_from(["crash", "crash", "evict", "older", "replace"]), which=st.integers(0, 6))
    def replace_with_trouble(self, model: str, in_place: bool, moment: tuple[int, int], what: str, which: int) -> None:
        """An update that is disturbed when one of its replicas is about to end."""
        spec = next(one for one in ("--v1", "--v2", "--v3") if one != self.specs[model])
        self.replace(model, in_place, False, "5s", spec, [(*moment, what, which)])

    @rule(specs=st.dictionaries(MODELS, SPECS), at_once=st.integers(1, 4), drain=st.sampled_from(["0s", "5s"]),
          meanwhile=MEANWHILE)
    def rollout(self, specs: dict[str, str], at_once: int, drain: str, meanwhile: Any) -> None:
        self._write(self.older)
        self.specs |= specs
        self._write(self.file)
        before = {model: len(self.outdated(self.file, model)) for model in CARDS if self.targets[model]}
        done = self.run("rollout", "-f", self.file, "--yes", "--at-once", at_once, "--drain", drain,
                        meanwhile=meanwhile, reread=lambda: self._rolling_out(self.file))
        assert done.code in (0, 3) or self.disturbed, done
        if done.code == 0 and not self.disturbed:
            for model in [model for model, count in before.items() if count]:
                assert not self.outdated(self.file, model), done
                assert len(self.world.ready(model)) >= self.targets[model], done

    @rule(node=NODE, evict=st.booleans(), drain=st.sampled_from(["0s", "5s"]), meanwhile=MEANWHILE)
    def drain(self, node: str, evict: bool, drain: str, meanwhile: Any) -> None:
        there = self._draining(node).may_end
        done = self.run("drain", node, "-f", self.file, "--yes", "--drain", drain, *(["--evict"] if evict else []),
                        meanwhile=meanwhile, reread=lambda: self._draining(node) if evict else Command())
        if evict and done.code == 0 and not self.disturbed:
            assert not {one.id for one in self.on(node)} & there, done

    @rule(node=NODE, note=st.sampled_from(["cordon", "uncordon", 1, 2, 3, "--clear"]))
    def note(self, node: str, note: Any) -> None:
        self.run(*((note, node) if note in ("cordon", "uncordon") else ("slots", node, note, "--yes")))

    @rule(what=st.sampled_from(["crash", "crash", "lose", "return"]), which=WHICH, seconds=st.integers(0, 12))
    def fault(self, what: str, which: int, seconds: int) -> None:
        self.inject_fault(what, which)
        self.world.sleep(seconds)

    @rule()
    def calm(self) -> None:
        """After one undisturbed apply, the next apply has nothing to do."""
        self.world.settle()
        self.run("apply", "-f", self.file, "--yes")
        self.world.settle()
        plan = json.loads(self.run("plan", "-f", self.file, "--format", "json").out)
        failing = {model for model, spec in self.specs.items() if spec == FAILS}
        assert not [one["id"] for one in plan["actions"] if one["model"] not in failing]

    # --- faults and other users

    def inject_fault(self, what: str, which: int) -> None:
        """Cause a fault; no command waits for it."""
        self.disturbed = True
        chosen, nodes = self.chosen(which), [one for one in self.world.stand_in.nodes if one["state"] == "ALIVE"]
        gone = [one for one in self.world.stand_in.nodes if one["state"] == "DEAD"
                and not any(other["node_name"] == one["node_name"] for other in nodes)]
        if what == "lose" and len(nodes) > 1:
            self.world.lose(nodes[which % len(nodes)])
        elif what == "return" and gone:
            self.world.bring_back(gone[which % len(gone)])
        elif what == "crash" and chosen:
            self.world.crash(chosen)

    def act_as_another_user(self, what: str, which: int) -> None:
        """Run a command of another user."""
        self.disturbed = True
        chosen, model = self.chosen(which), sorted(CARDS)[which % len(CARDS)]
        if what in ("older", "newer"):
            self.run("apply", "-f", self.older if what == "older" else self.file, "--yes")
        elif what == "replace":
            file = self.file if which % 2 else self.older
            self.run("replace", model, "-f", file, "--yes", reread=lambda: self._replacing(file, model))
        elif what == "rollout":
            file = self.file if which % 2 else self.older
            self.run("rollout", "-f", file, "--yes", reread=lambda: self._rolling_out(file))
        elif what == "cordon":
            self.run("cordon", sorted(NODES)[which % len(NODES)])
        elif what == "evict" and chosen:
            self.run("evict", chosen.key, "--yes", command=Command({chosen.id}))
        elif what == "restart" and chosen:
            self.run("restart", chosen.key, "--yes")

    def run(self, *words: Any, meanwhile: Any = None, command: Command | None = None,
            reread: Callable[[], Command] | None = None, focus: str = "") -> Done:
        """Run a command. The outermost command is disturbed as `meanwhile` says, mostly in its own model."""
        if not self.running:
            self.meanwhile, self.disturbed, self.ticks, self.focus = sorted(meanwhile or ()), False, 0, focus
        self.running.append(replace(reread(), reread=reread) if reread else command or Command())
        self.commands.append(self.running[-1])
        done = self.cli(*words)
        self.running.pop()
        if not self.running:
            self.meanwhile = []
            self._check_reported_state()
        return done

    def _tick(self) -> None:
        if len(self.running) != 1:
            return
        self.ticks += 1
        while self.meanwhile and self.meanwhile[0][:2] <= (len(self.running[0].jobs), self.ticks):
            _, _, what, which = self.meanwhile.pop(0)
            (self.inject_fault if what in ("crash", "lose", "return") else self.act_as_another_user)(what, which)

    # --- invariants

    def _on_create(self, actor: Actor) -> None:
        for node_id in actor.nodes:
            there = self.world.on(node_id)
            same, slots = sum(one.replica.model == actor.replica.model for one in there), self._slots(node_id)
            assert slots is None or same <= slots, f"{actor.key}: {same} on a node of {slots} slots"
            total = next(one["resources_total"]["GPU"] for one in self.world.stand_in.nodes
                         if one["node_id"] == node_id)
            assert sum(one.cards(node_id) for one in there) <= total, f"{actor.key}: no card is free for it"

    def _before_end(self, actor: Actor, job: str) -> None:
        if "-apply-" in job:
            assert not actor.granted, f"an apply ends {actor.key}"
            return
        command = next(one for one in self.commands if job in one.jobs)
        model = actor.replica.model
        assert actor.id in command.may_end, f"{actor.key} was not named"
        if actor.state == "ALIVE":
            left = len(self.world.ready(model)) - 1
            assert left >= command.least[model], f"{actor.key} ends, {left} are left, {command.least[model]} must be"

    def _replacing(self, file: Path, model: str, *, in_place: bool = False, allow_outage: bool = False) -> Command:
        """Only replicas outdated now may end. Of min(target, ready before), all stay ready, or all but one in place."""
        target = next((one.replicas for one in models_of(file.read_bytes()) if one.key == model), 0)
        least = min(target, len(self.world.ready(model)))
        if in_place and least:
            least = max(least - 1, 0 if allow_outage else 1)
        return Command({one.id for one in self.outdated(file, model)}, Counter({model: least}))

    def _rolling_out(self, file: Path) -> Command:
        """Only replicas outdated now may end. Of each model min(target, ready before) stay ready."""
        each = [self._replacing(file, model.key) for model in models_of(file.read_bytes()) if model.replicas]
        return Command(set().union(*(one.may_end for one in each)), sum((one.least for one in each), Counter()))

    def _draining(self, node: str) -> Command:
        """Only replicas on the node now may end. Of min(target, ready before), all stay ready."""
        # A gang with a lost node ends by itself.
        there = {one.id for one in self.on(node) if all(map(self.world.alive, one.nodes))}
        return Command(there, Counter({model: min(target, len(self.world.ready(model)))
                                       for model, target in self.targets.items()}))

    def _check_reported_state(self) -> None:
        with self.cli.client(ADDRESS) as client:
            tick, self.world.sleep = self.world.sleep, lambda _: None  # type: ignore[method-assign,assignment]
            seen = Live(client, lambda: "2026-03-04T12:00:00Z").read()
            self.world.sleep = tick  # type: ignore[method-assign]
        assert seen.complete, seen.warnings
        shown = {(one.model, one.replica_id): (one.actor_id, one.state, one.fleet, one.spec_hash, one.restarts)
                 for one in seen.replicas}
        assert len(shown) == len(seen.replicas)
        assert shown == {(one.replica.model, one.replica.replica_id): (
            one.id, one.state, "lab", one.replica.spec_hash, one.restarts) for one in self.world.actors}
        held = Counter((member.node_id, index) for one in seen.replicas if one.state == "ALIVE"
                       for member in one.members for index in member.gpu_indices)
        assert all(count == 1 for count in held.values()), held

    # --- queries

    def live(self, model: str) -> list[Actor]:
        return [one for one in self.world.actors
                if one.replica.model == model and all(map(self.world.alive, one.nodes))]

    def on_living_nodes(self) -> dict[str, tuple[str, list[str]]]:
        return {one.id: (one.key, one.nodes) for one in self.world.actors if all(map(self.world.alive, one.nodes))}

    def on(self, node: str) -> list[Actor]:
        return [actor for row in self.world.stand_in.nodes if row["node_name"] == node
                for actor in self.world.on(row["node_id"])]

    def chosen(self, which: int) -> Actor | None:
        found = [one for one in self.world.actors if one.replica.model == self.focus or which > 6]
        found = found or self.world.actors
        return found[which % len(found)] if found else None

    def outdated(self, file: Path, model: str) -> list[Actor]:
        found = next((one for one in models_of(file.read_bytes()) if one.key == model), None)
        return [one for one in self.world.actors if one.replica.model == model
                and (found is None or not found.has_spec(one.replica.spec_hash))]

    def _slots(self, node_id: str) -> int | None:
        name = next(one["node_name"] for one in self.world.stand_in.nodes if one["node_id"] == node_id)
        notes = [job.body["metadata"] for job in self.world.stand_in.jobs.values()
                 if job.body["metadata"]["verb"] == "slots" and job.body["metadata"]["nodeName"] == name]
        return int(notes[-1]["slots"]) if notes and notes[-1].get("slots") else None

    def _write(self, path: Path) -> None:
        models = [{"key": key, "replicas": self.targets[key], "restart": {"max": 3}, "startupTimeout": "60s",
                   "schedulingTimeout": "20s", "workers": [{"name": "main", "members": [
                       {"role": role, "resources": {"gpus": cards} if cards else {"cpus": 0.1},
                        "engine": {"command": ["serve"], "args": [self.specs[key]]}}
                       for role, cards in zip(ROLES[len(claims) - 1], claims, strict=True)]}]}
                  for key, claims in CARDS.items()]
        path.write_text(json.dumps({"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"},
                                    "spec": {"models": models}}))


@pytest.mark.parametrize("what", ["crash", "evict"])
@pytest.mark.parametrize("verb", ["replace", "drain"])
def test_if_a_new_replica_fails_while_the_old_one_drains_the_old_one_stays(verb: str, what: str) -> None:
    """The seconds of --drain lie between the client's decision and the end, so the agent checks again."""
    life = Life(reports=True)
    try:
        life.targets["pair"] = 0
        life._write(life.file)
        life.begin()
        old = sorted(one.key for one in life.world.ready("one"))
        least = Counter({"one": 2})
        if verb == "replace":
            life.specs["one"] = "--v2"
            life._write(life.file)
            words: list[Any] = ["replace", "one"]
            may_end = {one.id for one in life.world.actors if one.replica.model == "one"}
        else:
            [node] = {one["node_name"] for one in life.world.stand_in.nodes for actor in life.world.ready("one")
                      if one["node_id"] in actor.nodes}
            words, may_end = ["drain", node, "--evict"], {one.id for one in life.world.actors}
        life.act_as_another_user = lambda *_: life.run(  # type: ignore[method-assign]
            "evict", "one/2", "--yes", command=Command({one.id for one in life.world.actors if one.key == "one/2"}))
        life.inject_fault = lambda *_: life.world.crash(  # type: ignore[method-assign]
            next(one for one in life.world.actors if one.key == "one/2"))
        done = life.run(*words, "-f", life.file, "--drain", "5s", "--yes", meanwhile=[(2, 3, what, 0)], focus="one",
                        command=Command(may_end, least))
        assert done.code == 3, done
        assert "TOO_FEW_READY" in done.out
        assert set(old) & {one.key for one in life.world.ready("one")}
        row = life.world.stand_in.records.rows["fleetctl.records.run"]["metadata"]
        runs = {one["subject"]: one["payload"] for one in json.loads(row["records"])}
        assert {name for name, run in runs.items() if run.get("ended")} == set(life.world.stand_in.jobs) & runs.keys()
        assert {run["verb"] for run in runs.values()} >= {"apply", "evict"}
    finally:
        life.teardown()


TestLife = pytest.mark.timeout(3_600)(Life.TestCase)
TestLife.settings = settings(max_examples=cases(60), stateful_step_count=6)
