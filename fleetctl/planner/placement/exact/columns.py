"""What the columns of a placement model count: replicas, models served, members on nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fleetctl.planner.placement.exact.linear import LinearModel
from fleetctl.planner.placement.exact.pools import Pool
from fleetctl.planner.placement.exact.tally import Tally
from fleetctl.planner.placement.layout import ANY
from fleetctl.planner.placement.problem import DemandClass, Problem


class Owner(NamedTuple):
    """Whose members a column counts: one gang of one class of demand (numbers), or -1, -1 for everybody's."""

    demand: int
    gang: int
    replica: int = ANY
    """Which replica, where they are told apart."""


EVERYBODY = Owner(-1, -1)


class Made(NamedTuple):
    """How many gangs there are: `gangs` for each unit of a column, `most` in all."""

    column: int
    gangs: int
    most: int


class Member(NamedTuple):
    """What a column of members counts: whose, of which kind, on which pool (numbers)."""

    owner: Owner
    kind: int
    pool: int


@dataclass(frozen=True)
class Relaxation:
    """The linear model of a problem and what its columns mean; build it with `relax`."""

    problem: Problem
    tally: Tally
    pools: tuple[Pool, ...]
    by_replica: bool = False
    """Replicas of several members are told apart where slots or a spread's limit may bind."""
    model: LinearModel = field(default_factory=LinearModel)
    replicas: list[int] = field(default_factory=list)
    """Column of the new replicas, by class of demand."""
    served: list[int] = field(default_factory=list)
    """Column that counts models with a first replica, by class of demand."""
    members: dict[Member, int] = field(default_factory=dict)
    """Column by what it counts; not there = none possible."""

    @property
    def is_by_node(self) -> bool:
        """Whether every node is told apart."""
        return all(pool.node is not None for pool in self.pools)


def needs_replicas(demand: DemandClass, tally: Tally) -> bool:
    """Tell whether slots or a spread's limit may bind for replicas that touch a node, or a value, with several members.

    A gang whose ranks stand apart takes as many slots of a node as members.
    """
    slots = tally.slots(demand)
    if demand.shape.size == 1 or slots is None or int(slots.min(initial=demand.missing)) >= demand.missing:
        return False
    first = demand.gangs[0]
    return limits_values(demand) or len(demand.gangs) > 1 or (first.copies, first.per_node) != (1, 1)


def limits_values(demand: DemandClass) -> bool:
    """Tell whether the spread of a class has a limit that several nodes share."""
    return demand.limit is not None and not demand.limit.per_node
