"""Ray Jobs over REST: upload packages, submit, look, stop. The list of our jobs is the history of applies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fleetctl.apply.package import AGENT_PACKAGE, Package
from fleetctl.errors import ApplyError
from fleetctl.inventory.client import DashboardClient

TOOL = "fleetctl"
FINAL_STATUSES = frozenset({"STOPPED", "SUCCEEDED", "FAILED"})


@dataclass(frozen=True, slots=True)
class Job:
    """One run of the agent as Ray lists it. `start_time_ms` since the epoch, 0 before it starts."""

    submission_id: str
    status: str
    metadata: dict[str, str] = field(default_factory=dict)
    message: str = ""
    start_time_ms: int = 0

    @property
    def ended(self) -> bool:
        """Whether Ray counts the job as over."""
        return self.status in FINAL_STATUSES


def _job(record: dict[str, Any]) -> Job:
    return Job(
        str(record.get("submission_id") or ""), str(record.get("status") or ""), dict(record.get("metadata") or {}),
        str(record.get("message") or ""), int(record.get("start_time") or 0),
    )


def _expect(client: DashboardClient, method: str, path: str, doing: str, **options: Any) -> Any:
    answer = client.request(method, path, **options)
    if answer.status_code != 200:
        lines = answer.text.strip().splitlines()
        raise ApplyError(
            f"{doing} failed: {method} {path} answered {answer.status_code}{': ' + lines[-1][:300] if lines else ''}",
            hint="apply needs the dashboard's Jobs API; a GET-only proxy is enough for plan, not for apply"
            if answer.status_code in (404, 405) else None,
        )
    return answer


def upload(client: DashboardClient, package: Package) -> None:
    """Make sure the cluster has the package. The closing GET also pins it until the job has taken hold of it."""
    path = f"/api/packages/gcs/{package.name}"
    if client.request("GET", path).status_code == 200:
        return
    _expect(client, "PUT", path, "uploading the agent", content=package.data)
    _expect(client, "GET", path, "uploading the agent")


def submit(
    client: DashboardClient, submission_id: str, verb: str, package: Package, metadata: dict[str, str]
) -> None:
    """Start the agent as a Ray Job; raises ApplyError when Ray does not take it."""
    upload(client, package)
    _expect(client, "POST", "/api/jobs/", "submitting the job", json={
        "entrypoint": f"sh {AGENT_PACKAGE}/start.sh {verb}",
        "submission_id": submission_id,
        "runtime_env": {"working_dir": package.uri},
        "metadata": {"tool": TOOL, "verb": verb, **metadata},
    })


def look(client: DashboardClient, submission_id: str) -> Job:
    """Return one job; raises ApplyError when the cluster does not know it."""
    answer = client.request("GET", f"/api/jobs/{submission_id}")
    if answer.status_code == 404:
        raise ApplyError(f"the cluster knows no job {submission_id}", hint="`fleetctl apply --attach` lists none of that name")
    if answer.status_code != 200:
        raise ApplyError(f"asking for job {submission_id} answered {answer.status_code}")
    return _job(answer.json())


def ours(client: DashboardClient) -> list[Job]:
    """Return all jobs fleetctl has submitted, oldest first."""
    records = _expect(client, "GET", "/api/jobs/", "listing the jobs").json()
    jobs = [_job(record) for record in records if (record.get("metadata") or {}).get("tool") == TOOL]
    return sorted(jobs, key=lambda job: (job.start_time_ms, job.submission_id))


def log_of(client: DashboardClient, submission_id: str) -> str:
    """Return everything the job has written so far; empty when its log cannot be served any more."""
    answer = client.request("GET", f"/api/jobs/{submission_id}/logs")
    return str(answer.json().get("logs") or "") if answer.status_code == 200 else ""


def stop(client: DashboardClient, submission_id: str) -> None:
    """Ask Ray to stop the job: SIGTERM now, SIGKILL three seconds later."""
    client.request("POST", f"/api/jobs/{submission_id}/stop")
