"""The kinds of fault. Each hits something that exists now and returns what it hit; None = nothing to hit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fleetctl.apply.prepare import Starter
from fleetctl.apply.standby import StandbyKeeper
from fleetctl.cli.verb import new_job_id
from fleetctl.documents.plan import PlanFleet
from fleetctl.errors import FleetctlError
from fleetctl.inventory.client import DashboardClient
from tests.chaos.fleet import WEIGHED, Name, Watched
from tests.chaos.proxy import FAULTS, Proxy
from tests.chaos.surroundings import CARDS, SKEW_S, Cards, Eviction, Origin, skewed
from tests.e2e.cluster import parent_of, tree_of

PROXY = "proxy: "
HUNG_S = (61.0, 75.0)
"""How long a process hangs: Ray gives up on one after about 30 s."""


@dataclass
class FaultTargets:
    """What the faults of a round work on. `hit` = replicas that a fault may have ended or restarted."""

    watched: Watched
    proxy: Proxy
    rng: random.Random
    client: subprocess.Popen[str]
    places: dict[Name, set[str]]
    """The nodes of the replicas that were ready when the round began."""
    cards: Cards
    origin: Origin
    hit: set[Name] = field(default_factory=set)
    nodes: list[str] = field(default_factory=list)
    drained: set[str] = field(default_factory=set)
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    timers: list[threading.Timer] = field(default_factory=list)
    numbers: Callable[[], int] = lambda: 0

    def freeze(self, pid: int, seconds: float) -> bool:
        """Stop a process for a while; False if it has ended."""
        if not send(pid, signal.SIGSTOP):
            return False
        timer = threading.Timer(seconds, send, (pid, signal.SIGCONT))
        timer.start()
        self.timers.append(timer)
        return True

    def calm(self) -> None:
        """Undo faults that are still active, and wait for started commands; what is dead or lost stays so."""
        self.proxy.faults.clear()
        for timer in self.timers:
            timer.join()
        self.watched.cluster.revive_dashboard()
        self.origin.away.clear()
        for process in self.started:
            process.communicate(timeout=240)
        for eviction in self.evictions:
            eviction.end()
        self.origin.drips.clear()

    def evict(self, name: Name) -> None:
        """Start to evict a replica."""
        self.hit.add(name)
        self.evictions.append(Eviction(self.watched, name))


def send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


Kind = Callable[[FaultTargets], "str | None"]


def signal_client(number: signal.Signals) -> Kind:
    def fault(targets: FaultTargets) -> str | None:
        return "client" if targets.client.poll() is None and send(targets.client.pid, number) else None
    return fault


def start_second_client(targets: FaultTargets) -> str | None:
    targets.started.append(targets.watched.start("apply", "-f", str(targets.watched.fleet.file), "--yes"))
    return "another apply"


def _agent(targets: FaultTargets) -> int | None:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"fleetctl_agent" in words and targets.watched.fleet.name.encode() in words:
            return int(entry.name)
    return None


def signal_agent(number: signal.Signals) -> Kind:
    def fault(targets: FaultTargets) -> str | None:
        agent = _agent(targets)
        return f"agent {agent}" if agent and send(agent, number) else None
    return fault


def kill_supervisor(targets: FaultTargets) -> str | None:
    """Kill the process of Ray that runs an agent's job; it ends the agent up to a second later."""
    pid = _agent(targets) or 1
    supervisors = set(targets.watched.cluster.classes(name="JobSupervisor"))
    with suppress(OSError):
        while pid > 1 and pid not in supervisors:
            pid = parent_of(pid)
    return f"supervisor {pid}" if pid in supervisors and send(pid, signal.SIGKILL) else None


