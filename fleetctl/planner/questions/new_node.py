"""Hypothetical nodes: the values of `--add-node`.

`8xH200` (8 cards of that type), `gpus=8,vram=141Gi,cpus=192,memory=2Ti,label=pool=a`, or `like:NODE`; `xN` after any of
them means N nodes. A node of a type that the cluster has is a copy of such a node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice

from fleetctl.documents.inventory import Amounts, Gpu, Inventory, Node, NodeResources
from fleetctl.documents.quantity import SHARE, format_bytes
from fleetctl.documents.selector import ACCELERATOR_LABEL, split_commas
from fleetctl.errors import UsageError
from fleetctl.planner.placement.reasons.node_shapes import empty
from fleetctl.planner.questions.shape_syntax import (
    bytes_of,
    count_of,
    cpus_of,
    find_node,
    gpus_of,
    key_values,
    label_of,
    split_times,
)

FLAG = "--add-node"
KEYS = ("gpus", "type", "vram", "cpus", "memory", "label")
MAX_NODES = 10_000
MAX_CARDS = 64
MIB = 1 << 20
PLENTY_CPUS, PLENTY_MEMORY = 1_024, 16 << 40
"""CPUs and host memory of a new node if not given: enough never to run short."""

CARD_MEMORY = {
    "T4": 15_360 * MIB, "A10G": 23_028 * MIB, "L4": 23_034 * MIB, "L40S": 46_068 * MIB, "A100": 40_960 * MIB,
    "A100-40G": 40_960 * MIB, "A100-80G": 81_920 * MIB, "H100": 81_559 * MIB, "H200": 143_771 * MIB,
    "B200": 183_359 * MIB,
}
"""Memory of a card by Ray's accelerator type, as the driver reports it (nvidia-smi), in bytes."""

_SHORT = re.compile(r"([0-9]{1,3})x([A-Za-z][A-Za-z0-9._-]*?)(?:x([0-9]{1,6}))?")


def has_plenty(node: Node) -> bool:
    """Return whether the CPUs or memory of a node were not given."""
    return node.resources.total.cpu == PLENTY_CPUS or node.resources.total.memory == PLENTY_MEMORY


def new_nodes(text: str, inventory: Inventory) -> tuple[list[Node], str]:
    """Return the nodes that `text` describes, empty and alive, and a description of them.

    Raises UsageError if it has no valid node or shape, or too many.
    """
    body, times = split_times(text)
    if not 1 <= times <= MAX_NODES:
        raise UsageError(f"{FLAG} {text}: the number of nodes must be from 1 to {MAX_NODES}")
    short = _SHORT.fullmatch(body)
    if body.startswith("like:"):
        model, times, source = _like(body.removeprefix("like:").strip(), times, inventory)
    elif short and times * int(short[3] or 1) <= MAX_NODES:
        times *= int(short[3] or 1)
        model, source = _of_type(int(short[1]), short[2], inventory)
    else:
        model, source = _explicit(body)
    nodes = [empty(model, name) for name in islice(new_names(inventory, "new"), times)]
    return nodes, f"{times} x {hardware(model)} {source}" if times > 1 else f"{hardware(model)} {source}"


def _like(name: str, times: int, inventory: Inventory) -> tuple[Node, int, str]:
    known = {node.name for node in inventory.nodes} | {node.id for node in inventory.nodes}
    with_count = re.fullmatch(r"(.+)x([0-9]{1,6})", name)
    if name not in known and with_count and with_count[1] in known:  # like:node-ax2
        name, times = with_count[1], times * count_of(with_count[2], FLAG)
    node = find_node(name, inventory, FLAG)
    return node, times, f"like {node.name}"


