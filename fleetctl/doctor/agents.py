"""Replicas: none was started by an older fleetctl. Its code lives as long as the replica does."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.quantity import count_of
from fleetctl.version import __version__


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each older version, with the replicas that have it."""
    by_version: defaultdict[str, list[str]] = defaultdict(list)
    for replica in evidence.inventory.replicas:
        if replica.fleet and replica.tool_version and _numbers(replica.tool_version) < _numbers(__version__):
            by_version[replica.tool_version].append(f"{replica.model}/{replica.replica_id}")
    for version, names in sorted(by_version.items()):
        yield Diagnosed(
            code="AGENT_OLD", severity="warning", area="replica", subject=names[0],
            message=f"{count_of(len(names), 'replica')} started by fleetctl {version}, this is {__version__}: "
                    f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}",
            advice="they serve as before, without what was mended since; evict them one by one and apply",
            command=f"fleetctl evict {shlex.quote(names[0])} --dry-run")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("+")[0].split(".") if part.isdecimal())
