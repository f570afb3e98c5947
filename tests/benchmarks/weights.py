"""The cost of weights from a running replica: `python -m tests.benchmarks.weights --mib 256 --mbit 800 --ray --json`.

Four ranks on four nodes fetch the strided parts (dim 1) of one matrix, then all of it, from one source. Each node is a
network namespace with its own disk folder, which needs root. Bytes are those sent by the source's interface, processor
seconds those of both ends. `one` is a single node that fetches everything. With --ray the same bytes pass through Ray's
object store, from one raylet to another and to four; processor seconds are those of all its processes. With --json the
last line is one JSON object.

With --engine, which needs no root: the response time of a computing engine on two cores, while nothing is sent and
while a source on the same node sends to four receivers. The receivers stand for other machines and have the lowest
priority.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fleetctl.agent.weights.index import write_index
from tests.agent.weights import hashing_engine

NODE = Path(__file__).parents[1] / "agent" / "weights" / "node_process.py"
NET = "10.231.7"
RANKS = 4
SHARD = {"shard": {"rules": [{"match": "w", "dim": 1}], "of": str(RANKS)}}
COLUMNS = 32768
ALONE = 3000


def model(folder: Path, mib: int) -> str:
    """Write one matrix of BF16 in which each rank's part of a row has 16 KiB."""
    rows = (mib << 20) // (2 * COLUMNS)
    entries = {"w": {"dtype": "BF16", "shape": [rows, COLUMNS], "data_offsets": [0, mib << 20]}}
    header = json.dumps(entries).encode()
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(mib):
            file.write(os.urandom(1 << 20))
    return write_index(str(folder))


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@contextlib.contextmanager
def namespaces(count: int, mbit: int) -> Iterator[list[str]]:
    """Create namespaces on one bridge, each with a link of `mbit`; yields their names."""
    bridge, made = f"fw{os.getpid() % 100000}", list[str]()
    ip("link", "add", bridge, "type", "bridge")
    try:
        ip("link", "set", bridge, "up")
        for number in range(count):
            name, inner = f"{bridge}n{number}", f"{bridge}i{number}"
            ip("netns", "add", name)
            made.append(name)
            ip("link", "add", name, "type", "veth", "peer", "name", inner)
            ip("link", "set", inner, "netns", name)
            ip("link", "set", name, "master", bridge, "up")
            ip("-n", name, "addr", "add", f"{NET}.{number + 1}/24", "dev", inner)
            ip("-n", name, "link", "set", inner, "up")
            ip("-n", name, "link", "set", "lo", "up")
            subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", inner, "root", "tbf", "rate",
                            f"{mbit}mbit", "burst", "1mb", "latency", "100ms"], check=True)
        yield made
    finally:
        for name in made:
            ip("netns", "del", name)
        ip("link", "del", bridge)


