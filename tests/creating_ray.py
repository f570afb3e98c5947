"""Ray as an apply sees it that creates many replicas: workers that take their time, free resources that lag behind.

The apply and its attempts are real. Time is the caller's: simulated, or real with the cost of each call to Ray.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from ray_keys import Keys

from fleetctl.agent import apply, attempt, cluster, create, lock, records, run, run_messages
from fleetctl.agent.apply import ApplyRun
from fleetctl.agent.cluster import GONE, ActorRecord
from fleetctl.agent.messages import Mark, Replica
from fleetctl.agent.run import Run
from fleetctl.agent.run_messages import ApplyRequest, EventStream
from fleetctl.agent.wire import document_of, from_parts, parse

SHARE = 10_000
LOOK_S = 0.02
"""How often Ray looks at what waits: in real time a look at thousands of actors has its price."""
REPORT = json.dumps(document_of(Mark(fleet="lab")))


@dataclass
class Actor:
    """One created replica of one member, with the times at which Ray grants its card and its worker is up."""

    name: str
    id: str
    node: str
    share: int
    created: float
    granted: float | None = None
    up: float | None = None
    ended: float | None = None


@dataclass
class CreatingRay:
    """`cards` of each node; `lag_s` = how long free resources lag; `at_once` = how many workers a node starts at once.

    `calls` = how often each function was called, `costs` = what it takes, in seconds, by `spend`.
    """

    cards: dict[str, int]
    now: Callable[[], float]
    lag_s: float = 0.0
    worker_s: Callable[[], float] = lambda: 1.0
    at_once: int = 4
    costs: Mapping[str, float] = field(default_factory=dict)
    spend: Callable[[float], None] = lambda _: None
    draining: set[str] = field(default_factory=set)
    actors: dict[str, Actor] = field(default_factory=dict)
    killed: list[str] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    before_create: Callable[[str], None] = lambda _: None
    _live: dict[str, Actor] = field(default_factory=dict)
    _advanced: float = -1.0

    def _call(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        self.spend(self.costs.get(name, 0.0))

    def advance(self) -> None:
        """Grant cards in the order of the creates, and start workers, up to now."""
        now = self.now()
        if now < self._advanced + LOOK_S:
            return
        self._advanced = now
        by_node: dict[str, list[Actor]] = {}
        for one in self.actors.values():
            if one.ended is None:
                by_node.setdefault(one.node, []).append(one)
        for node, here in by_node.items():
            held = sum(one.share for one in here if one.granted is not None)
            for one in here:
                if one.granted is None and held + one.share <= self.cards[node] * SHARE:
                    one.granted, held = now, held + one.share
            starting = sum(one.up is not None and one.up > now for one in here)
            for one in here:
                if one.granted is not None and one.up is None and starting < self.at_once:
                    one.up, starting = now + self.worker_s(), starting + 1

    def free_by_node(self) -> dict[str, dict[str, float]]:
        self._call("free_by_node")
        self.advance()
        seen, free = self.now() - self.lag_s, {}
        by_node: dict[str, int] = {}
        for one in self.actors.values():
            if one.granted is not None and one.granted <= seen and not (one.ended and one.ended <= seen):
                by_node[one.node] = by_node.get(one.node, 0) + one.share
        for node, cards in self.cards.items():
            held = by_node.get(node, 0)
            free[node] = {"GPU": cards - held / SHARE} if held < cards * SHARE else {}
        return free

    def taken_names(self) -> set[str]:
        self._call("taken_names")
        return set(self._live)

    def alive_nodes(self) -> dict[str, Any]:
        self._call("alive_nodes")
        return {node: {} for node in self.cards}

    def draining_nodes(self) -> set[str]:
        self._call("draining_nodes")
        return set(self.draining)

    def actor_record(self, actor_id: str) -> ActorRecord:
        self._call("actor_record")
        self.advance()
        actor = self.actors.get(actor_id)
        if actor is None or actor.ended is not None:
            return GONE
        is_up = actor.up is not None and actor.up <= self.now()
        return ActorRecord("ALIVE" if is_up else "PENDING_CREATION", is_up, REPORT if is_up else "", "")

    def handle(self, actor: Actor) -> Any:
        return SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda: actor.id), name=actor.name,
                               __ray_ready__=SimpleNamespace(remote=lambda: "ready"))

    def remote(self, name: str, parts: Sequence[bytes]) -> Any:
        self.before_create(name)
        self._call("create")
        if self._live.get(name):
            raise ValueError(f"the name {name} is taken")
        member = from_parts(Replica, parts).members[0]
        actor = Actor(name, f"{len(self.actors):032x}", member.node_id, member.gpus, self.now())
        self.actors[actor.id] = self._live[name] = actor
        return self.handle(actor)

    def kill(self, handle: Any, **_: Any) -> None:
        self.killed.append(handle.name)
        self.actors[handle._actor_id.hex()].ended = self.now()
        del self._live[handle.name]

    def get_actor(self, name: str) -> Any:
        if name not in self._live:
            raise ValueError(name)
        return self.handle(self._live[name])

    def hold(self) -> bool:
        self._call("hold")
        return True

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Replace Ray in the agent's modules."""
        for name in ("free_by_node", "taken_names", "alive_nodes", "draining_nodes", "actor_record"):
            patch.setattr(cluster, name, getattr(self, name))
        patch.setattr(cluster, "started_since", lambda *_, **__: {})
        patch.setattr(cluster, "workers_at_once", lambda: dict.fromkeys(self.cards, self.at_once))
        patch.setattr(create, "NodeAffinitySchedulingStrategy", lambda *_, **__: None)  # it wants Ray's own ids
        patch.setattr(create, "remote_class", lambda _: SimpleNamespace(options=lambda **options: SimpleNamespace(
            remote=lambda *parts: self.remote(options["name"], parts))))
        ray = SimpleNamespace(get=lambda *_, **__: None, wait=lambda refs, **_: (refs, []), get_actor=self.get_actor,
                              kill=self.kill, exceptions=SimpleNamespace(GetTimeoutError=TimeoutError))
        for module in (attempt, create, apply):
            patch.setattr(module, "ray", ray)
        patch.setattr(attempt, "kept_failure", lambda _: None)
        patch.setattr(apply, "ask_for_nodes", lambda *_: None)
        patch.setattr(apply, "forget_dead_actors", lambda: None)
        patch.setattr(run, "signal", SimpleNamespace(signal=lambda *_: None, SIGTERM=15))
        held = SimpleNamespace(released=False, hold=self.hold, release=lambda: setattr(held, "released", True))
        patch.setattr(ApplyRun, "take", lambda *_: held)
        patch.setattr(Run, "_work_in_thread", lambda one: one.work())
        Keys().install(patch, run_messages, apply, lock, records)

    def run(self, replicas: Sequence[tuple[str, int, str, int]], emit: Callable[..., None], *, parallelism: int,
            wanted: int | None = None, clock: Callable[[], float] | None = None,
            wait: Callable[[float], None] | None = None, started: Callable[[ApplyRun], None] = lambda _: None,
            **request: Any) -> int:
        """Run one apply of replicas, each as (model, id, node, share), to its end; returns its exit code.

        `wanted` = of each model, None = as many as are planned; `started` gets the run.
        """
        stream = EventStream()
        stream.emit = emit  # type: ignore[method-assign]
        one = ApplyRun(parse(ApplyRequest, request_of(replicas, wanted) | {
            "parallelism": parallelism, "wait": True, **request}), stream)
        one.clock = clock or self.now
        if wait is not None:
            one.over.wait = lambda seconds=None: (wait(seconds or 0.0), one.over.is_set())[1]  # type: ignore
        started(one)
        return one.carry_out()


