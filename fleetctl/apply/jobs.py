"""Ray Jobs over REST: send the agent and its request, submit, stop. Reading jobs is in `inventory/jobs.py`.

The agent's modules are a zip that Ray unpacks on the head node, the same for every run of this release. A request holds
a plan, and with it env values: it is never unpacked, and the agent removes it as it reads it.
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

from fleetctl.apply.record import Starter
from fleetctl.documents.inventory import Node
from fleetctl.errors import ApplyError, ClusterRefused, InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import JOBS_PATH, TOOL, fetch_job

if TYPE_CHECKING:
    from importlib.abc import Traversable

    import httpx

NO_JOB_AGENT = "No available agent"
JOB_AGENT_S, PAUSE_S = 60.0, 1.0
"""How long the head node may be without an agent that starts jobs: some seconds after its start are normal."""
UNCLEAR_S = 10.0
"""How long to ask whether the cluster has taken a job, when the answer to its submission was lost."""
AGENT_PACKAGE = "fleetctl_agent"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Patience:
    """How waiting is done and reported; `report` gets a line for a person."""

    report: Callable[[str], None] = lambda _: None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


def submit(
    client: DashboardClient, job: str, verb: str, request: Mapping[str, Any], *, namespace: str,
    metadata: Mapping[str, str], follow_up: str, patience: Patience | None = None,
) -> None:
    """Start the agent as a Ray Job; raises ApplyError when Ray refuses it, or when the start cannot be confirmed.

    `job` is its id, which makes a second try safe; `follow_up` = what a person can do without a confirmation.
    """
    name = f"{job}-request"
    if not _has(client, agent_package()):
        send(client, agent_package())
    send(client, document(name, request))
    words = [AGENT_PACKAGE + "/start.sh", verb, name, namespace]
    body = {"entrypoint": f"sh {shlex.join(words)}", "runtime_env": {"working_dir": agent_package().uri}}
    _post(client, job, verb, metadata, body, follow_up, patience or Patience())


def write_note(
    client: DashboardClient, verb: str, node: Node, said: Mapping[str, str], job: str, starter: Starter,
    patience: Patience,
) -> None:
    """Write what is `said` about a node: a job that does nothing, whose metadata is the note (`inventory/notes.py`).

    Raises ApplyError when the cluster does not take it.
    """
    metadata = {"node": node.id, "nodeName": node.name, **said, **starter.metadata()}
    _post(client, job, verb, metadata, {"entrypoint": "true"},
          "`fleetctl inventory` shows whether the note is there", patience)


def send(client: DashboardClient, package: Package) -> None:
    """Put a package into Ray's table; raises ApplyError when it is not there afterwards."""
    if not put(client, package):
        raise ApplyError("sending the agent failed: the cluster does not keep what it is sent")


def put(client: DashboardClient, package: Package) -> bool:
    """Put a package into Ray's table and return whether it is still there: a running agent may have taken it already.

    The GET after it makes Ray remove it in ten minutes, unless a job uses it.
    """
    _require_ok(client.request("PUT", f"/api/packages/gcs/{package.name}", content=package.data), "sending the agent")
    return _has(client, package)


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
            answer = client.request("POST", JOBS_PATH, json=body)
        except ClusterRefused:
            raise
        except InventoryError as error:
            return _confirm(client, job, error.message, follow_up, patience)
        if answer.status_code >= 500 and NO_JOB_AGENT not in answer.text:
            return _confirm(client, job, _answer_text(answer), follow_up, patience)
        if answer.status_code < 500:
            _require_ok(answer, "submitting the job")
            return None
        if patience.clock() >= deadline:
            raise ApplyError(
                f"the head node's agent, which starts jobs, has not answered for {JOB_AGENT_S:.0f} s",
                hint="look at dashboard_agent.log on the head node: often another process has its port, 52365")
        if not reported:
            reported = True
            patience.report("the head node's agent, which starts jobs, does not answer; waiting up to "
                          f"{JOB_AGENT_S:.0f} s")
        patience.sleep(PAUSE_S)


def _confirm(client: DashboardClient, job: str, cause: str, follow_up: str, patience: Patience) -> None:
    """Return once the cluster lists the job although its answer was an error; raises ApplyError if it does not.

    A gateway may give up before it has passed the request on, so one look is not enough.
    """
    patience.report(f"no clear answer to the submission ({cause}); asking whether the cluster has accepted it")
    deadline = patience.clock() + UNCLEAR_S
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
    """Ask Ray to stop the job: SIGTERM now, SIGKILL three seconds later. One that has ended already is fine.

    Raises ApplyError when the cluster refuses the request.
    """
    try:
        _require_ok(client.request("POST", f"/api/jobs/{submission_id}/stop"), "the request to stop it")
    except (ApplyError, InventoryError) as error:
        raise ApplyError(f"job {submission_id} was not stopped and continues: {error.message}",
                         hint=f"try again: `fleetctl stop {submission_id}`") from None


def _require_ok(answer: httpx.Response, doing: str) -> None:
    if answer.status_code != 200:
        raise ApplyError(
            f"{doing} failed: {_answer_text(answer)}",
            hint="apply needs the dashboard's Jobs API; a GET-only proxy is enough for plan, not for apply"
            if answer.status_code in (404, 405) else None,
        )


def _answer_text(answer: httpx.Response) -> str:
    """Return an answer in one line: of a traceback the last, which Ray may end with a line of its own, a full stop."""
    lines = [line for line in answer.text.strip().splitlines() if line.strip(" .")]
    asked = f"{answer.request.method} {answer.request.url.path}"
    return f"{asked} answered {answer.status_code}{': ' + lines[-1][:300] if lines else ''}"


@dataclass(frozen=True, slots=True)
class Package:
    """Bytes under a name in Ray's table of packages."""

    name: str
    data: bytes

    @property
    def uri(self) -> str:
        """The URI for a runtime environment."""
        return f"gcs://{self.name}"


@lru_cache(maxsize=1)
def agent_package() -> Package:
    """Return the modules of `fleetctl/agent/` as the package `fleetctl_agent`; equal modules give an equal name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, module in sorted(_shipped(files("fleetctl.agent"), AGENT_PACKAGE)):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, module.read_bytes(), zipfile.ZIP_DEFLATED)
    data = buffer.getvalue()
    return Package(f"_ray_pkg_{hashlib.sha256(data).hexdigest()[:32]}.zip", data)


def _shipped(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    """Yield the modules of a folder, and of those in it, with their paths in the archive."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _shipped(entry, f"{name}/{entry.name}")
        elif entry.name.endswith((".py", ".sh")):
            yield f"{name}/{entry.name}", entry


def document(name: str, content: Mapping[str, Any]) -> Package:
    """Return a document for the agent, which reads it under that name (`agent/mailbox.py`)."""
    return Package(name, zlib.compress(json.dumps(content, ensure_ascii=False).encode()))
