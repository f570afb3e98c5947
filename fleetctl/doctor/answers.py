"""Nodes: each one starts a worker when it is asked to."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the nodes that did not answer."""
    names = {node.id: node.name for node in evidence.inventory.nodes}
    for node_id, node in (evidence.nodes or {}).items():
        if node.trouble:
            name = names.get(node_id, node_id)
            yield Diagnosed(
                code="NODE_SILENT", severity="error", area="node", subject=name, message=node.trouble,
                advice="a replica would not start there either: see raylet.out on that node; keep new ones away",
                command=f"fleetctl cordon {shlex.quote(name)} --reason 'no answer'")
