"""A small Ray with Ray's rules: unique names, cards granted once, gangs granted whole, restarts of actors, lost
nodes.

Nodes, actors, jobs and notes are in a `ClusterStandIn`, which the client reads and writes. The agent is real: each
job runs it in a thread of its own, one at a time; when the agent or the client sleeps, the others run. Time is
simulated.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, Steps, StoredJob
from ray_keys import Keys

from fleetctl.agent import (
    __main__,
    apply,
    attempt,
    cluster,
    create,
    evict,
    lock,
    node_request,
    records,
    reload,
    run,
    run_messages,
)
from fleetctl.agent.cluster import GONE, ActorRecord
from fleetctl.agent.messages import FailedStart, Member, Place, Replica
from fleetctl.agent.report import describe, encode_failure, place_of, read_mark, utc_now
from fleetctl.agent.wire import from_parts, parse

JOBS = b"job"
"""The namespace of Ray's own records of jobs in its key-value table."""
STARTUP_S, BACK_OFF_S, UNSCHEDULABLE_S, ANSWER_S = 8.0, 1.0, 5.0, 0.05
FAILS = "--fail"
"""An engine with this argument ends before it is ready."""


@dataclass
class Actor:
    """An actor of a replica, or of a gang's coordinator.

    `row` = its row in the dashboard; `children` = the rows of a gang's members while they have their cards; `due` =
    the time of its next change of state.
    """

    row: dict[str, Any]
    replica: Replica
    granted: bool = False
    due: float = 0.0
    children: list[dict[str, Any]] = field(default_factory=list)
    restarts: int = 0
    death: str = ""

    @property
    def state(self) -> str:
        return str(self.row["state"])

    @property
    def name(self) -> str:
        return str(self.row["name"])

    @property
    def key(self) -> str:
        return f"{self.replica.model}/{self.replica.replica_id}"

    @property
    def id(self) -> str:
        return str(self.row["actor_id"])

    @property
    def members(self) -> Sequence[Member]:
        return self.replica.members

    @property
    def is_gang(self) -> bool:
        return len(self.members) > 1

    @property
    def nodes(self) -> list[str]:
        """The ids of its nodes, starting with the first member's."""
        return list(dict.fromkeys(member.node_id for member in self.members))

    def cards(self, node_id: str) -> float:
        return sum(cards_of(member) for member in self.members if member.node_id == node_id)

    @property
    def fails(self) -> bool:
        return FAILS in self.members[0].engine.args


def claim(resource: str, member: Member) -> dict[str, float]:
    return {resource: cards_of(member)} if member.gpus else {}


def cards_of(member: Member) -> float:
    return member.gpus / 10_000


def failed(code: str, message: str) -> str:
    return encode_failure(FailedStart(code, message))


class Agent:
    """A job's process: runs until it sleeps, and continues when it is stepped."""

    def __init__(self, world: RayStandIn, job: StoredJob, driver: str, work: Callable[[], int]) -> None:
        self.job, self.driver = job, driver
        self.wakes_at, self.done = 0.0, False
        self.stop, self._world = SimulatedEvent(world), world
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._work, self._thread = work, threading.Thread(target=self._run, daemon=True)
        job.status = "RUNNING"
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        RUNNING.agent = self
        try:
            code = self._work()
        except BaseException as error:
            self._world.errors.append(error)
            code = 1
        self.done, self.job.status = True, "SUCCEEDED" if code == 0 else "FAILED"
        self._back.release()

    def step(self) -> None:
        """Run it until it sleeps or ends."""
        self._go.release()
        self._back.acquire()

    def sleep(self, until: float) -> None:
        self.wakes_at = until
        self._back.release()
        self._go.acquire()


RUNNING = threading.local()
WORLD_STATE = ("now", "actors", "ended", "_drivers")
DASHBOARD_STATE = ("nodes", "actors", "numbers", "packages", "jobs", "records")


class SimulatedEvent:
    """A `threading.Event` in simulated time."""

    def __init__(self, world: RayStandIn) -> None:
        self._world, self._is_set = world, False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float) -> bool:
        until = self._world.now + seconds
        while not self._is_set and self._world.now < until:
            self._world.sleep(min(1.0, until - self._world.now))
        return self._is_set


