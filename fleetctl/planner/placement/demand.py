"""The packer's input and output: the demands of models, what else is expected, and replicas with their nodes.

The expected demand of a fleet is what it misses now, and more of what it runs, as much as the free room takes. Future
changes are unknown. What a fleet runs today is the best guess of what it needs tomorrow, like the popular shapes in
Fragmentation Gradient Descent (Weng et al., USENIX ATC 2023).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleetctl.documents.quantity import SHARE
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.placement.claims import Kind, ReplicaShape
from fleetctl.planner.placement.ledger.replica import Assigned, SeatNodes

MOST_KINDS = 192
VRAM_ALONE = LEAST = SHARE // 4
"""The share of a card assumed for a member that claims VRAM alone, and the least weight of any member."""


Option = tuple[int, int]
"""The place of a model in the fleet file, and the place of one of its variants in order of preference."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One model's demand for `missing` new replicas; `place` = the index of the model in the fleet file.

    A model with variants has one demand for each, at the same `place`: all share its `missing`, of which `variant`, by
    its place in order of preference, takes at most `most`, and should get at least `least`. `target` = how many of
    them the target of the model asks for, if what variants should get at least is more: either no variant gets more
    than its `least`, or all together get no more than `target`. `counted_units` = what each new replica counts in the
    objective, in 1/10000 of a card: the cards of the first variant, whichever is chosen; None = its own.
    """

    shape: ReplicaShape
    missing: int
    live: int
    priority: int
    place: int
    variant: int = 0
    least: int = 0
    most: int | None = None
    counted_units: int | None = None
    target: int | None = None
    option: Option = field(init=False, compare=False, repr=False)
    """Its model and variant; kept, since each count of replicas needs it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "option", (self.place, self.variant))

    def model_in(self, models: Sequence[ResolvedModel]) -> ResolvedModel:
        """Return what it asks for: its model of those of the fleet file, or the variant of it."""
        return models[self.place].alternatives[self.variant]

    @property
    def at_most(self) -> int:
        """How many of the missing replicas it may take."""
        return self.missing if self.most is None else max(0, min(self.missing, self.most))

    @property
    def units(self) -> int:
        """What a new replica counts in the objective."""
        return self.shape.gpu_units if self.counted_units is None else self.counted_units


class Placed(NamedTuple):
    """One new replica and the nodes of its members."""

    demand: Demand
    assignments: tuple[Assigned, ...]

    @property
    def gpus(self) -> int:
        """The GPU share it takes, in 1/10000."""
        return sum(assigned.gpus for assigned in self.assignments)

    @property
    def nodes(self) -> set[int]:
        """The nodes it touches."""
        return {assigned.node for assigned in self.assignments}

    @property
    def seats(self) -> SeatNodes:
        """The node of each of its members."""
        return {assigned.seat.position: assigned.node for assigned in self.assignments}


def cheapest_first(demand: Demand) -> tuple[int, int]:
    """Rank the variants of a model by what each takes, the best first."""
    return demand.shape.gpu_units, demand.variant


def count_missing(demands: Iterable[Demand]) -> int:
    """Return how many replicas are missing; all variants of a model share what it misses."""
    most, least = Counter[int](), Counter[int]()
    missing, target = dict[int, int](), dict[int, int]()
    for demand in demands:
        most[demand.place] += demand.at_most
        missing[demand.place] = demand.missing
        if demand.target is not None:
            target[demand.place] = demand.target
            least[demand.place] += min(demand.least, demand.at_most)
    for place, count in target.items():
        most[place] = min(most[place], max(count, least[place]))
    return sum(min(count, most[place]) for place, count in missing.items())


class Missing:
    """How many replicas are still missing, by model and by variant: all variants of a model share what it misses.

    `most` = the most of each variant, instead of those of the demands; `placed` = replicas that they took already.
    """

    def __init__(self, demands: Iterable[Demand], most: Mapping[Option, int] | None = None,
                 placed: Iterable[Placed] = ()) -> None:
        demands = list(demands)
        self._of_model = {demand.place: demand.missing for demand in demands}
        self._of_variant = {demand.option: demand.at_most if most is None else most.get(demand.option, 0)
                            for demand in demands}
        self._targets = {demand.place: demand.target for demand in demands if demand.target is not None}
        self._least = {demand.option: demand.least for demand in demands if demand.place in self._targets}
        """How many replicas each variant of a model with a target still lacks to its least; negative = it has more."""
        for replica in placed:
            if replica.demand.option in self._of_variant:
                self.take(replica.demand, 1)

    def of(self, demand: Demand) -> int:
        """Return how many more replicas a demand may take."""
        most = min(self._of_model[demand.place], self._of_variant[demand.option])
        if demand.place in self._targets:
            most = min(most, self._wanted(demand))
        return max(0, most)

    def misses_all(self, demand: Demand) -> bool:
        """Return whether the model of a demand has no new replica."""
        return self._of_model[demand.place] == demand.missing

    def take(self, demand: Demand, count: int) -> None:
        """Note that a demand took `count` more replicas; negative = gave back."""
        self._of_model[demand.place] -= count
        self._of_variant[demand.option] -= count
        if demand.place in self._targets:
            self._targets[demand.place] -= count
            self._least[demand.option] -= count

    def _wanted(self, demand: Demand) -> int:
        """Return how many more replicas the target asks for, or the least of this variant if no other has more."""
        beyond = any(left < 0 for (place, _), left in self._least.items() if place == demand.place)
        target = self._targets[demand.place]
        return target if beyond else max(target, self._least[demand.option])


class Expected(NamedTuple):
    """Replicas of one shape: how many are missing, and the target in total."""

    shape: ReplicaShape
    missing: int
    total: int


def expected_kinds(expected: Iterable[Expected], free_share: int) -> list[tuple[Kind, float]]:
    """Return the expected kinds of members with their counts, in an order that does not depend on the file.

    `free_share` = the free GPU share of all nodes in 1/10000. At most MOST_KINDS are returned, the heaviest.
    """
    missing, total = dict[Kind, float](), dict[Kind, float]()
    for shape, short, target in expected:
        for kind, count in shape.kinds.items():
            missing[kind] = missing.get(kind, 0.0) + short * count
            total[kind] = total.get(kind, 0.0) + target * count
    left = free_share - sum(_share(kind) * count for kind, count in missing.items())
    all_share = sum(_share(kind) * count for kind, count in total.items())
    more = max(0.0, left / all_share) if all_share else 0.0
    counts = {kind: missing[kind] + more * count for kind, count in total.items()}
    heaviest = sorted(counts, key=lambda kind: (-counts[kind] * max(_share(kind), LEAST), kind))[:MOST_KINDS]
    return [(kind, counts[kind]) for kind in sorted(heaviest) if counts[kind] > 0]


def _share(kind: Kind) -> int:
    claim, _ = kind
    return claim.gpus or (VRAM_ALONE if claim.vram else 0)