def request_of(replicas: Sequence[tuple[str, int, str, int]], wanted: int | None) -> dict[str, Any]:
    """Return the request of an apply of these replicas, each of one member."""
    count: dict[str, int] = {}
    for model, *_ in replicas:
        count[model] = count.get(model, 0) + 1
    actions = [{"id": f"{model}/{number}", "op": "create", "model": model, "replicaId": number, "specHash": "h",
                "wanted": count[model] if wanted is None else wanted,
                "lifecycle": {"startupTimeout": 900, "schedulingTimeout": 60},
                "members": [{"group": "main", "copy": 0, "role": "Standalone", "rank": 0, "node": node, "nodeId": node,
                             "gpus": share}]} for model, number, node, share in replicas]
    specs = {"h": {"workers": [{"name": "main", "members": [{"engine": {"command": ["serve"]}}]}]}}
    plan = {"planId": "p" * 64, "fleet": {"name": "lab", "namespace": "fleet"}, "actions": actions, "specs": specs,
            "blocked": []}
    return {"plan": plan, "record": {}, "logs": {f"{action['id']}|main|0|0": "x.log" for action in actions},
            "job": "job-1", "holder": {}, "mayReplan": False, "await": []}


def random_workers(rng: random.Random) -> Callable[[], float]:
    """Return how long each worker takes to start, in seconds."""
    return lambda: rng.uniform(0.2, 8.0)
