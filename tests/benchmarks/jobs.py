"""What a long list of jobs costs, on a real Ray: `python -m tests.benchmarks.jobs --rows 30000 --json`.

Each command runs as a user would run it: on a cluster whose list of jobs has so many ended runs (`--drivers`: and the
records of their processes, which Ray keeps apart), after these runs are deleted, and, with an empty list, through a
proxy that never answers a request for the list. `FLEETCTL_TEST_RAY_PYTHON` names a Python with another Ray. With --json
the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from fleetctl.version import __version__
from tests.benchmarks.machine import machine_text
from tests.e2e.cluster import RayCluster, running_cluster

FLEET, NODE, LIST = "bench", "n0", "/api/jobs/"
DAYS, DELETED = 40, 100
SITUATIONS = ("short", "silent", "long", "deleted")
COMMANDS = ("inventory", "plan", "status", "cordon", "apply")
SILENT_S = 900.0
"""How long the proxy keeps a request for the list; longer than any command may take."""


def fleet_file(folder: Path, models: int) -> Path:
    """Write a fleet of this many models of one replica with the stub engine."""
    engine = {"command": [sys.executable, "-m", "fleetctl.demo.stub_engine"], "args": ["--port", "$(FLEETCTL_PORT)"],
              "readiness": {"http": {"path": "/health"}}}
    one = {"replicas": 1, "workers": [{"name": "main", "members": [{"resources": {"gpus": 0.01}, "engine": engine}]}]}
    file = folder / "fleet.yaml"
    file.write_text(yaml.safe_dump({
        "apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": FLEET},
        "spec": {"history": {"keepRuns": 1, "keepFor": "1h"},
                 "models": [{"key": f"m{number}", **one} for number in range(models)]}}))
    return file


class Bench:
    """The commands on one cluster, at an address of it."""

    def __init__(self, folder: Path, rounds: int, limit_s: float) -> None:
        self.folder, self.rounds, self.limit_s = folder, rounds, limit_s
        self.models = 0

    def seconds(self, address: str, *arguments: str) -> tuple[float, int, str]:
        """Run a command; return its seconds, its exit code and standard error."""
        env = {**os.environ, "FLEETCTL_ADDRESS": address, "FLEETCTL_NAMESPACE": FLEET, "HOME": str(self.folder)}
        began = time.perf_counter()
        try:
            done = subprocess.run([sys.executable, "-m", "fleetctl", *arguments], env=env, capture_output=True,
                                  text=True, check=False, timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            return self.limit_s, -1, "it was ended at the limit of this benchmark"
        return time.perf_counter() - began, done.returncode, done.stderr

    def command(self, name: str, address: str) -> tuple[float, int, str]:
        """Run one of the commands; an apply has one more replica to create each time."""
        if name == "cordon":
            found = self.seconds(address, "cordon", NODE, "--reason", "a benchmark")
            self.seconds(address, "uncordon", NODE)
            return found
        if name == "apply":
            self.models += 1
        file = str(fleet_file(self.folder, max(1, self.models)))
        more = {"inventory": (), "apply": ("-f", file, "--yes")}.get(name, ("-f", file))
        return self.seconds(address, name, *more)

    def all(self, address: str) -> dict[str, Any]:
        """Run every command, some times."""
        result = {}
        for name in COMMANDS:
            runs = [self.command(name, address) for _ in range(self.rounds)]
            warnings = sorted({line for _, _, text in runs for line in text.splitlines() if "jobs" in line})
            result[name] = {**spread([seconds for seconds, _, _ in runs]), "said": warnings[:4],
                            "codes": sorted({code for _, code, _ in runs})}
        return result


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """The median, the least and the most."""
    return {"median": round(statistics.median(seconds), 3), "least": round(min(seconds), 3),
            "most": round(max(seconds), 3)}


def timed(address: str, path: str, method: str = "GET") -> tuple[float, bytes]:
    """The seconds of one request, and its answer."""
    began = time.perf_counter()
    request = urllib.request.Request(address + path, method=method)
    with urllib.request.urlopen(request, timeout=600) as answer:
        body: bytes = answer.read()
    return time.perf_counter() - began, body


def list_cost(address: str, rounds: int) -> dict[str, Any]:
    """What the list costs."""
    found = [timed(address, LIST) for _ in range(rounds)]
    body = found[-1][1]
    return {**spread([seconds for seconds, _ in found]), "rows": len(json.loads(body)), "bytes": len(body)}


def delete_cost(address: str) -> dict[str, Any]:
    """Delete some of the oldest runs, one after another; return what one costs."""
    rows = [row for row in json.loads(timed(address, LIST)[1]) if (row["submission_id"] or "").startswith("fleetctl-")]
    names = [row["submission_id"] for row in sorted(rows, key=lambda row: row["start_time"])[:DELETED]]
    return {**spread([timed(address, f"{LIST}{name}", "DELETE")[0] for name in names]), "count": len(names)}


@contextmanager
def without_list(address: str) -> Iterator[str]:
    """A proxy that passes every request but those for the list of jobs, which it never answers."""
    behind, ended = urlsplit(address), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.command == "GET" and urlsplit(self.path).path == LIST:
                ended.wait(SILENT_S)
                self.close_connection = True
                return
            connection = http.client.HTTPConnection(behind.netloc, timeout=600)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "content-length", "connection", "date", "server"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            connection.close()

        do_POST = do_PUT = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        ended.set()
        server.shutdown()
        server.server_close()


def measure(cluster: RayCluster, flags: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure every situation that the flags choose."""
    bench, address, chosen = Bench(folder, flags.rounds, flags.limit), cluster.address, flags.situations
    result: dict[str, Any] = {"ray": json.loads(timed(address, "/api/version")[1])["ray_version"]}

    def look(name: str, found: dict[str, Any]) -> None:
        result[name] = found
        print(name, json.dumps(found), flush=True)

    def commands(at: str = address) -> dict[str, Any]:
        return {} if flags.only_list else bench.all(at)

    if not flags.only_list:
        bench.command("apply", address)  # the first one on a cluster also sends the agent
    if "short" in chosen:
        look("short list", {"list": list_cost(address, flags.rounds), **commands()})
    if "silent" in chosen:
        with without_list(address) as silent:
            look("list that never answers", commands(silent))
    for rows in flags.rows if {"long", "deleted"} & {*chosen} else ():
        cluster.add_ended_runs(fleet="other", count=rows, days=DAYS, drivers=flags.drivers)
        if not flags.only_list:
            bench.command("apply", address)  # its agent counts the jobs for the commands after it
        if "long" in chosen:
            look(f"{rows} runs", {"list": list_cost(address, flags.rounds), **commands()})
        if "deleted" in chosen:
            look("delete", delete_cost(address))
            cluster.forget_ended_runs()
            look(f"{rows} runs deleted", {"list": list_cost(address, flags.rounds), **commands()})
    return result


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, action="append")
    parser.add_argument("--drivers", action="store_true")
    parser.add_argument("--situations", nargs="*", choices=SITUATIONS, default=SITUATIONS)
    parser.add_argument("--only-list", action="store_true", help="run no commands")
    parser.add_argument("--limit", type=float, default=300.0, help="end a command after this many seconds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    flags = parser.parse_args()
    flags.rows = flags.rows or [30_000]
    with tempfile.TemporaryDirectory() as name, running_cluster(Path(name)) as cluster:
        cluster.add(names=[NODE], gpus=2)
        results = measure(cluster, flags, Path(name))
    if flags.json:
        print(json.dumps({
            "benchmark": "jobs", "rounds": flags.rounds, "seeds": "none: nothing is random", "drivers": flags.drivers,
            "machine": machine_text(),
            "versions": {"fleetctl": __version__, "python": platform.python_version(), "ray": results.pop("ray")},
            "results": results}))


if __name__ == "__main__":
    main()
