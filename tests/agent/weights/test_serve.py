"""A source serves clients with the secret, a few at a time, makes a view once, and may end at any moment."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from origin_server import origin_over_http
from other_node import Node
from small_pieces import PIECE, SECRET
from weights_world import (
    SHARD,
    eventually,
    fetch,
    files_in,
    has_sent,
    model,
    request,
    serving,
    status_and_body,
    tensors_in,
)

from fleetctl.agent.weights import connections, gather, serve, store
from fleetctl.agent.weights.index import WeightsError, name_of
from fleetctl.agent.weights.protocol import LOW_WATER_BYTES, VIEW_HEADER
from fleetctl.agent.weights.table import LEASE_S, MOST_FETCHES, RequestRefused, ViewTable
from fleetctl.agent.weights.views import MODEL, read_view, view_id

FILE = "model-00001-of-00002.safetensors"


def get(described: dict[str, Any], path: str, **headers: str) -> tuple[int, bytes]:
    return status_and_body(described["address"], path, **headers)


def test_a_range_of_a_file_is_served_only_with_the_secret(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    path = f"/v2/{artifact}/files/{FILE}"
    with serving(tmp_path / "a", got) as (_, described):
        data = (origin / FILE).read_bytes()
        assert get(described, path) == (200, data)
        assert get(described, path, Range="bytes=70000-") == (206, data[70000:])
        status, index = get(described, f"/v2/{artifact}/index")
        assert (status, name_of(index)) == (200, artifact)
        assert get(described, path, Authorization="")[0] == 401
        assert get(described, path, Authorization=f"Bearer {SECRET.decode()}")[0] == 401
        assert status_and_body(described["address"], path, secret=b"another")[0] == 401
        for absent in (f"/v2/{'0' * 64}/index", f"/v2/{artifact}/files/..%2F..%2Fetc%2Fpasswd", "/", f"/v2/{artifact}",
                       f"/v2/{artifact}/files/nothing", f"/v2/{artifact}/views/{'0' * 16}/files/{MODEL}"):
            assert get(described, absent)[0] == 404, absent
        requests = json.dumps({"view": SHARD, "rank": 0, "size": 4})
        assert get(described, f"/v2/{artifact}/views/{'0' * 16}/index", **{VIEW_HEADER: requests})[0] == 404
        assert get(described, path, Range="bytes=5-9")[0] == 416


@pytest.mark.parametrize(("described", "status"), [
    ("null", 404), ('{"view": {}, "rank": 0, "size": 4}', 404), ("[", 500), ("5", 500), ('{"view": 5}', 500),
    ('{"view": {"tensors": 5}, "rank": 0, "size": 4}', 500),
    ('{"view": {"tensors": "a"}, "rank": "0", "size": 4}', 500),
    ('{"view": {"shard": {"rules": [{"match": "a", "dim": "0"}]}}, "rank": 0, "size": 4}', 500),
    ('{"view": {"shard": {"rules": [{"match": "a"}], "of": "0"}}, "rank": 0, "size": 4}', 500),
])
def test_a_malformed_request_for_a_view_is_refused_and_makes_nothing(
    tmp_path: Path, origin: Path, artifact: str, described: str, status: int
) -> None:
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    with serving(tmp_path / "a", got) as (source, there):
        assert get(there, f"/v2/{artifact}/views/{'0' * 16}/index", **{VIEW_HEADER: described})[0] == status
        assert source.made == 0


def test_only_a_view_by_tensors_is_made_for_others(tmp_path: Path, origin: Path, artifact: str) -> None:
    got, files = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}]), {"files": "*-00001-*"}
    path = f"/v2/{artifact}/views/{view_id(read_view(files), 0, 4, artifact)}/index"
    with serving(tmp_path / "a", got) as (source, there):
        described = json.dumps({"view": files, "rank": 0, "size": 4})
        assert get(there, path, **{VIEW_HEADER: described}) == (500, b"a view by files is not made of tensors")
        assert source.made == 0


def test_a_small_response_does_not_wait_between_headers_and_body(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, send = list[int](), serve.Handler._send

    def noted(self: serve.Handler, *what: Any) -> None:
        seen.append(self.connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        send(self, *what)

    monkeypatch.setattr(serve.Handler, "_send", noted)
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    with serving(tmp_path / "a", got) as (_, described):
        assert get(described, f"/v2/{artifact}/files/config.json") == (200, b'{"layers": 2}')
    assert seen == [1]


def test_a_source_with_another_secret_is_dropped(tmp_path: Path, origin: Path, artifact: str) -> None:
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    with serving(tmp_path / "a", got) as (_, described):
        other = fetch(tmp_path / "b", artifact, described, origins=[{"path": str(origin)}], secret=b"another")
    assert other.source == "origin"
    assert "401" in other.left[0][1]


def test_at_most_four_clients_fetch_at_a_time_and_a_silent_client_loses_its_place(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, refused = [0.0], list[str]()
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    source = serve.Source(str(tmp_path / "a"), got, SECRET, clock=lambda: now[0])

    def refuse(self: serve.Handler, code: str, wanted: str | None) -> None:
        answer(self, code, wanted)
        refused.append(code)

    answer = serve.Handler._refuse
    monkeypatch.setattr(serve.Handler, "_refuse", refuse)
    path = f"/v2/{artifact}/files/{FILE}"
    with serve.WeightsServer(source, "127.0.0.1") as server, contextlib.ExitStack() as opened:
        server.start()
        described = {"replica": "m/0", "address": f"127.0.0.1:{server.port}", "view": None}
        for _ in range(MOST_FETCHES):
            one, sent = request(described["address"], path)
            opened.callback(one.close)
            assert sent.status == 200
        assert get(described, path)[0] == 429
        lines: list[str] = []
        with pytest.raises(WeightsError):
            fetch(tmp_path / "b", artifact, described, lines=lines, clock=lambda: 0.0 if len(refused) < 3 else 60.0)
        assert (lines, refused) == ([], ["busy"] * 3), "a busy source is asked again, not dropped"
        now[0] += LEASE_S
        assert get(described, path)[0] == 200, "the leases have expired"


def test_many_first_requests_for_a_view_make_it_once(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, begun = gather.make_view, threading.Event()
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])

    def slowly(*arguments: Any) -> Any:
        assert begun.wait(30)
        return made(*arguments)

    monkeypatch.setattr(serve, "make_view", slowly)
    with serving(tmp_path / "a", got) as (source, described), ThreadPoolExecutor(12) as pool:
        fetches = [pool.submit(fetch, tmp_path / f"n{number}", artifact, described, view=SHARD, rank=3)
                   for number in range(12)]
        eventually(lambda: source.table.state(view_id(read_view(SHARD), 3, 4, artifact)) == "pending")
        begun.set()
        folders = [one.result(60).entry.folder for one in fetches]
        assert source.made == 1
        assert source.table.most <= MOST_FETCHES
    assert len({json.dumps({path: len(data) for path, data in files_in(folder).items()}) for folder in folders}) == 1
    assert len({(Path(folder) / MODEL).read_bytes() for folder in folders}) == 1


def test_a_view_is_served_as_soon_as_it_is_made_and_before_it_is_synced_to_disk(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, written, requests, record = gather.make_view, threading.Event(), list[str](), store.Entry.record
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])

    def once_asked(*arguments: Any) -> Any:
        eventually(lambda: requests)
        return made(*arguments)

    def index(self: serve.Source, view: str | None, how: Any) -> bytes:
        requests.extend([view] if view else [])
        return answer(self, view, how)

    def slow_disk(self: store.Entry, held: Any) -> None:
        assert "/a/" not in self.folder or written.wait(30)
        record(self, held)

    answer = serve.Source.index
    monkeypatch.setattr(serve, "make_view", once_asked)
    monkeypatch.setattr(serve.Source, "index", index)
    monkeypatch.setattr(store.Entry, "record", slow_disk)
    with serving(tmp_path / "a", got) as (_, described):
        view = fetch(tmp_path / "b", artifact, described, view=SHARD, rank=1).entry.view
        here = store.Entry(str(tmp_path / "a"), artifact, view)
        assert here.index() is None
        written.set()
        eventually(here.index)
    assert requests == [view]


def test_large_reads_deliver_large_files_completely(tmp_path: Path) -> None:
    artifact = model(tmp_path / "large", rows=4096)
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(tmp_path / "large")}])
    assert any(file.size > 4 * LOW_WATER_BYTES for file in got.held.files)
    with serving(tmp_path / "a", got) as (source, described):
        other = fetch(tmp_path / "b", artifact, described)
        assert has_sent(source, got.held.size)
    assert files_in(other.entry.folder) == files_in(got.entry.folder)
    assert other.left == []


def test_idle_views_make_room_for_others_but_a_view_in_use_on_the_node_stays(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    views = tmp_path / "a" / artifact / "views"
    names = [str(view_id(read_view(SHARD), rank, 4, artifact)) for rank in range(3)]
    one = fetch(tmp_path / "x", artifact, origins=[{"path": str(origin)}], view=SHARD, rank=0).held.size
    with serving(tmp_path / "a", got, budget=2 * one) as (source, described):
        fetch(tmp_path / "r0", artifact, described, view=SHARD, rank=0)
        engine = fetch(tmp_path / "a", artifact, view=SHARD, rank=0)
        fetch(tmp_path / "r1", artifact, described, view=SHARD, rank=1)
        eventually(lambda: not source.table._fetches)
        lines: list[str] = []
        fetch(tmp_path / "r2", artifact, described, view=SHARD, rank=2, lines=lines)
        assert (views / names[0] / MODEL).exists(), "an engine of this node reads it"
        if not lines:
            assert not (views / names[1]).exists()
            assert (views / names[2]).exists()
        assert engine.source == "disk"


def test_a_view_that_another_process_waits_for_is_served_before_its_index_is_on_disk(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, record = threading.Event(), store.Entry.record

    def slow_disk(self: store.Entry, held: Any) -> None:
        assert "/a/" not in self.folder or written.wait(30)
        record(self, held)

    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    monkeypatch.setattr(store.Entry, "record", slow_disk)
    with serving(tmp_path / "a", got) as (source, described):
        first = fetch(tmp_path / "b", artifact, described, view=SHARD, rank=1).entry
        eventually(lambda: not source.table._fetches)
        waiting = store.Entry(str(tmp_path / "a"), artifact, first.view)
        waiting.keep()
        assert source.table.remove(first.view) == 0
        second = fetch(tmp_path / "c", artifact, described, view=SHARD, rank=1).entry
        assert files_in(second.folder) == files_in(first.folder) != {}
        written.set()
        eventually(waiting.index)


Nodes = Callable[..., Node]


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Start nodes, and end them afterwards."""
    with contextlib.ExitStack() as opened:
        def start(*arguments: Any, **order: Any) -> Node:
            node = Node(*arguments, **order)
            opened.callback(node.end)
            return node

        yield start


