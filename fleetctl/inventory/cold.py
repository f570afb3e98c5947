"""Weights on the disks of nodes, from the note files that the agent leaves in Ray's log folder (agent/model_files.py).

The names of notes say what is there; other notes say since when files are verified, and which were wrong. Every user of
a node can write there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from pydantic import ValidationError

from fleetctl.documents.inventory import ColdWeights, FailedFetch, Inventory, Node, Replica, ReplicaMember, WrongWeights
from fleetctl.documents.selector import matches
from fleetctl.documents.weights import ServedWeights
from fleetctl.inventory.client import DashboardClient, ask_all
from fleetctl.inventory.engine_log import EngineLog, names_on, read_log
from fleetctl.inventory.json_values import moment_of, object_of
from fleetctl.inventory.records import UNFETCHED, Records

NOTE = "fleetctl-cold-"
"""The prefix of a note's name, before the id of the node; see agent/model_files.py."""
_FILE_NAME = re.compile(r"-([0-9a-f]{64})(?:-([0-9a-f]{16}))?\.json")
WRONG_NOTE = "fleetctl-wrong-"
"""The prefix of the name of a note about a wrong file, before the id of the node; see agent/model_files.py."""
MOST_BYTES, MOST_NOTES = 16 << 10, 50
"""How much is read of a note, and how many notes of a node are read."""
_NAME = re.compile(r"-[0-9a-f]{64}(?:-[0-9a-f]{16})?\.json")


def with_cold(client: DashboardClient, seen: Inventory, selectors: Sequence[Mapping[str, str]]) -> Inventory:
    """Return the inventory with the weights on the disks of the nodes that any selector matches.

    The disk of a node that does not answer is unknown, and a warning names the node.
    """
    chosen = [node for node in seen.nodes if node.state == "ALIVE" and any(
        matches(selector, node.all_labels) for selector in selectors)]
    answers = ask_all(lambda node: names_on(client, node.id, f"{NOTE}{node.id}-*"), chosen)
    weights: dict[str, list[ColdWeights] | None] = {}
    failed = []
    for node, names in zip(chosen, answers, strict=True):
        weights[node.id] = None if isinstance(names, str) else _weights_on(names, node.id)
        if isinstance(names, str):
            failed.append(f"{node.name}: the weights on its disk are unknown: {names}")
    return seen.model_copy(update={"warnings": [*seen.warnings, *failed], "nodes": [
        node.model_copy(update={"cold": weights[node.id]}) if node.id in weights else node for node in seen.nodes]})


def with_unfetched(nodes: Sequence[Node], records: Records) -> list[Node]:
    """Return the nodes with their failed fetches, as applies have recorded them."""
    failed: dict[str, list[FailedFetch]] = {}
    for record in records.of(UNFETCHED):
        with suppress(ValidationError):  # written by another release
            failed.setdefault(str(record.payload.get("nodeId")), []).append(FailedFetch.model_validate(record.payload))
    return [node.model_copy(update={"unfetched": failed[node.id]}) if node.id in failed else node for node in nodes]


def _weights_on(names: Sequence[str], node_id: str) -> list[ColdWeights]:
    matched = (_FILE_NAME.fullmatch(name.removeprefix(NOTE + node_id)) for name in names)
    return [ColdWeights(artifact=match[1], view=match[2]) for match in matched if match]


def with_wrong(client: DashboardClient, seen: Inventory) -> Inventory:
    """Return the inventory with the files that were found wrong on the nodes of replicas with weights.

    A warning names each node that does not answer.
    """
    used = {member.node_id for replica in seen.replicas for member in replica.members if member.weights}
    nodes = [node for node in seen.nodes if node.state != "DEAD" and node.id in used]
    answers = ask_all(lambda node: _wrong_on(client, node), nodes)
    wrong = {node.id: answer for node, answer in zip(nodes, answers, strict=True) if isinstance(answer, list)}
    silent = [f"{node.name}: its notes about wrong weights are unknown: {answer}"
              for node, answer in zip(nodes, answers, strict=True) if isinstance(answer, str)]
    return seen.model_copy(update={"warnings": [*seen.warnings, *silent], "nodes": [
        node.model_copy(update={"wrong_weights": wrong[node.id]}) if wrong.get(node.id) else node
        for node in seen.nodes]})


def _wrong_on(client: DashboardClient, node: Node) -> list[WrongWeights] | str:
    names = names_on(client, node.id, f"{WRONG_NOTE}{node.id}-*")
    return names if isinstance(names, str) else list(_read_wrong(client, node.id, names))


def _read_wrong(client: DashboardClient, node_id: str, names: Sequence[str]) -> Iterator[WrongWeights]:
    ours = [name for name in names if _NAME.fullmatch(name.removeprefix(WRONG_NOTE + node_id))]
    for name in ours[:MOST_NOTES]:
        try:
            yield WrongWeights.model_validate(_note(client, node_id, name))
        except ValidationError:  # written by another release, or by someone else
            continue


def with_verified(client: DashboardClient, seen: Inventory) -> Inventory:
    """Return the inventory with the time since when weights are verified, if only a check after the start knows it."""
    missing = list(dict.fromkeys(
        (member.node_id, weights.artifact, weights.view) for replica in seen.replicas for member in replica.members
        if (weights := member.weights) and member.node_id and weights.verified is None))
    notes = ask_all(lambda key: _note(client, key[0], f"{NOTE}{key[0]}-{key[1]}{f'-{key[2]}' if key[2] else ''}.json"),
                    missing)
    since = {key: at for key, note in zip(missing, notes, strict=True) if (at := moment_of(note.get("verified")))}

    def filled(member: ReplicaMember) -> ReplicaMember:
        weights: ServedWeights | None = member.weights
        at = since.get((member.node_id or "", weights.artifact, weights.view)) if weights else None
        return member.model_copy(update={"weights": weights.model_copy(update={"verified": at})}
                                 ) if weights and at else member

    def with_times(replica: Replica) -> Replica:
        return replica.model_copy(update={"members": [filled(member) for member in replica.members]})

    return seen.model_copy(update={"replicas": [*map(with_times, seen.replicas)]}) if since else seen


def _note(client: DashboardClient, node_id: str, name: str) -> dict[str, object]:
    """Return the content of a note; empty if there is none, or it cannot be read."""
    read = read_log(client, EngineLog(0, "", 0, 0, name, (node_id,)), 1, MOST_BYTES)
    try:
        return dict(object_of(json.loads(read.data or b"")))
    except (ValueError, RecursionError):
        return {}
