"""Engine logs, as the dashboard serves them from Ray's log folder: during start, while running, and after the end."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fleetctl.documents.inventory import Inventory, Replica, ReplicaMember
from fleetctl.errors import InventoryError
from fleetctl.inventory.client import DashboardClient, ask_all
from fleetctl.inventory.json_values import object_of

if TYPE_CHECKING:
    from fleetctl.inventory.answer import Answer

QUOTED = 200
HELD_BYTES = 128 << 20
"""The most memory for all logs that are shown together."""
READABLE_CHARS = 60
_MEMBER = re.compile(r"([0-9]{1,18})-(.+)-([0-9]{1,18})-([0-9]{1,18})\.log")
"""The part of a log's name after the model: replica, group, copy, rank."""

_ABSENT = re.compile(r"not found|no such file", re.IGNORECASE)
"""The texts with which Ray's versions report a missing file; all of them answer 500."""


@dataclass(frozen=True, slots=True)
class EngineLog:
    """One member's log: the file, and the nodes that may have it (the node of a dead replica is unknown).

    `variant` = the one that its replica was started as; "" = of none, or unknown, as of one that has ended.
    """

    replica_id: int
    group: str
    copy_index: int
    rank: int
    file_name: str
    node_ids: tuple[str, ...]
    variant: str = field(default="", compare=False)

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """The file and its nodes: a replica may leave logs on several nodes."""
        return self.file_name, self.node_ids

    @property
    def label(self) -> str:
        """The member's place in its replica."""
        return f"{self.group}/{self.copy_index} rank {self.rank}"


@dataclass(frozen=True, slots=True)
class Search:
    """The logs that were found, and each node that could not be searched, with the reason."""

    logs: tuple[EngineLog, ...]
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogRead:
    """The end of a log; `data` None = no node has the file, or it could not be read for the reasons in `failed`.

    `whole` = `data` reaches back to the beginning of the file.
    """

    log: EngineLog
    data: bytes | None
    failed: tuple[str, ...] = ()
    whole: bool = True


def log_name(namespace: str, model: str, replica_id: int, group: str, copy_index: int, rank: int) -> str:
    """Return the name of an engine's log: readable, stable across restarts, and unique in all namespaces."""
    return f"{_start_of_name(namespace, model)}{replica_id}-{group}-{copy_index}-{rank}.log"


def _start_of_name(namespace: str, model: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.")[:READABLE_CHARS] or "model"
    digest = hashlib.sha256(f"{namespace}\n{model}".encode()).hexdigest()[:8]
    return f"fleetctl-{readable}-{digest}-"


def logs_of(seen: Inventory, namespace: str, model: str, replica_id: int | None) -> list[EngineLog]:
    """Return the logs of the replicas that Ray still lists, one per member; `replica_id` None = all of the model.

    A WARM replica has the log of its former engine.
    """
    return list(dict.fromkeys(
        member_log(namespace, replica, member) for replica in seen.replicas
        if replica.model == model and replica.replica_id is not None and replica_id in (None, replica.replica_id)
        for member in replica.members
    ))


def member_log(namespace: str, replica: Replica, member: ReplicaMember) -> EngineLog:
    """Return the log of a member of one of our replicas."""
    number, group = replica.replica_id or 0, member.group or "main"
    return EngineLog(number, group, member.copy_index, member.rank,
                     log_name(namespace, replica.model, number, group, member.copy_index, member.rank),
                     (member.node_id,) if member.node_id else (), replica.variant or "")


def search_logs(
    client: DashboardClient, seen: Inventory, namespace: str, model: str, replica_id: int | None,
    node_ids: Set[str] | None = None,
) -> Search:
    """Search every living node, or only `node_ids`, for logs that a replica left behind.

    `replica_id` None = any replica of the model.
    """
    start = _start_of_name(namespace, model)
    pattern = f"{start}*.log" if replica_id is None else f"{start}{replica_id}-*.log"
    nodes = [node for node in seen.nodes if node.state != "DEAD" and (node_ids is None or node.id in node_ids)]
    answers = ask_all(lambda node: names_on(client, node.id, pattern), nodes)
    logs, failed = [], []
    for node, names in zip(nodes, answers, strict=True):
        if isinstance(names, str):
            failed.append(f"{node.name}: {names}")
            continue
        for file_name in names:
            match = _MEMBER.fullmatch(file_name.removeprefix(start)) if file_name.startswith(start) else None
            if match and replica_id in (None, int(match[1])):
                logs.append(EngineLog(int(match[1]), match[2], int(match[3]), int(match[4]), file_name, (node.id,)))
    return Search(tuple(logs), tuple(failed))


def names_on(client: DashboardClient, node_id: str, pattern: str) -> list[str] | str:
    """Return the log file names of one node, which the answer groups by kind; or the reason why there are none."""
    path = "/api/v0/logs"
    try:
        body: Any = client.get_json(path, {"node_id": node_id, "glob": pattern})
        return sorted({str(name) for names in body["data"]["result"].values() for name in names})
    except InventoryError as error:
        return error.message
    except (KeyError, TypeError, AttributeError):
        message = object_of(body).get("msg")
        return f"{path} answered without a list of files" + (f": {message}" if message else "")


def read_log(client: DashboardClient, log: EngineLog, lines: int, last_bytes: int = HELD_BYTES) -> LogRead:
    """Return the last `lines` lines, at most `last_bytes` bytes, from the first node that serves the file."""
    failed = []
    for node_id in log.node_ids:
        try:
            answer = client.get("/api/v0/logs/file", {
                "node_id": node_id, "filename": log.file_name, "lines": str(lines), "format": "text",
            }, last_bytes=last_bytes)
        except InventoryError as error:
            failed.append(error.message)
            continue
        failure = _failure(answer)
        if failure is None:
            data = answer.content
            if is_cut := len(data) > last_bytes:
                data = data[-last_bytes:].partition(b"\n")[2]
            return LogRead(log, data, whole=not is_cut and line_count(data) < lines)
        if not _ABSENT.search(failure):
            failed.append(failure)
    return LogRead(log, None, tuple(failed))


def line_count(data: bytes) -> int:
    """Return the number of lines, an unfinished last line included."""
    return data.count(b"\n") + (data[-1:] not in (b"", b"\n"))


def _failure(answer: Answer) -> str | None:
    """Return Ray's message for a failure, reported with an error status or as the text of an answer with 200."""
    if answer.status_code != 200:
        from fleetctl.inventory.answer import error_text

        return f"the dashboard answered {answer.status_code}{error_text(answer)}"
    if answer.content.startswith(b"[failed]"):
        return f"the dashboard answered: {answer.text.partition(chr(10))[0][:QUOTED]}"
    return None
