"""Thousands of connections that send nothing, or never end: a weights port and a `watch --listen` go on answering.

Each is a process of its own that may open few files, as many a machine allows. Every few hundred connections a receiver
asks for the weights and a browser for the page; at the end the watch must have looked at its cluster again.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from fleetctl.agent.weights.connections import MOST_ANSWERED
from fleetctl.agent.weights.connections import MOST_CONNECTIONS as MOST_OF_WEIGHTS
from fleetctl.agent.weights.index import write_index
from fleetctl.agent.weights.protocol import NONCE_PATH, PREFIX, connect, new_nonce
from fleetctl.agent.weights.sources import SourceFailed
from fleetctl.cli.watch_server import MAX_CONNECTIONS as MOST_OF_WATCH
from tests.agent.weights.other_node import Node
from tests.agent.weights.small_pieces import SECRET
from tests.cluster_stand_in import ClusterStandIn, serve

ABOUT = "silent and unfinished connections to a weights port and to a watch, which may open few files"
PER_CASE = 20
FILES = 256
"""How many files each process may open: a quarter of the usual limit."""
SPARE = 16
"""Files and threads that either may use beside its connections while it answers."""
ASK_EVERY = 250
ADDRESSES = 12
"""More than any limit for one address would fill."""
ANSWER_S = 120.0
FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: flooded}
spec:
  models:
  - {key: m, replicas: 1, workers: [{name: main, members: [{resources: {cpus: 1}, engine: {command: [serve]}}]}]}
"""


@dataclass(frozen=True)
class Target:
    """A process that listens at `address`; `ask` raises an exception unless it answers as it should."""

    process: int
    address: tuple[str, int]
    most_files: int
    most_threads: int
    ask: Callable[[], None]
    ask_at_end: Callable[[], None]


def run(cases: int, seed: int) -> dict[str, object]:
    """Open PER_CASE connections a case to each target; return how many, what they took, and the failures."""
    failures, counts = list[str](), dict[str, object]()
    with more_files() as most, TemporaryDirectory() as folder:
        count = min(cases * PER_CASE, most)
        counts["connections"] = count
        if count < cases * PER_CASE:
            counts["loweredFrom"] = cases * PER_CASE
        for name, started in (("weights", weights_port), ("watch", watch)):
            with started(Path(folder)) as target:
                found, took = flood(target, count, Random(seed))
            counts[name] = took
            again = f"python -m {__package__}.__main__ --part connections --cases {cases} --seed {seed}"
            failures += [f"{name}: {failure}; again: {again}" for failure in found]
    return {**counts, "failures": failures}