@pytest.mark.slow
def test_if_a_source_is_killed_while_it_serves_the_next_source_continues(
    tmp_path: Path, nodes: Nodes
) -> None:
    artifact = model(tmp_path / "big", rows=1 << 14)
    origins = [{"path": str(tmp_path / "big")}]
    first = nodes(tmp_path / "a", artifact, origins=origins)
    second = nodes(tmp_path / "b", artifact, origins=origins)
    sources = [first.read_report("serving")["serving"], second.read_report("serving")["serving"]]
    part = tmp_path / "c" / artifact / "files.part" / FILE
    third = nodes(tmp_path / "c", artifact, sources=sources)
    eventually(lambda: (part.exists() and part.stat().st_size > PIECE) or third.process.poll() is not None)
    first.end()
    got = third.read_report("serving", "failed")
    assert files_in(got["folder"]) == files_in(tmp_path / "big")
    if third.left:
        assert sources[0]["address"] in third.left[0]
        assert got["name"] in {f"{one['replica']} at {one['address']}" for one in sources}


@pytest.mark.slow
def test_a_source_killed_while_it_makes_a_view_leaves_no_lock_held(
    tmp_path: Path, nodes: Nodes
) -> None:
    artifact = model(tmp_path / "big", rows=1 << 14)
    origins = [{"path": str(tmp_path / "big")}]
    first = nodes(tmp_path / "a", artifact, origins=origins)
    described = first.read_report("serving")["serving"]
    name = view_id(read_view(SHARD), 1, 4, artifact)
    requests = json.dumps({"view": SHARD, "rank": 1, "size": 4})
    assert get(described, f"/v2/{artifact}/views/{name}/index", **{VIEW_HEADER: requests})[0] in {200, 202}
    first.end()
    again = nodes(tmp_path / "a", artifact)
    described = again.read_report("serving")["serving"]
    second = nodes(tmp_path / "b", artifact, sources=[described], view=SHARD, rank=1)
    got = second.read_report("serving", "failed")
    assert got["source"] == "peer"
    whole = tensors_in(tmp_path / "big" / FILE)["a.columns.weight"]
    assert tensors_in(Path(got["folder"]) / MODEL)["a.columns.weight"].tobytes() == whole[:, 32:64].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("state", ["pending", "ready"])
