"""An engine's log, as the dashboard serves it from Ray's log folder: while it starts, runs, and after its end."""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.documents.inventory import Inventory
from fleetctl.errors import InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.json_values import object_of

if TYPE_CHECKING:
    from fleetctl.inventory.answer import Answer

READERS, QUOTED = 8, 200
READABLE_CHARS = 60
_MEMBER = re.compile(r"(.+)-([0-9]+)-([0-9]+)\.log")
"""What follows the replica in a log's name: group, copy, rank."""

_ABSENT = re.compile(r"not found|no such file", re.IGNORECASE)
"""The texts of Ray's versions for a file that a node does not have; all of them answer 500 for it."""


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
        """This member among those of its replica."""
        return f"{self.group}/{self.copy_index} rank {self.rank}"


@dataclass(frozen=True, slots=True)
class Search:
    """The logs that were found, and for each node that could not be asked its name and why."""

    logs: tuple[EngineLog, ...]
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogRead:
    """The end of a log; `data` None = no node has the file, or `failed` says why it could not be read."""

    log: EngineLog
    data: bytes | None
    failed: tuple[str, ...] = ()


def log_name(namespace: str, model: str, replica_id: int, group: str, copy_index: int, rank: int) -> str:
    """Return the name of an engine's log: readable, the same after every restart, and unique in all namespaces."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.")[:READABLE_CHARS] or "model"
    digest = hashlib.sha256(f"{namespace}\n{model}".encode()).hexdigest()[:8]
    return f"fleetctl-{readable}-{digest}-{replica_id}-{group}-{copy_index}-{rank}.log"


def logs_of(seen: Inventory, namespace: str, model: str, replica_id: int) -> list[EngineLog]:
    """Return the logs of a replica that Ray still lists, a member each; empty when it is gone."""
    found = [replica for replica in seen.replicas if replica.model == model and replica.replica_id == replica_id]
    return [
        EngineLog(member.group or "main", member.copy_index, member.rank,
                  log_name(namespace, model, replica_id, member.group or "main", member.copy_index, member.rank),
                  (member.node_id,) if member.node_id else ())
        for replica in found[:1] for member in replica.members
    ]


def search_logs(client: DashboardClient, seen: Inventory, namespace: str, model: str, replica_id: int) -> Search:
    """Look on every living node for logs that a replica left behind."""
    prefix = log_name(namespace, model, replica_id, "", 0, 0).removesuffix("-0-0.log")
    nodes = [node for node in seen.nodes if node.state != "DEAD"]
    with ThreadPoolExecutor(READERS, thread_name_prefix="log") as pool:
        answers = list(pool.map(lambda node: _names_on(client, node.id, f"{prefix}*.log"), nodes))
    logs, failed = [], []
    for node, names in zip(nodes, answers, strict=True):
        if isinstance(names, str):
            failed.append(f"{node.name}: {names}")
            continue
        for file_name in names:
            if file_name.startswith(prefix) and (match := _MEMBER.fullmatch(file_name.removeprefix(prefix))):
                logs.append(EngineLog(match[1], int(match[2]), int(match[3]), file_name, (node.id,)))
    return Search(tuple(logs), tuple(failed))


def _names_on(client: DashboardClient, node_id: str, pattern: str) -> list[str] | str:
    """Return the file names of one node, which its answer groups by kind; or why there are none."""
    path = "/api/v0/logs"
    try:
        body: Any = client.get_json(path, {"node_id": node_id, "glob": pattern})
        return sorted({str(name) for names in body["data"]["result"].values() for name in names})
    except InventoryError as error:
        return error.message
    except (KeyError, TypeError, AttributeError):
        message = object_of(body).get("msg")
        return f"{path} answered without a list of files" + (f": {message}" if message else "")


def read_log(client: DashboardClient, log: EngineLog, lines: int) -> LogRead:
    """Return the last `lines` lines, from the first node that serves the file."""
    failed = []
    for node_id in log.node_ids:
        try:
            answer = client.get("/api/v0/logs/file", {
                "node_id": node_id, "filename": log.file_name, "lines": str(lines), "format": "text",
            })
        except InventoryError as error:
            failed.append(error.message)
            continue
        failure = _failure(answer)
        if failure is None:
            return LogRead(log, answer.content)
        if not _ABSENT.search(failure):
            failed.append(failure)
    return LogRead(log, None, tuple(failed))


def _failure(answer: Answer) -> str | None:
    """Return what went wrong in the cluster, in Ray's words: with a status, or as the text of an answer with 200."""
    if answer.status_code != 200:
        from fleetctl.inventory.answer import error_text

        return f"the dashboard answered {answer.status_code}{error_text(answer)}"
    if answer.content.startswith(b"[failed]"):
        return f"the dashboard answered: {answer.text.partition(chr(10))[0][:QUOTED]}"
    return None
