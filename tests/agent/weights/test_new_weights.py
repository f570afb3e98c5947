"""A member whose engine reloads: its node serves the new artifact, and keeps the one the engine was started with."""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from changed_node import member_with
from small_pieces import SECRET
from weights_world import fetch, files_in, model

from fleetctl.agent import model_files
from fleetctl.agent.messages import ServedWeights
from fleetctl.agent.model_files import ModelFiles
from fleetctl.agent.report import StartFailed
from fleetctl.agent.weights.index import WeightsError
from fleetctl.agent.weights.serve import Source
from fleetctl.agent.weights.store import Entry
from fleetctl.demo.lifecycle import free_port

INJECTED = {"FLEETCTL_RANK": "0", "FLEETCTL_GROUP_SIZE": "1", "FLEETCTL_MODEL": "m", "FLEETCTL_REPLICA_ID": "0"}


def fetched(artifact: str, origin: Path, say: Callable[[str], None] = lambda _: None, **more: str) -> ModelFiles:
    return ModelFiles(member_with(artifact, origin, **more), INJECTED, time.monotonic() + 60, say)


def served(weights: ModelFiles, former: ModelFiles | None = None) -> ServedWeights:
    weights.serve("127.0.0.1", former)
    assert weights.served
    return weights.served


def source(served: ServedWeights) -> dict[str, Any]:
    return {"replica": "m/0", "nodeId": "a", "address": f"127.0.0.1:{served.port}", "view": None, "whole": True}


def test_the_new_weights_are_served_at_the_same_port_and_the_former_weights_no_longer(
    origin: Path, artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("FLEETCTL_CACHE_DIR", str(cache))
    monkeypatch.setattr(model_files, "session_secret", lambda: SECRET)
    monkeypatch.setattr(model_files, "path_prefix", lambda artifact, *_: f"{tmp_path}/note-{artifact}")
    others = [tmp_path / "second", tmp_path / "third"]
    second, third = (model(folder, seed=seed) for seed, folder in enumerate(others, start=1))

    first = fetched(artifact, origin)
    before = served(first)
    new = fetched(second, others[0])
    assert files_in(first.folder) == files_in(origin)  # the folder of the running engine is unchanged
    after = served(new, first)
    assert (after.artifact, after.port) == (second, before.port)
    got = fetch(tmp_path / "peer", second, source(after))
    assert files_in(got.entry.folder) == files_in(others[0])
    with pytest.raises(WeightsError, match="404"):
        fetch(tmp_path / "late", artifact, source(before))

    newest = fetched(third, others[1])
    newest.serve("127.0.0.1", new)
    new.release()  # as a member does: not the first artifact, which FLEETCTL_MODEL_DIR of its engine names
    assert [Entry(str(cache), one, None).remove() for one in (artifact, second, third)] == [False, True, False]


def test_new_weights_are_reported_to_the_sources_they_came_from(
    origin: Path, artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(model_files, "session_secret", lambda: SECRET)
    monkeypatch.setattr(model_files, "path_prefix", lambda artifact, *_: f"{tmp_path}/note-{artifact}")
    reported: queue.Queue[tuple[str, str]] = queue.Queue()
    monkeypatch.setattr(Source, "report_copy", lambda source, address: reported.put((source.artifact, address)))
    second = model(tmp_path / "second", seed=1)
    first = fetched(artifact, origin)
    address = f"127.0.0.1:{served(first).port}"
    served(fetched(second, tmp_path / "second"), first)
    assert [reported.get(timeout=300) for _ in range(2)] == [(artifact, address), (second, address)]


def test_a_fetch_that_fails_leaves_nothing_that_cannot_be_removed(
    artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(model_files, "session_secret", lambda: SECRET)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StartFailed, match="no source has the index"):
        fetched(artifact, tmp_path / "empty")
    broken = tmp_path / "broken"
    name = model(broken, seed=9)
    (broken / "model-00002-of-00002.safetensors").write_bytes(b"not it")
    with pytest.raises(StartFailed, match="no source supplied all files"):
        fetched(name, broken)
    assert Entry(str(tmp_path / "cache"), name, None).remove()


@pytest.fixture
def _of_this_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(model_files, "session_secret", lambda: SECRET)
    monkeypatch.setattr(model_files, "path_prefix", lambda artifact, *_: f"{tmp_path}/note-{artifact}")


@pytest.mark.usefixtures("_of_this_cluster")
def test_a_member_serves_at_a_port_of_its_nodes_range(origin: Path, artifact: str, tmp_path: Path) -> None:
    port = free_port()
    first = served(fetched(artifact, origin, ports=f"{port}-{port}"))
    assert (first.port, first.ports) == (port, f"{port}-{port}")
    assert fetch(tmp_path / "peer", artifact, source(first)).source == "peer"


@pytest.mark.usefixtures("_of_this_cluster")
def test_a_member_without_a_free_port_has_its_weights_and_says_that_it_does_not_serve_them(
    origin: Path, artifact: str
) -> None:
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        member = fetched(artifact, origin, lines.append, ports=f"{port}-{port}")
        there = served(member)
    assert (there.artifact, there.port, files_in(member.folder)) == (artifact, None, files_in(origin))
    assert f"no port of {port}-{port} can be used" in str(there.unserved)
    assert [line for line in lines if "not served to other nodes" in line]
    member.drain()


@pytest.mark.usefixtures("_of_this_cluster")
def test_new_weights_are_served_where_the_node_now_allows_it(origin: Path, artifact: str, tmp_path: Path) -> None:
    first = fetched(artifact, origin)
    second = model(tmp_path / "second", seed=1)
    before, port = served(first), free_port()
    member = fetched(second, tmp_path / "second", ports=f"{port}-{port}")
    assert served(member, first).port == port
    off = fetched(second, tmp_path / "second", ports="none")
    assert (served(off, member).port, "none" in str(served(off).unserved)) == (None, True)
    for gone in (before.port, port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", gone), 30)