def start_standby(targets: FaultTargets) -> str | None:
    """Let an agent wait for a plan, as a watch does: the next client hands its plan over."""
    fleet = PlanFleet(name=targets.watched.fleet.name, namespace=targets.watched.fleet.name)
    keeper = StandbyKeeper(Starter("chaos"), partial(new_job_id, "apply"), time.monotonic)
    with suppress(FleetctlError), DashboardClient(targets.proxy.upstream) as client:
        keeper.keep(client, fleet)
        return keeper.job
    return None


def freeze_agent(targets: FaultTargets) -> str | None:
    agent = _agent(targets)
    return f"agent {agent}" if agent and targets.freeze(agent, targets.rng.uniform(1, 8)) else None


def stop_job(targets: FaultTargets) -> str | None:
    for job in targets.watched.cluster.running_jobs():
        request = urllib.request.Request(f"{targets.proxy.upstream}/api/jobs/{job}/stop", method="POST",
                                         headers={"User-Agent": "chaos"})
        try:
            urllib.request.urlopen(request, timeout=20).close()
        except OSError:
            return None
        return str(job)
    return None


def signal_actor(number: signal.Signals) -> Kind:
    def fault(targets: FaultTargets) -> str | None:
        living = [(name, actor.pid) for name, actor in targets.watched.actors().items() if actor.pid]
        if not living:
            return None
        name, pid = targets.rng.choice(living)
        targets.hit.add(name)
        return f"{name}" if send(pid, number) else None
    return fault


def freeze_actor(targets: FaultTargets) -> str | None:
    living = [(name, actor.pid) for name, actor in targets.watched.actors().items() if actor.pid]
    if not living:
        return None
    name, pid = targets.rng.choice(living)
    return f"{name}" if targets.freeze(pid, targets.rng.uniform(1, 4)) else None


def kill_member(targets: FaultTargets) -> str | None:
    classes = targets.watched.cluster.classes
    pids = [*classes(name="GangMember"), *classes(name="GangMember", starting=True)]
    pid = _chosen_member(targets, pids)
    return f"member {pid}" if pid and send(pid, signal.SIGKILL) else None


def _chosen_member(targets: FaultTargets, pids: list[int]) -> int | None:
    """One of the members, whose replica is hit; None if there is none."""
    if not pids:
        return None
    pid = targets.rng.choice(pids)
    below = set(tree_of(pid))
    targets.hit |= {engine.replica for engine in targets.watched.engines() if engine.pid in below}
    return pid


def signal_engine(number: signal.Signals, above: int = 0) -> Kind:
    """Send a signal to an engine, or to the guard one or two levels above it."""
    def fault(targets: FaultTargets) -> str | None:
        replica, pid = _chosen_engine(targets, above)
        return replica if pid > 1 and send(pid, number) else None
    return fault


def _chosen_engine(targets: FaultTargets, above: int) -> tuple[str, int]:
    """The replica of an engine, which is hit, and the process of this engine or so many levels above; pid 0 = none."""
    engines = targets.watched.engines()
    if not engines:
        return "", 0
    engine = targets.rng.choice(engines)
    targets.hit.add(engine.replica)
    pid = engine.pid
    try:
        for _ in range(above):
            pid = parent_of(pid)
    except OSError:
        return engine.replica, 0
    return engine.replica, pid


def evict(targets: FaultTargets) -> str | None:
    actors = sorted(targets.watched.actors())
    if not actors:
        return None
    name = targets.rng.choice(actors)
    targets.evict(name)
    return f"{name}"


def evict_what_is_ready(targets: FaultTargets) -> str | None:
    """Evict a replica that became ready during this apply, while the apply goes on."""
    fresh = sorted(name for name, actor in targets.watched.actors().items()
                   if actor.state == "ALIVE" and name not in targets.places and name not in targets.hit)
    if not fresh or targets.client.poll() is not None:
        return None
    name = targets.rng.choice(fresh)
    targets.evict(name)
    return f"{name}"


