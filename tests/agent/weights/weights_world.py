"""Models, nodes and sources for tests: safetensors files written by hand, real HTTP between nodes."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from small_pieces import SECRET

from fleetctl.agent.messages import WeightSource
from fleetctl.agent.weights import index
from fleetctl.agent.weights.fetch import Fetch, Fetched, Wanted
from fleetctl.agent.weights.protocol import connect
from fleetctl.agent.weights.serve import Source, WeightsServer
from fleetctl.agent.weights.views import read_view
from fleetctl.agent.wire import parse

DTYPES = {"F32": np.dtype("<f4"), "BF16": np.dtype("<u2"), "U8": np.dtype("u1"), "I64": np.dtype("<i8")}
SHARD = {"shard": {"rules": [{"match": "norm|bias", "dim": 0}, {"match": "rows", "dim": 0},
                             {"match": "columns", "dim": 1}, {"match": "experts", "dim": -1}], "of": "4"}}


def safetensors(tensors: dict[str, tuple[str, np.ndarray]]) -> bytes:
    """A safetensors file, as specified in its documentation."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, array) in tensors.items():
        end = len(data) + array.nbytes
        entries[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), end]}
        data += array.tobytes()
    header = json.dumps(entries).encode()
    return len(header).to_bytes(8, "little") + header + data


def tensors_in(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    entries = json.loads(raw[8:8 + length])
    entries.pop("__metadata__", None)
    return {name: np.frombuffer(raw, DTYPES[entry["dtype"]], int(np.prod(entry["shape"])),
                                8 + length + entry["data_offsets"][0]).reshape(entry["shape"])
            for name, entry in entries.items()}


def model(folder: Path, seed: int = 0, rows: int = 256) -> str:
    """Write a model of two weight files and three small files; return its artifact."""
    rng = np.random.default_rng(seed)

    def tensor(dtype: str, *shape: int) -> tuple[str, np.ndarray]:
        kind = DTYPES[dtype]
        return dtype, np.frombuffer(rng.bytes(int(np.prod(shape)) * kind.itemsize), kind).reshape(shape)

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model-00001-of-00002.safetensors").write_bytes(safetensors({
        "a.rows.weight": tensor("F32", rows, 64), "a.columns.weight": tensor("F32", rows, 128),
        "a.bias": tensor("U8", 64), "a.other": tensor("U8", 7)}))
    (folder / "model-00002-of-00002.safetensors").write_bytes(safetensors({
        "b.experts.weight": tensor("BF16", 3, 16, rows), "b.norm": tensor("BF16", 64), "b.scale": tensor("I64", 3),
        "b.columns.weight": tensor("BF16", rows, 64, 3)}))
    (folder / "config.json").write_text('{"layers": 2}')
    (folder / "tokenizer").mkdir(exist_ok=True)
    (folder / "tokenizer" / "vocab.txt").write_text("one two")
    (folder / "model.safetensors.index.json").write_text("{}")
    return index.write_index(str(folder))


def fetch(root: Path, artifact: str, *sources: dict[str, Any], origins: list[dict[str, str]] | None = None,
          view: dict[str, Any] | None = None, rank: int = 0, time_s: float = 60,
          lines: list[str] | None = None, clock: Callable[[], float] = time.monotonic,
          secret: bytes = SECRET) -> Fetched:
    """Fetch onto the node whose cache is `root`."""
    planned = [parse(WeightSource, source) for source in sources]
    wanted = Wanted(artifact, read_view(view), rank, 4, origins or [], planned, secret)
    reported: list[str] = [] if lines is None else lines
    return Fetch(str(root), wanted, clock() + time_s, reported.append, clock).run()


@contextlib.contextmanager
def serving(root: Path, fetched: Fetched, budget: int | None = None) -> Iterator[tuple[Source, dict[str, Any]]]:
    """Serve the weights of a node; yields the source, and how a plan names it."""
    source = Source(str(root), fetched, SECRET, budget=budget, replica=f"m/{root.name}")
    with WeightsServer(source, "127.0.0.1") as server:
        server.start()
        yield source, {"replica": f"m/{root.name}", "nodeId": root.name, "address": f"127.0.0.1:{server.port}",
                       "view": fetched.entry.view, "whole": fetched.whole is not None}


def request(address: str, path: str, method: str = "GET", body: bytes = b"", secret: bytes = SECRET,
            **headers: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """Send a request with a valid token, like a receiver, and return the open connection and the answer."""
    connection, proof = connect(address, secret, 30)
    given = {"Authorization": f"Bearer {proof.token(method, path, body)}", **headers}
    connection.request(method, path, body or None, {name: value for name, value in given.items() if value})
    return connection, connection.getresponse()


def status_and_body(address: str, path: str, method: str = "GET", body: bytes = b"", secret: bytes = SECRET,
                    **headers: str) -> tuple[int, bytes]:
    """Send a request with a valid token, and return the answer."""
    connection, answer = request(address, path, method, body, secret, **headers)
    with contextlib.closing(connection):
        return answer.status, answer.read()


def eventually(check: Callable[[], Any]) -> None:
    """Wait until `check` is true."""
    deadline = time.monotonic() + 120
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_sent(source: Source, size: int) -> bool:
    """Return whether it has sent exactly `size` bytes; it counts bytes after it has sent them."""
    eventually(lambda: source.sent >= size)
    return source.sent == size


def files_in(folder: str | Path) -> dict[str, bytes]:
    """All files below a folder, except an index."""
    found = Path(folder)
    return {str(path.relative_to(found)): path.read_bytes() for path in sorted(found.rglob("*"))
            if path.is_file() and path.name != index.NAME}
