"""How contested each node is: what of the demand would land on it if every member were spread evenly over its nodes.

A member that could stand anywhere should leave the nodes alone that others depend on. The expected load per GPU is a
cheap stand-in for the shadow price of a node in the linear relaxation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.problem import NodeClass, Problem

STEPS = 12
"""Prices are told apart in so many steps; finer ones would only drown the tightness of a fit."""


def node_prices(problem: Problem) -> list[int]:
    """Return a price from 0 to STEPS for every node of the ledger; all 0 when no node is more contested than others."""
    room = np.array([[_room(node, kind, problem) for kind in range(len(problem.kinds))] for node in problem.nodes],
                    dtype=np.float64).reshape(len(problem.nodes), len(problem.kinds))
    sizes = np.array([len(node.nodes) for node in problem.nodes], dtype=np.float64)
    total = sizes @ room
    load = np.divide(_wanted(problem), total, out=np.zeros(len(problem.kinds)), where=total > 0)
    price = (room > 0) @ load
    low, high = price.min(initial=np.inf), price.max(initial=0.0)
    steps = np.zeros(len(price)) if high - low <= 1e-9 else np.round((price - low) / (high - low) * STEPS)
    return _by_node(problem, [int(step) for step in steps])


def _room(node: NodeClass, kind: int, problem: Problem) -> int:
    """Return how much one node could give to members of a kind: GPU share, or CPUs where no card is asked for."""
    claim = problem.kinds[kind][0]
    if kind not in node.allowed or not problem.ledger.most(node.nodes[0], claim):
        return 0
    return node.offer.free_gpus if claim.wants_card else max(1, node.offer.free_cpus)


def _wanted(problem: Problem) -> np.ndarray:
    wanted = np.zeros(len(problem.kinds))
    for demand in problem.demands:
        for kind, count in demand.members().items():
            claim = problem.kinds[kind][0]
            amount = (claim.gpus or SHARE // 4) if claim.wants_card else max(1, claim.cpus)
            wanted[kind] += demand.missing * count * amount
    return wanted


def _by_node(problem: Problem, prices: Sequence[int]) -> list[int]:
    by_node = [0] * len(problem.ledger.nodes)
    for node, price in zip(problem.nodes, prices, strict=True):
        for place in node.nodes:
            by_node[place] = price
    return by_node
