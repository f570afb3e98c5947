"""Nodes: the disks of Ray's logs and temporary folders have room. Ray spills objects there, and ends what cannot."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.examined_node import Disk
from fleetctl.documents.quantity import format_bytes

FULL, NEARLY = 0.95, 0.90
"""Used parts of a disk; at the first Ray spills no more objects, and says so in its own log alone."""


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each disk that is full, or nearly; several paths of one disk count once."""
    for node in evidence.alive:
        asked = (evidence.nodes or {}).get(node.id)
        disks = [*(asked.disks if asked else ()), *evidence.vitals.disks.get(node.id, ())]
        told: set[int] = set()
        for disk in disks:
            used = 1 - disk.free / disk.total if disk.total > 1 else 0  # a node in Kubernetes reports 1 byte
            if used >= NEARLY and disk.total not in told:
                told.add(disk.total)
                yield _finding(node.name, disk, used)


def _finding(node: str, disk: Disk, used: float) -> Diagnosed:
    return Diagnosed(
        code="DISK_FULL", severity="error" if used >= FULL else "warning", area="node", subject=node,
        message=f"the disk of {disk.path} is {used:.0%} full: {format_bytes(disk.free)} of "
                f"{format_bytes(disk.total)} are free",
        advice="remove old sessions below Ray's temporary folder (session_* but for session_latest), or models that "
               "nothing serves; until then keep new replicas away",
        command=f"fleetctl cordon {shlex.quote(node)} --reason 'disk full'")
