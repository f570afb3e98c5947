"""The explicit verbs from the client's side: a job of the agent for the replicas it names. Apply never imports this."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fleetctl.apply import jobs
from fleetctl.apply.follow import Follower, Wording
from fleetctl.apply.outcome import INTERRUPTED, raise_if_refused
from fleetctl.apply.record import Starter
from fleetctl.apply.run import STOP_PATIENCE_S
from fleetctl.documents.events import Event, RunSummary
from fleetctl.documents.served_weights import ServedWeights
from fleetctl.errors import ApplyError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import REPLICAS
from fleetctl.version import __version__

Verb = Literal["evict", "restart"]
NOUNS: dict[Verb, str] = {"evict": "eviction", "restart": "restart"}
MARGIN_S = 120.0
"""How much longer than its work a verb may take, before the client stops waiting for it."""
STILL = "`fleetctl status` shows how the replicas are"


@dataclass(frozen=True, slots=True)
class NamedReplica:
    """A replica to act on: this actor, and no later one of its name.

    `nodes` are names, for people; `startup_timeout_s` is how long it may take to be ready. `warm` = it is WARM.
    `spec_hash`, `weights` = what it runs and each member serves, updates in place included.
    """

    model: str
    replica_id: int
    actor_id: str | None
    nodes: tuple[str, ...]
    startup_timeout_s: float
    warm: bool = False
    spec_hash: str | None = None
    weights: Sequence[ServedWeights | None] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """What one run of a verb is to do. All replicas are of one fleet.

    `keep` = how many replicas of a model must be ready without a ready one that is ended, by model key. `level` = where
    an eviction takes them, None = nowhere; `warm` = by node id its name and how many bytes may be WARM there.
    """

    verb: Verb
    fleet: str
    namespace: str
    replicas: Sequence[NamedReplica]
    drain_s: float = 0.0
    lock_timeout_s: float = 0.0
    keep: Mapping[str, int] = field(default_factory=dict)
    level: Literal["WARM", "COLD"] | None = None
    warm: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def longest_s(self) -> float:
        """How long it may take in all: restarts, and what is loaded into memory, come one after another."""
        loads = self.verb == "restart" or self.level == "WARM"
        work = sum(one.startup_timeout_s + MARGIN_S for one in self.replicas) if loads else 0.0
        return self.drain_s + self.lock_timeout_s + work + MARGIN_S


def run_explicit(
    client: DashboardClient, order: Order, job: str, starter: Starter, relay: Callable[[Event], None]
) -> RunSummary:
    """Carry out the order and return its summary; raises LockHeld, ApplyError and WaitTimeout.

    An interrupt stops a restart, and an eviction before its first replica ends: then nothing is ended.
    """
    metadata = {"fleet": order.fleet, "namespace": order.namespace,
                REPLICAS: json.dumps([f"{one.model}/{one.replica_id}" for one in order.replicas]),
                **({"level": order.level} if order.level else {}), **starter.metadata()}
    jobs.submit(client, jobs.Submission(job, order.verb, order.namespace, metadata, STILL),
                _request(order, job, starter.name))
    wording = Wording(NOUNS[order.verb], afterwards=STILL, died=f"{STILL}; then {order.verb} what is left")
    follower, begun = Follower(client, job, wording, wait_timeout_s=order.longest_s), False

    def summary() -> RunSummary:
        nonlocal begun
        for event in follower.events():
            if isinstance(event, RunSummary):
                raise_if_refused(event)
                return event
            begun = begun or event.type == "replicaEnding"
            relay(event)
        raise ApplyError("the agent's events ended without a summary")

    try:
        return summary()
    except KeyboardInterrupt:
        if begun and order.verb == "evict":  # half of it would leave a replica without its engine
            raise
        jobs.stop(client, job)
        follower.wait_at_most(STOP_PATIENCE_S)
        try:
            return summary()
        except ApplyError:  # stopped before its agent was up
            return RunSummary(seq=0, time="", message=f"the {wording.noun} was stopped and gave no report; {STILL}",
                              exit_code=INTERRUPTED, interrupted=True)


def _request(order: Order, job: str, who: str) -> dict[str, Any]:
    replicas = [{"model": one.model, "replicaId": one.replica_id, "actorId": one.actor_id, "nodes": list(one.nodes),
                 "startupTimeout": one.startup_timeout_s, **({"level": "WARM"} if one.warm else {}),
                 **(_runs(one) if order.level else {})}
                for one in order.replicas]
    to = {"level": order.level, "warm": {key: dict(one) for key, one in order.warm.items()}} if order.level else {}
    return {"fleet": order.fleet, "replicas": replicas, "drain": order.drain_s, "lockTimeout": order.lock_timeout_s,
            "keep": dict(order.keep), **to, "job": job, "holder": {"job": job, "who": who}, "toolVersion": __version__}


def _runs(one: NamedReplica) -> dict[str, Any]:
    return {"specHash": one.spec_hash, "weights": [
        each and {"artifact": each.artifact, "view": each.view, "bytes": each.bytes or 0} for each in one.weights]}
