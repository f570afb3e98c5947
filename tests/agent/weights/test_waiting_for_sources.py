"""A fetch waits for nothing longer than its deadline, and asks Ray, not the plan, where its sources are."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dripping_server import dripping
from small_pieces import SECRET
from weights_world import SHARD, fetch, files_in, serving

from fleetctl.agent import cluster, model_files
from fleetctl.agent.messages import Mark, Place, ServedWeights, WeightSource
from fleetctl.agent.model_files import noted, serving_now
from fleetctl.agent.report import compact
from fleetctl.agent.weights import fetch as fetch_module
from fleetctl.agent.weights.fetch import Fetch, ServingNow, Wanted
from fleetctl.agent.weights.index import WeightsError
from fleetctl.agent.weights.store import OutOfTime
from fleetctl.agent.weights.views import read_view
from fleetctl.agent.wire import document_of, parse

HEADS = {"status line": b"", "header": b"HTTP/1.1 200 OK\r\nX-Slow: "}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source may send nothing for a short time only."""
    monkeypatch.setattr(fetch_module, "IDLE_S", 1.0)
    monkeypatch.setattr(fetch_module, "LOOK_S", 0.05)


@pytest.fixture
def hung(origin: Path, tmp_path: Path) -> Iterator[Path]:
    """The origin's folder on a file server that is gone: opening a file never returns."""
    folder = tmp_path / "hung"
    shutil.copytree(origin, folder)
    for name in ("config.json", "model-00001-of-00002.safetensors"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    yield folder
    for name in ("config.json", "model-00001-of-00002.safetensors"):  # let the threads that still wait end
        with suppress(OSError):
            os.close(os.open(folder / name, os.O_WRONLY | os.O_NONBLOCK))


@pytest.mark.parametrize("head", HEADS)
def test_an_origin_whose_header_never_ends_is_given_up_and_the_next_one_used(
    tmp_path: Path, origin: Path, artifact: str, impatient: None, head: str
) -> None:
    with dripping(HEADS[head]) as (port, _):
        bad = f"http://127.0.0.1:{port}/"
        got = fetch(tmp_path / "node", artifact, origins=[{"http": bad}, {"path": str(origin)}])
    assert files_in(got.entry.folder) == files_in(origin)
    [(name, why)] = got.left
    assert (name, "its header was not complete after 1 s" in why) == (bad, True)


@pytest.mark.parametrize("head", HEADS)
def test_a_peer_whose_header_never_ends_is_given_up(
    tmp_path: Path, origin: Path, artifact: str, impatient: None, head: str
) -> None:
    with dripping(HEADS[head]) as (port, _):
        peer = {"replica": "m/0", "address": f"127.0.0.1:{port}", "view": None}
        got = fetch(tmp_path / "node", artifact, peer, origins=[{"path": str(origin)}])
    assert files_in(got.entry.folder) == files_in(origin)
    assert [name for name, _ in got.left] == [f"m/0 at 127.0.0.1:{port}"]


def test_a_fetch_ends_at_its_deadline_though_the_header_of_its_only_source_never_does(
    tmp_path: Path, artifact: str
) -> None:
    with dripping(HEADS["header"]) as (port, given_up):
        with pytest.raises(OutOfTime, match=f"asked last: http://127.0.0.1:{port}/"):
            fetch(tmp_path / "node", artifact, origins=[{"http": f"http://127.0.0.1:{port}/"}], time_s=0.5)
        assert not given_up.is_set()


def test_a_folder_that_hangs_is_given_up_if_there_is_another_source(
    tmp_path: Path, origin: Path, artifact: str, hung: Path, impatient: None
) -> None:
    got = fetch(tmp_path / "node", artifact, origins=[{"path": str(hung)}, {"path": str(origin)}])
    assert files_in(got.entry.folder) == files_in(origin)
    assert [name for name, _ in got.left] == [str(hung)]
    assert "nothing was read for 1 s" in got.left[0][1]


def test_a_folder_that_hangs_is_waited_for_until_the_deadline_if_it_is_the_only_source(
    tmp_path: Path, artifact: str, hung: Path, impatient: None
) -> None:
    with pytest.raises(OutOfTime, match=f"asked last: {hung}"):
        fetch(tmp_path / "node", artifact, origins=[{"path": str(hung)}], time_s=2.0)


def test_a_folder_that_comes_back_is_read_on(
    tmp_path: Path, origin: Path, artifact: str, hung: Path, impatient: None
) -> None:
    def come_back() -> None:
        for name in ("config.json", "model-00001-of-00002.safetensors"):
            (hung / name).write_bytes((origin / name).read_bytes())  # the reader of the pipe gets them now

    threading.Timer(1.5, come_back).start()  # later than the limit for a source among several
    got = fetch(tmp_path / "node", artifact, origins=[{"path": str(hung)}], time_s=30)
    assert files_in(got.entry.folder) == files_in(origin)


def test_a_fetch_that_hangs_anywhere_is_left_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "LATE_S", 0.1)
    released = threading.Event()

    def run() -> None:
        released.wait(30)

    stuck: Any = SimpleNamespace(run=run, deadline=time.monotonic() + 0.1, found=[], waits_for=lambda: " (asked: x)")
    with pytest.raises(OutOfTime, match=r"something hangs \(asked: x\)"):
        noted(stuck)
    assert not released.is_set()
    released.set()


