"""A stand-in for the dashboard of a large cluster: `python -m tests.benchmarks.large.dashboard '{"nodes": 20, ...}'`.

A separate process, so that its memory is not measured: it prints its address and serves until its input ends. Rows are
completed recordings of Ray 2.60; lists are cut as in Ray. All answers are rendered before the address is printed, so
that only the client is measured.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fleetctl.agent.messages import Lifecycle, Place, Replica
from fleetctl.agent.report import actor_name, describe
from fleetctl.agent.wire import parse
from tests.benchmarks.large.cluster import KINDS, MEMORY, SHARE, LargeCluster, Placed, Seat, unique_id
from tests.record_rows import RecordRows

RECORDED = Path(__file__).parents[2] / "inventory" / "recorded"
READY_AT = "2026-03-04T12:00:00Z"
NAMESPACE, OUR_JOB, LATE_JOB, THEIR_JOB = "fleet", "17000000", "18000000", "08000000"
CARDS, CPUS, NODE_MEMORY, CARD_MIB = 8, 128.0, 1 << 40, 81_559
NO_NODE = "f" * 56
PART_BYTES = 64 << 10
Row = dict[str, Any]


def recorded(part: str) -> Any:
    """The recorded JSON of one part."""
    return json.loads((RECORDED / f"{part}.json").read_text())


@dataclass
class Granted:
    """Ray's grants on one node: amounts, the part of them in bundles, shares by card, and its worker statistics."""

    gpus: float = 0.0
    bundled: float = 0.0
    cpus: float = 0.0
    memory: int = 0
    cards: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    workers: list[Row] = field(default_factory=list)