def _of_type(cards: int, kind: str, inventory: Inventory) -> tuple[Node, str]:
    """Return a node of the cluster with these cards, or else one made from the known memory of the type."""
    known = {node.labels.get(ACCELERATOR_LABEL, "").lower(): node.labels.get(ACCELERATOR_LABEL, "")
             for node in inventory.nodes}
    kind = known.get(kind.lower()) or next((name for name in CARD_MEMORY if name.lower() == kind.lower()), kind)
    alike = [node for node in inventory.nodes if hardware(node) == f"{cards}x{kind}"]
    if alike:
        model = min(alike, key=lambda node: (node.state == "DEAD", node.name))
        return model, f"like {model.name}"
    memories = [card.memory_total for node in inventory.nodes if node.labels.get(ACCELERATOR_LABEL) == kind
                for card in node.gpus if card.memory_total]
    memory = max(memories, default=0) or CARD_MEMORY.get(kind)
    if memory is None:
        raise UsageError(f"{FLAG} {cards}x{kind}: the memory of a {kind} is unknown",
                         hint=f"write gpus={cards},type={kind},vram=80Gi, with the memory of one card")
    source = f"of {format_bytes(memory)} each, with unlimited CPUs and memory"
    return _node(cards, memory, {ACCELERATOR_LABEL: kind}), source


def _explicit(body: str) -> tuple[Node, str]:
    pairs = key_values(split_commas(body), KEYS, FLAG, "8xH200, '8xH200 x2' for two, like:NODE or gpus=8,vram=141Gi")
    given = dict(pairs)
    cards = gpus_of(given.get("gpus", "0"), FLAG)
    if cards % SHARE:
        raise UsageError(f"{FLAG}: a node has a whole number of GPUs, not {given['gpus']}")
    labels = dict(label_of(value, FLAG) for key, value in pairs if key == "label")
    if "type" in given:
        labels[ACCELERATOR_LABEL] = given["type"]
    memory = bytes_of(given["vram"], FLAG) if "vram" in given else CARD_MEMORY.get(given.get("type", ""))
    cpus = cpus_of(given["cpus"], FLAG) / SHARE if "cpus" in given else PLENTY_CPUS
    host_memory = bytes_of(given["memory"], FLAG) if "memory" in given else PLENTY_MEMORY
    node = _node(cards // SHARE, memory, labels, cpus, host_memory)
    unlimited = [name for key, name in (("cpus", "CPUs"), ("memory", "memory")) if key not in given]
    return node, f"with unlimited {' and '.join(unlimited)}" if unlimited else "as given"


def _node(
    cards: int, memory: int | None, labels: dict[str, str], cpus: float = PLENTY_CPUS, host_memory: int = PLENTY_MEMORY
) -> Node:
    if cards > MAX_CARDS:
        raise UsageError(f"{FLAG}: a node has at most {MAX_CARDS} GPUs, not {cards}")
    total = Amounts(gpu=cards, cpu=cpus, memory=host_memory)
    gpus = [Gpu(index=index, memory_total=memory) for index in range(cards)] if memory else []
    return Node(id="new", name="new", labels=labels, resources=NodeResources(total=total), gpus=gpus)


def new_names(inventory: Inventory, prefix: str) -> Iterator[str]:
    """Yield unused node names: `new-1`, `new-2` for the prefix `new`."""
    taken = {text for node in inventory.nodes for text in (node.id, node.name)}
    return (name for number in count(1) if (name := f"{prefix}-{number}") not in taken)


def hardware(node: Node) -> str:
    """Return the cards of a node by type, or its CPUs if it has none."""
    total = node.resources.total
    count = max(int(total.gpu), len(node.gpus))
    if not count:
        return f"{total.cpu:g} CPUs"
    label = node.labels.get(ACCELERATOR_LABEL)
    if label:
        return f"{count}x{label}"
    kinds = Counter(_kind(card) for card in node.gpus)
    kinds["GPU"] += count - len(node.gpus)
    return "+".join(f"{number}x{kind}" for kind, number in sorted(kinds.items()) if number)


def _kind(card: Gpu) -> str:
    if card.model:
        return card.model.removeprefix("NVIDIA ")
    return f"GPU({format_bytes(card.memory_total)})" if card.memory_total else "GPU"