def test_if_a_source_is_killed_before_it_serves_its_view_the_next_source_makes_it(
    tmp_path: Path, nodes: Nodes, origin: Path, artifact: str, state: str
) -> None:
    origins = [{"path": str(origin)}]
    first = nodes(tmp_path / "a", artifact, origins=origins, views=state)
    sources = [first.read_report("serving")["serving"], nodes(tmp_path / "b", artifact, origins=origins).read_report(
        "serving")["serving"]]
    third = nodes(tmp_path / "c", artifact, sources=sources, view=SHARD, rank=1)
    assert first.read_report("view") == {"view": state}
    first.end()
    got = third.read_report("serving", "failed")
    assert (got["source"], got["name"]) == ("peer", f"{sources[1]['replica']} at {sources[1]['address']}")
    assert sources[0]["address"] in third.left[0]
    here = fetch(tmp_path / "b", artifact, view=SHARD, rank=1)
    assert files_in(got["folder"]) == files_in(here.entry.folder)


@pytest.mark.slow
def test_a_killed_fetch_frees_its_place_and_a_later_fetch_resumes_it(
    tmp_path: Path, nodes: Nodes
) -> None:
    artifact = model(tmp_path / "big", rows=1 << 14)
    with origin_over_http(tmp_path / "big", "slow") as server:
        killed = nodes(tmp_path / "a", artifact, origins=[{"http": server.url}])
        part = tmp_path / "a" / artifact / "files.part" / FILE
        eventually(lambda: part.exists() and part.stat().st_size > PIECE)
        killed.end()
        server.way = "well"
        later = nodes(tmp_path / "a", artifact, origins=[{"http": server.url}])
        got = later.read_report("serving", "failed")
    assert got["reused"] > 0
    assert files_in(got["folder"]) == files_in(tmp_path / "big")