class Rendered:
    """All answers of one cluster, as bytes."""

    def __init__(self, cluster: LargeCluster) -> None:
        self.cluster = cluster
        self._granted = [Granted() for _ in range(cluster.nodes)]
        self._templates = {row["class_name"]: row for row in recorded("actors_alive")["data"]["result"]["result"]}
        actors = sorted([*self._ours(), *self._foreign()], key=lambda row: row["actor_id"])
        by_state = {state: [row for row in actors if row["state"] == state]
                    for state in ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING", "ALIVE")}
        self._of_state = {state: self._list(rows, len(actors)) for state, rows in by_state.items()}
        self._by_id = {row["actor_id"]: row for row in actors}
        self._logical = _document({"actors": {row["actor_id"]: as_logical(row) for row in actors}})
        self._nodes = self._list([self._node(number) for number in range(cluster.nodes)], cluster.nodes)
        self._summary = _document({"summary": [self._entry(number) for number in range(cluster.nodes)],
                                   "nodeLogicalResources": {node_id(number): self._sum(number)
                                                            for number in range(cluster.nodes)}})
        self._none = self._list([], 0)
        self._groups = self._list([], max(cluster.groups, cluster.nodes // 2), matching=0)
        self._jobs, self._logs = json.dumps(list(self._all_jobs())).encode(), self._records()
        rows = RecordRows()
        rows.put("run", [])
        self._rows = {f"/api/jobs/{name}": json.dumps(row).encode() for name, row in rows.rows.items()}
        self._version = json.dumps(recorded("version")).encode()

    def answer(self, path: str, query: Mapping[str, str]) -> bytes | None:
        """The body of one answer; None = 404."""
        if path == "/api/v0/actors":
            return self._of_state.get(query.get("filter_values", ""), self._none)
        if path.startswith("/api/jobs/") and path.endswith("/logs"):
            return self._logs.get(path.split("/")[3])
        if path == "/logical/actors" and "ids" in query:
            found = {one: self._by_id.get(one) for one in query["ids"].split(",")}
            return _document({"actors": {one: row and as_logical(row) for one, row in found.items()}})
        return {"/api/v0/nodes": self._nodes, "/nodes": self._summary, "/api/version": self._version,
                "/logical/actors": self._logical, "/api/v0/placement_groups": self._groups,
                "/api/jobs/": self._jobs, **self._rows}.get(path)

    def _list(self, rows: Sequence[Row], total: int, matching: int | None = None) -> bytes:
        """A list of the state API; Ray stops at the limit and counts the rows up to there."""
        kept = rows[:self.cluster.limit]
        met = total if len(kept) == len(rows) and matching is None else min(total, self.cluster.limit)
        return _document({"result": {"total": total, "num_after_truncation": met, "num_filtered": len(kept),
                                     "result": kept, "partial_failure_warning": "", "warnings": None}})

    def _ours(self) -> Iterator[Row]:
        for number, replica in enumerate(self.cluster.replicas):
            name, is_gang = actor_name(replica.model, replica.replica_id), len(replica.seats) > 1
            row = self._row("GangCoordinator" if is_gang else "ModelActor", "ours", number, replica.seats[0].node)
            row |= {"name": name, "ray_namespace": NAMESPACE, "job_id": OUR_JOB,
                    "repr_name": self._repr(replica)}
            if replica.starting:
                row |= {"state": "PENDING_CREATION", "node_id": None, "repr_name": "", "job_id": LATE_JOB}
            row["required_resources"] = {} if is_gang else _claim(KINDS[replica.kind][1])
            group = unique_id("group", number, digits=28) + OUR_JOB
            for rank, seat in enumerate(replica.seats):
                holder = self._row("GangMember", f"rank{rank}", number, seat.node) if is_gang else row
                if is_gang:
                    plain = {**_claim(SHARE), "bundle": 0.001}
                    holder |= {"placement_group_id": group, "ray_namespace": NAMESPACE, "required_resources": {
                        f"{what}_group_{which}{group}": amount for what, amount in plain.items()
                        for which in (f"{rank}_", "")}}
                    yield holder
                self._grant(seat, KINDS[replica.kind][1] / SHARE, holder, bundled=is_gang)
            yield row

    def _foreign(self) -> Iterator[Row]:
        for number in range(self.cluster.foreign):
            node = number % self.cluster.nodes
            row = self._row("Foreign", "foreign", number, node)
            name = ""
            if number < self.cluster.named:  # named like a replica, or with an id like NDIF's
                name = (actor_name(f"org/whole-{number % self.cluster.models}", number) if number % 2 else
                        f"ModelActor:org/theirs:{unique_id(number, digits=32)}")
            row |= {"name": name, "ray_namespace": "theirs", "job_id": THEIR_JOB, "required_resources": {"CPU": 0.01}}
            self._granted[node].cpus += 0.01
            self._granted[node].workers.append(worker_stats(row, {"CPU": ("0", 0.01)}))
            yield row

    def _row(self, class_name: str, what: str, number: int, node: int) -> Row:
        template = self._templates[class_name]
        return {**template, "actor_id": unique_id(what, number, digits=24) + template["job_id"], "state": "ALIVE",
                "node_id": node_id(node), "pid": 10_000 + number}

    def _grant(self, seat: Seat, gpus: float, row: Row, *, bundled: bool) -> None:
        granted = self._granted[seat.node]
        granted.gpus += gpus
        granted.bundled += gpus if bundled else 0.0
        granted.cpus += 1.0
        granted.memory += MEMORY
        granted.cards[seat.card] += gpus
        slots = {"GPU": (str(seat.card), gpus), "CPU": ("0", 1.0), "memory": ("0", float(MEMORY))}
        suffix = f"Group{row['placement_group_id']}" if bundled else ""
        granted.workers.append(worker_stats(row, {f"{what}{suffix}": slot for what, slot in slots.items()}))

    def _spec(self, replica: Placed) -> Row:
        gpus = KINDS[replica.kind][1]
        roles = ("Leader", "Worker") if len(replica.seats) > 1 else ("Standalone",)
        members = [{"group": "main", "copy": 0, "role": role, "rank": rank, "nodeId": node_id(seat.node), "slot": 0,
                    "gpus": gpus, "vram": 0, "cpus": SHARE, "memory": MEMORY}
                   for rank, (role, seat) in enumerate(zip(roles, replica.seats, strict=True))]
        return {"fleet": "lab", "namespace": NAMESPACE, "model": replica.model, "replicaId": replica.replica_id,
                "specHash": self.cluster.spec_hashes.get(replica.model, "aaaa"), "members": members,
                "lifecycle": {"restartMax": 5}}

    def _repr(self, replica: Placed) -> str:
        spec = self._spec(replica)
        places = [parse(Place, member)._replace(ip=_ip(seat.node), port=20_000 + seat.card, gpu_indices=[seat.card],
                                                gpu_uuids=[_card_uuid(seat)])
                  for member, seat in zip(spec["members"], replica.seats, strict=True)]
        described = Replica("", replica.model, replica.replica_id, Lifecycle(60.0, restart_max=5), spec["specHash"],
                            fleet="lab", namespace=NAMESPACE)
        return describe(described, places, READY_AT)

    def _node(self, number: int) -> Row:
        row = recorded_node() | {"node_id": node_id(number), "node_ip": _ip(number), "node_name": _ip(number)}
        return row | {"labels": {"fleet.io/pool": f"p{number % 4}", "ray.io/node-id": node_id(number)},
                      "resources_total": {"GPU": float(CARDS), "CPU": CPUS, "memory": float(NODE_MEMORY),
                                          "object_store_memory": float(1 << 30), f"node:{_ip(number)}": 1.0}}

    def _entry(self, number: int) -> Row:
        entry, granted = recorded_entry(), self._granted[number]
        raylet = {**entry["raylet"], "nodeId": node_id(number), "nodeName": _ip(number), "isHeadNode": not number,
                  "nodeManagerAddress": _ip(number), "nodeManagerHostname": f"gpu-{number:04}",
                  "coreWorkersStats": granted.workers}
        cards = [{"index": card, "uuid": _card_uuid(Seat(number, card)), "name": "NVIDIA H100 80GB HBM3",
                  "utilizationGpu": 0, "memoryUsed": int(4 + 0.8 * CARD_MIB * granted.cards[card]),
                  "memoryTotal": CARD_MIB, "processesPids": None} for card in range(CARDS)]
        return {**entry, **physical_stats(), "hostname": f"gpu-{number:04}", "ip": _ip(number), "gpus": cards,
                "raylet": raylet}

    def _sum(self, number: int) -> str:
        granted = self._granted[number]
        bundled = f" ({granted.bundled} used of {granted.bundled} reserved in placement groups)"
        return (f"{round(granted.cpus, 4)}/{CPUS} CPU\n{granted.gpus}/{float(CARDS)} GPU"
                f"{bundled if granted.bundled else ''}\n{granted.memory / (1 << 30):.2f}GiB/1.00TiB memory\n"
                "0B/1.00GiB object_store_memory")

    def _all_jobs(self) -> Iterator[Row]:
        ours, theirs = recorded("jobs")
        for job in (OUR_JOB, LATE_JOB):
            yield {**ours, "job_id": job, "submission_id": f"fleetctl-apply-{job}",
                   "driver_info": {**ours["driver_info"], "id": job},
                   "metadata": {**ours["metadata"], "namespace": NAMESPACE}}
        yield theirs

    def _records(self) -> dict[str, bytes]:
        starting = [self._spec(replica) for replica in self.cluster.replicas if replica.starting]
        lines = [json.loads(line) for line in recorded("job_log")["logs"].splitlines()]
        log = "".join(json.dumps({**line, "replicas": starting} if "replicas" in line else line,
                                 separators=(",", ":")) + "\n" for line in lines)
        return {f"fleetctl-apply-{LATE_JOB}": json.dumps({"logs": log}).encode()}


def worker_stats(row: Row, slots: Mapping[str, tuple[str, float]]) -> Row:
    """The worker of an actor in the node summary."""
    counts = ("numPendingTasks", "numRunningTasks", "numObjectRefsInScope", "numLocalObjects", "numOwnedObjects",
              "numOwnedActors", "numInPlasma", "usedObjectStoreMemory", "numExecutedTasks", "taskQueueLength")
    return {
        "actorId": row["actor_id"], "jobId": row["job_id"], "pid": row["pid"], "workerType": "WORKER",
        "workerId": unique_id("worker", row["actor_id"], digits=56), "ipAddress": "10.1.0.1", "port": 10_002,
        "language": "PYTHON", "currentTaskName": "", "currentTaskFuncDesc": "", "objectRefs": [], "webuiDisplay": {},
        "actorTitle": "", "memoryStoreStats": {}, "isDebuggerPaused": False, **dict.fromkeys(counts, "0"),
        "usedResources": {what: {"resourceSlots": [{"slot": slot, "allocation": amount}]}
                          for what, (slot, amount) in slots.items()}}


def physical_stats() -> Row:
    """The node agent's report of the machine; fleetctl uses none of these fields."""
    disk = {"total": 1 << 41, "used": 1 << 40, "free": 1 << 40, "percent": 50.0}
    process = {"memoryInfo": {"rss": 1 << 27, "vms": 1 << 33, "shared": 1 << 24, "text": 1 << 20, "lib": 0,
                              "data": 1 << 30, "dirty": 0}, "cpuPercent": 0.5, "pid": 77, "createTime": 1.7e9,
               "cpuTimes": {"user": 1.0, "system": 1.0, "childrenUser": 0.0, "childrenSystem": 0.0, "iowait": 0.0}}
    return {"cpu": 12.5, "cpus": [128, 64], "mem": [1 << 40, 1 << 39, 50.0, 1 << 39], "swap": {"total": 0, "used": 0},
            "shm": 1 << 33, "hostMem": {}, "bootTime": 1.7e9, "loadAvg": [[1.0, 1.0, 1.0], [0.1, 0.1, 0.1]],
            "disk": {"/": disk, "/tmp": disk}, "diskIo": [1, 2, 3, 4], "diskIoSpeed": [0.1, 0.2, 0.3, 0.4],
            "network": [1, 2], "networkSpeed": [0.1, 0.2], "agent": process,
            "cmdline": ["raylet", "--flag=" + 900 * "x"]}


def as_logical(row: Row) -> Row:
    """An actor in the dashboard's own list: no namespace, and the resources of bundles under plain names."""
    resources = {name.partition("_group_")[0]: amount for name, amount in row["required_resources"].items()}
    return {
        "actorId": row["actor_id"], "jobId": row["job_id"], "pid": row["pid"], "state": row["state"],
        "name": row["name"], "numRestarts": row["num_restarts"], "timestamp": 0.0, "className": row["class_name"],
        "address": {"nodeId": row["node_id"] or NO_NODE, "ipAddress": "10.0.0.1", "port": 10_002,
                    "workerId": "ab" * 28},
        "startTime": 1_795_230_900_000, "endTime": 0, "reprName": row["repr_name"], "callSite": "",
        **({"placementGroupId": row["placement_group_id"]} if row["placement_group_id"] else {}),
        "labelSelector": {}, "fallbackStrategy": [], "actorClass": row["class_name"], "exitDetail": "-",
        "requiredResources": {name: amount for name, amount in resources.items() if name != "bundle"}, "gpus": [],
        "processStats": None, "mem": [1 << 40, 1 << 39, 50.0, 1 << 39], "tpus": [],
    }


def recorded_node() -> Row:
    """One row of the list of nodes."""
    return dict(recorded("nodes")["data"]["result"]["result"][0])


def recorded_entry() -> Row:
    """One entry of the node summary."""
    return dict(recorded("summary")["data"]["summary"][1])


def node_id(number: int) -> str:
    """The Ray id of a node."""
    return unique_id("node", number, digits=56)


def _ip(number: int) -> str:
    return f"10.1.{number // 250}.{number % 250 + 1}"


def _card_uuid(seat: Seat) -> str:
    return f"GPU-{unique_id('card', seat.node, seat.card, digits=32)}"


def _claim(gpus: int) -> dict[str, float]:
    return {"GPU": gpus / SHARE, "CPU": 1.0, "memory": float(MEMORY)}


def _document(data: Row) -> bytes:
    return json.dumps({"result": True, "msg": "", "data": data}).encode()


@contextmanager
def serve(cluster: LargeCluster) -> Iterator[tuple[str, list[str]]]:
    """Serve a cluster on a free local port; yields the address and the requested paths."""
    rendered, requested = Rendered(cluster), []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            requested.append(parts.path)
            body = rendered.answer(parts.path, {key: values[-1] for key, values in parse_qs(parts.query).items()})
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            for at in range(0, len(body or b""), PART_BYTES):
                self.wfile.write(memoryview(body or b"")[at:at + PART_BYTES])

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", requested
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    """Serve the cluster given as the only argument."""
    with serve(LargeCluster(**json.loads(sys.argv[1]))) as (url, _):
        print(url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
