"""Nodes: no engine of ours runs without its replica. It holds cards that Ray hands out again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.examined_node import OrphanProcess


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield one finding per engine, however many processes it has."""
    names = {node.id: node.name for node in evidence.inventory.nodes}
    for node_id, node in (evidence.nodes or {}).items():
        engines: defaultdict[str, list[OrphanProcess]] = defaultdict(list)
        for process in node.orphans:
            engines[f"{process.model}/{process.replica_id}"].append(process)
        for replica, processes in engines.items():
            first, number = processes[0], len(processes)
            yield Diagnosed(
                code="ORPHAN_ENGINE", severity="error", area="node", subject=names.get(node_id, node_id),
                message=f"an engine of {replica} runs without its replica: process {first.pid} ({first.command})"
                        + (f" and {number - 1} more" if number > 1 else ""),
                advice="--fix ends it: its environment has our variables, and no replica is above it",
                command="fleetctl doctor --nodes --fix")
