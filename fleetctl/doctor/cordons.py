"""Nodes: no cordon has ended by itself. Such a node takes new replicas again, whether or not it was mended."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.inventory.notes import cordon_note, has_ended


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the nodes whose newest note is a cordon that has ended."""
    for node in evidence.alive:
        cordon = cordon_note(node, evidence.vitals.jobs)
        if cordon and has_ended(cordon, evidence.now):
            why = f" ({cordon.reason})" if cordon.reason else ""
            by = f" of {cordon.by}" if cordon.by else ""
            yield Diagnosed(
                code="CORDON_ENDED", severity="warning", area="node", subject=node.name,
                message=f"the cordon{by}{why} ended at {cordon.until}: the node takes new replicas again",
                advice="if it is well, take the note back; else cordon it again",
                command=f"fleetctl uncordon {shlex.quote(node.name)}")