def hang_actor(targets: FaultTargets) -> str | None:
    """Stop an actor for longer than Ray waits for it, and evict it a good while before it goes on."""
    living = sorted((name, actor.pid) for name, actor in targets.watched.actors().items() if actor.pid)
    if not living:
        return None
    name, pid = targets.rng.choice(living)
    if not targets.freeze(pid, targets.rng.uniform(*HUNG_S)):
        return None
    targets.hit.add(name)
    later = threading.Timer(targets.rng.uniform(1, HUNG_S[0] / 2), targets.evict, (name,))
    later.start()
    targets.timers.append(later)
    return f"{name}"


def hang_member(targets: FaultTargets) -> str | None:
    pids = targets.watched.cluster.classes(name="GangMember")
    pid = _chosen_member(targets, pids)
    return f"member {pid}" if pid and targets.freeze(pid, targets.rng.uniform(*HUNG_S)) else None


def hang_guard(targets: FaultTargets) -> str | None:
    replica, pid = _chosen_engine(targets, targets.rng.choice([1, 2]))
    return f"guard {pid} of {replica}" if pid > 1 and targets.freeze(pid, targets.rng.uniform(*HUNG_S)) else None


def lose_card(targets: FaultTargets) -> str | None:
    name, index = targets.rng.choice(targets.nodes), targets.rng.randrange(CARDS)
    uuid = targets.cards.lose(name, index)
    if uuid:  # an engine that is started again on this card is refused, and a replica may use up its restarts
        targets.hit |= {engine.replica for engine in targets.watched.engines() if engine.node == name}
    return uuid


def drip_headers(targets: FaultTargets) -> str | None:
    """Let the origin of weights answer a byte at a time until the round's commands have ended."""
    if targets.watched.fleet.wanted[WEIGHED] == 0 or targets.origin.drips.is_set():
        return None
    targets.origin.drips.set()
    targets.hit |= {name for name, actor in targets.watched.actors().items()
                    if name[0] == WEIGHED and actor.state != "ALIVE"}
    return "the origin"


def restart_source(targets: FaultTargets) -> str | None:
    """Save a plan, restart the process that serves weights, on another port, take the origin away, and apply it."""
    living = sorted((name, actor.pid) for name, actor in targets.watched.actors().items()
                    if name[0] == WEIGHED and actor.state == "ALIVE" and actor.pid)
    plan = targets.watched.fleet.folder / "saved.fleetplan"
    plan.unlink(missing_ok=True)
    if not living or targets.watched.run("plan", "-f", str(targets.watched.fleet.file), "--out", str(plan)).returncode:
        return None
    name, pid = targets.rng.choice(living)
    targets.hit.add(name)
    targets.origin.away.set()
    if not send(pid, signal.SIGKILL) or not plan.exists():
        return None
    targets.started.append(targets.watched.start("apply", str(plan), "--yes", "--lock-timeout", "20s"))
    return f"{name}"


def skew_client(targets: FaultTargets) -> str | None:
    """Start another apply, by a client whose clock is hours wrong."""
    env = skewed(targets.watched.fleet.folder)
    if env is None:
        return None
    skew = targets.rng.choice([SKEW_S, -SKEW_S])
    targets.started.append(targets.watched.start(
        "apply", "-f", str(targets.watched.fleet.file), "--yes", **env, SKEW=str(skew)))
    return f"{skew} s"


def kill_node(targets: FaultTargets) -> str | None:
    name = targets.rng.choice(targets.nodes)
    node_id = targets.watched.cluster.node_id(name=name)
    targets.hit |= {replica for replica, nodes in targets.places.items() if node_id in nodes}
    targets.watched.cluster.kill_node(name=name)
    targets.nodes.remove(name)
    add_node(targets)
    return name


def add_node(targets: FaultTargets) -> str | None:
    name = f"n{targets.numbers()}"
    targets.watched.cluster.add(names=[name], env=targets.cards.env(name), disks=str(targets.cards.folder))
    targets.nodes.append(name)
    return name


