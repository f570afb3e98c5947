"""Ray Jobs over REST: upload packages, submit, look, stop. The list of our jobs is the history of applies."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from fleetctl.apply.package import AGENT_PACKAGE, Package
from fleetctl.errors import ApplyError, InventoryError
from fleetctl.inventory.client import DashboardClient

if TYPE_CHECKING:
    import httpx

TOOL = "fleetctl"
NOT_YET, NOT_YET_TRIES, NOT_YET_PAUSE_S = "No available agent", 30, 1.0
Content = TypeVar("Content", dict[str, Any], list[dict[str, Any]])
LOG_QUOTED, MESSAGE_SHOWN = ", last available logs", 200
FINAL_STATUSES = frozenset({"STOPPED", "SUCCEEDED", "FAILED"})


@dataclass(frozen=True, slots=True)
class Job:
    """One run of the agent as Ray lists it. Times are since the epoch, 0 = not yet."""

    submission_id: str
    status: str
    metadata: dict[str, str] = field(default_factory=dict)
    message: str = ""
    start_time_ms: int = 0
    end_time_ms: int = 0
    error_type: str = ""

    @property
    def ended(self) -> bool:
        """Whether Ray counts the job as over."""
        return self.status in FINAL_STATUSES

    @property
    def end_text(self) -> str:
        """Ray's word for how it ended, on one line, without the piece of the log that Ray quotes there."""
        said = self.message.partition(LOG_QUOTED)[0].partition("\n")[0].strip()
        return f"{self.status}: {said[:MESSAGE_SHOWN]}" if said else self.status


def _job(record: dict[str, Any]) -> Job:
    return Job(
        str(record.get("submission_id") or ""), str(record.get("status") or ""), dict(record.get("metadata") or {}),
        str(record.get("message") or ""), int(record.get("start_time") or 0), int(record.get("end_time") or 0),
        str(record.get("error_type") or ""),
    )


def _require_ok(answer: httpx.Response, doing: str) -> httpx.Response:
    if answer.status_code != 200:
        lines = answer.text.strip().splitlines()
        asked = f"{answer.request.method} {answer.request.url.path}"
        raise ApplyError(
            f"{doing} failed: {asked} answered {answer.status_code}{': ' + lines[-1][:300] if lines else ''}",
            hint="apply needs the dashboard's Jobs API; a GET-only proxy is enough for plan, not for apply"
            if answer.status_code in (404, 405) else None,
        )
    return answer


def _content(answer: httpx.Response, kind: type[Content]) -> Content:
    """Return the JSON of an answer; raises InventoryError when it is not what the Jobs API says."""
    try:
        content = answer.json()
    except ValueError:
        content = None
    if not isinstance(content, kind):
        raise InventoryError(f"{answer.request.url.path} answered something that is not from Ray's Jobs API")
    return content


def upload(client: DashboardClient, package: Package) -> None:
    """Make sure the cluster has the package. The closing GET also pins it until the job has taken hold of it."""
    path = f"/api/packages/gcs/{package.name}"
    if client.request("GET", path).status_code == 200:
        return
    _require_ok(client.request("PUT", path, content=package.data), "uploading the agent")
    _require_ok(client.request("GET", path), "uploading the agent")


def submit(
    client: DashboardClient, submission_id: str, verb: str, package: Package, metadata: dict[str, str], *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Start the agent as a Ray Job; raises ApplyError when Ray does not take it.

    A cluster that has just come up has no agent to run jobs for some seconds; that is waited for. The submission id
    makes a second try safe.
    """
    upload(client, package)
    body = {
        "entrypoint": f"sh {AGENT_PACKAGE}/start.sh {verb}",
        "submission_id": submission_id,
        "runtime_env": {"working_dir": package.uri},
        "metadata": {"tool": TOOL, "verb": verb, **metadata},
    }
    try:
        for _ in range(NOT_YET_TRIES):
            answer = client.request("POST", "/api/jobs/", json=body)
            if answer.status_code != 500 or NOT_YET not in answer.text:
                break
            sleep(NOT_YET_PAUSE_S)
        _require_ok(answer, "submitting the job")
    except (ApplyError, InventoryError):
        if not _is_known(client, submission_id):
            raise  # else it was taken, and only the answer to that was lost


def _is_known(client: DashboardClient, submission_id: str) -> bool:
    try:
        look(client, submission_id)
    except (ApplyError, InventoryError):
        return False
    return True


def look(client: DashboardClient, submission_id: str) -> Job:
    """Return one job; raises ApplyError when the cluster does not know it, InventoryError for any other refusal."""
    answer = client.request("GET", f"/api/jobs/{submission_id}")
    if answer.status_code == 404:
        raise ApplyError(f"the cluster knows no job {submission_id}")
    if answer.status_code != 200:
        raise InventoryError(f"asking for job {submission_id} answered {answer.status_code}")
    return _job(_content(answer, dict))


def ours(client: DashboardClient) -> list[Job]:
    """Return all jobs fleetctl has submitted, oldest first."""
    records = _content(_require_ok(client.request("GET", "/api/jobs/"), "listing the jobs"), list)
    jobs = [_job(record) for record in records if (record.get("metadata") or {}).get("tool") == TOOL]
    return sorted(jobs, key=lambda job: (job.start_time_ms, job.submission_id))


def log_of(client: DashboardClient, submission_id: str) -> str | None:
    """Return everything the job has written so far; None when its log cannot be served, now or any more."""
    answer = client.request("GET", f"/api/jobs/{submission_id}/logs")
    return str(_content(answer, dict).get("logs") or "") if answer.status_code == 200 else None


def stop(client: DashboardClient, submission_id: str) -> None:
    """Ask Ray to stop the job: SIGTERM now, SIGKILL three seconds later. One that has ended already is fine.

    Raises ApplyError when the cluster did not take the request.
    """
    try:
        _require_ok(client.request("POST", f"/api/jobs/{submission_id}/stop"), "the request to stop it")
    except (ApplyError, InventoryError) as error:
        raise ApplyError(f"job {submission_id} was not stopped and goes on: {error.message}",
                         hint=f"stop it with `ray job stop {submission_id}`") from None
