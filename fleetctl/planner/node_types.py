"""The node types of `spec.cluster.grow` beside the nodes there are: which are of which, what a new one has."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.documents.grow import GrowType
from fleetctl.documents.inventory import Amounts, Gpu, Inventory, Node, NodeResources
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.breaker import seconds

REPORTED_S = 60.0
"""How long after a node has joined its cards may be unknown: Ray asks the driver every some seconds."""


def living(inventory: Inventory, kind: GrowType) -> list[Node]:
    """Return the nodes of a type that are alive, and stay so."""
    return [node for node in inventory.nodes
            if node.state == "ALIVE" and kind.node.labels.items() <= node.labels.items()]


def unreported(inventory: Inventory, nodes: Sequence[Node]) -> int:
    """Return how many of them have just joined, and do not say yet what memory their cards have."""
    now = seconds(inventory.observed_at)
    return sum(bool(node.resources.total.gpu) and not any(card.memory_total for card in node.gpus)
               and now - seconds(node.started_at) < REPORTED_S for node in nodes)


def next_node(kind: GrowType, nodes: Sequence[Node]) -> Node:
    """Return an empty node of a type, with no more than the least of those there are.

    A file that promises more than the nodes have would ask for one node after the other.
    """
    made, totals = kind.node, [node.resources.total for node in nodes]
    seen = [card.memory_total for node in nodes for card in node.gpus if card.memory_total]
    memory = min([*([made.vram] if made.vram else ()), *seen], default=None)
    total = Amounts(gpu=min([made.gpus, *(one.gpu for one in totals)]),
                    cpu=min([made.cpus / SHARE, *(one.cpu for one in totals)]),
                    memory=min([made.memory, *(one.memory for one in totals)]))
    cards = [Gpu(index=index, memory_total=memory) for index in range(int(total.gpu))]
    return Node(id="", name="", labels=made.labels, resources=NodeResources(total=total, used=Amounts()), gpus=cards)
