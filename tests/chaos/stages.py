"""Agents that wait for a plan, killed at each stage on a real Ray: `python -m tests.chaos.stages`.

Each stage is hit twice: the agent's process is killed, or the process of Ray that runs its job. The client may be
killed, too, once it has offered its plan. Afterwards one apply must reach the target and a watch must have its agent,
and no plan may have been carried out twice, nor may a job be left that could still carry one out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from fleetctl.apply import jobs
from fleetctl.apply.prepare import Starter
from fleetctl.apply.standby import TICKET, StandbyKeeper, find_standby
from fleetctl.cli.verb import new_job_id
from fleetctl.documents.plan import PlanFleet
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import list_jobs
from tests.chaos.fleet import Fleet, Watched, missing_replicas, wrong_now, wrongly_ready
from tests.chaos.litter import left_in_table
from tests.chaos.proxy import Proxy
from tests.e2e.cluster import RayCluster, running_cluster
from tests.e2e.faults import STAGES, faulty_package

NODES, REPLICAS = 2, 7
SHAPE = {"one": [0.5]}
PILOT = {"pilot": {"replicas": 1, "over": 3}}
GONE_S, UP_S = 30.0, 60.0
CLIENT_KILLED = "client killed: a plan is offered"
KINDS = [*(f"{what} killed: {stage}" for stage in STAGES for what in ("agent", "supervisor")), CLIENT_KILLED]


@dataclass
class Found:
    """What was done and found. `violations` must stay empty."""

    faults: Counter[str] = field(default_factory=Counter)
    first: Counter[int] = field(default_factory=Counter)
    """The exit codes of the applies that were hit."""
    repairs: Counter[int] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


class Stages:
    """Kills one agent after the other on one cluster; each has a fleet of its own."""

    def __init__(self, cluster: RayCluster, folder: Path, log: Callable[[str], None]) -> None:
        self.cluster, self.folder, self.log = cluster, folder, log
        self.found = Found()
        self._numbers = itertools.count()
        self._nodes: list[str] = []

    def run(self, kinds: list[str], seconds: float) -> Found:
        """Hit each of the kinds once, or stop after `seconds`."""
        ends = time.monotonic() + seconds
        while len(self._nodes) < NODES:
            self._nodes.append(f"s{len(self._nodes)}")
            self.cluster.add(names=self._nodes[-1:])
        for kind in kinds:
            if time.monotonic() >= ends:
                break
            fleet = Fleet(f"stages-{next(self._numbers)}", self.folder, SHAPE, policy=PILOT, varied="one")
            fleet.wanted["one"] = REPLICAS
            fleet.write()
            self._hit(kind, Watched(self.cluster, fleet, self.cluster.address))
            self.cluster.sweep(namespaces=[fleet.name])
        self._check("at the end", lambda: left_in_table(self.cluster, self.log), 0)
        return self.found

    def _hit(self, kind: str, watched: Watched) -> None:
        self.found.faults[kind] += 1
        began = time.monotonic()
        keeper = StandbyKeeper(Starter("a watch"), partial(new_job_id, "apply"), time.monotonic)
        where = PlanFleet(name=watched.fleet.name, namespace=watched.fleet.name)
        with DashboardClient(self.cluster.address) as client, shipped(kind):
            keeper.keep(client, where)
            self._check(kind, lambda: [] if has_begun(client, keeper.job) else ["no agent waits"], UP_S)
            code, said = self._apply_and_kill(watched) if kind == CLIENT_KILLED else self._apply(watched)
        self.found.first[code] += 1
        self._check(kind, lambda: ["a traceback"] if "Traceback" in said or "a bug in" in said else [], 0, said)
        hit = said
        code, said = self._apply(watched)
        self.found.repairs[code] += 1
        self._check(kind, lambda: [*missing_replicas(watched), *wrongly_ready(watched)], 0, f"{hit}\n{code} {said}")
        self._check(kind, lambda: list(wrong_now(watched)), GONE_S)
        with DashboardClient(self.cluster.address) as client:
            self._check(kind, lambda: list(carried_out_twice(client, watched)), 0)
            self._check(kind, lambda: list(left_over(client, watched)), GONE_S)
            keeper.look_now()
            keeper.keep(client, where)
            self._check(kind, lambda: [] if find_standby(client, where) else ["a watch gets no agent"], UP_S)
            self._check(kind, lambda: list(wrong_now(watched)), 0)
            for job in list_jobs(client):
                if not job.ended:
                    jobs.stop(client, job.submission_id)
        self._check(kind, lambda: [f"leaked: process {pid}" for pid in agents(watched)], GONE_S)
        self.log(f"{kind}: {time.monotonic() - began:.0f} s, applies {dict(self.found.first)}, "
                 f"repairs {dict(self.found.repairs)}")

    def _apply(self, watched: Watched) -> tuple[int, str]:
        done = watched.run("apply", "-f", str(watched.fleet.file), "--yes", "--lock-timeout", "120s")
        return done.returncode, f"{done.stdout}\n{done.stderr}"

    def _apply_and_kill(self, watched: Watched) -> tuple[int, str]:
        """Kill the client as soon as its plan is in Ray's table."""
        proxy = Proxy(self.cluster.address)
        try:
            client = watched.start("apply", "-f", str(watched.fleet.file), "--yes", FLEETCTL_ADDRESS=proxy.url)
            proxy.answered = lambda method, path: client.kill() if method == "PUT" and path.endswith("-plan") else None
            _, said = client.communicate(timeout=120)
        finally:
            proxy.close()
        return client.returncode, said

    def _check(self, kind: str, wrong: Callable[[], list[str]], within_s: float, context: str = "") -> None:
        """A problem may be temporary; one that remains within the time is a violation."""
        deadline = time.monotonic() + within_s
        while (found := wrong()) and time.monotonic() < deadline:
            time.sleep(0.3)
        for one in found:
            self.found.violations.append(f"{kind}: {one}")
            self.log(f"VIOLATION: {kind}: {one}\n{context}")


