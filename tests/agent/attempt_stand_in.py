"""A simulated cluster for one attempt: its reads from Ray, and its actions."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.agent import attempt as attempt_module
from fleetctl.agent import cluster
from fleetctl.agent import create as create_module
from fleetctl.agent.attempt import Attempt, SharedState
from fleetctl.agent.cluster import ActorRecord
from fleetctl.agent.create import CardTurns, CreatedHere, Creating, Grants
from fleetctl.agent.messages import FailedStart, Lifecycle, Mark, Member, Place, Replica
from fleetctl.agent.run_messages import Outcome
from fleetctl.agent.view import View
from fleetctl.agent.wire import document_of

FREE = {"n1": {"GPU": 4.0}}
MEMBER = Member("main", 0, "Standalone", 0, "n1", "node-a", gpus=10_000)
LIFECYCLE = Lifecycle(900.0, 30.0, 5, 10.0)
REPLICA = Replica("m/2", "m", 2, LIFECYCLE, "h", 3, [MEMBER], fleet="lab")


class SimulatedCluster:
    """What an attempt reads from Ray, and what it does; `killed` = the actors that it took back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.names: set[str] = set()
        self.trouble: dict[str, tuple[str, str]] = {}
        self.short: list[str] = []
        self.placed = True
        self.waits_as = "PENDING_CREATION"
        self.states: list[str] = ["ALIVE"]
        self.fleet = "lab"
        self.place = Place(ip="10.0.0.7", port=7001)
        self.other_places: list[Place] = []
        self.constructed = True
        self.death = ""
        self.evicted = False
        self.kept: FailedStart | None = None
        self.granted = True
        self.group_granted_at = 0.0
        self.answers = True
        self.lock_held = True
        self.killed: list[str] = []
        self.paused: dict[str, str] = {}
        self.events: list[str] = []
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.waits: list[float | None] = []
        for name, stand_in in {
            "taken_names": lambda: set(self.names), "node_trouble": self.trouble.get,
            "trouble_of": lambda node_id, *_: self.trouble.get(node_id), "shortfalls": lambda *_: list(self.short),
            "alive_nodes": dict, "draining_nodes": set, "free_by_node": dict, "actor_record": lambda _: self.record(),
            "group_is_granted": lambda _: self.now >= self.group_granted_at,
        }.items():
            monkeypatch.setattr(cluster, name, stand_in)
        monkeypatch.setattr(attempt_module, "create", self.create)
        monkeypatch.setattr(attempt_module, "kept_failure", lambda _: self.kept)
        monkeypatch.setattr(Grants, "may_be_granted", lambda *_: self.granted)
        monkeypatch.setattr(create_module, "ray", SimpleNamespace(
            kill=lambda handle, **_: self.killed.append(handle.name)))
        exceptions = SimpleNamespace(GetTimeoutError=TimeoutError)
        monkeypatch.setattr(attempt_module, "ray", SimpleNamespace(
            get=self.get, get_actor=self.handle, exceptions=exceptions,
            wait=self.wait))

    def record(self) -> ActorRecord:
        """The actor's record; each read returns the next state, and the last state stays."""
        if not self.placed:
            return ActorRecord(self.waits_as, False, "", "")
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        report = document_of(Mark(fleet=self.fleet, members=[self.place, *self.other_places]))
        representation = json.dumps(report) if state == "ALIVE" and self.constructed else ""
        return ActorRecord(state, True, representation, self.death if state == "DEAD" else "", killed=self.evicted)

    def handle(self, name: str) -> Any:
        return SimpleNamespace(name=name, _actor_id=SimpleNamespace(hex=lambda: "ab"),
                               __ray_ready__=SimpleNamespace(remote=lambda: "ready"))

    def create(self, replica: Replica, _: View) -> CreatedHere:
        self.events.append("created")
        name = f"ModelActor:{replica.model}:{replica.replica_id}"
        return CreatedHere(name, self.handle(name), "ab", "1 GPU on node-a", FREE, 0)

    def wait(self, refs: list[str], timeout: float | None = None) -> tuple[list[str], list[str]]:
        self.waits.append(timeout)
        return (refs, []) if self.answers and refs == ["ready"] else ([], refs)

    def get(self, _: object, timeout: float | None = None) -> None:
        self.waits.append(timeout)
        if not self.answers:
            raise TimeoutError

    def context(self) -> SharedState:
        lock: Any = SimpleNamespace(hold=lambda: self.lock_held)
        return SharedState(lambda _: set(), {"lab"}, lock, Grants(), View(lambda: self.now), self.emit,
                           lambda: self.now, CardTurns(()), Creating(10), lambda model: self.paused.get(model, ""))

    def emit(self, kind: str, message: str, **fields: Any) -> None:
        self.events.append(kind)
        self.sent.append((message, fields))

    def attempt(self, **more: Any) -> Attempt:
        return Attempt(REPLICA._replace(**more), self.context())

    def run(self, attempt: Attempt, step_s: float = 0.25, longest_s: float = 2_000.0) -> Outcome:
        """Step until there is an outcome; time passes only between steps."""
        while attempt.outcome is None:
            attempt.step()
            self.now += step_s
            assert self.now < longest_s, "no outcome"
            assert set(self.waits) <= {0}, "an attempt never waits"
        return attempt.outcome
