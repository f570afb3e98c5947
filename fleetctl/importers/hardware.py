"""Imports InferenceClasses and InferenceClusters as an inventory of the declared nodes, empty, to plan a fleet on.

Nothing is observed: the number of nodes in each pool is the declared one (`nodeCount`), not the actual one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic_core import PydanticCustomError

from fleetctl.documents.inventory import Amounts, ClusterIdentity, Gpu, Inventory, Node, NodeResources
from fleetctl.documents.quantity import count_of, parse_bytes
from fleetctl.documents.selector import ACCELERATOR_LABEL
from fleetctl.importers.objects import (
    accelerator_of_label,
    accelerator_of_product,
    is_selector,
    object_name,
    read_metadata,
)
from fleetctl.importers.reading import Reading
from fleetctl.planner.questions.new_node import PLENTY_CPUS, PLENTY_MEMORY

# Modelplane selects clusters, and keeps a gang in one node pool. Ray only knows labels, so its nodes must have these.
CLUSTER_LABEL = "modelplane.ai/cluster"
POOL_LABEL = "modelplane.ai/pool"

MAX_NODES = 10_000
"""The most nodes in one inventory; more are a mistake."""
MAX_CARDS = 64
"""The most cards on one node."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The cards of a node of one class: their number, memory in bytes (None = unknown), product and type in Ray."""

    cards: int
    memory: int | None
    product: str | None
    accelerator: str | None


def read_inventory(classes: Sequence[Reading], clusters: Sequence[Reading], *, observed_at: str,
                   source: str) -> Inventory:
    """Return the nodes of all clusters; `observed_at` is RFC 3339. Fields without a counterpart are reported."""
    known = {object_name(declared)[1]: _hardware(declared) for declared in classes}
    warnings = ["declared by InferenceClusters, not observed: no replicas; CPUs and memory are never short"]
    nodes: list[Node] = []
    for cluster in clusters:
        nodes += _nodes(cluster, known, warnings, limit=MAX_NODES - len(nodes))
    used = [pool.peek("className") for cluster in clusters for pool in cluster.child("spec").items("nodePools")]
    for declared in classes:
        if object_name(declared)[1] not in used:
            declared.note(None, "no node pool has this class", "lost")
    return Inventory(observed_at=observed_at, source=source, cluster=ClusterIdentity(), nodes=nodes, warnings=warnings)


def _hardware(source: Reading) -> Hardware:
    read_metadata(source)
    spec = source.child("spec")
    spec.skip("description")
    asked = (spec.peek("provisioning", block, "accelerator", "type") for block in spec.child("provisioning").names)
    from_provider = next((name for name in asked if isinstance(name, str)), None)
    cards = [device for device in spec.items("devices") if _is_card(device)]
    for extra in cards[1:]:
        extra.lose(None, "a second kind of GPU in one class: only the first is counted")
    spec.lose("provisioning", "an inventory does not describe provisioning")
    if not cards:
        return Hardware(0, None, None, None)
    device = cards[0]
    device.skip("claim", "name", "driver", "deviceClassName")
    attributes = device.child("attributes")
    product = attributes.child("productName").text("string")
    attributes.lose_rest("an inventory only has the model of a card")
    count = device.count("count", f"cards from 1 to {MAX_CARDS}", least=1, most=MAX_CARDS, kind="lost")
    accelerator = accelerator_of_product(product) if product else (
        accelerator_of_label("cloud.google.com/gke-accelerator", from_provider or ""))
    return Hardware(count, _memory(device), product, accelerator)


def _is_card(device: Reading) -> bool:
    """Return whether a device is a GPU that can be claimed; anything else is reported."""
    name, driver, how = (device.peek(key) for key in ("name", "driver", "claim"))
    count = device.peek("count") or 1
    if how == "Synthetic":
        device.lose(None, f"{count} x {name}: Synthetic devices are matched but never claimed")
        return False
    if not str(driver).startswith("gpu."):
        device.lose(None, f"{count} x {name} of {driver}: an inventory only has GPUs")
        return False
    return True


def _memory(device: Reading) -> int | None:
    capacity = device.child("capacity")
    written = capacity.child("memory").amount("value")
    capacity.lose_rest("only the memory of a card is counted")
    try:
        return parse_bytes(written) if written is not None else None
    except PydanticCustomError:
        capacity.note("memory", f"{written!r} is not a quantity: the card's memory is unknown", "lost")
        return None


def _nodes(source: Reading, known: Mapping[str, Hardware], warnings: list[str], *, limit: int) -> list[Node]:
    name = object_name(source)[1]
    written = source.child("metadata").child("labels")
    labels = written.pairs()
    for key in [key for key, value in labels.items() if not is_selector(key, value)]:
        written.lose(key, "not a label that Ray can select by")
        del labels[key]
    labels[CLUSTER_LABEL] = name
    read_metadata(source)
    spec = source.child("spec")
    spec.lose("cluster", "an inventory does not describe access to a cluster")
    spec.lose("stack", "an inventory does not describe the serving stack")
    spec.lose("taints", "nodes have no taints here; spec.nodes can cordon some of them for all models")
    nodes: list[Node] = []
    for pool in spec.items("nodePools"):
        nodes += _pool(pool, name, labels, known, warnings, limit=limit - len(nodes))
    if not nodes:
        source.note(None, f"the cluster {name} has no nodes", "lost")
    return nodes


def _pool(pool: Reading, cluster: str, labels: Mapping[str, str], known: Mapping[str, Hardware],
          warnings: list[str], *, limit: int) -> list[Node]:
    name, class_name = pool.text("name") or "pool", pool.text("className")
    if class_name is None or class_name not in known:
        pool.lose(None, f"the pool {name} has the class {class_name}, which is in none of the files" if class_name
                  else f"the pool {name} has no class, so no devices")
        return []
    declared = pool.whole("nodeCount")
    declared = 1 if declared is None else declared
    if declared < 0:
        pool.note("nodeCount", "not a valid number of nodes: 0 is used", "lost")
    if declared > limit:
        pool.note("nodeCount", f"an inventory has at most {MAX_NODES} nodes: {limit} of these {declared} are used",
                  "lost")
    count = max(0, min(declared, limit))
    largest = pool.whole("maxNodeCount")
    pool.skip("minNodeCount")
    if largest is not None and largest > count:
        warnings.append(f"{cluster}/{name}: {count_of(count, 'node')} declared now (nodeCount), may grow to {largest}")
    for key in ("zones", "fabric", "capacityBlock"):
        pool.lose(key, "no counterpart in an inventory")
    hardware = known[class_name]
    own = {**labels, POOL_LABEL: f"{cluster}.{name}",  # pools of different clusters often share a name
           **({ACCELERATOR_LABEL: hardware.accelerator} if hardware.accelerator else {})}
    total = Amounts(gpu=hardware.cards, cpu=PLENTY_CPUS, memory=PLENTY_MEMORY)
    cards = [Gpu(index=index, model=hardware.product, memory_total=hardware.memory, memory_used=0, share=0)
             for index in range(hardware.cards)]
    return [Node(id=node, name=node, labels=own, resources=NodeResources(total=total), gpus=cards)
            for node in (f"{cluster}-{name}-{number}" for number in range(count))]
