"""What only the doctor asks a dashboard, beside the inventory: its clock, disks, placement groups, our last job's log.

Sends only GETs. A part that cannot be read is None or empty: what is wrong with the cluster is in the inventory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from fleetctl.documents.diagnosis import Disk
from fleetctl.errors import ClusterUnreachable, InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import SUMMARY_PARAMS, SUMMARY_PATH
from fleetctl.inventory.jobs import LOOKS, Job, log_of, ours
from fleetctl.inventory.json_values import object_of, text_of, whole_of
from fleetctl.inventory.notes import NOTES
from fleetctl.inventory.used import PlacementGroup, list_placement_groups

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Vitals:
    """`clock` is the dashboard's time. `disks` are by node id; Ray reports the root and its folder.

    `failed` is the log of our latest run where Ray calls that run failed.
    """

    clock: datetime | None = None
    jobs: Sequence[Job] = ()
    groups: Sequence[PlacementGroup] = ()
    disks: Mapping[str, Sequence[Disk]] = field(default_factory=dict)
    failed: tuple[Job, str] | None = None


def read_vitals(client: DashboardClient) -> Vitals:
    """Ask for all of it; raises ClusterUnreachable.

    Call it before the inventory is read: a group is then never newer than the list of actors.
    """
    groups: Sequence[PlacementGroup] = _asked(lambda: list_placement_groups(client).rows, ())
    jobs: Sequence[Job] = _asked(lambda: ours(client), [])
    return Vitals(_asked(lambda: client.get("/api/version").given_at, None), jobs, groups,
                  _asked(lambda: _disks(client), {}), _failed(client, jobs))


def _asked(question: Callable[[], Answer], otherwise: Answer) -> Answer:
    try:
        return question()
    except ClusterUnreachable:
        raise
    except InventoryError:
        return otherwise


def _disks(client: DashboardClient) -> dict[str, list[Disk]]:
    def read(_: str, entry: object) -> tuple[str | None, list[Disk]]:
        found = object_of(entry)
        return text_of(object_of(found.get("raylet")).get("nodeId")), [
            Disk(path=path, total=total, free=free) for path, usage in object_of(found.get("disk")).items()
            if (total := whole_of(object_of(usage).get("total"))) and
            (free := whole_of(object_of(usage).get("free"))) is not None]

    entries, _ = client.read_entries(SUMMARY_PATH, ("data", "summary"), SUMMARY_PARAMS, read)
    return {node_id: disks for node_id, disks in entries if node_id}


def _failed(client: DashboardClient, jobs: Sequence[Job]) -> tuple[Job, str] | None:
    runs = (job for job in reversed(jobs) if job.ended and job.metadata.get("verb") not in {*NOTES, *LOOKS})
    latest = next(runs, None)
    if latest is None or latest.status != "FAILED":
        return None
    return latest, _asked(lambda: log_of(client, latest.submission_id), None) or ""
