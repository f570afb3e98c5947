"""An engine's output, as the dashboard serves it from Ray's log folder: while it starts, runs, and after its end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.documents.inventory import Inventory
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.log_name import log_name

if TYPE_CHECKING:
    import httpx

_MEMBER = re.compile(r"(.+)-([0-9]+)-([0-9]+)\.log")
"""What follows the replica in a log's name: group, copy, rank."""


@dataclass(frozen=True, slots=True)
class EngineLog:
    """One member's log: the file, and the nodes that may have it (a dead replica's node is no longer known)."""

    group: str
    copy_index: int
    rank: int
    file_name: str
    node_ids: tuple[str, ...]

    @property
    def label(self) -> str:
        """What tells this member from its siblings."""
        return f"{self.group}/{self.copy_index} rank {self.rank}"


def logs_of(seen: Inventory, namespace: str, model: str, replica_id: int) -> list[EngineLog]:
    """Return the logs of a replica that Ray still lists, a member each; empty when it is gone."""
    found = [replica for replica in seen.replicas if replica.model == model and replica.replica_id == replica_id]
    return [
        EngineLog(member.group or "main", member.copy_index, member.rank,
                  log_name(namespace, model, replica_id, member.group or "main", member.copy_index, member.rank),
                  (member.node_id,) if member.node_id else ())
        for replica in found[:1] for member in replica.members
    ]


def search_logs(
    client: DashboardClient, seen: Inventory, namespace: str, model: str, replica_id: int
) -> Iterator[EngineLog]:
    """Look on every living node for logs that a replica left behind."""
    prefix = log_name(namespace, model, replica_id, "", 0, 0).removesuffix("-0-0.log")
    pattern = f"{prefix}*.log"
    for node in seen.nodes:
        if node.state == "DEAD":
            continue
        for file_name in _listed(client.get("/api/v0/logs", {"node_id": node.id, "glob": pattern})):
            if file_name.startswith(prefix) and (match := _MEMBER.fullmatch(file_name.removeprefix(prefix))):
                yield EngineLog(match[1], int(match[2]), int(match[3]), file_name, (node.id,))


def _listed(answer: httpx.Response) -> list[str]:
    """Return the file names of one node's answer, which sorts them by what Ray takes them for; none when it failed."""
    try:
        kinds = answer.json()["data"]["result"] if answer.status_code == 200 else None
    except (ValueError, KeyError, TypeError):
        kinds = None
    return sorted({name for names in kinds.values() for name in names}) if isinstance(kinds, dict) else []


def read_log(client: DashboardClient, log: EngineLog, lines: int) -> str | None:
    """Return the last `lines` lines; None when no node serves the file (yet)."""
    for node_id in log.node_ids:
        answer = client.get("/api/v0/logs/file", {
            "node_id": node_id, "filename": log.file_name, "lines": str(lines), "format": "text",
        })
        if answer.status_code == 200 and not answer.text.startswith("[failed]"):
            return answer.text
    return None
