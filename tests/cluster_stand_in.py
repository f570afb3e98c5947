"""A real HTTP server that stands in for a Ray dashboard: nodes and actors to read, packages and jobs to write.

It keeps what it receives, as Ray does, and records every request. The agent is simulated: `on_submit` returns steps
for a submitted job, each a status and the log so far, and every read of the job takes one step.
"""

from __future__ import annotations

import itertools
import json
import shlex
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from record_rows import RecordRows, now, record

from fleetctl.agent.messages import FailedStart, Lifecycle, Member, Replica
from fleetctl.agent.report import actor_name, describe, encode_failure, place_of, utc_now
from fleetctl.agent.wire import document_of
from fleetctl.inventory.records import NOT_READY, NOTES

PLANNED = ("group", "copy", "role", "rank", "nodeId", "gpus", "vram", "cpus", "memory")
Steps = list[tuple[str, str]]
Answer = tuple[int, str]


def event(seq: int, kind: str, message: str = "", **fields: Any) -> str:
    """A line of the agent's log, with its line end."""
    record = {"seq": seq, "time": "2026-03-04T12:00:00.000Z", "type": kind, "level": "info", "message": message}
    return json.dumps({**record, **fields}, separators=(",", ":")) + "\n"


def summary(seq: int, *outcomes: dict[str, Any], code: int = 0, **fields: Any) -> str:
    """The last line of the agent's log."""
    ready = sum(outcome["outcome"] == "ready" for outcome in outcomes)
    return event(seq, "runSummary", fields.pop("message", f"{ready} of {len(outcomes)} ready"),
                 outcomes=list(outcomes), exitCode=code, **{"interrupted": False, **fields})


def ready(model: str, replica_id: int, node: str = "node-a") -> dict[str, Any]:
    """The outcome of a ready replica."""
    return {"model": model, "replicaId": replica_id, "outcome": "ready", "nodes": [node], "message": "",
            "address": "10.0.0.7:7001", "seconds": 1.25}


def all_ready(request: dict[str, Any]) -> Steps:
    """The steps of an agent that creates everything planned, all of which becomes ready."""
    plan = request["plan"]
    lines = event(0, "version", "fleetctl agent", version="1.0") + event(1, "lockAcquired", "lock acquired")
    lines += event(2, "planAccepted", "plan accepted", level="debug", **request["record"])
    rows = [ready(action["model"], action["replicaId"], action["members"][0]["node"]) for action in plan["actions"]]
    for number, row in enumerate(rows):
        lines += event(3 + number, "replicaReady", f"{row['model']}/{row['replicaId']}: ready", **{
            key: value for key, value in row.items() if key != "message"})
    rows += [{key: row[key] for key in ("model", "code", "message", "replicas")} | {"outcome": "blocked"}
             for row in plan["blocked"]]
    code = 3 if plan["blocked"] else 0
    return [("RUNNING", lines), ("SUCCEEDED", lines + summary(3 + len(rows), *rows, code=code))]


@dataclass
class StoredJob:
    """A submitted job. `steps` are those still to come; the last one stays."""

    body: dict[str, Any]
    steps: Steps
    status: str = "PENDING"
    log: str = ""
    message: str = ""
    start_time: int = 0
    end_time: int = 0
    error_type: str | None = None
    stopped: bool = False
    driver_id: str = ""

    def step(self) -> None:
        if self.steps:
            self.status, self.log = self.steps.pop(0)

    def record(self) -> dict[str, Any]:
        return {"type": "SUBMISSION", "job_id": None, "submission_id": self.body["submission_id"],
                "status": self.status, "metadata": self.body.get("metadata"), "message": self.message,
                "start_time": self.start_time, "end_time": self.end_time or None,
                "error_type": self.error_type, "entrypoint": self.body["entrypoint"],
                "driver_info": {"id": self.driver_id} if self.driver_id else None}


