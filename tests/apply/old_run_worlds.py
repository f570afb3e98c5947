"""Random clusters with a past of several weeks, whose jobs are needed in every way; and a client without sockets."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
from cluster_stand_in import ClusterStandIn, StoredJob, event
from record_rows import record

from fleetctl.agent.messages import Lifecycle, Place, Replica
from fleetctl.agent.report import describe
from fleetctl.documents.base import as_datetime, moment_at
from fleetctl.fleetfile.resolved import hash_of_shape
from fleetctl.inventory.answer import full_answer
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import list_jobs
from fleetctl.inventory.records import RELOAD, RUN, UNFETCHED, records_of

NOW = "2026-03-04T12:00:00Z"
NOW_S = as_datetime(NOW).timestamp()
HOUR, DAY = 3600, 86_400
FLEETS = ("lab", "lab", "lab", "other")
MODELS = ("m", "n")
ARTIFACT = "a" * 64


class DirectClient(DashboardClient):
    """Asks a stand-in by a call instead of over HTTP."""

    def __init__(self, cluster: ClusterStandIn) -> None:
        super().__init__("http://stand-in")
        self._cluster = cluster

    def request(self, method: str, path: str, *, params: Mapping[str, str] | None = None, **_: Any) -> Any:
        status, text = self._cluster.answer(method, path, dict(params or {}), b"")[:2]
        self._cluster.requests.append((method, path))
        head = httpx.Response(status, request=httpx.Request(method, f"http://stand-in{path}"))
        return full_answer(head, text.encode() if isinstance(text, str) else text)

    def read_entries(self, path: str, within: Sequence[str], params: Mapping[str, Any],
                     read: Callable[[str, object], Any], **_: Any) -> tuple[list[Any], Mapping[str, Any]]:
        flat = {key: value if isinstance(value, str) else list(value)[-1] for key, value in params.items()}
        body, siblings = self.get_json(path, flat), dict[str, Any]()
        for key in within:
            assert isinstance(body, dict)
            siblings |= {name: value for name, value in body.items() if name != key}
            body = body[key]
        entries = body.items() if isinstance(body, dict) else [("", row) for row in body]
        return [read(key, value) for key, value in entries], siblings


def spec_of(number: int) -> tuple[str, dict[str, Any]]:
    """The hash and the shape of a spec."""
    shape = {"workers": [{"name": "main", "members": [{"engine": {"command": ["serve", str(number)]}}]}],
             "placement": {}}
    return hash_of_shape(shape), shape


class World:
    """One random cluster; `jobs` were submitted over the last 60 days."""

    def __init__(self, seed: int, jobs: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = ClusterStandIn()
        self.alive = [self.cluster.add_node(name) for name in "abc"]
        self.nodes = [*self.alive, self.cluster.add_node("d", state="DEAD")]
        self.next_id = dict.fromkeys(MODELS, 0)
        ages = sorted((self.chance.uniform(60, 60 * DAY) for _ in range(jobs)), reverse=True)
        makers = (self.apply, self.apply, self.apply, self.reload, self.evict, self.note, self.examine, self.foreign)
        for number, age in enumerate(ages):
            self.chance.choice(makers)(number, NOW_S - age)
        if self.chance.random() < 0.6:
            self.keep_records(since=self.chance.randint(0, jobs), adopts=self.chance.random() < 0.7)

    def keep_records(self, *, since: int, adopts: bool) -> None:
        """Put into rows of records what jobs have noted from this number on, and with `adopts` also before it.

        Since rows exist, only the notes that users write are in metadata, too.
        """
        for job in list_jobs(DirectClient(self.cluster)):
            newer = int(job.submission_id.rpartition("-")[2], 16) >= since
            for one in records_of([job]) if newer or adopts else ():
                fleet = job.metadata["fleet"] if one.kind in (RELOAD, UNFETCHED) else ""
                self.cluster.records.add(one.kind, record(one.subject, one.at, **one.payload), fleet)
            if newer:
                for key in ("reloads", "unfetched", "draining"):
                    if self.cluster.jobs[job.submission_id].body["metadata"].pop(key, None) and key == "reloads":
                        self.cluster.jobs[job.submission_id].body["metadata"]["reload"] = "1"
        self.cluster.records.put(RUN, [], runs="60")

    def job(self, number: int, verb: str, at: float, **metadata: str) -> StoredJob:
        """One run of ours; a few have not ended, however old."""
        name = f"fleetctl-{verb}-{number:012x}"
        job = self.cluster.add_job(name, verb=verb, toolVersion=f"0.{number}", **metadata)
        job.driver_id, job.start_time = f"{number + 1:08x}", int(at * 1000)
        runs = self.chance.random() < 0.05
        job.status = "RUNNING" if runs else self.chance.choice(["SUCCEEDED", "FAILED", "STOPPED"])
        job.end_time = 0 if runs else min(job.start_time + 60_000, int(NOW_S * 1000))
        return job

    def of_fleet(self) -> dict[str, str]:
        return {"fleet": self.chance.choice(FLEETS), "namespace": "fleet"}

    def apply(self, number: int, at: float) -> None:
        """An apply that creates a replica, which then has any of the fates that replicas have."""
        model, (spec, shape), fleet = self.chance.choice(MODELS), spec_of(self.chance.randint(0, 3)), self.of_fleet()
        noted = dict[str, str]()
        if self.chance.random() < 0.2:
            noted["draining"] = " ".join(self.chance.sample(self.nodes, 2))
        if self.chance.random() < 0.2:
            noted["unfetched"] = json.dumps([{"nodeId": self.chance.choice(self.nodes), "artifact": ARTIFACT,
                                              "at": moment_at(at + self.chance.randint(0, HOUR))}])
        job = self.job(number, "apply", at, create="1", planId=f"p{number}", **fleet, **noted)
        node, replica_id = self.chance.choice(self.alive), self.next_id[model]
        self.next_id[model] += 1
        member = {"group": "main", "copy": 0, "role": "Standalone", "rank": 0, "nodeId": node, "gpus": 1}
        lifecycle = {"startupTimeout": 60, "schedulingTimeout": 60, "restartMax": 5, "restartBackoff": 10}
        job.log = event(0, "planAccepted", shapes={spec: shape}, models=[
            {"key": model, "specHash": spec, "wanted": 1, "lifecycle": lifecycle}], replicas=[
            {"model": model, "replicaId": replica_id, "specHash": spec, "members": [member]}])
        name = f"ModelActor:{model}:{replica_id}"
        repr_name = describe(
            Replica(f"{model}/{replica_id}", model, replica_id, Lifecycle(60.0, restart_max=5), spec,
                    fleet=fleet["fleet"], namespace="fleet"),
            [Place(group="main", node_id=node, gpus=1, vram=0, cpus=0, memory=0, ip="10.0.0.7", port=7001)],
            moment_at(at + 60))
        fate = self.chance.choice(["live", "starting", "silent", "silent", "silent", "was ready", "gone", "warm"])
        died = self.chance.uniform(at, NOW_S) if self.chance.random() < 0.3 else at + 30
        by_kernel = {"actor_died_error_context": {"reason": "WORKER_DIED", "error_message": "the worker died"}}
        if fate == "live":
            self.actor(number, name, node, "ALIVE", repr_name)
        elif fate == "starting":
            self.actor(number, name, None, "PENDING_CREATION", "")
        elif fate == "silent":
            self.actor(number, name, node, "DEAD", "", by_kernel, died)
        elif fate == "was ready":
            self.actor(number, name, node, "DEAD", repr_name, by_kernel, died)
        elif fate == "warm":  # an eviction made it, long after the apply that recorded its spec
            self.actor(1_000_000 + number, f"WarmReplica:{model}:{replica_id}", node, "ALIVE", repr_name)

    def actor(self, job: int, name: str, node: str | None, state: str, repr_name: str, cause: object = None,
              died: float = 0) -> None:
        self.cluster.actors.append({
            "actor_id": f"{len(self.cluster.actors):032x}", "name": name, "state": state, "class_name": "ModelActor",
            "job_id": f"{job + 1:08x}", "ray_namespace": "fleet", "node_id": node, "placement_group_id": None,
            "required_resources": {}, "num_restarts": "0", "death_cause": cause, "repr_name": repr_name,
            "up_ms": (0, int(died * 1000) if self.chance.random() < 0.9 else 0)})

    def reload(self, number: int, at: float) -> None:
        """An apply that loads another spec into a replica, or fails to."""
        rows = [row for row in self.cluster.actors if row["name"].startswith("ModelActor")]
        if not rows:
            return
        row = self.chance.choice(rows)
        spec, shape = spec_of(self.chance.randint(0, 6))
        model = row["name"].split(":")[1]
        code = self.chance.choice([None, None, "RELOAD_FAILED", "RELOAD_ENDED"])
        note = {"model": model, "replicaId": int(row["name"].split(":")[2]), "actorId": row["actor_id"],
                "specHash": spec, "at": moment_at(at + 30), "nodeIds": [self.alive[0]], "weights": [None],
                "asked": self.chance.random() < 0.3, **({"code": code, "message": "no"} if code else {})}
        if row["repr_name"] and not code and not note["asked"] and self.chance.random() < 0.5:
            marks = json.loads(row["repr_name"]) | {"specHash": spec}  # Ray has restarted it since
            row.update(repr_name=json.dumps(marks), num_restarts="1")
        job = self.job(number, "apply", at, create="0", reloads=json.dumps([note]), **self.of_fleet())
        lifecycle = {"startupTimeout": 60, "schedulingTimeout": 60, "restartMax": 5, "restartBackoff": 10}
        job.log = event(0, "planAccepted", shapes={spec: shape}, models=[
            {"key": model, "specHash": spec, "wanted": 1, "lifecycle": lifecycle}])

    def evict(self, number: int, at: float) -> None:
        self.job(number, "evict", at, replicas='["m/0"]', **self.of_fleet())

    def note(self, number: int, at: float) -> None:
        """A note about a node that is here, has died, or is long gone; a machine may have a new id."""
        verb, name = self.chance.choice(["cordon", "uncordon", "slots"]), self.chance.choice("abcdx")
        node_id = self.chance.choice([*self.nodes, "former-1", "former-2"])
        more = {"cordon": {"reason": str(number), **({"until": self.chance.choice([NOW, "2030-01-01T00:00:00Z"])}
                                                     if self.chance.random() < 0.4 else {})},
                "slots": {"slots": self.chance.choice(["1", "4", ""])}}.get(verb, {})
        self.job(number, verb, at, node=node_id, nodeName=name, who="ana", **more)

    def examine(self, number: int, at: float) -> None:
        self.job(number, self.chance.choice(["examine", "prune", "repair"]), at, namespace="fleet")

    def foreign(self, number: int, at: float) -> None:
        """A job of another program, or one with our metadata and another id."""
        job = self.job(number, "apply", at, **self.of_fleet())
        name = job.body["submission_id"]
        if self.chance.random() < 0.5:
            job.body["metadata"]["tool"] = "ci"
            return
        del self.cluster.jobs[name]
        job.body["submission_id"] = f"nightly-{number:012x}"
        self.cluster.jobs[f"nightly-{number:012x}"] = job
