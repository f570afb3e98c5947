"""Clusters with a few honest replicas among actors that lie, made at random from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fleetctl.agent.messages import Lifecycle, Place, Replica
from fleetctl.agent.report import actor_name, describe
from tests.cluster_stand_in import ClusterStandIn, event

FLEET = "prod"
NODE_IPS = ("10.0.0.7", "10.0.0.8", "fd00::9", "192.0.2.10")
SMALL, LARGE, CANARY = "small", "Org/Large:1", "org/canary"
"""The keys of the honest models; the second runs as a gang, and the third shares the name of the first."""
HONEST = {SMALL: ["10.0.0.7:8001", "[fd00::9]:8002"], LARGE: ["10.0.0.8:8003"], CANARY: ["192.0.2.10:8005"]}
"""The endpoints of the honest models."""

EVIL = ("10.6.6.6", "evil.example", "169.254.169.254", "::ffff:10.6.6.6")
BREAKS = (
    '"', "'", "; }", "\n", "\r\n", "{", "}", "#", "\\", "$x", "${x}", "\u2028", "\u202e", "\x00", "\x1b[2J", "\ud800",
    ",", ": ", "- ", "*", "&a", "!x", "%", "`", "{{x}}", "<script>", "::error::", "]", "[", "\t", " ", "\u00a0", "é")
INJECTED = (
    "10.0.0.7; } server { listen 8089; location / { root /etc; } } upstream owned { server 10.6.6.6",
    "10.0.0.7:80 weight=1; server 10.6.6.6", "10.0.0.7\nserver 10.6.6.6;", "10.0.0.7 # ", "unix:/run/docker.sock",
    "10.0.0.7@10.6.6.6", "10.0.0.7/../10.6.6.6", "10.6.6.6#10.0.0.7", "$(touch x)", "${ENV}", "os.environ/TOKEN")
NO_ADDRESSES = (
    None, True, 0, 167772167, 1.5, [], ["10.0.0.7"], {}, {"ip": "10.0.0.7"}, "", " ", "10.0.0", "0.0.0.0", "::",
    "255.255.255.255", "224.0.0.1", "fe80::1%eth0", "fd00::9%1", "[fd00::9]", "010.0.0.7", "0xa.0.0.7", "10.0.0.7 ",
    "\u0661\u0660.0.0.7", "localhost", "10.0.0.7,10.6.6.6", "10.0.0.0/8", "a" * 5000)
PORTS = (None, True, 0, -1, 65_536, 10**30, 8.5, "8000", "8000; }", [8000], {}, 1, 65_535)
WORDS = (
    "org/model", "m", "m/one", "UPPER/Case", SMALL, LARGE, "SMALL", "Small", "org_large_1", "org/large/1", "*", "gpt-*",
    "os.environ/TOKEN", "1e5", "null", "~", "0x1f", "yes", "=", "localhost", "10.0.0.7", "unix:", "default", "a,b",
    "..", "small-" + "0" * 16, "../../etc/passwd", "-", "<<", "k" * 600, "\U0001f600", "-h", "#", "@", "a b")


@dataclass
class Lies:
    """One cluster, and what its actors say."""

    number: int
    chance: random.Random
    cluster: ClusterStandIn = field(default_factory=ClusterStandIn)
    node_ids: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return a word, perhaps with something in it that breaks a format."""
        word = self.chance.choice(WORDS)
        for _ in range(self.chance.choice((0, 0, 0, 1, 2))):
            at = self.chance.randint(0, len(word))
            word = word[:at] + self.chance.choice(BREAKS) + word[at:]
        return word

    def address(self) -> object:
        """Return what a liar may call its address; one in five is the address of some node."""
        return self.chance.choice((self.chance.choice(EVIL), self.chance.choice(INJECTED),
                                   self.chance.choice(NO_ADDRESSES), self.chance.choice(NODE_IPS),
                                   self.chance.choice(NODE_IPS) + self.chance.choice(BREAKS)))

    def member(self, node: int, rank: int = 0) -> dict[str, Any]:
        """Return a member on a node; half of them lie about their address, and some about more."""
        chance = self.chance
        one = {"group": "main", "copy": 0, "role": "Leader", "rank": rank, "nodeId": self.node_ids[node],
               "ip": NODE_IPS[node], "port": 9000 + rank, "gpus": 0, "gpuIndices": []}
        lies: dict[str, Callable[[], object]] = {
            "group": lambda: chance.choice((self.text(), None, 7)), "copy": lambda: chance.choice((-1, "x", 10**30, 1)),
            "role": self.text, "rank": lambda: chance.choice((0, 1, -1, None)), "ip": self.address,
            "nodeId": lambda: chance.choice((*self.node_ids, self.text(), None, 5)), "address": self.address,
            "port": lambda: chance.choice(PORTS), "gpus": lambda: chance.choice((10_000, -5, 10**400, "x")),
            "gpuIndices": lambda: chance.choice(([0], [-1], [0] * 5000, "x")),
            "weights": lambda: {"artifact": "1" * 64, "port": chance.choice(PORTS), "view": None}}
        for key in ["ip"] * (chance.random() < 0.5) + chance.sample(sorted(lies), chance.choice((0, 0, 0, 1, 2))):
            one[key] = lies[key]()
        return one

    def repr_name(self, node: int) -> str:
        """Return what a liar on a node says of itself; it may be cut off, or no JSON at all."""
        chance = self.chance
        others = [chance.randrange(len(self.node_ids)) for _ in range(chance.choice((0, 0, 0, 1, 2)))]
        mark: dict[str, Any] = {
            "v": 1, "fleet": FLEET, "namespace": "fleet", "specHash": "0" * 64, "readyAt": "2026-03-04T12:00:00Z",
            "restartMax": 5, "members": [self.member(one, rank) for rank, one in enumerate([node, *others])]}
        lies: dict[str, Callable[[], object]] = {
            "v": self.text, "fleet": self.text, "namespace": lambda: chance.choice(("theirs", self.text(), None)),
            "specHash": lambda: chance.choice((self.text(), [])),
            "restartMax": lambda: chance.choice((True, -1, 10**400)),
            "readyAt": lambda: chance.choice(("9999-12-31T23:59:59-23:59", self.text())),
            "earlierTries": lambda: chance.choice(([self.text()], 5)),
            "members": lambda: chance.choice((None, {}, "x", [[]], [None], [{}] * 2000))}
        for key in chance.sample(sorted(lies), chance.choice((0, 0, 0, 0, 1, 2))):
            mark[key] = lies[key]()
        text = json.dumps(mark)
        return chance.choice((*[text] * 19, text[:chance.randint(0, len(text))]))

    def add_liar(self) -> None:
        """Add an actor that lies; some have what only gangs have."""
        chance = self.chance
        name = actor_name(self.text(), chance.randint(0, 3))
        if any(row["name"] == name for row in self.cluster.actors):
            return  # a name exists once in its namespace
        name = chance.choice((*[name] * 8, f"WarmReplica:{self.text()}:0", self.text()))
        node = chance.randrange(len(self.node_ids))
        self._add(name, chance.choice((*[self.node_ids[node]] * 9, None, "f" * 56)), self.repr_name(node),
                  job=f"{chance.randint(0, 2):08x}",
                  class_name=chance.choice(("ModelActor", "GangCoordinator", "GangMember", "Evil")),
                  state=chance.choice((*["ALIVE"] * 6, "RESTARTING", "PENDING_CREATION")),
                  namespace=chance.choice((*["fleet"] * 6, "theirs")))

    def add_lying_job(self) -> None:
        """Add a job whose log and notes name addresses, nodes and weights of others."""
        members = [self.member(node) for node in range(2)]
        record = {"replicas": [{"model": self.text(), "replicaId": 0, "specHash": "x", "members": members}]}
        note = {"model": SMALL, "replicaId": 0, "actorId": self.cluster.actors[0]["actor_id"], "specHash": self.text(),
                "at": "2026-03-04T12:00:00Z", "restarts": 0, "nodeIds": [self.text()],
                "weights": [{"artifact": "1" * 64, "port": self.chance.choice(PORTS)}]}
        job = self.cluster.add_job(f"job-{self.number}", verb="apply", fleet=FLEET, namespace="fleet",
                                   reloads=json.dumps([note]), draining=self.text())
        job.log, job.status, job.driver_id = event(0, "planAccepted", self.text(), **record), "SUCCEEDED", "00000001"

    def _add(self, name: str, node_id: str | None, text: str, *, class_name: str = "ModelActor", job: str = "0000000a",
             state: str = "ALIVE", namespace: str = "fleet") -> None:
        self.cluster.actors.append({
            "actor_id": f"{next(self.cluster.numbers):032x}", "name": name, "state": state, "class_name": class_name,
            "job_id": job, "ray_namespace": namespace, "node_id": node_id, "placement_group_id": None,
            "required_resources": {}, "num_restarts": "0", "death_cause": None, "up_ms": (0, 0), "repr_name": text})

    def add_honest(self, key: str, replica_id: int, *places: tuple[int, int]) -> None:
        """Add an honest replica; `places` = the number of the node and the port of each rank."""
        replica = Replica(f"{key}/{replica_id}", key, replica_id, Lifecycle(60.0, restart_max=5), "abc", fleet=FLEET,
                          namespace="fleet")
        members = [Place(group="main", role="Worker" if rank else "Leader", rank=rank, node_id=self.node_ids[node],
                         ip=NODE_IPS[node], port=port) for rank, (node, port) in enumerate(places)]
        described = describe(replica, members, "2026-03-04T12:00:00Z")
        gang = len(places) > 1
        self._add(actor_name(key, replica_id), self.node_ids[places[0][0]], described,
                  class_name="GangCoordinator" if gang else "ModelActor")
        for node, _ in places if gang else ():
            self._add("", self.node_ids[node], "", class_name="GangMember")


def lying_cluster(seed: int, number: int) -> Lies:
    """Return case `number` of a seed: four nodes, four honest replicas, and up to twelve actors and a job that lie."""
    lies = Lies(number, random.Random(f"{seed} {number}"))
    for position, ip in enumerate(NODE_IPS):
        lies.node_ids.append(lies.cluster.add_node(f"node-{position}"))
        lies.cluster.nodes[-1]["node_ip"] = ip
    lies.add_honest(SMALL, 0, (0, 8001))
    lies.add_honest(SMALL, 1, (2, 8002))
    lies.add_honest(LARGE, 0, (1, 8003), (3, 8004))
    lies.add_honest(CANARY, 0, (3, 8005))
    for _ in range(lies.chance.randint(1, 12)):
        lies.add_liar()
    lies.add_lying_job()
    return lies