@dataclass
class ClusterStandIn:
    """The cluster.

    `refusals` = responses to give instead, one per request, by method and the start of the path; `answer_of_node` =
    the response to every request for a node's logs.
    """

    url: str = ""
    session: str = "session_1"
    nodes: list[dict[str, Any]] = field(default_factory=list)
    actors: list[dict[str, Any]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """The source of actor ids."""
    of_node: dict[str, dict[str, Any]] = field(default_factory=dict)
    """More fields of a node in the dashboard's summary, such as its cards and disks, by node id."""
    groups: list[dict[str, Any]] = field(default_factory=list)
    ray_version: str = "2.60.0"
    is_open: bool = False
    """Whether it gives its nodes to anyone: the doctor asks for one node, without a token."""
    packages: dict[str, bytes] = field(default_factory=dict)
    jobs: dict[str, StoredJob] = field(default_factory=dict)
    records: RecordRows = field(default_factory=RecordRows)
    log_files: dict[tuple[str, str], str] = field(default_factory=dict)
    answer_of_node: dict[str, Answer] = field(default_factory=dict)
    data_at: dict[str, Any] = field(default_factory=dict)
    """The responses of Ray's autoscaler, by path."""
    refusals: dict[tuple[str, str], list[Answer]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    on_submit: Callable[[dict[str, Any]], Steps] = field(default=lambda _: [])
    on_stop: Callable[[StoredJob], None] = field(default=lambda _: None)
    headers: list[dict[str, str]] = field(default_factory=list)
    note_steps: Steps = field(default_factory=list)
    """The steps of jobs that write a note; empty = they write it."""
    silent: set[tuple[str, str]] = field(default_factory=set)
    """Requests that get no answer, by method and path."""
    closed: threading.Event = field(default_factory=threading.Event)
    ahead_s: float | None = 0
    """Its clock less that of this machine; None = its answers do not tell the time."""

    def add_node(self, name: str, gpus: int = 8, state: str = "ALIVE", **labels: str) -> str:
        """Add a node and return its id."""
        node_id = (name.encode().hex() * 56)[:56]
        self.nodes.append({
            "node_id": node_id, "node_ip": "10.0.0.7", "state": state, "node_name": name, "labels": labels,
            "resources_total": {"GPU": float(gpus), "CPU": 16.0, "memory": float(1 << 40)}})
        return node_id

    def add_replica(self, model: str, replica_id: int, node_id: str, *, state: str = "ALIVE", fleet: str | None = "lab",
                    gpus: int = 80_000, namespace: str = "fleet", spec_hash: str = "abc",
                    up_ms: tuple[int, int] = (0, 0), restarts: int = 0, started_in: float | None = None,
                    variant: str | None = None) -> None:
        """Add the actor of a replica of one member, first and last ready at `up_ms`; `fleet` None = it has no mark.

        A starting replica has only its name; the log of the apply that created it contains the rest.
        """
        member = Member("main", 0, "Standalone", 0, node_id, "", gpus=gpus)
        replica = Replica(f"{model}/{replica_id}", model, replica_id, Lifecycle(60.0, restart_max=5), spec_hash,
                          fleet=fleet or "", namespace=namespace, members=(member,), variant=variant)
        place = place_of(member)._replace(ip="10.0.0.7", port=7001 + replica_id,
                                          gpu_indices=list(range(gpus // 10_000)))
        once_up = state in ("ALIVE", "RESTARTING")
        if fleet and not once_up:
            driver_id = f"{len(self.actors):08x}"
            planned = {key: value for key, value in document_of(member).items() if key in PLANNED}
            record = {"replicas": [{"model": model, "replicaId": replica_id, "specHash": spec_hash,
                                    "members": [planned]}]}
            log = event(0, "planAccepted", "plan accepted", **record)
            self.add_job(f"earlier-{driver_id}", ("RUNNING", log), verb="apply", fleet=fleet, create="1")
            self.jobs[f"earlier-{driver_id}"].driver_id = driver_id
            self.jobs[f"earlier-{driver_id}"].step()
        self.actors.append({
            "actor_id": f"{next(self.numbers):032x}", "name": actor_name(model, replica_id), "state": state,
            "class_name": "ModelActor", "job_id": f"{len(self.actors):08x}",
            "ray_namespace": namespace, "node_id": node_id if state == "ALIVE" else None, "placement_group_id": None,
            "required_resources": {"GPU": gpus / 10_000} if gpus else {}, "num_restarts": str(restarts),
            "death_cause": None, "up_ms": up_ms,
            "repr_name": describe(replica, [place], "2026-03-04T12:00:00Z",
                                  started_in=started_in) if fleet and once_up else ""})

    def stop_answering(self, actor: int, fleet: str = "lab", **more: str) -> None:
        """Record that the readiness of an added replica fails, as its actor does; `more` replaces parts of the record.
        """
        row = self.actors[actor]
        told = {"model": "m", "replicaId": 0, "readyAt": json.loads(row["repr_name"])["readyAt"],
                "since": "2026-03-04T12:03:11Z", "reason": "GET /health on port 8000: HTTP 503", **more}
        self.records.add(NOT_READY, record(row["actor_id"], now(), **told), fleet)

    def add_failure(self, model: str, node_id: str, spec_hash: str, message: str, *, fleet: str = "lab",
                    cards: Sequence[str] = (), replica_id: int = 0) -> None:
        """Add the dead actor of a replica that has just failed."""
        text = encode_failure(FailedStart("ENGINE_EXITED", message, utc_now(), spec_hash, fleet, [node_id], cards))
        self.actors.append({
            "actor_id": f"{next(self.numbers):032x}", "name": actor_name(model, replica_id), "state": "DEAD",
            "class_name": "ModelActor", "job_id": "0", "ray_namespace": "fleet", "node_id": node_id,
            "placement_group_id": None, "required_resources": {}, "num_restarts": "0", "repr_name": "",
            "death_cause": {"creation_task_failure_context": {"formatted_exception_string": f"RuntimeError: {text}"}}})

    def created(self) -> list[str]:
        """Return the ids of the replicas that the plans of all jobs create."""
        return [action["id"] for job in self.jobs for action in self.request_of(job)["plan"]["actions"]]

    def writes(self) -> list[tuple[str, str]]:
        """Return the requests that were not GETs."""
        return [request for request in self.requests if request[0] != "GET"]

    def add_job(self, submission_id: str, *steps: tuple[str, str], start_time: int = 1, **metadata: str) -> StoredJob:
        """Add a job that was submitted before."""
        body = {"submission_id": submission_id, "entrypoint": "sh x", "metadata": {"tool": "fleetctl", **metadata}}
        self.jobs[submission_id] = StoredJob(body, list(steps), start_time=start_time)
        return self.jobs[submission_id]

    def request_of(self, submission_id: str) -> dict[str, Any]:
        """Return the request to the agent of a submitted job, from the document named in its command."""
        return self.document(shlex.split(self.jobs[submission_id].body["entrypoint"])[3])

    def document(self, name: str) -> dict[str, Any]:
        """Return the document sent to the agent under a name."""
        found: dict[str, Any] = json.loads(zlib.decompress(self.packages[name]))
        return found

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> Answer | tuple[int, bytes]:
        """Respond to one request as the dashboard would."""
        for (refused_method, start), answers in self.refusals.items():
            if method == refused_method and path.startswith(start) and answers:
                return answers.pop(0)
        if path.startswith("/api/packages/gcs/"):
            return self._package(method, path.rpartition("/")[2], body)
        if path.startswith("/api/jobs/"):
            return self._jobs(method, path.removeprefix("/api/jobs/"), body)
        if path in self.data_at:
            return 200, json.dumps({"result": True, "msg": "", "data": self.data_at[path]})
        if method == "GET":
            return self._inventory(path, query)
        return 405, "405: Method Not Allowed"

    def _package(self, method: str, name: str, body: bytes) -> Answer:
        if method == "PUT":
            self.packages[name] = body
            return 200, ""
        return (200, "") if name in self.packages else (404, f"Package {name} does not exist")

    def _jobs(self, method: str, rest: str, body: bytes) -> Answer:
        if method == "POST" and rest == "":
            return self._submit(json.loads(body))
        if rest == "":
            return 200, json.dumps([*(job.record() for job in self.jobs.values()), *self.records.rows.values()])
        submission_id, _, what = rest.partition("/")
        if submission_id in self.records.rows and method == "GET" and not what:
            return 200, json.dumps(self.records.rows[submission_id])
        job = self.jobs.get(submission_id) or next(
            (job for job in self.jobs.values() if job.driver_id == submission_id), None)
        if job is None:
            return 404, f"Job {submission_id} does not exist"
        if method == "POST" and what == "stop":
            job.stopped = True
            self.on_stop(job)
            return 200, '{"stopped": true}'
        if method == "DELETE":
            if job.status not in ("SUCCEEDED", "FAILED", "STOPPED"):
                return 500, "RuntimeError: Attempted to delete a job that is in a non-terminal state"
            del self.jobs[submission_id]
            return 200, '{"deleted": true}'
        if what == "logs":
            return 200, json.dumps({"logs": job.log})
        job.step()
        return 200, json.dumps(job.record())

    def _submit(self, body: dict[str, Any]) -> Answer:
        submission_id = body["submission_id"]
        if submission_id in self.jobs:
            return 500, f"ValueError: Job with submission_id {submission_id} already exists"
        self.jobs[submission_id] = job = StoredJob(body, [], start_time=len(self.jobs) + 1)
        if body["entrypoint"] == "true":  # no run of the agent
            return 200, json.dumps({"job_id": submission_id, "submission_id": submission_id})
        request = self.request_of(submission_id)
        if body["metadata"]["verb"] in NOTES:
            if not self.note_steps:
                self.records.add(request["kind"], record(request["subject"], now(), **request["payload"]))
            job.steps = list(self.note_steps) or [("SUCCEEDED", event(0, "version", version="1.0") + summary(1))]
        else:
            job.steps = list(self.on_submit(request))
        return 200, json.dumps({"job_id": submission_id, "submission_id": submission_id})

    def _inventory(self, path: str, query: dict[str, str]) -> Answer:
        if path == "/api/v0/nodes":
            asks_as_anyone = query["limit"] == "1"
            return (401, "no token") if asks_as_anyone and not self.is_open else (200, listing(self.nodes))
        if path == "/api/v0/placement_groups":
            return 200, listing(self.groups)
        if path == "/api/v0/actors":
            key, value = query.get("filter_keys", ""), query.get("filter_values")
            wanted = {"class_name": value, "state": "DEAD"} if key == "class_name" else {key.partition(",")[0]: value}
            return 200, listing([row for row in self.actors if wanted.items() <= row.items()])
        if path == "/logical/actors":
            ids = query["ids"].split(",")
            return 200, json.dumps({"result": True, "msg": "", "data": {"actors": {
                row["actor_id"]: dict(zip(("startTime", "timestamp"), row.get("up_ms", (0, 0)), strict=True))
                for row in self.actors if row["actor_id"] in ids}}})
        if path == "/nodes":
            shown = [{"hostname": row["node_name"], "ip": row["node_ip"], "gpus": [],
                      "raylet": {"nodeId": row["node_id"], "state": row["state"]},
                      **self.of_node.get(row["node_id"], {})} for row in self.nodes]
            data = {"summary": shown, "nodeLogicalResources": {row["node_id"]: self._sums(row) for row in self.nodes}}
            return 200, json.dumps({"result": True, "msg": "", "data": data})
        if path == "/api/version":
            return 200, json.dumps({"ray_version": self.ray_version, "session_name": self.session})
        if path.startswith("/api/v0/logs") and query["node_id"] in self.answer_of_node:
            return self.answer_of_node[query["node_id"]]
        if path == "/api/v0/logs":
            names = [name for node, name in self.log_files
                     if node == query["node_id"] and fnmatchcase(name, query["glob"])]
            return 200, json.dumps({"result": True, "msg": "", "data": {"result": {"internal": names}}})
        if path == "/api/v0/logs/file":
            text = self.log_files.get((query["node_id"], query["filename"]))
            return (500, "[failed] no such file") if text is None else (200, tail(text, int(query["lines"])))
        return 404, "404: Not Found"

    def _sums(self, node: dict[str, Any]) -> str:
        """The resources Ray has granted on a node, as the dashboard prints them; claims without a worker are not
        included."""
        claims = [actor["required_resources"] for actor in self.actors if actor["node_id"] == node["node_id"]]
        gpus = sum(amount for claim in claims for name, amount in claim.items() if name.startswith("GPU"))
        return f"0.0/16.0 CPU\n{gpus}/{node['resources_total']['GPU']} GPU\n0B/1.00TiB memory"


def tail(text: str, lines: int) -> str:
    return "".join(text.splitlines(keepends=True)[-lines:])


def listing(rows: list[dict[str, Any]]) -> str:
    """A list of the state API."""
    inner = {"total": len(rows), "num_after_truncation": len(rows), "num_filtered": len(rows), "result": rows}
    return json.dumps({"result": True, "msg": "", "data": {"result": inner}})


@contextmanager
def serve(cluster: ClusterStandIn) -> Iterator[ClusterStandIn]:
    """Serve `cluster` on a free port of this machine."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16

        def send_header(self, keyword: str, value: str) -> None:
            if keyword != "Date":
                super().send_header(keyword, value)
            elif cluster.ahead_s is not None:
                super().send_header(keyword, self.date_time_string(time.time() + cluster.ahead_s))

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            with lock:
                cluster.requests.append((self.command, parts.path))
                cluster.headers.append({name.lower(): value for name, value in self.headers.items()})
            if (self.command, parts.path) in cluster.silent:
                cluster.closed.wait()
                self.close_connection = True
                return
            with lock:
                status, content = cluster.answer(self.command, parts.path, query, body)
            if status == 0:  # hang up without a response
                self.close_connection = True
                return
            data = content.encode() if isinstance(content, str) else content
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            return  # some tests hang up on purpose

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    cluster.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield cluster
    finally:
        cluster.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()