def drain_node(targets: FaultTargets) -> str | None:
    able = [name for name in targets.nodes if name not in targets.drained]
    if len(able) < 2:
        return None
    name = targets.rng.choice(able)
    targets.watched.cluster.drain(node=name)
    targets.drained.add(name)
    return name


def freeze_process(process: str, longest_s: float) -> Kind:
    def fault(targets: FaultTargets) -> str | None:
        node = targets.rng.choice(targets.nodes) if process == "raylet" else "head"
        pid = targets.watched.cluster.process(node=node, kind=process)
        return node if targets.freeze(pid, targets.rng.uniform(1, longest_s)) else None
    return fault


def restart_dashboard(targets: FaultTargets) -> str | None:
    targets.watched.cluster.restart_dashboard()
    return "the dashboard"


def start_foreign_task(targets: FaultTargets) -> str | None:
    name, cards = targets.rng.choice(targets.nodes), targets.rng.choice([0.5, 1, 2])
    targets.watched.cluster.foreign_task(node=name, gpus=cards)
    return f"{cards} on {name}"


def create_foreign_group(targets: FaultTargets) -> str | None:
    name = targets.rng.choice(targets.nodes)
    targets.watched.cluster.foreign_group(node=name, gpus=1)
    return name


def end_foreign(targets: FaultTargets) -> str | None:
    return targets.watched.cluster.end_foreign() or None


def spoil_response(fault: str) -> Kind:
    def arm(targets: FaultTargets) -> str | None:
        if targets.client.poll() is not None:
            return None
        targets.proxy.faults.append(fault)
        return "next request"
    return arm


KINDS: dict[str, Kind] = {
    "client killed": signal_client(signal.SIGKILL), "client interrupted": signal_client(signal.SIGINT),
    "client ended": signal_client(signal.SIGTERM), "second client": start_second_client,
    "agent killed": signal_agent(signal.SIGKILL), "agent ended": signal_agent(signal.SIGTERM),
    "agent frozen": freeze_agent, "supervisor killed": kill_supervisor, "agent waits": start_standby,
    "job stopped": stop_job,
    "actor killed": signal_actor(signal.SIGKILL), "actor ended": signal_actor(signal.SIGTERM),
    "actor frozen": freeze_actor, "member killed": kill_member,
    "engine killed": signal_engine(signal.SIGKILL), "engine ended": signal_engine(signal.SIGTERM),
    "engine frozen": signal_engine(signal.SIGSTOP), "inner guard killed": signal_engine(signal.SIGKILL, above=1),
    "outer guard killed": signal_engine(signal.SIGKILL, above=2), "evicted": evict,
    "evicted once ready": evict_what_is_ready, "actor hung": hang_actor, "member hung": hang_member,
    "guard hung": hang_guard, "card lost": lose_card, "slow header": drip_headers, "source restarted": restart_source,
    "client's clock": skew_client,
    "node killed": kill_node, "node joined": add_node, "node drained": drain_node,
    "raylet frozen": freeze_process("raylet", 5), "GCS frozen": freeze_process("gcs_server", 10),
    "dashboard frozen": freeze_process("dashboard", 10), "dashboard killed": restart_dashboard,
    "foreign task": start_foreign_task, "foreign group": create_foreign_group, "foreigners gone": end_foreign,
    **{PROXY + fault: spoil_response(fault) for fault in FAULTS if fault != "none"},
}
RARE = {"node killed": 0.5, "node joined": 0.3, "node drained": 0.4, "dashboard killed": 0.5, "proxy: huge": 0.3,
        "actor hung": 0.3, "member hung": 0.2, "guard hung": 0.2, "card lost": 0.5}
"""Weights of rare kinds, where they are not 1: a node takes this machine seconds."""
SLOW = frozenset({"actor hung", "member hung", "guard hung", "slow header"})
"""Kinds whose round lasts a minute or more."""
