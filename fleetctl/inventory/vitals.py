"""The doctor's reads beside the inventory: disks, placement groups, the log of our last job.

Sends only GETs. A part that cannot be read is None or empty: the inventory reports what is wrong with the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fleetctl.documents.diagnosis import Disk
from fleetctl.errors import ClusterUnreachable, InventoryError
from fleetctl.inventory.assemble import PlacementGroup, list_placement_groups
from fleetctl.inventory.autoscaler import silent_since
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import SUMMARY_PARAMS, SUMMARY_PATH
from fleetctl.inventory.jobs import READ_ONLY, STANDBY, Job, JobTable, log_of, read_job_table
from fleetctl.inventory.json_values import object_of, text_of, whole_of
from fleetctl.inventory.records import NOTES, NOTHING_KNOWN, Records, read_rows, with_jobs

Answer = TypeVar("Answer")
JOBS_S = 30.0
"""How long the doctor waits for the list of jobs."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """`disks` are by node id; Ray reports the root and its own folder.

    `failed` is our latest run and its log, if Ray reports the run as failed. `is_open` = the dashboard gives its nodes
    to a request without a token, header or certificate. `job_rows` = the length of Ray's list of jobs, `job_list_s` =
    how long reading it took, `no_jobs` = why it could not be read. `autoscaler_silent` = since when, "" = it is not.
    """

    jobs: Sequence[Job] = ()
    records: Records = NOTHING_KNOWN
    job_rows: int = 0
    job_list_s: float = 0
    no_jobs: str = ""
    groups: Sequence[PlacementGroup] = ()
    disks: Mapping[str, Sequence[Disk]] = field(default_factory=dict)
    failed: tuple[Job, str] | None = None
    is_open: bool = False
    autoscaler_silent: str = ""


def read_vitals(client: DashboardClient) -> Vitals:
    """Read all of it; raises ClusterUnreachable.

    Call it before the inventory is read, so that no group is newer than the list of actors.
    """
    groups: Sequence[PlacementGroup] = _read_or(lambda: list_placement_groups(client).rows, ())
    records = _read_or(lambda: read_rows(client), NOTHING_KNOWN)
    table, begun, no_jobs = JobTable([], 0), time.monotonic(), ""
    try:
        table = read_job_table(client.within(JOBS_S))
        records = with_jobs(records, table.jobs)
    except InventoryError as error:  # the cluster answers, but a long list may take forever
        no_jobs = error.message
    return Vitals(table.jobs, records, table.rows, time.monotonic() - begun, no_jobs, groups,
                  _read_or(lambda: _disks(client), {}), _failed(client, table.jobs), _is_open(client),
                  silent_since(client))


def _read_or(read: Callable[[], Answer], otherwise: Answer) -> Answer:
    try:
        return read()
    except ClusterUnreachable:
        raise
    except InventoryError:
        return otherwise


def _is_open(client: DashboardClient) -> bool:
    """Return whether the dashboard answers anyone, with a list and not only with a login page."""
    try:
        with client.without_access() as anyone:
            return "data" in object_of(anyone.get_json("/api/v0/nodes", {"limit": "1"}))
    except InventoryError:  # refused, or a proxy requires a certificate
        return False


def _disks(client: DashboardClient) -> dict[str, list[Disk]]:
    def read(_: str, entry: object) -> tuple[str | None, list[Disk]]:
        fields = object_of(entry)
        return text_of(object_of(fields.get("raylet")).get("nodeId")), [
            Disk(path=path, total=total, free=free) for path, usage in object_of(fields.get("disk")).items()
            if (total := whole_of(object_of(usage).get("total"))) and
            (free := whole_of(object_of(usage).get("free"))) is not None]

    entries, _ = client.read_entries(SUMMARY_PATH, ("data", "summary"), SUMMARY_PARAMS, read)
    return {node_id: disks for node_id, disks in entries if node_id}


def _failed(client: DashboardClient, jobs: Sequence[Job]) -> tuple[Job, str] | None:
    others = {*NOTES, *READ_ONLY, STANDBY}
    runs = (job for job in reversed(jobs) if job.ended and job.metadata.get("verb") not in others)
    latest = next(runs, None)
    if latest is None or latest.status != "FAILED":
        return None
    return latest, _read_or(lambda: log_of(client, latest.submission_id), None) or ""
