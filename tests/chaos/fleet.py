"""The fleet of an epoch, its actual state according to Ray and the kernel, and its invariants."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.cluster import MARK, RayCluster, engine_pids
from tests.in_process import run_here

ENGINE = str(Path(__file__).parent.parent / "e2e" / "engine.py")
Name = tuple[str, int]
"""A replica: model key and id."""
WEIGHED = "weighed"
COOLING = {"COOLING_DOWN", "NODE_COOLING", "CARD_COOLING"}


@dataclass(frozen=True)
class Engine:
    """The main process of an engine, as described by its environment."""

    pid: int
    replica: Name
    member: tuple[str, ...]
    node: str
    cards: tuple[str, ...]
    started: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class Actor:
    """A replica's actor, as Ray reports it."""

    actor_id: str
    pid: int
    state: str
    restarts: int


@dataclass
class Fleet:
    """A fleet file in a namespace of its own. `wanted` only grows."""

    name: str
    folder: Path
    shapes: dict[str, list[float]]
    wanted: Counter[str] = field(default_factory=Counter)
    weights: dict[str, Any] | None = None
    """The weights of the model WEIGHED, for its next replicas."""
    policy: dict[str, Any] = field(default_factory=dict)
    varied: str | None = None
    """The model that has two variants, with the same cards."""

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.yaml"

    def grow(self, rng: random.Random, most_cards: float) -> None:
        """Increase targets, up to about one replica more than there is room for."""
        for _ in range(rng.randint(1, 4)):
            key = rng.choice(sorted(self.shapes))
            if sum(sum(self.shapes[one]) * count for one, count in self.wanted.items()) <= most_cards:
                self.wanted[key] += 1
        self.write()

    def write(self) -> None:
        """Write the fleet file."""
        self.file.write_text(yaml.safe_dump({
            "apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": self.name},
            "spec": {**({"policy": self.policy} if self.policy else {}),
                     "models": [self._model(key, count) for key, count in sorted(self.wanted.items())]}}))

    def _model(self, key: str, replicas: int) -> dict[str, Any]:
        timeout = "20s" if key == WEIGHED else "60s"
        ways = {"variants": [{"name": name, **self._workers(key, name)} for name in ("a", "b")]}
        return {"key": key, "replicas": replicas, "startupTimeout": timeout, "restart": {"max": 3, "backoff": "100ms"},
                **(ways if key == self.varied else self._workers(key))}

    def _workers(self, key: str, variant: str = "") -> dict[str, Any]:
        cards = self.shapes[key]
        roles: list[str | None] = ["Leader", *["Worker"] * (len(cards) - 1)] if len(cards) > 1 else [None]
        members = [self._member(*one, variant) for one in zip(cards, roles, strict=True)]
        if key == WEIGHED and self.weights:
            members[0]["weights"] = self.weights
        return {"workers": [{"name": "main", "members": members}]}

    def _member(self, cards: float, role: str | None, variant: str) -> dict[str, Any]:
        probe = {"http": {"path": "/health"}, "period": "300ms"}
        engine = {"command": [sys.executable, ENGINE], "args": ["$(FLEETCTL_PORT)", "--plain"], "readiness": probe,
                  "liveness": {**probe, "period": "1s"}, "env": {MARK: self.name, "WAY": variant},
                  "stop": {"grace": "5s"}}  # a frozen engine uses all of it, after its liveness has failed for 18 s
        resources = {"gpus": cards} if cards else {"cpus": 0.1}
        return {"resources": resources, "engine": engine, **({"role": role} if role else {})}


