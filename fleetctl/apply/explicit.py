"""The client's side of `evict` and `restart`: one agent job for the named replicas. Apply never imports this."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from fleetctl.apply import jobs
from fleetctl.apply.follow import CONTINUE_HINT, RunFollower, Wording
from fleetctl.apply.outcome import raise_if_refused
from fleetctl.apply.prepare import Starter
from fleetctl.documents.engine import MAX_GRACE_S
from fleetctl.documents.events import Event, RunSummary
from fleetctl.documents.inventory import Replica
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import REPLICAS, VARIANTS
from fleetctl.inventory.records import WITHIN
from fleetctl.version import __version__

Verb = Literal["evict", "restart"]
NOUNS: dict[Verb, str] = {"evict": "eviction", "restart": "restart"}
MARGIN_S = 120.0
"""Extra time for each step of a verb before the client stops waiting."""
USUAL_STARTUP_S = 1800.0
"""Startup timeout of a model that is in no fleet file."""
STATUS_HINT = "`fleetctl status` shows the replicas"


@dataclass(frozen=True, slots=True)
class KeptVariant:
    """How many replicas of a variant must stay ready, of those with these actor ids: `least`."""

    model: str
    variant: str
    least: int
    actors: Sequence[str]


@dataclass(frozen=True, slots=True)
class ExplicitOrder:
    """One run of a verb: which replicas of one fleet it ends, and under which conditions.

    It acts on exactly these actors, not on later ones with the same names. `names` = node names by node id. By model
    key: `timeouts` = startup timeout in seconds, `keep` = how many other replicas must be ready before a ready one is
    ended; `keep_of_each` = the same of variants. `level` = the level an eviction moves the replicas to, None = none.
    `warm` = name and WARM budget in bytes of each node, by node id.
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
    keep_of_each: Sequence[KeptVariant] = ()

    @property
    def longest_s(self) -> float:
        """The longest time the whole run may take. Restarts and loads into memory run one after another.

        How long engines may take to end is only known where they run.
        """
        loads = self.verb == "restart" or self.level == "WARM"
        steps = [self.startup_s(replica) + MARGIN_S for replica in self.replicas] if loads else []
        ends = MAX_GRACE_S * (len(self.replicas) if self.verb == "restart" else 1)
        return self.drain_s + self.lock_timeout_s + sum(steps) + ends + MARGIN_S

    def startup_s(self, replica: Replica) -> float:
        """Return the replica's startup timeout."""
        return self.timeouts.get(replica.model, USUAL_STARTUP_S)

    def nodes_of(self, replica: Replica) -> list[str]:
        """Return the names of the replica's nodes, without repeats."""
        names = [self.names.get(member.node_id or "") for member in replica.members]
        return list(dict.fromkeys(name for name in names if name))


def run_explicit(
    client: DashboardClient, order: ExplicitOrder, job: str, starter: Starter, relay: Callable[[Event], None]
) -> RunSummary:
    """Carry out the order and return its summary; raises LockHeld, ApplyError and WaitTimeout.

    An interrupt stops a restart. It stops an eviction only before its first replica ends; then nothing is ended.
    """
    named = [(f"{replica.model}/{replica.replica_id}", replica.variant) for replica in order.replicas]
    variants = {name: variant for name, variant in named if variant}
    metadata = {"fleet": order.fleet, "namespace": order.namespace,
                REPLICAS: json.dumps([name for name, _ in named]),
                WITHIN: str(round(order.longest_s)), **({"level": order.level} if order.level else {}),
                **({VARIANTS: json.dumps(variants)} if variants and starter.command == "replace" else {}),
                **starter.metadata()}
    jobs.submit(client, job, order.verb, _request(order, job, starter.name), namespace=order.namespace,
                metadata=metadata, follow_up=STATUS_HINT)
    # a step of `replace` or `drain` must not advise to end the rest
    died = CONTINUE_HINT if starter.step_of else f"{STATUS_HINT}; then {order.verb} the rest"
    wording = Wording(NOUNS[order.verb], afterwards=STATUS_HINT, died=died)
    follower, begun = RunFollower(client, job, wording, wait_timeout_s=order.longest_s), False

    def receive(event: Event) -> None:
        nonlocal begun
        if isinstance(event, RunSummary):
            raise_if_refused(event)
        else:
            begun = begun or event.type == "replicaEnding"
            relay(event)

    try:
        return follower.summary(receive)
    except KeyboardInterrupt:
        if begun and order.verb == "evict":  # stopping halfway would leave a replica without its engine
            raise
        return follower.stop(receive, STATUS_HINT)


def _request(order: ExplicitOrder, job: str, starter_name: str) -> dict[str, Any]:
    warm = {node_id: dict(node) for node_id, node in order.warm.items()}
    return {
        "fleet": order.fleet, "replicas": [_replica_request(order, replica) for replica in order.replicas],
        "drain": order.drain_s, "lockTimeout": order.lock_timeout_s, "keep": dict(order.keep),
        **({"keepOfEach": [asdict(kept) for kept in order.keep_of_each]} if order.keep_of_each else {}),
        **({"level": order.level, "warm": warm} if order.level else {}),
        "job": job, "holder": {"job": job, "who": starter_name}, "toolVersion": __version__}


def _replica_request(order: ExplicitOrder, replica: Replica) -> dict[str, Any]:
    """Return the request for one replica; for a change of level with its spec and weights, as last reloaded."""
    request: dict[str, Any] = {
        "model": replica.model, "replicaId": replica.replica_id, "actorId": replica.actor_id,
        "nodes": order.nodes_of(replica), "startupTimeout": order.startup_s(replica)}
    if replica.variant:
        request["variant"] = replica.variant
    if replica.level == "WARM":
        request["level"] = "WARM"
    if order.level:
        weights = [member.weights for member in replica.members]
        request |= {"specHash": replica.spec_hash, "weights": [
            served and {"artifact": served.artifact, "view": served.view, "bytes": served.bytes or 0,
                        **({"ports": served.ports} if served.ports else {})}
            for served in weights]}
    return request