def looking(artifact: str, root: Path, planned: Sequence[dict[str, Any]], look: Callable[[Sequence[str]], ServingNow],
            lines: list[str], *, view: dict[str, Any] | None = None, origins: Sequence[dict[str, str]] = (),
            time_s: float = 30) -> Fetch:
    """A fetch whose sources are looked up with `look`."""
    peers = [parse(WeightSource, one) for one in planned]
    wanted = Wanted(artifact, read_view(view), 0, 4, list(origins), peers, SECRET)
    return Fetch(str(root), wanted, time.monotonic() + time_s, lines.append, look=look)


def test_a_source_that_serves_at_another_port_than_planned_is_found(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    whole = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    asked, lines = list[list[str]](), list[str]()
    with serving(tmp_path / "a", whole) as (_, described):
        now = parse(WeightSource, described)
        old = {**described, "address": "127.0.0.1:9"}

        def look(replicas: Sequence[str]) -> ServingNow:
            asked.append(list(replicas))
            return ServingNow([(now, "t1")])

        got = looking(artifact, tmp_path / "b", [old], look, lines, origins=[{"path": str(origin)}]).run()
    assert (got.source, got.left, asked) == ("peer", [], [["m/a"]])
    assert lines == [f"weights: m/a serves at {now.address} now, and not at 127.0.0.1:9"]


@pytest.mark.parametrize("view", [None, SHARD])
def test_a_source_that_restarts_is_waited_for_while_nothing_else_has_the_bytes(
    tmp_path: Path, origin: Path, artifact: str, impatient: None, view: dict[str, Any] | None
) -> None:
    whole, looks, lines = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}]), list[int](), list[str]()
    with serving(tmp_path / "a", whole) as (_, described):
        def look(replicas: Sequence[str]) -> ServingNow:
            looks.append(len(replicas))
            back = len(looks) > 4
            return ServingNow([(parse(WeightSource, described), "t2")] if back else [], [] if back else ["m/a"])

        planned = [{**described, "address": "127.0.0.1:9"}]
        got = looking(artifact, tmp_path / "b", planned, look, lines, view=view).run()
    assert got.source == "peer"
    assert any("waiting for m/a to restart" in line for line in lines)
    assert len([line for line in lines if "waiting for" in line]) == 1


