"""Our jobs, as Ray lists them: their states, their metadata and their logs. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.errors import ApplyError, InventoryError, PathNotServed
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.json_values import list_of, object_of, parse_text, text_of, whole_of

if TYPE_CHECKING:
    from fleetctl.inventory.answer import Answer

TOOL = "fleetctl"
JOBS_PATH = "/api/jobs/"
REPLICAS = "replicas"
"""The metadata key under which an explicit verb names its replicas, as a JSON list of `<model>/<id>`."""

VARIANTS = "variants"
"""The key under which a step of `replace` names the variants of what it ends, as a JSON object by `<model>/<id>`."""

AGENT = "agent"
"""The metadata key under which a job has the SHA-256 of the agent's zip file that it was submitted with."""

EXAMINE = "examine"
CACHES = "caches"
READ_ONLY = frozenset({EXAMINE, CACHES})
"""The verbs of jobs that only read from nodes: for the doctor, and for `prune`."""

STANDBY = "standby"
"""The verb of a job whose agent waits for a plan; once it has one, the job is that plan's apply."""

LOG_QUOTED, MESSAGE_SHOWN = ", last available logs", 200
FINAL_STATUSES = frozenset({"STOPPED", "SUCCEEDED", "FAILED"})


@dataclass(frozen=True, slots=True)
class Job:
    """One run of the agent as Ray lists it. Times are since the epoch, 0 = not yet.

    `driver_id` is Ray's id for the run's process, which the actors it creates carry as well; empty = none yet.
    """

    submission_id: str
    status: str
    metadata: dict[str, str] = field(default_factory=dict)
    message: str = ""
    start_time_ms: int = 0
    end_time_ms: int = 0
    error_type: str = ""
    driver_id: str = ""

    @property
    def ended(self) -> bool:
        """Whether the job is over, according to Ray."""
        return self.status in FINAL_STATUSES

    @property
    def end_text(self) -> str:
        """Ray's text for its end, on one line, without the log excerpt that Ray appends."""
        text = self.message.partition(LOG_QUOTED)[0].partition("\n")[0].strip()
        return f"{self.status}: {text[:MESSAGE_SHOWN]}" if text else self.status


def fetch_job(client: DashboardClient, submission_id: str) -> Job:
    """Return one job; raises ApplyError when the cluster does not know it, InventoryError for any other refusal."""
    job = find_job(client, submission_id)
    if job is None:
        raise ApplyError(f"the cluster has no job {submission_id}")
    return job


def find_job(client: DashboardClient, submission_id: str) -> Job | None:
    """Return one job of anyone, None if there is none; `submission_id` may be the id of its driver.

    It takes milliseconds, however many jobs there are. Raises InventoryError; PathNotServed if a proxy does not pass
    the request.
    """
    answer = client.get(f"{JOBS_PATH}{submission_id}")
    if answer.status_code == 404 and f"{submission_id} does not exist" in answer.text:
        return None
    if answer.status_code == 404:
        raise PathNotServed(f"{JOBS_PATH}{submission_id} does not exist (404{answer.via})",
                            hint="a proxy in front of the dashboard must pass this path")
    if answer.status_code != 200:
        raise InventoryError(f"the request for job {submission_id} was answered with {answer.status_code}{answer.via}")
    return _job(_content(answer))


class JobTable(NamedTuple):
    """Our jobs, oldest first, and how many rows Ray's list has in all: other programs submit jobs, too."""

    jobs: list[Job]
    rows: int


def list_jobs(client: DashboardClient) -> list[Job]:
    """Return all jobs that fleetctl has submitted, oldest first; raises InventoryError if the answer is not a list."""
    return read_job_table(client).jobs


def read_job_table(client: DashboardClient) -> JobTable:
    """Return our jobs and the length of the list; raises as `list_jobs` does."""
    records = client.get_json(JOBS_PATH)
    if not isinstance(records, list):
        raise InventoryError(f"{JOBS_PATH} answered without a list of jobs")
    jobs = [_job(record) for record in records if object_of(object_of(record).get("metadata")).get("tool") == TOOL]
    return JobTable(sorted(jobs, key=lambda job: (job.start_time_ms, job.submission_id)), len(records))


def log_of(client: DashboardClient, submission_id: str) -> str | None:
    """Return everything the job has written so far; None if Ray does not serve its log, not yet or no longer."""
    answer = client.get(f"{JOBS_PATH}{submission_id}/logs")
    return str(_content(answer).get("logs") or "") if answer.status_code == 200 else None


def noted_list(metadata: Mapping[str, str], key: str) -> list[Any]:
    """Return the JSON list that an agent has noted under a key; entries of another release may be anything."""
    try:
        return list_of(parse_text(metadata.get(key, "[]")))
    except ValueError:
        return []


def noted_object(metadata: Mapping[str, str], key: str) -> Mapping[str, Any]:
    """Return the JSON object that a run has noted under a key; any program may have written it."""
    try:
        return object_of(parse_text(metadata.get(key, "{}")))
    except ValueError:
        return {}


def named_replicas(metadata: Mapping[str, str]) -> list[str]:
    """Return the replicas that an explicit verb's job names; older releases named a single one under `replica`."""
    named = [name for name in noted_list(metadata, REPLICAS) if isinstance(name, str)]
    return named or ([metadata["replica"]] if metadata.get("replica") else [])


def _job(record: Mapping[str, Any]) -> Job:
    """Return the job of a record; a value that is not text, where Ray has text, counts as absent."""
    submission_id, status, message, error_type = (
        text_of(record.get(key)) or "" for key in ("submission_id", "status", "message", "error_type"))
    metadata = {key: value for key, value in object_of(record.get("metadata")).items() if isinstance(value, str)}
    return Job(submission_id, status, metadata, message, whole_of(record.get("start_time")) or 0,
               whole_of(record.get("end_time")) or 0, error_type,
               text_of(object_of(record.get("driver_info")).get("id")) or "")


def _content(answer: Answer) -> dict[str, Any]:
    """Return the JSON object of an answer; raises InventoryError if it is not one."""
    try:
        content = answer.json()
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise InventoryError(f"{answer.request.url.path} answered, but not in the format of Ray's Jobs API")
    return content