class Watched:
    """Runs commands on one fleet of a cluster, and reads its actual state."""

    def __init__(self, cluster: RayCluster, fleet: Fleet, address: str, env_more: dict[str, str] | None = None) -> None:
        self.cluster, self.fleet = cluster, fleet
        home = str(fleet.folder)
        self.env = {"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": home, "FLEETCTL_ADDRESS": address,
                    "FLEETCTL_NAMESPACE": fleet.name, **(env_more or {})}

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        """Start `fleetctl ...` in a process of its own, with more environment."""
        return subprocess.Popen([sys.executable, "-m", "fleetctl", *arguments], env={**self.env, **env}, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `fleetctl ...` to its end, in this process: another process costs a second of CPU each time."""
        return run_here(*arguments, env=self.env)

    def answer(self, *arguments: str) -> dict[str, Any]:
        """Run `fleetctl ... --format json` and return its output."""
        done = self.run(*arguments, "--format", "json")
        if not done.stdout:
            raise AssertionError(f"{arguments} printed nothing: {done.stderr}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def actors(self) -> dict[Name, Actor]:
        return {name_of(row["name"]): Actor(row["id"], row["pid"], row["state"], row["restarts"])
                for row in self.cluster.actors(namespace=self.fleet.name)}

    def engines(self) -> list[Engine]:
        return [engine for pid in engine_pids(self.fleet.name) if (engine := read_engine(pid))]

    def groups(self) -> list[Name]:
        return [name_of(name) for name in self.cluster.groups() if name.startswith("ModelActor:")]


def name_of(actor: str) -> Name:
    """Return model key and id from `ModelActor:<key>:<id>`."""
    _, key, number = actor.split(":")
    return key, int(number)


def read_engine(pid: int) -> Engine | None:
    """Return the engine described by a process's environment; None if the process has just ended."""
    try:
        pairs = (Path("/proc") / str(pid) / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    env = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    member = tuple(env.get(f"FLEETCTL_{part}", "") for part in ("GROUP", "COPY", "RANK"))
    cards = tuple(filter(None, env.get("CUDA_VISIBLE_DEVICES", "").split(",")))
    return Engine(pid, (env["FLEETCTL_MODEL"], int(env["FLEETCTL_REPLICA_ID"])), member, env.get("FLEETCTL_NODE", ""),
                  cards, _started(pid))


def _started(pid: int) -> float:
    """Return when a process was started; 0 if it has ended."""
    try:
        ticks = int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0.0
    booted = next(int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines()
                  if line.startswith("btime"))
    return booted + ticks / os.sysconf("SC_CLK_TCK")


def wrong_now(watched: Watched) -> Iterator[str]:
    """Yield what is duplicated or leaked at this moment. It may only be about to end, so check again."""
    actors, engines = watched.actors(), watched.engines()
    for replica, count in Counter((engine.replica, engine.member) for engine in engines).items():
        if count > 1:
            yield f"doubled: {count} engines for {replica}"
    for engine in engines:
        if engine.replica not in actors:
            yield f"leaked: an engine of {engine.replica}, which has no actor (pid {engine.pid})"
    for group in watched.groups():
        if group not in actors and group[0] in watched.fleet.shapes:
            yield f"leaked: a placement group of {group}, which has no actor"
    alive = Counter(key for (key, _), actor in actors.items() if actor.state == "ALIVE")
    for key, count in alive.items():
        if count > watched.fleet.wanted[key]:
            yield f"doubled: {count} replicas of {key} live, {watched.fleet.wanted[key]} wanted"


def wrongly_ready(watched: Watched) -> Iterator[str]:
    """Yield the replicas that are reported ready although an engine does not run, or the leader does not respond."""
    engines = Counter(engine.replica for engine in watched.engines())
    for row in watched.answer("inventory")["replicas"]:
        if row.get("fleet") != watched.fleet.name or row["state"] != "ALIVE" or not row["constructed"]:
            continue
        replica, members = (row["model"], row["replicaId"]), row["members"]
        if engines[replica] != len(members):
            yield f"wrongly ready: {replica} has {engines[replica]} engines for {len(members)} members"
        identity = _read_identity(f"http://{members[0]['address']}:{members[0]['port']}/health")
        if identity != (watched.fleet.name, *replica):
            yield f"wrongly ready: {replica} answers as {identity}"


def _read_identity(url: str) -> tuple[str, str, int] | str:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            env = json.load(answer)
        return env[MARK], env["FLEETCTL_MODEL"], int(env["FLEETCTL_REPLICA_ID"])
    except (OSError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"


def missing_replicas(
    watched: Watched, working: Callable[[dict[str, float]], dict[str, float]] = dict, *, may_cool: bool = False
) -> Iterator[str]:
    """Yield what a plan would still create, and what it reports as blocked although Ray has room for it.

    `working` = from Ray's free cards to those that work. `may_cool` = cooldowns are a good reason; for WEIGHED always.
    """
    plan = watched.answer("plan", "-f", str(watched.fleet.file))
    for action in (*plan["actions"], *plan.get("afterPilot", ())):
        yield f"not placed: a plan would create {action['id']}"
    free = working(watched.cluster.free_cards())
    for blocked in plan["blocked"]:
        if (may_cool or blocked["model"] == WEIGHED) and COOLING & {blocked["code"], *(
                reason["code"] for reason in blocked["reasons"])}:
            continue
        if blocked["code"] == "SLOTS_FULL" and not max(watched.fleet.shapes[blocked["model"]]):
            continue  # without cards, one slot a node
        if has_room(watched.fleet, blocked["model"], free):
            yield f"not placed: {blocked['model']} is blocked ({blocked['message']}), and Ray has free {free}"


def has_room(fleet: Fleet, key: str, free: dict[str, float]) -> bool:
    """Return whether Ray's free cards are certainly enough. If cards are shared, one free card may be two halves."""
    claims = fleet.shapes[key]
    if max(claims) < 1:
        return max(free.values(), default=0) >= max(claims)
    shared = any(0 < claim < 1 for shape in fleet.shapes.values() for claim in shape)
    whole = [amount if amount == 2 else math.floor(amount - 0.5 * shared) for amount in free.values()]
    return sum(cards >= max(claims) for cards in whole) >= len(claims)  # each member of a gang needs a node of its own