def test_a_source_that_has_restarted_on_the_same_port_is_tried_again(
    tmp_path: Path, origin: Path, artifact: str, impatient: None
) -> None:
    whole, lines, since = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}]), list[str](), ["t1"]
    with serving(tmp_path / "a", whole) as (source, described):
        now, kept = parse(WeightSource, described), source.secret

        def look(replicas: Sequence[str]) -> ServingNow:
            if not replicas:
                source.secret, since[0] = kept, "t2"
            return ServingNow([(now, since[0])])

        source.secret = b"of a session that is over"
        got = looking(artifact, tmp_path / "b", [described], look, lines).run()
    assert got.source == "peer"
    assert len(got.left) == 1


def test_a_fetch_without_any_source_fails_at_once(tmp_path: Path, artifact: str) -> None:
    with pytest.raises(WeightsError, match="no source has the index"):
        looking(artifact, tmp_path / "b", [], lambda _: ServingNow(), []).run()


def test_a_source_that_never_comes_back_is_waited_for_until_the_deadline(
    tmp_path: Path, artifact: str, impatient: None
) -> None:
    with pytest.raises(OutOfTime):
        looking(artifact, tmp_path / "b", [], lambda _: ServingNow([], ["m/a"]), [], time_s=0.5).run()


def replica_at(port: int | None, artifact: str = "a" * 64, node: str = "n1", ip: str = "192.0.2.1") -> str:
    """The repr of a replica that serves an artifact."""
    weights = ServedWeights(artifact, None, port=port)
    place = Place(node_id=node, ip=ip, weights=weights)
    mark = Mark(fleet="f", namespace="fleet", spec_hash="s", ready_at="2026-01-01T00:00:00Z", members=[place])
    return compact(document_of(mark))


@pytest.fixture
def in_ray(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Ray's table of actors, by state."""
    table: dict[str, list[Any]] = {"ALIVE": [], "RESTARTING": []}
    monkeypatch.setattr(cluster, "addresses", lambda: {"n1": "192.0.2.1", "n2": "192.0.2.2"})
    monkeypatch.setattr(cluster, "live_actors", lambda state="ALIVE": iter(table[state]))
    monkeypatch.setattr(model_files.ray, "get_runtime_context", lambda: SimpleNamespace(namespace="fleet"))
    return table


def actor(name: str, report: str, namespace: str = "fleet") -> Any:
    return SimpleNamespace(name=name, ray_namespace=namespace, repr_name=report)


def test_only_replicas_of_this_namespace_that_serve_the_artifact_from_their_own_node_are_sources(
    in_ray: dict[str, list[Any]]
) -> None:
    in_ray["ALIVE"] = [
        actor("ModelActor:org/m:x:0", replica_at(7001)),
        actor("WarmReplica:w:3", replica_at(7002, node="n2", ip="192.0.2.2")),
        actor("ModelActor:other:0", replica_at(7003, artifact="b" * 64)),
        actor("ModelActor:elsewhere:0", replica_at(7004), namespace="another"),
        actor("ModelActor:liar:0", replica_at(7005, ip="192.0.2.2")),
        actor("ModelActor:closed:0", replica_at(None)),
        actor("ModelActor:starting:0", ""), actor("ModelActor:foreign:0", "{nonsense"),
        actor("Counter:a:0", replica_at(1)), actor("ModelActor:own:1", replica_at(7006))]
    in_ray["RESTARTING"] = [actor("ModelActor:back:2", replica_at(7007)), actor("ModelActor:own:1", replica_at(7006)),
                            actor("ModelActor:b:0", replica_at(7008, artifact="b" * 64))]
    found = serving_now("a" * 64, (), but="own/1")
    assert [(source.replica, source.address) for source, _ in found.ready] == [
        ("org/m:x/0", "192.0.2.1:7001"), ("w/3", "192.0.2.2:7002")]
    assert list(found.restarting) == ["back/2"]


def test_if_ray_does_not_answer_the_plan_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> dict[str, str]:
        raise ConnectionError("the head is down")

    monkeypatch.setattr(cluster, "addresses", refuse)
    assert serving_now("a" * 64, ("m/0",)) == ServingNow([], [])
