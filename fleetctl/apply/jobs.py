"""Ray Jobs over REST: send the agent and its request, submit, stop. Reading jobs is in `inventory/jobs.py`.

The agent's modules are a zip file that Ray unpacks on the head node, identical for all runs of a release. A request
holds a plan and so env values: it is never unpacked to disk, and the agent deletes it on reading.
"""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ApplyError, ClusterRefused, InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import AGENT, JOBS_PATH, TOOL, fetch_job

if TYPE_CHECKING:
    from importlib.abc import Traversable

    from fleetctl.inventory.answer import Answer

NO_JOB_AGENT = "No available agent"
JOB_AGENT_S, PAUSE_S = 60.0, 1.0
"""How long to wait for the head node's job agent, which Ray starts some seconds after the node, and between tries."""
CONFIRM_S = 10.0
"""How long to check whether the cluster has accepted a job when the response to its submission was lost."""
AGENT_PACKAGE = "fleetctl_agent"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Patience:
    """How to wait, and where to report it; `report` gets one line for the user."""

    report: Callable[[str], None] = lambda _: None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


def submit(
    client: DashboardClient, job: str, verb: str, request: Mapping[str, Any], *, namespace: str,
    metadata: Mapping[str, str], follow_up: str, patience: Patience | None = None,
) -> None:
    """Start the agent as a Ray job; raises ApplyError if Ray refuses it or the start cannot be confirmed.

    `job` is its id, which makes a second try safe; `follow_up` = the hint if the start cannot be confirmed.
    """
    name = f"{job}-request"
    if not _has(client, agent_package()):
        _upload(client, agent_package())
        if not _has(client, agent_package()):
            raise ApplyError("sending the agent failed: the cluster did not store the package")
    put(client, document(name, request))
    words = [AGENT_PACKAGE + "/start.sh", verb, name, namespace]
    body = {"entrypoint": f"sh {shlex.join(words)}", "runtime_env": {"working_dir": agent_package().uri}}
    _post(client, job, verb, {**metadata, AGENT: agent_package().sha256}, body, follow_up, patience or Patience())


def put(client: DashboardClient, package: Package) -> None:
    """Upload a document for an agent, which removes it on reading; raises ApplyError if Ray refuses it.

    The GET makes Ray delete it after ten minutes, if no agent has taken it; before the upload, as this process may be
    killed after it.
    """
    _has(client, package)
    _upload(client, package)


def offer(client: DashboardClient, package: Package) -> bool:
    """Upload a document as `put` does; returns False only if the cluster has certainly not stored it."""
    try:
        _has(client, package)
    except InventoryError:
        return False
    try:
        return not 400 <= _uploaded(client, package).status_code < 500
    except ClusterRefused:
        return False
    except InventoryError:
        return True


def withdraw(client: DashboardClient, name: str) -> None:
    """Empty a document that no agent is to read anymore, if Ray still answers: its dashboard deletes none."""
    offer(client, document(name, {}))


def _upload(client: DashboardClient, package: Package) -> None:
    _require_ok(_uploaded(client, package), "sending the agent")


def _uploaded(client: DashboardClient, package: Package) -> Answer:
    return client.request("PUT", f"/api/packages/gcs/{package.name}", content=package.data)


def _has(client: DashboardClient, package: Package) -> bool:
    return client.request("GET", f"/api/packages/gcs/{package.name}").status_code == 200


