"""Weights on the disks of nodes, from the names of the note files that the agent leaves in Ray's log folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

from pydantic import ValidationError

from fleetctl.documents.inventory import ColdWeights, FailedFetch, Inventory, Node
from fleetctl.documents.selector import matches
from fleetctl.inventory.ask_all import ask_all
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.engine_log import names_on
from fleetctl.inventory.records import UNFETCHED, Records

NOTE = "fleetctl-cold-"
"""The prefix of a note's name, before the id of the node; see agent/model_files.py."""
_FILE_NAME = re.compile(r"-([0-9a-f]{64})(?:-([0-9a-f]{16}))?\.json")


def with_cold(client: DashboardClient, seen: Inventory, selectors: Sequence[Mapping[str, str]]) -> Inventory:
    """Return the inventory with the weights on the disks of the nodes that any selector matches.

    The disk of a node that does not answer is unknown, and a warning names the node.
    """
    chosen = [node for node in seen.nodes if node.state == "ALIVE" and any(
        matches(selector, node.all_labels) for selector in selectors)]
    answers = ask_all(lambda node: names_on(client, node.id, f"{NOTE}{node.id}-*"), chosen)
    found: dict[str, list[ColdWeights] | None] = {}
    failed = []
    for node, names in zip(chosen, answers, strict=True):
        found[node.id] = None if isinstance(names, str) else _weights_on(names, node.id)
        if isinstance(names, str):
            failed.append(f"{node.name}: the weights on its disk are unknown: {names}")
    return seen.model_copy(update={"warnings": [*seen.warnings, *failed], "nodes": [
        node.model_copy(update={"cold": found[node.id]}) if node.id in found else node for node in seen.nodes]})


def with_unfetched(nodes: Sequence[Node], records: Records) -> list[Node]:
    """Return the nodes with their failed fetches, as applies have recorded them."""
    found: dict[str, list[FailedFetch]] = {}
    for one in records.of(UNFETCHED):
        with suppress(ValidationError):  # written by another release
            found.setdefault(str(one.payload.get("nodeId")), []).append(FailedFetch.model_validate(one.payload))
    return [node.model_copy(update={"unfetched": found[node.id]}) if node.id in found else node for node in nodes]


def _weights_on(names: Sequence[str], node_id: str) -> list[ColdWeights]:
    found = (_FILE_NAME.fullmatch(name.removeprefix(NOTE + node_id)) for name in names)
    return [ColdWeights(artifact=match[1], view=match[2]) for match in found if match]