@contextmanager
def shipped(kind: str) -> Iterator[None]:
    """Ship an agent that is killed at a stage, unless the client is."""
    with pytest.MonkeyPatch.context() as patch:
        if kind != CLIENT_KILLED:
            patch.setattr("fleetctl.apply.jobs.agent_package", faulty_package(kind))
        yield


def has_begun(client: DashboardClient, job: str | None) -> bool:
    """Return whether the agent of a job waits, or has ended already."""
    rows = {one.submission_id: one for one in list_jobs(client)}
    return job in rows and (rows[job].ended or bool(find_standby(client, PlanFleet(
        name=rows[job].metadata["fleet"], namespace=rows[job].metadata["namespace"]))))


def carried_out_twice(client: DashboardClient, watched: Watched) -> Iterator[str]:
    """Yield the plans that an agent took although they came with a job of their own, too."""
    ours = [job for job in list_jobs(client) if job.metadata.get("fleet") == watched.fleet.name]
    own = {job.submission_id for job in ours}
    for job in ours:
        if job.metadata.get(TICKET) in own:
            yield f"doubled: the plan of {job.metadata[TICKET]} was carried out by {job.submission_id}, too"


def left_over(client: DashboardClient, watched: Watched) -> Iterator[str]:
    """Yield the applies that Ray still calls running, and the plans in its table that an agent may still take."""
    for job in list_jobs(client):
        if job.metadata.get("fleet") != watched.fleet.name or job.ended:
            continue
        if job.metadata.get("verb") == "apply":
            yield f"leaked: {job.submission_id} has not ended"
        if client.request("GET", f"/api/packages/gcs/{job.submission_id}-plan").status_code == 200:
            yield f"leaked: a plan for {job.submission_id}"


def agents(watched: Watched) -> Iterator[int]:
    """Yield the processes of this fleet's agents."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"fleetctl_agent" in words and watched.fleet.name.encode() in words:
            yield int(entry.name)


def main() -> int:
    """Run the driver and print what it did; the last line is one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.stages", description=__doc__)
    parser.add_argument("--only", nargs="*", default=KINDS, metavar="KIND", help="only these kinds")
    parser.add_argument("--seconds", type=float, default=24 * 3600.0, help="or end after this time")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stages-") as folder, running_cluster(Path(folder)) as cluster:
        found = Stages(cluster, Path(folder), lambda text: print(text, flush=True)).run(
            options.only, options.seconds)
    print(json.dumps({"faults": sum(found.faults.values()), "first": dict(found.first), "repairs": dict(found.repairs),
                      "seconds": round(time.monotonic() - began), "violations": found.violations}))
    return 1 if found.violations else 0


if __name__ == "__main__":
    sys.exit(main())