@pytest.mark.slow
@pytest.mark.parametrize(("view", "on", "gives"), [(None, 16, MOST_FETCHES), (SHARD, 8, 1)])
def test_sixteen_receivers_get_each_byte_once_from_a_source_or_from_one_another(
    tmp_path: Path, origin: Path, artifact: str, nodes: Nodes, monkeypatch: pytest.MonkeyPatch,
    view: dict[str, Any] | None, on: int, gives: int,
) -> None:
    """All receivers know only one source, which sends each part `gives` times and then stays busy."""
    begin, begun, turn = ViewTable.begin, defaultdict[str | None, set[str]](set), threading.Lock()

    def busy_soon(self: ViewTable, key: str | None, name: str) -> None:
        with turn:
            if len(begun[key] - {name}) >= gives:
                raise RequestRefused("busy")
            begin(self, key, name)
            begun[key].add(name)

    monkeypatch.setattr(ViewTable, "begin", busy_soon)
    monkeypatch.setattr(connections, "MOST_FROM_ONE", connections.MOST_CONNECTIONS)  # they all have the same address
    whole = fetch(tmp_path / "first", artifact, origins=[{"path": str(origin)}])
    with origin_over_http(origin) as server, serving(tmp_path / "first", whole) as (source, described):
        starting = [nodes(tmp_path / f"n{number % on}", artifact, sources=[described], view=view,
                          rank=(number + number // on) % 4, origins=[{"http": server.url}]) for number in range(16)]
        lines = [node.read_report("serving", "failed") for node in starting]
        assert (server.sent, [one["source"] for one in lines]) == (0, ["peer"] * 16)
        ends = [node.stop() for node in starting]
        once = sum({one["serving"]["view"]: one["size"] for one in lines}.values())
        assert has_sent(source, gives * once)
        assert source.sent + sum(end["sent"] for end in ends) == sum(one["size"] for one in lines) == (
            16 * once if view is None else 4 * once)
        assert source.table.most <= MOST_FETCHES
        assert max(end["most"] for end in ends) <= MOST_FETCHES


def test_one_source_serves_sixteen_receivers_four_at_a_time(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    with serving(tmp_path / "a", got) as (source, described), ThreadPoolExecutor(16) as pool:
        fetches = [pool.submit(fetch, tmp_path / f"n{number}", artifact, described) for number in range(16)]
        assert {one.result(60).source for one in fetches} == {"peer"}
        assert source.table.most <= MOST_FETCHES
        assert has_sent(source, 16 * got.held.size)
