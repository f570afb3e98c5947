"""The explicit verbs from the client's side: a job of the agent for the replicas it names. Apply never imports this."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fleetctl.apply import jobs
from fleetctl.apply.follow import Follower, Wording
from fleetctl.apply.outcome import raise_if_refused
from fleetctl.apply.record import Starter
from fleetctl.documents.events import Event, RunSummary
from fleetctl.documents.inventory import Replica
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import REPLICAS
from fleetctl.version import __version__

Verb = Literal["evict", "restart"]
NOUNS: dict[Verb, str] = {"evict": "eviction", "restart": "restart"}
MARGIN_S = 120.0
"""How much longer than its work a verb may take, before the client stops waiting for it."""
USUAL_STARTUP_S = 1800.0
"""How long a model may take to start of which no file says it."""
STILL = "`fleetctl status` shows how the replicas are"


@dataclass(frozen=True, slots=True)
class Order:
    """What one run of a verb is to do, to these actors and no later ones of their names. All are of one fleet.

    `names` are those of nodes, by id; `timeouts` = how long a replica may take to be ready, and `keep` = how many of a
    model must be ready without a ready one that is ended, by model key. `level` = where an eviction takes them, None =
    nowhere; `warm` = by node id its name and how many bytes may be WARM there.
    """

    verb: Verb
    fleet: str
    namespace: str
    replicas: Sequence[Replica]
    names: Mapping[str, str]
    timeouts: Mapping[str, float]
    drain_s: float = 0.0
    lock_timeout_s: float = 0.0
    keep: Mapping[str, int] = field(default_factory=dict)
    level: Literal["WARM", "COLD"] | None = None
    warm: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def longest_s(self) -> float:
        """How long it may take in all: restarts, and what is loaded into memory, come one after another."""
        loads = self.verb == "restart" or self.level == "WARM"
        work = sum(self.startup_s(one) + MARGIN_S for one in self.replicas) if loads else 0.0
        return self.drain_s + self.lock_timeout_s + work + MARGIN_S

    def startup_s(self, one: Replica) -> float:
        """Return how long a replica may take to be ready."""
        return self.timeouts.get(one.model, USUAL_STARTUP_S)

    def nodes_of(self, one: Replica) -> list[str]:
        """Return the names of a replica's nodes, each once."""
        return list(dict.fromkeys(filter(None, (self.names.get(member.node_id or "") for member in one.members))))


def run_explicit(
    client: DashboardClient, order: Order, job: str, starter: Starter, relay: Callable[[Event], None]
) -> RunSummary:
    """Carry out the order and return its summary; raises LockHeld, ApplyError and WaitTimeout.

    An interrupt stops a restart, and an eviction before its first replica ends: then nothing is ended.
    """
    metadata = {"fleet": order.fleet, "namespace": order.namespace,
                REPLICAS: json.dumps([f"{one.model}/{one.replica_id}" for one in order.replicas]),
                **({"level": order.level} if order.level else {}), **starter.metadata()}
    jobs.submit(client, job, order.verb, _request(order, job, starter.name), namespace=order.namespace,
                metadata=metadata, follow_up=STILL)
    wording = Wording(NOUNS[order.verb], afterwards=STILL, died=f"{STILL}; then {order.verb} what is left")
    follower, begun = Follower(client, job, wording, wait_timeout_s=order.longest_s), False

    def heard(event: Event) -> None:
        nonlocal begun
        if isinstance(event, RunSummary):
            raise_if_refused(event)
        else:
            begun = begun or event.type == "replicaEnding"
            relay(event)

    try:
        return follower.summary(heard)
    except KeyboardInterrupt:
        if begun and order.verb == "evict":  # half of it would leave a replica without its engine
            raise
        return follower.stop(heard, STILL)


def _request(order: Order, job: str, who: str) -> dict[str, Any]:
    replicas = [{"model": one.model, "replicaId": one.replica_id, "actorId": one.actor_id, "nodes": order.nodes_of(one),
                 "startupTimeout": order.startup_s(one), **({"level": "WARM"} if one.level == "WARM" else {}),
                 **(_runs(one) if order.level else {})}
                for one in order.replicas]
    to = {"level": order.level, "warm": {key: dict(one) for key, one in order.warm.items()}} if order.level else {}
    return {"fleet": order.fleet, "replicas": replicas, "drain": order.drain_s, "lockTimeout": order.lock_timeout_s,
            "keep": dict(order.keep), **to, "job": job, "holder": {"job": job, "who": who}, "toolVersion": __version__}


def _runs(one: Replica) -> dict[str, Any]:
    """Return what a replica runs and each member serves, updates in place included."""
    served = [member.weights for member in one.members]
    return {"specHash": one.spec_hash, "weights": [
        each and {"artifact": each.artifact, "view": each.view, "bytes": each.bytes or 0} for each in served]}
