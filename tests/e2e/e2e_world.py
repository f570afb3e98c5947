"""A test's fleet on the shared Ray: its file and models, its command line and its processes."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from cluster import HERE, MARK, RayCluster, engine_pids
from faults import faulty_package
from in_process import run_here

ENGINE = str(HERE / "engine.py")
NODE_MEMORY = 8 << 20
_numbers = itertools.count()


def member(
    *flags: str, gpus: float = 1, node: str | None = None, role: str | None = None, **more: Any
) -> dict[str, Any]:
    """A member that runs the test engine."""
    written: dict[str, Any] = {"resources": {"gpus": gpus} if gpus else {"cpus": 0.1}, "engine": {
        "command": [sys.executable, ENGINE], "args": ["$(FLEETCTL_PORT)", *flags],
        "readiness": {"http": {"path": "/health"}, "period": "200ms"}}}
    if node:
        written["nodeSelector"] = {"fleet.io/node": node}
    if role:
        written["role"] = role
    written.update(more)
    return written


def model(key: str, replicas: int, *members: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A model of one group with a short restart backoff."""
    return {"key": key, "replicas": replicas, "startupTimeout": "60s", "restart": {"max": 3, "backoff": "100ms"},
            "workers": [{"name": "main", "members": list(members)}], **more}


class World:
    """A test's fleet on the shared cluster: its file, its namespace, its command line, its processes."""

    def __init__(self, cluster: RayCluster, tmp_path: Path) -> None:
        self.cluster, self.tmp_path = cluster, tmp_path
        self.fleet = f"e2e-{os.getpid()}-{next(_numbers)}"
        self.file = tmp_path / "fleet.yaml"
        self.loaded = tmp_path / "loaded"
        """Engines with the flags `self.loads` are ready once this file exists."""
        self.loads = ("--plain", "--ready-when", str(self.loaded))
        self.env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path),
                    "FLEETCTL_ADDRESS": cluster.address, "FLEETCTL_NAMESPACE": self.fleet}

    def write(self, *models: dict[str, Any], fleet: str | None = None) -> Path:
        """Write the fleet file; every engine has the test's mark."""
        groups = (group for one in models for way in one.get("variants", [one]) for group in way["workers"])
        for each in (each for group in groups for each in group["members"]):
            each["engine"].setdefault("env", {})[MARK] = self.fleet
        document = {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": fleet or self.fleet},
                    "spec": {"models": list(models)}}
        self.file.write_text(yaml.safe_dump(document))
        return self.file

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start `fleetctl ...` in a process of its own."""
        return subprocess.Popen([sys.executable, "-m", "fleetctl", *map(str, arguments)], env=self.env, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *arguments: str | Path, folder: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Run `fleetctl ...` to its end, in this process: another process costs a second of CPU each time."""
        return run_here(*arguments, env={**self.env, **env}, folder=folder)

    def run_with(self, fault: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run `fleetctl ...`, shipping an agent with a fault."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fleetctl.apply.jobs.agent_package", faulty_package(fault))
            return self.run(*arguments)

    def apply(self, *flags: str) -> subprocess.CompletedProcess[str]:
        return self.run("apply", "-f", self.file, "--yes", *flags)

    def apply_result(self, *flags: str) -> dict[str, Any]:
        """Apply and return the summary; its exit code must be the process's."""
        done = self.apply("--format", "json", *flags)
        assert done.stdout, done.stderr
        summary: dict[str, Any] = json.loads(done.stdout)
        assert summary["exitCode"] == done.returncode
        return summary

    def plan(self, *flags: str) -> dict[str, Any]:
        done = self.run("plan", "-f", self.file, "--format", "json", *flags)
        assert done.returncode == 0, done.stderr
        plan: dict[str, Any] = json.loads(done.stdout)
        return plan

    def actors(self) -> dict[str, dict[str, Any]]:
        """The actors of the fleet's namespace as Ray reports them, by name."""
        return {row["name"]: row for row in self.cluster.actors(namespace=self.fleet)}

    def listed_actors(self) -> set[str]:
        """The names of all actors that the dashboard lists as alive; it learns of each change a little later."""
        listed = httpx.get(f"{self.cluster.address}/logical/actors?nocache=1", headers={"User-Agent": "tests"}).json()
        return {actor["name"] for actor in listed["data"]["actors"].values()
                if actor["state"] == "ALIVE"}

    def engines(self) -> list[int]:
        return engine_pids(self.fleet)

    def listed_jobs(self) -> list[dict[str, Any]]:
        """Ray's list of jobs."""
        answer = httpx.get(f"{self.cluster.address}/api/jobs/", headers={"User-Agent": "tests"})
        listed: list[dict[str, Any]] = answer.json()
        return listed

    def jobs(self) -> list[dict[str, Any]]:
        """This fleet's jobs as Ray lists them, without the rows of records."""
        return [job for job in self.listed_jobs() if (metadata := job.get("metadata") or {}).get("tool") == "fleetctl"
                and metadata.get("fleet") == self.fleet]

    def inventory(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("inventory", "--format", "json").stdout)
        return found

    def replicas(self) -> list[dict[str, Any]]:
        return [replica for replica in self.inventory()["replicas"] if replica["fleet"] == self.fleet]

    def ask(self, outcome: dict[str, Any], path: str = "/env") -> dict[str, Any]:
        """Return the environment of a replica's engine, read over HTTP."""
        answer: dict[str, Any] = httpx.get(f"http://{outcome['address']}{path}", timeout=60).json()
        return answer