def _post(
    client: DashboardClient, job: str, verb: str, metadata: Mapping[str, str], body: Mapping[str, Any], follow_up: str,
    patience: Patience,
) -> None:
    body = {**body, "submission_id": job, "metadata": {"tool": TOOL, "verb": verb, **metadata}}
    deadline, reported = patience.clock() + JOB_AGENT_S, False
    while True:
        try:
            response = client.request("POST", JOBS_PATH, json=body)
        except ClusterRefused:
            raise
        except InventoryError as error:
            return _confirm(client, job, error.message, follow_up, patience)
        if response.status_code >= 500 and NO_JOB_AGENT not in response.text:
            return _confirm(client, job, _describe(response), follow_up, patience)
        if response.status_code < 500:
            _require_ok(response, "submitting the job")
            return None
        if patience.clock() >= deadline:
            raise ApplyError(
                f"the head node's Ray agent, which starts jobs, has not answered for {JOB_AGENT_S:.0f} s",
                hint="see dashboard_agent.log on the head node: often another process uses its port, 52365")
        if not reported:
            reported = True
            patience.report("the head node's Ray agent, which starts jobs, does not answer; waiting up to "
                            f"{JOB_AGENT_S:.0f} s")
        patience.sleep(PAUSE_S)


def _confirm(client: DashboardClient, job: str, cause: str, follow_up: str, patience: Patience) -> None:
    """Return once the cluster lists the job, although the submission failed; raises ApplyError if it does not.

    A gateway may give up before it has forwarded the request, so one query is not enough.
    """
    patience.report(f"no clear response to the submission ({cause}); checking whether the cluster has accepted it")
    deadline = patience.clock() + CONFIRM_S
    while True:
        try:
            fetch_job(client, job)
            return
        except (ApplyError, InventoryError):
            if patience.clock() >= deadline:
                raise ApplyError(f"it is unknown whether the cluster has accepted job {job}: {cause}",
                                 hint=follow_up) from None
            patience.sleep(PAUSE_S)


def stop(client: DashboardClient, submission_id: str) -> None:
    """Ask Ray to stop the job: SIGTERM now, SIGKILL three seconds later. A job that has ended is not an error.

    Raises ApplyError if the cluster refuses the request.
    """
    try:
        _require_ok(client.request("POST", f"/api/jobs/{submission_id}/stop"), "the request to stop it")
    except (ApplyError, InventoryError) as error:
        raise ApplyError(f"job {submission_id} was not stopped and continues: {error.message}",
                         hint=f"try again: `fleetctl stop {submission_id}`") from None


def _require_ok(response: Answer, action: str) -> None:
    if response.status_code != 200:
        raise ApplyError(
            f"{action} failed: {_describe(response)}",
            hint="apply needs the dashboard's Jobs API; a GET-only proxy is enough for plan, not for apply"
            if response.status_code in (404, 405) else None,
        )


def _describe(response: Answer) -> str:
    """Describe a response in one line. Of a traceback it keeps the last line; Ray may add a line with a period."""
    lines = [line for line in response.text.strip().splitlines() if line.strip(" .")]
    request = f"{response.request.method} {response.request.url.path}"
    return f"{request} answered {response.status_code}{response.via}{': ' + lines[-1][:300] if lines else ''}"


@dataclass(frozen=True, slots=True)
class Package:
    """A named package in Ray's package store."""

    name: str
    data: bytes

    @property
    def uri(self) -> str:
        """Its URI in a runtime environment."""
        return f"gcs://{self.name}"

    @property
    def sha256(self) -> str:
        """The hash of its content."""
        return hashlib.sha256(self.data).hexdigest()


@lru_cache(maxsize=1)
def agent_package() -> Package:
    """Zip the modules of `fleetctl/agent/` as the package `fleetctl_agent`; the name is a hash of the content."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, module in sorted(_shipped(files("fleetctl.agent"), AGENT_PACKAGE)):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, module.read_bytes(), zipfile.ZIP_DEFLATED)
    data = buffer.getvalue()
    return Package(f"_ray_pkg_{hashlib.sha256(data).hexdigest()[:32]}.zip", data)


def _shipped(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    """Yield the modules of a folder and its subfolders, with their paths in the archive."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _shipped(entry, f"{name}/{entry.name}")
        elif entry.name.endswith((".py", ".sh")):
            yield f"{name}/{entry.name}", entry


def document(name: str, content: Mapping[str, Any]) -> Package:
    """Encode a document for the agent, which reads it by its name (`agent/run_messages.py`)."""
    return Package(name, zlib.compress(json.dumps(content, ensure_ascii=False).encode()))
