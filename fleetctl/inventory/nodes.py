"""Nodes from the state API, each with a unique name that people know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fleetctl.documents.inventory import Node, NodeResources, NodeState
from fleetctl.inventory.claims import read_claim
from fleetctl.inventory.json_values import moment_of_ms, object_of, text_of
from fleetctl.inventory.state_api import Row

NAME_LABEL = "fleet.io/node"
"""The label that names a node when its host name and IP are ambiguous, as with several Ray nodes on one machine."""

_STATES: Mapping[str, NodeState] = {"ALIVE": "ALIVE", "DEAD": "DEAD"}


def read_node(row: Row, record: Mapping[str, Any]) -> Node | None:
    """Return the node of one row, its name not yet unique; `record` is the dashboard's own record, or empty.

    `record` shows a drain only if the dashboard started after it; otherwise only an agent sees it. A state other than
    ALIVE and DEAD also counts as draining: such a node offers nothing, and its replicas are not lost.
    """
    node_id = text_of(row.get("node_id"))
    if node_id is None:
        return None
    drains = object_of(record.get("stateSnapshot")).get("state") == "DRAINING" and row.get("state") == "ALIVE"
    return Node(
        id=node_id,
        name=_name(row, record),
        ip=text_of(row.get("node_ip")),
        state="DRAINING" if drains else _STATES.get(str(row.get("state")), "DRAINING"),
        labels={str(key): str(value) for key, value in object_of(row.get("labels")).items()},
        resources=NodeResources(total=read_claim(row.get("resources_total")).as_amounts()),
        started_at=moment_of_ms(row.get("start_time_ms")))


def _name(row: Row, record: Mapping[str, Any]) -> str:
    """Return the node's label, else the name given to Ray, else its host name, else its IP."""
    label = text_of(object_of(row.get("labels")).get(NAME_LABEL))
    given, ip = text_of(row.get("node_name")), text_of(row.get("node_ip"))
    own = given if given != ip else None
    return label or own or text_of(record.get("nodeManagerHostname")) or ip or str(row["node_id"])


def unique_names(nodes: Sequence[Node]) -> dict[str, str]:
    """Return node id -> name. Nodes with the same name get the start of their id; a live node ignores dead ones."""
    live = Counter(node.name for node in nodes if node.state != "DEAD")
    dead = Counter(node.name for node in nodes if node.state == "DEAD")
    names = {}
    for node in nodes:
        others = live[node.name] - 1 if node.state != "DEAD" else live[node.name] + dead[node.name] - 1
        names[node.id] = f"{node.name}-{node.id[:6]}" if others else node.name
    return names