@dataclass
class RayStandIn:
    """The cluster.

    `ended` = the actors that ended or were restarted, each with the cause: "fault", "start" or a job's id; `errors`
    = exceptions of agents, and failed assertions of a test's callbacks.
    """

    stand_in: ClusterStandIn = field(default_factory=ClusterStandIn)
    now: float = 0.0
    actors: list[Actor] = field(default_factory=list)
    agents: list[Agent] = field(default_factory=list)
    ended: list[tuple[Actor, str]] = field(default_factory=list)
    before_end: Callable[[Actor, str], None] = lambda _actor, _job: None
    on_create: Callable[[Actor], None] = lambda _: None
    on_tick: Callable[[], None] = lambda: None
    errors: list[BaseException] = field(default_factory=list)
    _keys: Keys = field(default_factory=Keys)
    _drivers: int = 0

    def __post_init__(self) -> None:
        self.stand_in.on_submit = self._submitted
        self.stand_in.on_stop = lambda job: [agent.stop.set() for agent in self.agents if agent.job is job]

    # --- time

    def state(self) -> dict[str, Any]:
        """Return a copy of the state while no agent runs, for `restore` in another world."""
        assert not self.agents
        stand_in, own = vars(self.stand_in), vars(self)
        return copy.deepcopy({"table": self._keys.table, "own": {key: own[key] for key in WORLD_STATE},
                              "stand_in": {key: stand_in[key] for key in DASHBOARD_STATE}})

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        state = copy.deepcopy(state)
        vars(self).update(state["own"])
        vars(self.stand_in).update(state["stand_in"])
        self._keys.table.update(state["table"])

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass for the caller."""
        agent = getattr(RUNNING, "agent", None)
        if agent is not None:
            return agent.sleep(self.now + seconds)
        until = self.now + max(seconds, ANSWER_S)
        while self.now < until:
            self.now = min(until, self.now + 0.5)
            self._advance_actors()
            for one in list(self.agents):
                if not one.done and (one.wakes_at <= self.now or one.stop.is_set()):
                    one.step()
            self.agents = [one for one in self.agents if not one.done]
            self.on_tick()
        return None

    def settle(self, seconds: float = 30.0) -> None:
        """Let time pass until no agent runs, and then some seconds more."""
        while self.agents:
            self.sleep(1.0)
        self.sleep(seconds)

    def _advance_actors(self) -> None:
        """Grant cards, let engines become ready or fail, end actors whose node is gone."""
        for actor in list(self.actors):
            if actor.state == "ALIVE":
                continue
            if not all(map(self.alive, actor.nodes)):
                if self.now >= actor.due:
                    self._die(actor, failed("NODE_GONE", "its node is gone"), "fault")
            elif not actor.granted:
                self._grant(actor)
            elif self.now >= actor.due and actor.fails:
                self._die(actor, failed("ENGINE_EXITED", "the engine ended with 1"), "start")
            elif self.now >= actor.due:
                self._come_up(actor)

    def _grant(self, actor: Actor) -> None:
        """Grant an actor its cards, to a gang all at once. A gang that waits too long for them ends by itself."""
        if all(self.free(node_id) >= actor.cards(node_id) for node_id in actor.nodes):
            actor.granted, actor.due = True, self.now + STARTUP_S
            actor.row["node_id"] = actor.nodes[0]
            if actor.is_gang:
                actor.children = [self._child(actor, member) for member in actor.members]
                self.stand_in.actors.extend(actor.children)
            else:
                actor.row["required_resources"] = claim("GPU", actor.members[0])
        elif actor.is_gang and self.now >= actor.due + actor.replica.lifecycle.scheduling_timeout:
            if actor.restarts:
                self.crash(actor, "start")
            else:
                self._die(actor, failed("NODE_TAKEN", "Ray did not grant its group"), "start")

    def _child(self, actor: Actor, member: Member) -> dict[str, Any]:
        group = actor.id.rjust(36, "0")
        return self._row("", "GangMember", state="ALIVE", node_id=member.node_id, placement_group_id=group,
                         required_resources=claim(f"GPU_group_{group}", member))

    def _take_cards(self, actor: Actor) -> None:
        actor.granted = False
        actor.row["required_resources"] = {}
        for child in actor.children:
            self.stand_in.actors.remove(child)
        actor.children = []

    def _come_up(self, actor: Actor) -> None:
        places: list[Place] = []
        for member in actor.members:
            taken = [index for place in places if place.node_id == member.node_id for index in place.gpu_indices]
            places.append(place_of(member)._replace(ip="10.0.0.7", port=7001,
                                                    gpu_indices=self._card_indices(member, taken)))
        actor.row.update(state="ALIVE", repr_name=describe(actor.replica, places, utc_now()))

    def _card_indices(self, member: Member, own: list[int]) -> list[int]:
        marks = [read_mark(other.row["repr_name"]) for other in self.actors if other.state == "ALIVE"]
        taken = {*own, *(index for mark in marks if mark for place in mark.members
                         if place.node_id == member.node_id for index in place.gpu_indices)}
        free = [index for index in range(64) if index not in taken]
        return free[:int(cards_of(member))]

    def _die(self, actor: Actor, death: str, how: str) -> None:
        actor.death = death
        placed = actor.granted
        self._take_cards(actor)
        actor.granted, actor.row["state"] = placed, "DEAD"
        self.actors.remove(actor)
        self.stand_in.actors.remove(actor.row)
        self.ended.append((actor, how))

    # --- faults

    def crash(self, actor: Actor, how: str = "fault") -> None:
        """The replica's process ends; Ray restarts it while it has restarts left."""
        if actor.restarts >= actor.replica.lifecycle.restart_max or (
                not actor.row["repr_name"] and actor.state != "RESTARTING"):
            return self._die(actor, "its engine ended", how)
        actor.restarts += 1
        self._take_cards(actor)
        actor.due = self.now + BACK_OFF_S
        actor.row.update(state="RESTARTING", num_restarts=str(actor.restarts))
        if how == "fault":
            self.ended.append((actor, "fault"))
        return None

    def lose(self, node: dict[str, Any]) -> None:
        """A node dies with everything on it."""
        node["state"] = "DEAD"
        for actor in self.on(node["node_id"]):
            self.ended.append((actor, "fault"))
            self._take_cards(actor)
            actor.row["state"], actor.due = "RESTARTING", self.now + UNSCHEDULABLE_S

    def bring_back(self, node: dict[str, Any]) -> None:
        """A machine joins again, with the same name and another node id."""
        self.stand_in.add_node(node["node_name"], gpus=int(node["resources_total"]["GPU"]))
        self.stand_in.nodes[-1]["node_id"] = f"{len(self.stand_in.nodes):056x}"

    # --- Ray's API, and queries of tests

    def alive(self, node_id: str) -> bool:
        return any(node["node_id"] == node_id and node["state"] == "ALIVE" for node in self.stand_in.nodes)

    def on(self, node_id: str) -> list[Actor]:
        return [actor for actor in self.actors if node_id in actor.nodes]

    def ready(self, model: str) -> list[Actor]:
        return [actor for actor in self.actors if actor.replica.model == model and actor.state == "ALIVE"]

    def free(self, node_id: str) -> float:
        total = next(node["resources_total"]["GPU"] for node in self.stand_in.nodes if node["node_id"] == node_id)
        return float(total - sum(actor.cards(node_id) for actor in self.on(node_id) if actor.granted))

    def find(self, actor_id: str) -> Actor | None:
        return next((actor for actor in self.actors if actor.id == actor_id), None)

    def get_actor(self, name: str) -> Any:
        actor = next((actor for actor in self.actors if actor.name == name), None)
        if actor is None:
            raise ValueError(name)
        return self._handle(actor)

    def _handle(self, actor: Actor) -> Any:
        return SimpleNamespace(
            _actor_id=SimpleNamespace(hex=lambda: actor.id), leave=SimpleNamespace(remote=lambda: actor),
            __ray_ready__=SimpleNamespace(remote=lambda: actor))

    def kill(self, handle: Any, *, no_restart: bool) -> None:
        actor = self.find(handle._actor_id.hex())
        job = RUNNING.agent.job.body["submission_id"]
        if actor is not None and not no_restart:
            self.crash(actor, job)
        elif actor is not None:
            self.before_end(actor, job)
            self._die(actor, "ended", job)

    def remote(self, replica: Replica, name: str) -> Any:
        """Create an actor; its name must be unique."""
        if any(actor.name == name for actor in self.actors):
            raise ValueError(f"the name {name} is taken")
        kind = "ModelActor" if len(replica.members) == 1 else "GangCoordinator"
        row = self._row(name, kind, job_id=RUNNING.agent.driver, ray_namespace=replica.namespace)
        actor = Actor(row, replica, due=self.now)
        self.actors.append(actor)
        self.stand_in.actors.append(row)
        self.on_create(actor)
        return self._handle(actor)

    def _row(self, name: str, class_name: str, **values: Any) -> dict[str, Any]:
        return {"actor_id": f"{next(self.stand_in.numbers):032x}", "name": name, "class_name": class_name,
                "state": "PENDING_CREATION", "job_id": "", "ray_namespace": "", "node_id": None,
                "placement_group_id": None, "required_resources": {}, "num_restarts": "0", "death_cause": None,
                "repr_name": "", **values}

    def _group_is_granted(self, name: str) -> bool:
        return any(actor.granted for actor in self.actors if actor.name == name)

    def record(self, actor_id: str) -> ActorRecord:
        actor = self.find(actor_id)
        if actor is None:
            gone = next((one for one, _ in reversed(self.ended) if one.id == actor_id), None)
            return GONE._replace(death=gone.death, placed=gone.granted) if gone else GONE
        return ActorRecord(actor.state, actor.granted, actor.row["repr_name"], "", actor.restarts, None)

    # --- jobs

    def _submitted(self, request: dict[str, Any]) -> Steps:
        job = self.stand_in.jobs[request["job"]]
        self._drivers += 1
        driver = job.driver_id = f"{self._drivers:08x}"
        kind, carry_out = __main__.VERBS[job.body["metadata"]["verb"]]

        def run() -> int:
            records.begin_run(job.body["submission_id"])
            code = carry_out(parse(kind, request), run_messages.EventStream())
            records.end_run(job.body["submission_id"])
            return code

        self.agents.append(Agent(self, job, driver, run))
        return []

    def _put(self, key: bytes, value: bytes, overwrite: bool = True, *, namespace: bytes) -> bool:
        """Write to Ray's key-value table; its part for jobs is what the dashboard lists."""
        if namespace != JOBS:
            return self._keys.put(key, value, overwrite, namespace=namespace)
        name = key.decode().removeprefix(records.JOB_KEY)
        self.stand_in.records.rows[name] = {"submission_id": name, **json.loads(value)}
        return True

    def _get(self, key: bytes, *, namespace: bytes) -> bytes | None:
        if namespace != JOBS:
            return self._keys.get(key, namespace=namespace)
        name = key.decode().removeprefix(records.JOB_KEY)
        job = self.stand_in.jobs.get(name)
        row = job.record() if job else self.stand_in.records.rows.get(name)
        return json.dumps(row).encode() if row else None

    def _list(self, prefix: bytes, *, namespace: bytes) -> list[bytes]:
        if namespace != JOBS:
            return self._keys.list(prefix, namespace=namespace)
        keys = (f"{records.JOB_KEY}{name}".encode() for name in (*self.stand_in.jobs, *self.stand_in.records.rows))
        return [key for key in keys if key.startswith(prefix)]

    def write_line(self, text: str, **_: Any) -> None:
        """Write a line to the log of the running agent's job."""
        RUNNING.agent.job.log += text + "\n"

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Replace Ray and the clock in all modules of the agent."""
        time = SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now, sleep=self.sleep)
        ray = SimpleNamespace(
            __version__="2.60.0", get_actor=self.get_actor, kill=self.kill, get=lambda *_, **__: None,
            wait=lambda refs, **_: (refs, []), nodes=self._ray_nodes,
            get_runtime_context=lambda: SimpleNamespace(get_job_id=lambda: RUNNING.agent.driver),
            util=SimpleNamespace(list_named_actors=lambda: [actor.name for actor in self.actors]),
            exceptions=SimpleNamespace(GetTimeoutError=TimeoutError))
        for module in (apply, attempt, cluster, create, evict, lock, records, run, run_messages):
            for name, stand_in in {"ray": ray, "time": time}.items():
                if hasattr(module, name):
                    patch.setattr(module, name, stand_in)
        patch.setattr(run, "signal", SimpleNamespace(signal=lambda *_: None, SIGTERM=15))
        patch.setattr(run, "threading", SimpleNamespace(Event=lambda: RUNNING.agent.stop))
        patch.setattr(evict, "threading", SimpleNamespace(Event=lambda: SimulatedEvent(self)))
        patch.setattr(run.Run, "_work_in_thread", lambda run: run.work())
        patch.setattr(run_messages, "print", self.write_line, raising=False)
        for name, stand_in in {
            "actor_record": self.record, "group_is_granted": self._group_is_granted, "draining_nodes": set,
            "started_since": lambda *_, **__: {},
            "free_by_node": lambda: {node["node_id"]: {"GPU": self.free(node["node_id"]), "CPU": 16.0, "memory": 1e12}
                                     for node in self.stand_in.nodes if node["state"] == "ALIVE"},
        }.items():
            patch.setattr(cluster, name, stand_in)
        patch.setattr(lock, "job_is_alive", lambda driver: any(agent.driver == driver for agent in self.agents))
        patch.setattr(create, "remote_class", lambda _: SimpleNamespace(options=lambda **options: SimpleNamespace(
            remote=lambda *parts: self.remote(from_parts(Replica, parts), options["name"]))))
        for module in (attempt, evict):
            patch.setattr(module, "kept_failure", lambda _: None)
        self._keys.install(patch, lock, apply, node_request, reload, records)
        for name, stand_in in {"_internal_kv_put": self._put, "_internal_kv_get": self._get,
                               "_internal_kv_list": self._list}.items():
            patch.setattr(records, name, stand_in)
        packages = self.stand_in.packages
        patch.setattr(run_messages, "_internal_kv_get", lambda key: packages.get(key.decode().removeprefix("gcs://")))
        patch.setattr(run_messages, "_internal_kv_del", lambda key: packages.pop(
            key.decode().removeprefix("gcs://"), None))

    def _ray_nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": node["node_id"], "Alive": node["state"] == "ALIVE", "Resources": {}}
                for node in self.stand_in.nodes]
