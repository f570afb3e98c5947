"""The kinds of fault: each hits something that is there now, and says what it hit; None = nothing to hit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.fleet import Name, Watched
from tests.chaos.proxy import FAULTS, Proxy
from tests.e2e.cluster import parent_of, tree_of

PROXY = "proxy: "


@dataclass
class Storm:
    """What the faults of a round work on. `hit` = replicas that a fault may have ended or restarted."""

    watched: Watched
    proxy: Proxy
    rng: random.Random
    client: subprocess.Popen[str]
    places: dict[Name, set[str]]
    """The nodes of the replicas that were ready when the round began."""
    hit: set[Name] = field(default_factory=set)
    nodes: list[str] = field(default_factory=list)
    drained: set[str] = field(default_factory=set)
    beside: list[subprocess.Popen[str]] = field(default_factory=list)
    timers: list[threading.Timer] = field(default_factory=list)
    numbers: Callable[[], int] = lambda: 0

    def freeze(self, pid: int, seconds: float) -> bool:
        """Stop a process for a while; False when it has gone."""
        if not send(pid, signal.SIGSTOP):
            return False
        timer = threading.Timer(seconds, send, (pid, signal.SIGCONT))
        timer.start()
        self.timers.append(timer)
        return True

    def calm(self) -> None:
        """End what still goes on, and wait for it; dead things stay dead."""
        self.proxy.faults.clear()
        for timer in self.timers:
            timer.join()
        self.watched.cluster.revive_dashboard()
        for process in self.beside:
            process.communicate(timeout=240)


def send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


Kind = Callable[[Storm], "str | None"]


def client_gets(number: signal.Signals) -> Kind:
    def fault(storm: Storm) -> str | None:
        return "client" if storm.client.poll() is None and send(storm.client.pid, number) else None
    return fault


def second_client(storm: Storm) -> str | None:
    storm.beside.append(storm.watched.start("apply", "-f", str(storm.watched.fleet.file), "--yes"))
    return "another apply"


def _agent(storm: Storm) -> int | None:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"fleetctl_agent" in words and storm.watched.fleet.name.encode() in words:
            return int(entry.name)
    return None


def agent_gets(number: signal.Signals) -> Kind:
    def fault(storm: Storm) -> str | None:
        agent = _agent(storm)
        return f"agent {agent}" if agent and send(agent, number) else None
    return fault


def agent_freezes(storm: Storm) -> str | None:
    agent = _agent(storm)
    return f"agent {agent}" if agent and storm.freeze(agent, storm.rng.uniform(1, 8)) else None


def job_stops(storm: Storm) -> str | None:
    for job in storm.watched.cluster.running_jobs():
        request = urllib.request.Request(f"{storm.proxy.upstream}/api/jobs/{job}/stop", method="POST",
                                         headers={"User-Agent": "chaos"})
        try:
            urllib.request.urlopen(request, timeout=20).close()
        except OSError:
            return None
        return str(job)
    return None


def actor_gets(number: signal.Signals) -> Kind:
    def fault(storm: Storm) -> str | None:
        living = [(name, actor.pid) for name, actor in storm.watched.actors().items() if actor.pid]
        if not living:
            return None
        name, pid = storm.rng.choice(living)
        storm.hit.add(name)
        return f"{name}" if send(pid, number) else None
    return fault


def actor_freezes(storm: Storm) -> str | None:
    living = [(name, actor.pid) for name, actor in storm.watched.actors().items() if actor.pid]
    if not living:
        return None
    name, pid = storm.rng.choice(living)
    return f"{name}" if storm.freeze(pid, storm.rng.uniform(1, 4)) else None


def member_dies(storm: Storm) -> str | None:
    classes = storm.watched.cluster.classes
    pids = [*classes(name="GangMember"), *classes(name="GangMember", starting=True)]
    if not pids:
        return None
    pid = storm.rng.choice(pids)
    below = set(tree_of(pid))
    storm.hit |= {engine.replica for engine in storm.watched.engines() if engine.pid in below}
    return f"member {pid}" if send(pid, signal.SIGKILL) else None


def engine_gets(number: signal.Signals, above: int = 0) -> Kind:
    """Hit an engine, or the guard one or two steps above it."""
    def fault(storm: Storm) -> str | None:
        engines = storm.watched.engines()
        if not engines:
            return None
        engine = storm.rng.choice(engines)
        storm.hit.add(engine.replica)
        pid = engine.pid
        try:
            for _ in range(above):
                pid = parent_of(pid)
        except OSError:
            return None
        return f"{engine.replica}" if pid > 1 and send(pid, number) else None
    return fault


def evicted(storm: Storm) -> str | None:
    actors = sorted(storm.watched.actors())
    if not actors:
        return None
    key, number = name = storm.rng.choice(actors)
    storm.hit.add(name)
    storm.beside.append(storm.watched.start("evict", f"{key}/{number}", "--yes", "--lock-timeout", "20s"))
    return f"{key}/{number}"


def node_dies(storm: Storm) -> str | None:
    name = storm.rng.choice(storm.nodes)
    node_id = storm.watched.cluster.node_id(name=name)
    storm.hit |= {replica for replica, nodes in storm.places.items() if node_id in nodes}
    storm.watched.cluster.kill_node(name=name)
    storm.nodes.remove(name)
    node_joins(storm)
    return name


def node_joins(storm: Storm) -> str | None:
    name = f"n{storm.numbers()}"
    storm.watched.cluster.add(names=[name])
    storm.nodes.append(name)
    return name


def node_drains(storm: Storm) -> str | None:
    able = [name for name in storm.nodes if name not in storm.drained]
    if len(able) < 2:
        return None
    name = storm.rng.choice(able)
    storm.watched.cluster.drain(node=name)
    storm.drained.add(name)
    return name


def process_freezes(process: str, longest_s: float) -> Kind:
    def fault(storm: Storm) -> str | None:
        node = storm.rng.choice(storm.nodes) if process == "raylet" else "head"
        pid = storm.watched.cluster.process(node=node, kind=process)
        return node if storm.freeze(pid, storm.rng.uniform(1, longest_s)) else None
    return fault


def dashboard_dies(storm: Storm) -> str | None:
    storm.watched.cluster.restart_dashboard()
    return "the dashboard"


def task_comes(storm: Storm) -> str | None:
    name, cards = storm.rng.choice(storm.nodes), storm.rng.choice([0.5, 1, 2])
    storm.watched.cluster.foreign_task(node=name, gpus=cards)
    return f"{cards} on {name}"


def group_comes(storm: Storm) -> str | None:
    name = storm.rng.choice(storm.nodes)
    storm.watched.cluster.foreign_group(node=name, gpus=1)
    return name


def foreigners_go(storm: Storm) -> str | None:
    return storm.watched.cluster.end_foreign() or None


def spoils(fault: str) -> Kind:
    def arm(storm: Storm) -> str | None:
        if storm.client.poll() is not None:
            return None
        storm.proxy.faults.append(fault)
        return "next request"
    return arm


KINDS: dict[str, Kind] = {
    "client killed": client_gets(signal.SIGKILL), "client interrupted": client_gets(signal.SIGINT),
    "client ended": client_gets(signal.SIGTERM), "second client": second_client,
    "agent killed": agent_gets(signal.SIGKILL), "agent ended": agent_gets(signal.SIGTERM),
    "agent frozen": agent_freezes, "job stopped": job_stops,
    "actor killed": actor_gets(signal.SIGKILL), "actor ended": actor_gets(signal.SIGTERM),
    "actor frozen": actor_freezes, "member killed": member_dies,
    "engine killed": engine_gets(signal.SIGKILL), "engine ended": engine_gets(signal.SIGTERM),
    "engine frozen": engine_gets(signal.SIGSTOP), "inner guard killed": engine_gets(signal.SIGKILL, above=1),
    "outer guard killed": engine_gets(signal.SIGKILL, above=2), "evicted": evicted,
    "node killed": node_dies, "node joined": node_joins, "node drained": node_drains,
    "raylet frozen": process_freezes("raylet", 5), "GCS frozen": process_freezes("gcs_server", 10),
    "dashboard frozen": process_freezes("dashboard", 10), "dashboard killed": dashboard_dies,
    "foreign task": task_comes, "foreign group": group_comes, "foreigners gone": foreigners_go,
    **{PROXY + fault: spoils(fault) for fault in FAULTS if fault != "none"},
}
RARE = {"node killed": 0.5, "node joined": 0.3, "node drained": 0.4, "dashboard killed": 0.5, "proxy: huge": 0.3}
"""How often a kind comes, where that is not 1: nodes cost this machine seconds."""