@contextlib.contextmanager
def more_files() -> Iterator[int]:
    """Allow this process as many files as it may have; yields how many of them are for connections."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        yield (before[1] if before[1] != resource.RLIM_INFINITY else 1 << 16) - 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def flood(target: Target, count: int, random: Random) -> tuple[list[str], dict[str, int]]:
    """Open `count` connections from some addresses; return failures, and the most files and threads they took."""
    failures, files, threads = list[str](), 0, 0
    files_before, threads_before = used(target.process)
    hosts = [f"127.0.{random.randrange(1, 200)}.{random.randrange(1, 250)}" for _ in range(ADDRESSES)]
    with contextlib.ExitStack() as opened:
        for number in range(1, count + 1):
            try:
                one = socket.create_connection(target.address, ANSWER_S, (random.choice(hosts), 0))
                opened.enter_context(one)
                one.sendall(begun(random))
            except ConnectionError:
                pass  # closed for one that came later
            except OSError as error:
                failures.append(f"connection {number} of {count} fails: {error}")
                break
            if number % ASK_EVERY == 0 or number == count:
                now = used(target.process)
                files, threads = max(files, now[0] - files_before), max(threads, now[1] - threads_before)
                failures += trouble(target.ask, f"with {number} connections")
        failures += trouble(target.ask_at_end, f"with {count} connections, at the end")
    for what, most, limit in (("files", files, target.most_files), ("threads", threads, target.most_threads)):
        if most > limit:
            failures.append(f"{count} connections take {most} {what}, more than {limit}")
    return failures, {"files": files, "threads": threads}


def begun(random: Random) -> bytes:
    """The first bytes of a stranger: nothing, or a request that does not end or has no token."""
    return random.choice((
        b"", b"", b"G", b"GET / HTTP/1.1\r\nHost: x", b"\x16\x03\x01\x02\x00",
        b"POST / HTTP/1.1\r\nContent-Length: 4000\r\n",
        f"GET {NONCE_PATH}{new_nonce()} HTTP/1.1\r\n\r\n".encode(), b"A" * random.randrange(1, 9000)))


def trouble(ask: Callable[[], None], when: str) -> list[str]:
    try:
        ask()
    except (OSError, SourceFailed, http.client.HTTPException, AssertionError) as error:
        return [f"no answer {when}: {error.__class__.__name__}: {error}"]
    return []


def used(process: int) -> tuple[int, int]:
    """How many files and threads a process has."""
    return tuple(sum(1 for _ in Path(f"/proc/{process}/{kind}").iterdir()) for kind in ("fd", "task"))  # type: ignore[return-value]


@contextlib.contextmanager
def weights_port(folder: Path) -> Iterator[Target]:
    """A source of weights on a node of its own."""
    origin = folder / "origin"
    origin.mkdir()
    (origin / "model.bin").write_bytes(bytes(range(256)) * 4096)
    artifact = write_index(str(origin))
    node = Node(folder / "cache", artifact, origins=[{"path": str(origin)}], large=True)
    try:
        host, _, port = node.read_report("serving")["serving"]["address"].rpartition(":")
        resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        path = f"{PREFIX}/{artifact}/files/model.bin"

        def ask() -> None:
            connection, proof = connect(f"{host}:{port}", SECRET, ANSWER_S)
            with contextlib.closing(connection):
                connection.request("GET", path, headers={"Authorization": f"Bearer {proof.token('GET', path)}"})
                assert connection.getresponse().read() == (origin / "model.bin").read_bytes()

        yield Target(node.process.pid, (host, int(port)), MOST_OF_WEIGHTS + SPARE, MOST_ANSWERED, ask, ask)
    finally:
        node.end()


@contextlib.contextmanager
def watch(folder: Path) -> Iterator[Target]:
    """A watch of a fleet file and a stand-in for the cluster; its token is in a file that it reads at each look."""
    fleet, token = folder / "fleet.yaml", folder / "token"
    fleet.write_text(FLEET)
    token.write_text("secret")
    cluster = ClusterStandIn()
    cluster.add_node("a")
    with serve(cluster), subprocess.Popen(
            [sys.executable, "-m", "fleetctl", "watch", "-f", str(fleet), "--listen", "127.0.0.1:0", "--interval", "1s",
             "--report-only"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "HOME": str(folder), "FLEETCTL_ADDRESS": cluster.url, "RAY_AUTH_TOKEN_PATH": str(token)},
    ) as process:
        try:
            assert process.stderr is not None
            listening = next(found for line in process.stderr if (found := re.search(r"http://([0-9.]+):(\d+)/", line)))
            address = listening[1], int(listening[2])
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))

            def get(path: str) -> bytes:
                connection = http.client.HTTPConnection(*address, timeout=ANSWER_S)
                with contextlib.closing(connection):
                    connection.request("GET", path)
                    response = connection.getresponse()
                    assert response.status == 200, f"{path}: HTTP status {response.status}"
                    return response.read()

            def ask() -> None:
                assert get("/healthz") == b"ok\n"
                assert get("/").rstrip().endswith(b"</html>")

            def looks_again() -> None:
                now, until = time.time(), time.monotonic() + ANSWER_S
                while last_look(get("/metrics")) <= now:
                    assert time.monotonic() < until, "the loop does not look at the cluster any more"
                    time.sleep(0.1)
                assert b"fleetctl_watch_cluster_up 1.0" in get("/metrics")
                ask()

            looks_again()
            yield Target(process.pid, address, MOST_OF_WATCH + SPARE, MOST_OF_WATCH + SPARE, ask, looks_again)
        finally:
            process.kill()


def last_look(metrics: bytes) -> float:
    """When the watch last read source and cluster."""
    found = re.search(rb"^fleetctl_watch_last_look_timestamp_seconds (\S+)$", metrics, re.MULTILINE)
    return float(found[1]) if found else 0.0
