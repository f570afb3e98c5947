"""Weights on a real Ray: an engine finds its files, others have them from its replica, an eviction waits for none."""

from __future__ import annotations

import hashlib
import http.server
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cluster import RayCluster, eventually
from conftest import World, member, model

from fleetctl.agent.weights.index import write_index
from fleetctl.apply import request

pytestmark = pytest.mark.ray

ROWS, COLUMNS = 64, 32
SHARD = {"shard": {"rules": [{"match": "w", "dim": 1}], "of": "$(FLEETCTL_GROUP_SIZE)"}}


@pytest.fixture(scope="module")
def disks(ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Two nodes with disks of their own."""
    found = {name: tmp_path_factory.mktemp(name) for name in ("disk-a", "disk-b")}
    for name, disk in found.items():
        ray_cluster.add(names=[name], env={"FLEETCTL_CACHE_DIR": str(disk)})
    yield found
    for name in found:
        ray_cluster.remove(name=name)


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A model of one tensor."""
    folder = tmp_path / "origin"
    folder.mkdir()
    data = b"".join(hashlib.sha256(bytes([row])).digest() for row in range(ROWS))
    header = json.dumps({"w": {"dtype": "U8", "shape": [ROWS, COLUMNS], "data_offsets": [0, len(data)]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    (folder / "config.json").write_text("{}")
    return folder


class Planned:
    """Adds weights to each member of a plan, as the planner does."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch) -> None:
        self.world, self.weights = world, dict[str, Any]()
        plain = request.plan_request

        def with_weights(plan: Any) -> dict[str, Any]:
            made = plain(plan)
            for action in made["plan"]["actions"]:
                for one in action["members"]:
                    one["weights"] = self.weights
            return made

        patch.setattr(request, "plan_request", with_weights)

    def apply(self, **weights: Any) -> list[dict[str, Any]]:
        self.weights = {"view": None, "sources": [], **weights}
        outcomes: list[dict[str, Any]] = self.world.apply_result()["outcomes"]
        return outcomes

    def marks(self, name: str) -> list[dict[str, Any]]:
        """What the members of a replica say of their weights."""
        url = f"{self.world.cluster.address}/logical/actors?nocache=1"
        listed = httpx.get(url, headers={"User-Agent": "tests"}).json()
        marks = [json.loads(row["reprName"]) for row in listed["data"]["actors"].values()
                 if row["name"] == name and row["state"] == "ALIVE"]
        [found] = [mark["members"] for mark in marks if mark["namespace"] == self.world.fleet]
        return list(found)


@pytest.fixture
def planned(world: World, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """Weights in the plans of a world."""
    return Planned(world, monkeypatch)


def files_in(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def test_an_engine_finds_its_weights_and_a_gang_on_another_node_has_its_parts_from_that_replica(
    world: World, planned: Planned, disks: dict[str, Path], origin: Path
) -> None:
    artifact = write_index(str(origin))
    one = model("one", 1, member("--plain", node="disk-a"))
    world.write(one)
    [first] = planned.apply(artifact=artifact, **{"from": [{"path": str(origin)}]})
    assert first["outcome"] == "ready", first
    folder = world.ask(first)["FLEETCTL_MODEL_DIR"]
    assert folder == str(disks["disk-a"] / artifact / "files")
    assert files_in(folder) == {path: data for path, data in files_in(str(origin)).items() if "weights" not in path}
    [mark] = planned.marks("ModelActor:one:0")
    served = mark["weights"]
    assert (served["artifact"], served["view"], served["whole"]) == (artifact, None, True)
    assert served["fetched"]["source"] == "origin"

    shutil.rmtree(origin)
    world.write(one, model("gang", 1, member("--plain", role="Leader", node="disk-b"),
                           member("--plain", role="Worker", node="disk-a")))
    source = {"replica": "one/0", "nodeId": mark["nodeId"], "address": f"{mark['ip']}:{served['port']}", "view": None}
    [gang] = planned.apply(artifact=artifact, view=SHARD, sources=[source], **{"from": [{"path": str(origin)}]})
    assert gang["outcome"] == "ready", gang
    ranks = planned.marks("ModelActor:gang:0")
    whole = (Path(folder) / "model.safetensors").read_bytes()[-ROWS * COLUMNS:]
    for rank, node, source_kind in ((0, "disk-b", "peer"), (1, "disk-a", "disk")):
        [got] = [each["weights"] for each in ranks if each["rank"] == rank]
        assert (got["whole"], got["fetched"]["source"]) == (node == "disk-a", source_kind)
        part = (disks[node] / artifact / "views" / got["view"] / "model.safetensors").read_bytes()
        half = COLUMNS // 2
        assert part.endswith(b"".join(whole[row * COLUMNS + rank * half:][:half] for row in range(ROWS)))
    assert str(disks["disk-b"] / artifact / "views") in world.ask(gang)["FLEETCTL_MODEL_DIR"]
    log = world.run("logs", "gang/0", "--rank", "0").stdout
    assert f"bytes from one/0 at {source['address']}" in log


class Stalling(http.server.BaseHTTPRequestHandler):
    """Gives the index, and of the files a byte every now and then."""

    def do_GET(self) -> None:
        data = (self.server.folder / self.path.lstrip("/")).read_bytes()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.path.endswith(".json"):
            self.wfile.write(data)
            return
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        for byte in data:
            try:
                self.wfile.write(bytes([byte]))
            except OSError:
                self.server.gone.append(self.path)  # type: ignore[attr-defined]
                return
            time.sleep(0.05)

    def log_message(self, *_: object) -> None:
        return


def test_weights_that_nobody_gives_fail_with_the_reasons_and_an_eviction_ends_a_fetch_at_once(
    world: World, planned: Planned, disks: dict[str, Path], origin: Path
) -> None:
    (origin / "config.json").write_text('{"another": "artifact"}')
    artifact = write_index(str(origin))
    world.write(model("none", 1, member("--plain", node="disk-a")))
    [failed] = planned.apply(artifact=artifact, **{"from": [{"path": "/nowhere"}, {"hf": "org/none@main"}]})
    assert (failed["outcome"], failed["code"]) == ("failed", "WEIGHTS_FAILED")
    assert "/nowhere: " in failed["message"]
    assert "hf org/none@main: " in failed["message"]

    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stalling)
    server.folder, server.asked, server.gone = origin, [], []
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        world.write(model("slow", 1, member("--plain", node="disk-a")),
                    model("gang", 1, member("--plain", role="Leader", node="disk-b"),
                          member("--plain", role="Worker", node="disk-a")))
        planned.weights = {"artifact": artifact, "view": None, "sources": [],
                           "from": [{"http": f"http://127.0.0.1:{server.server_address[1]}/"}]}
        started = world.run("apply", "-f", world.file, "--yes", "--no-wait")
        assert started.returncode in {0, 3}, started.stderr
        eventually(lambda: len(server.asked) == 2, "one fetch on each node")
        evicted = world.run("evict", "slow/0", "gang/0", "-f", world.file, "--yes", "--format", "json")
        assert [row["outcome"] for row in json.loads(evicted.stdout)["outcomes"]] == ["gone"] * 2, evicted.stderr
        eventually(lambda: len(server.gone) == len(server.asked), "nobody reads any more")
        eventually(lambda: not world.actors(), "the replicas are gone")
    finally:
        server.shutdown()
        server.server_close()
    assert not (disks["disk-a"] / artifact / "files").exists(), "nothing half is called complete"