class Node:
    """A node process, run by a command that sets its place."""

    def __init__(self, command: list[str], number: int, root: Path, artifact: str, **order: Any) -> None:
        path = os.pathsep.join([*sys.path, str(NODE.parent)])
        self.process = subprocess.Popen(
            [*command, sys.executable, str(NODE)], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path})
        self.order = {"root": str(root / f"disk-{number}"), "artifact": artifact, "ip": f"{NET}.{number + 1}",
                      "large": True, "budget": 1 << 40, **order}

    def write(self, what: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def read(self, kind: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if kind in message:
                return message
            print(message, file=sys.stderr)
        raise SystemExit("a node ended early")


def within(name: str) -> list[str]:
    return ["ip", "netns", "exec", name]


def bytes_out(name: str) -> int:
    """The bytes that a node has sent, counted at the bridge's end."""
    return int(Path(f"/sys/class/net/{name}/statistics/rx_bytes").read_text())


def spread(names: list[str], root: Path, artifact: str, view: dict[str, Any] | None) -> dict[str, float]:
    """Let all other nodes fetch from the first node at once."""
    first = Node(within(names[0]), 0, root, artifact, origins=[{"path": str(root / "origin")}])
    first.read("up")
    first.write(first.order)
    source = first.read("serving")
    before = bytes_out(names[0])
    disks = root / f"{'views' if view else 'whole'}-{len(names)}"
    others = [Node(within(name), number, disks, artifact, sources=[source["serving"]], view=view, rank=number - 1)
              for number, name in enumerate(names[1:], 1)]
    for node in others:
        node.read("up")  # excludes the start of Python
    begun = time.monotonic()
    for node in others:
        node.write(node.order)
    fetched = [node.read("serving") for node in others]
    took, sent = time.monotonic() - begun, bytes_out(names[0]) - before
    first.write("end")
    cpu = first.read("sent")["cpu"] + sum(one["cpu"] for one in fetched)
    for node in others:
        node.write("end")
        node.read("sent")
    shutil.rmtree(disks)  # keeps its dirty pages out of the next run
    return {"wire_mib": round(sent / (1 << 20), 1), "seconds": round(took, 2),
            "cpu_s_per_gib": round(cpu / (sum(one["size"] for one in fetched) / (1 << 30)), 2)}


def used_below(root: int) -> float:
    """The processor seconds of all descendants of a process."""
    parents, seconds = dict[int, int](), dict[int, float]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            seconds[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    below, todo = set[int](), [root]
    while todo:
        parent = todo.pop()
        found = {pid for pid, above in parents.items() if above == parent} - below
        below |= found
        todo += found
    return sum(seconds[pid] for pid in below)


def through_ray(mib: int, raylets: int) -> dict[str, float]:
    """Get an array from another raylet, on each of `raylets`; all processes of Ray count."""
    import numpy as np
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": (mib * 3) << 20,
                                                            "include_dashboard": False})
    for _ in range(raylets):
        cluster.add_node(num_cpus=1, resources={"other": 1}, object_store_memory=(mib * 3) << 20)
    ray.init(address=cluster.address, logging_level="ERROR")

    @ray.remote(num_cpus=0)
    class Reader:
        def read(self, refs: list[Any]) -> int:
            return sum(int(ray.get(ref).nbytes) for ref in refs)

    actors = [Reader.options(resources={"other": 1}).remote() for _ in range(raylets)]  # type: ignore[attr-defined]
    readers: list[Callable[..., Any]] = [actor.read.remote for actor in actors]
    try:
        cold = ray.put(np.zeros(mib << 20, np.uint8))
        ray.get([read([cold]) for read in readers])  # warms the pages up
        ref = ray.put(np.frombuffer(os.urandom(mib << 20), np.uint8))
        before, begun = used_below(os.getpid()), time.monotonic()
        size = sum(ray.get([read([ref]) for read in readers]))
        took, cpu = time.monotonic() - begun, used_below(os.getpid()) - before
    finally:
        ray.shutdown()
        cluster.shutdown()
    return {"seconds": round(took, 2), "cpu_s_per_gib": round(cpu / (size / (1 << 30)), 2)}


def times_of(port: int, until: Callable[[int], bool]) -> list[float]:
    """Query an engine repeatedly; return the milliseconds of each response."""
    connection, took = http.client.HTTPConnection("127.0.0.1", port, timeout=60), list[float]()
    while not until(len(took)):
        begun = time.monotonic()
        connection.request("GET", f"/{len(took)}")
        if connection.getresponse().read() != hashing_engine.answer_to(f"/{len(took)}"):
            raise SystemExit("a wrong answer")
        took.append((time.monotonic() - begun) * 1e3)
    return took


def summed_up(took: list[float]) -> dict[str, float]:
    return {"requests": len(took), "median_ms": round(statistics.median(took), 2),
            "p99_ms": round(statistics.quantiles(took, n=100)[98], 2)}


def beside_engine(root: Path, artifact: str) -> dict[str, Any]:
    """Query an engine while a source on its node sends to four receivers, and before and after that."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    load = os.getloadavg()[0]
    with subprocess.Popen([sys.executable, hashing_engine.__file__], stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        port = int(engine.stdout.readline())
        source = Node([], 0, root, artifact, origins=[{"path": str(root / "origin")}], ip="127.0.0.1")
        source.read("up")
        source.write(source.order)
        described = source.read("serving")["serving"]
        receivers = [Node(["nice", "-n", "19"], number, root, artifact, sources=[described], ip="127.0.0.1")
                     for number in range(1, RANKS + 1)]
        for one in receivers:
            one.read("up")
        alone = times_of(port, lambda count: count == ALONE)
        with ThreadPoolExecutor(RANKS) as pool:
            for one in receivers:
                one.write(one.order)
            done = [pool.submit(one.read, "serving") for one in receivers]
            beside = times_of(port, lambda _: all(one.done() for one in done))
        alone += times_of(port, lambda count: count == ALONE)
        engine.kill()
    for one in (*receivers, source):
        one.write("end")
        message = one.read("sent")
    return {"load": [round(load, 1), round(os.getloadavg()[0], 1)], "alone": summed_up(alone),
            "sending": {**summed_up(beside), "mib": message["sent"] >> 20}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--mbit", type=int, default=800)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--engine", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {"mib": options.mib, "mbit": options.mbit, "ranks": RANKS}
    if options.engine:
        with tempfile.TemporaryDirectory() as folder:
            found = {"mib": options.mib, **beside_engine(Path(folder), model(Path(folder, "origin"), options.mib))}
        return print(json.dumps(found))
    with tempfile.TemporaryDirectory() as folder, namespaces(RANKS + 1, options.mbit) as names:
        artifact = model(Path(folder, "origin"), options.mib)
        found["views"] = spread(names, Path(folder), artifact, SHARD)
        found["whole"] = spread(names, Path(folder), artifact, None)
        found["one"] = spread(names[:2], Path(folder), artifact, None)
    if options.ray:
        found["ray"] = through_ray(options.mib, 1)
        found["ray, four"] = through_ray(options.mib, RANKS)
    for name in ("views", "whole", "one", "ray", "ray, four"):
        print(f"{name:9} {found.get(name, '')}")
    if options.json:
        print(json.dumps(found))
    return None


if __name__ == "__main__":
    main()
