"""Rows for replicas that are told apart: each takes one slot on every node it touches, with however many members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import numpy as np

from fleetctl.planner.placement.exact.columns import Made, Member, Owner, limits_values
from fleetctl.planner.placement.exact.linear import LinearModel
from fleetctl.planner.placement.problem import DemandClass

if TYPE_CHECKING:
    from fleetctl.planner.placement.exact.model_rows import ModelRows


def add_replica_rows(rows: ModelRows, number: int, demand: DemandClass) -> None:
    """Tell the replicas of a class apart: each takes one slot on every node it touches, with however many members.

    The same goes for the values of a spread's label.
    """
    most = int(rows.model.highs[rows.into.replicas[number]])
    exist = [rows.model.column(1) for _ in range(most)]
    rows.model.row([*((column, 1) for column in exist), (rows.into.replicas[number], -1)], 0, 0)
    for earlier, later in pairwise(exist):
        rows.model.at_most([(later, 1), (earlier, -1)], 0)
    touches: dict[int, list[int]] = {}
    values: dict[str, list[int]] = {}
    for replica, column in enumerate(exist):
        before = len(rows.into.members)
        for place, gang in enumerate(demand.gangs):
            made, owner = Made(column, gang.copies, gang.copies), Owner(number, place, replica)
            if gang.domain_label is not None:
                rows.by_domain(owner, demand, gang, gang.domain_label, made)
            else:
                rows.anywhere(owner, demand, gang, made)
        _touch_columns(rows, demand, islice(rows.into.members.items(), before, None), touches, values)
    slots = rows.tally.slots(demand)
    for pool, columns in touches.items():
        if slots is not None:
            rows.model.at_most([(column, 1) for column in columns], int(slots[rows.into.pools[pool].rows[0]]))
    for value, columns in values.items():
        room = 0 if demand.limit is None else demand.limit.room[value]
        rows.model.at_most([(column, 1) for column in columns], room)


def _touch_columns(
    rows: ModelRows, demand: DemandClass, members: Iterable[tuple[Member, int]], touches: dict[int, list[int]],
    values: dict[str, list[int]],
) -> None:
    """Say which nodes and which values of its spread's label one replica touches."""
    label = demand.limit.label if demand.limit is not None and limits_values(demand) else None
    by_pool: dict[int, list[int]] = {}
    by_value: dict[str, list[int]] = {}
    for member, column in members:
        by_pool.setdefault(member.pool, []).append(column)
        value = None if label is None else rows.into.pools[member.pool].domain(label)
        if value is not None:
            by_value.setdefault(value, []).append(column)
    for pool, columns in by_pool.items():
        touches.setdefault(pool, []).append(_touched(rows.model, columns))
    for value, columns in by_value.items():
        values.setdefault(value, []).append(_touched(rows.model, columns))


def _touched(model: LinearModel, columns: Sequence[int]) -> int:
    """Return a column that is 1 where any of some others is more than 0."""
    touch = model.column(1)
    for column in columns:
        model.row([(column, 1), (touch, -model.highs[column])], -np.inf, 0)
    return touch
