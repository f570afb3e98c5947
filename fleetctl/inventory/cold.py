"""Which weights are on the disks of nodes: from the names of the notes that the agent leaves in Ray's log folder."""

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
from fleetctl.inventory.jobs import Job, listed
from fleetctl.inventory.json_values import object_of

NOTE = "fleetctl-cold-"
"""What names of notes begin with, before the id of the node; see agent/cold.py."""
UNFETCHED = "unfetched"
"""The key of a job's metadata under which its agent notes fetches that failed; see agent/prefetch.py."""
_WHAT = re.compile(r"-([0-9a-f]{64})(?:-([0-9a-f]{16}))?\.json")


def with_cold(client: DashboardClient, seen: Inventory, selectors: Sequence[Mapping[str, str]]) -> Inventory:
    """Return the inventory with what is on the disks of the nodes that one of the selectors allows.

    A node that does not answer is named in the warnings, and nothing is known of it.
    """
    asked = [node for node in seen.nodes if node.state == "ALIVE" and any(
        matches(selector, node.all_labels) for selector in selectors)]
    found_names = ask_all(lambda node: names_on(client, node.id, f"{NOTE}{node.id}-*"), asked)
    answers = {node.id: names for node, names in zip(asked, found_names, strict=True)}
    found = {node_id: None if isinstance(names, str) else _kept(names, node_id) for node_id, names in answers.items()}
    failed = [f"{node.name}: what is on its disk is not known: {names}" for node in asked
              if isinstance(names := answers[node.id], str)]
    return seen.model_copy(update={"warnings": [*seen.warnings, *failed], "nodes": [
        node.model_copy(update={"cold": found[node.id]}) if node.id in found else node for node in seen.nodes]})


def with_unfetched(nodes: Sequence[Node], jobs: Sequence[Job]) -> list[Node]:
    """Return the nodes with the fetches that failed there, as applies have noted them; `jobs` are the oldest first."""
    found: dict[str, list[FailedFetch]] = {}
    for job in jobs:
        for row in listed(job.metadata, UNFETCHED):
            with suppress(ValidationError):  # of another release
                found.setdefault(str(object_of(row).get("nodeId")), []).append(FailedFetch.model_validate(row))
    return [node.model_copy(update={"unfetched": found[node.id]}) if node.id in found else node for node in nodes]


def _kept(names: Sequence[str], node_id: str) -> list[ColdWeights]:
    found = (_WHAT.fullmatch(name.removeprefix(NOTE + node_id)) for name in names)
    return [ColdWeights(artifact=match[1], view=match[2]) for match in found if match]
