"""A large cluster: its replicas, foreign actors, and a fleet file with slightly higher targets.

Each pair of nodes with 8 cards has 20 replicas: 6 on whole cards, 13 on halves of a card, and a gang with a card on
each node. One card and one half are free. Nothing is random: equal parameters give equal clusters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

SHARE, MEMORY = 10_000, 8 << 30
KINDS: Mapping[str, tuple[str, int]] = {"whole": ("1", SHARE), "half": ("0.5", SHARE // 2), "gang": ("1", SHARE)}
EVEN, ODD = ("half",) * 7, ("half",) * 6
HEAD = "apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: lab}\nspec:\n  models:\n"
MODEL = """\
  - key: %s
    replicas: %d
    workers:
    - name: main
      members:
"""
MEMBER = "      - {%sresources: {gpus: %s, cpus: 1, memory: 8Gi}, engine: {command: [serve]}}\n"


@dataclass(frozen=True)
class Seat:
    """The place of one member: the number of its node and of its card."""

    node: int
    card: int


@dataclass(frozen=True)
class Placed:
    """A replica of the fleet. `starting` = it has no repr yet."""

    kind: str
    model: str
    replica_id: int
    seats: tuple[Seat, ...]
    starting: bool = False


@dataclass(frozen=True)
class LargeCluster:
    """The size of the cluster. `models` per kind; `named` of the `foreign` actors have names like those of replicas.

    The last `starting` replicas on halves are starting; the last `idle` nodes, an even number, are empty.
    Lists are cut at `limit`. `spec_hashes` are by model key.
    """

    nodes: int
    models: int
    foreign: int = 0
    named: int = 0
    groups: int = 0
    starting: int = 0
    idle: int = 0
    limit: int = 10_000
    spec_hashes: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def replicas(self) -> tuple[Placed, ...]:
        """All replicas of the fleet."""
        count = dict.fromkeys(KINDS, 0)
        first_starting = sum(self._halves(node) for node in range(self.nodes - self.idle)) - self.starting
        found = []
        for kind, seats in self._seats():
            number = count[kind]
            count[kind] += 1
            found.append(Placed(kind, self.model(kind, number), number // self.models, seats,
                                kind == "half" and number >= first_starting))
        return tuple(found)

    def model(self, kind: str, number: int) -> str:
        """The key of one model of a kind."""
        return f"org/{kind}-{number % self.models}"

    def _seats(self) -> Iterator[tuple[str, tuple[Seat, ...]]]:
        for node in range(self.nodes - self.idle):
            for card in range(3):
                yield "whole", (Seat(node, card),)
            for half in range(self._halves(node)):
                yield "half", (Seat(node, 3 + half // 2 if half < 6 else 7),)
            if node % 2:
                yield "gang", (Seat(node - 1, 6), Seat(node, 6))

    @staticmethod
    def _halves(node: int) -> int:
        return 6 if node % 2 else 7

    def fleet_text(self, more: Mapping[str, int]) -> str:
        """A fleet file with the running replicas as targets, plus one for the first `more` models of each kind."""
        live = {self.model(kind, number): 0 for kind in KINDS for number in range(self.models)}
        for replica in self.replicas:
            live[replica.model] += 1
        text = HEAD
        for kind, (gpus, _) in KINDS.items():
            for number in range(self.models):
                key = self.model(kind, number)
                text += MODEL % (key, live[key] + (number < more.get(kind, 0)))
                text += (MEMBER % ("role: Leader, ", gpus) + MEMBER % ("role: Worker, count: 1, ", gpus)
                         if kind == "gang" else MEMBER % ("", gpus))
        return text


def unique_id(*parts: object, digits: int) -> str:
    """A hexadecimal id that depends only on the parts."""
    return hashlib.shake_128("/".join(map(str, parts)).encode()).hexdigest(digits // 2)
