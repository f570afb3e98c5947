"""Weights from the fleet file to the engine on a real Ray: planned sources, parts of a gang, failures."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import os
import random
import resource
import shutil
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import magika
import pytest
import yaml
from cluster import RayCluster, end, engine_pids, eventually
from dashboard_answers import answers
from dripping_server import dripping
from e2e_world import World, member, model

from fleetctl.agent.weights.connections import MOST_CONNECTIONS
from fleetctl.agent.weights.protocol import Proof, connect
from fleetctl.agent.weights.table import LEASE_S, MOST_FETCHES
from fleetctl.documents.weights import Weights
from fleetctl.planner.weights import view_of

pytestmark = pytest.mark.ray

MAGIKA = Path(__file__).parents[2] / "fleets" / "real-model" / "magika_engine.py"
ROWS, COLUMNS = 64, 32
DATA = b"".join(hashlib.sha256(bytes([row])).digest() for row in range(ROWS))
SHARD = {"shard": {"rules": [{"match": "w", "dim": 1}]}}


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A model of one tensor."""
    folder = tmp_path / "origin"
    folder.mkdir()
    header = json.dumps({"w": {"dtype": "U8", "shape": [ROWS, COLUMNS], "data_offsets": [0, len(DATA)]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + DATA)
    (folder / "config.json").write_text("{}")
    return folder


def indexed(world: World, origin: Path) -> dict[str, Any]:
    """The lines that the command prints for the fleet file."""
    weights: dict[str, Any] = yaml.safe_load(world.run("weights", "index", str(origin)).stdout)["weights"]
    return weights


def on(node: str, weights: dict[str, Any], role: str | None = None) -> dict[str, Any]:
    return member("--plain", node=node, role=role, gpus=0, weights=weights)


def gang(weights: dict[str, Any]) -> list[dict[str, Any]]:
    """A leader on one node, a worker on the other."""
    return [on("b", weights, "Leader"), on("a", weights, "Worker")]


def only_copy(world: World, origin: Path, config: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Start a replica on node a with an artifact of its own, and remove the origin; return model and weights."""
    (origin / "config.json").write_text(config)
    weights = indexed(world, origin)
    one = model("one", 1, on("a", weights))
    world.write(one)
    outcome(world, "one")
    origin.rename(origin.with_name("away"))
    return one, weights


def planned_sources(plan: dict[str, Any]) -> list[list[tuple[str, str | None]]]:
    """The sources of each member of the one replica that a plan creates."""
    [action] = plan["actions"]
    return [[(one["replica"], one["view"]) for one in each["weights"]["sources"]] for each in action["members"]]


def outcome(world: World, key: str) -> dict[str, Any]:
    [found] = [row for row in world.apply_result()["outcomes"] if row["model"] == key]
    assert found["outcome"] == "ready", found
    return dict(found)


def test_each_member_of_a_gang_gets_the_files_of_all_its_ranks(
    world: World, disks: dict[str, Path], origin: Path
) -> None:
    for rank in range(5):
        shutil.copy(origin / "model.safetensors", origin / f"model-rank-{rank}-part-0.safetensors")
    (origin / "model.safetensors").unlink()
    weights = {**indexed(world, origin), "view": {"files": "model-rank-$(FLEETCTL_RANKS)-*"}}
    members = [member("--plain", "--tensor-parallel-size", "4", gpus=2, node=node, role=role, weights=weights)
               for node, role in (("b", "Leader"), ("a", "Worker"))]
    world.write(model("gang", 1, *members))
    outcome(world, "gang")
    [running] = world.replicas()
    for each, node, ranks in zip(running["members"], ("b", "a"), ((0, 1), (2, 3)), strict=True):
        folder = disks[node] / weights["index"] / "views" / each["weights"]["view"]
        names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
        assert names == {"config.json", *(f"model-rank-{rank}-part-0.safetensors" for rank in ranks)}
    written = Weights.model_validate(weights)
    known = [{"FLEETCTL_RANK": str(rank), "FLEETCTL_RANKS": ranks, "FLEETCTL_GROUP_SIZE": "2"}
             for rank, ranks in enumerate(("0,1", "2,3"))]
    assert [each["weights"]["view"] for each in running["members"]] == [view_of(written, one) for one in known]


def test_new_replicas_get_their_weights_from_running_replicas(
    world: World, disks: dict[str, Path], origin: Path, tmp_path: Path
) -> None:
    weights = indexed(world, origin)
    one = model("one", 1, on("a", weights))
    world.write(one)
    first = outcome(world, "one")
    assert first["weights"]["source"] == "origin"
    folder = world.ask(first)["FLEETCTL_MODEL_DIR"]
    assert folder == str(disks["a"] / weights["index"] / "files")
    assert {path.name: path.read_bytes() for path in Path(folder).iterdir()} == {
        name: (origin / name).read_bytes() for name in ("model.safetensors", "config.json")}

    origin.rename(tmp_path / "away")
    parts = gang({**weights, "view": SHARD})
    world.write(one, model("gang", 1, *parts))
    assert planned_sources(world.plan()) == [[("one/0", None)]] * 2
    made = outcome(world, "gang")
    assert made["weights"]["source"] == "peer"  # of the leader; the worker's part comes from its node
    [running] = [replica for replica in world.replicas() if replica["model"] == "gang"]
    views = [each["weights"]["view"] for each in running["members"]]
    for rank, (view, node) in enumerate(zip(views, ("b", "a"), strict=True)):
        part = (disks[node] / weights["index"] / "views" / view / "model.safetensors").read_bytes()
        begin = rank * COLUMNS // 2
        assert part.endswith(b"".join(DATA[row * COLUMNS + begin:][:COLUMNS // 2] for row in range(ROWS)))
    assert world.ask(made)["FLEETCTL_MODEL_DIR"] == str(disks["b"] / weights["index"] / "views" / views[0])
    assert "bytes from one/0 at " in world.run("logs", "gang/0", "--rank", "0").stdout

    secret = world.cluster.session_secret().encode()
    responses = dict(answers(world.cluster.address, world.cluster.session))
    assert any(b"one/0 at " in body for body in responses.values()), "the logs are among the responses"
    assert not [path for path, body in responses.items() if secret in body or base64.b64encode(secret) in body]

    world.write(one, model("gang", 1, *parts), model("twin", 1, *parts))
    assert planned_sources(world.plan())[0][0] == ("gang/0", views[0])  # planner and node use the same ids
    twin = outcome(world, "twin")
    assert (twin["weights"]["source"], twin["weights"]["bytes"]) == ("disk", 0)


def ask(connection: http.client.HTTPConnection, proof: Proof, path: str) -> tuple[int, bytes]:
    """Send a request like a fetching replica; return status and body."""
    connection.request("GET", path, headers={"Authorization": f"Bearer {proof.token('GET', path)}"})
    answer = connection.getresponse()
    return answer.status, answer.read()


@contextmanager
def held_busy(address: str, secret: bytes, artifact: str) -> Iterator[None]:
    """Take all places of a source like four fetching replicas, repeatedly, because an idle place is soon lost."""
    path, over = f"/v2/{artifact}/files/config.json", threading.Event()
    with ExitStack() as opened:
        held = [connect(address, secret, LEASE_S) for _ in range(MOST_FETCHES)]
        for connection, _ in held:
            opened.callback(connection.close)

        def hold() -> None:
            for connection, proof in held:
                assert ask(connection, proof, path)[0] == 200

        def go_on() -> None:
            while not over.wait(LEASE_S / 6):
                hold()

        hold()
        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def test_strangers_at_its_weights_port_neither_end_a_replica_nor_keep_receivers_out(
    world: World, disks: dict[str, Path], origin: Path
) -> None:
    flooded = model("flooded", 1, on("a", weights := indexed(world, origin)))
    flooded["workers"][0]["members"][0]["engine"]["liveness"] = {"tcp": {}, "period": "200ms"}
    world.write(flooded)
    ready = outcome(world, "flooded")
    origin.rename(origin.with_name("away"))
    [running], actor = world.replicas()[0]["members"], world.actors()["ModelActor:flooded:0"]
    files = Path(f"/proc/{actor['pid']}/fd")
    had = sum(1 for _ in files.iterdir())
    resource.prlimit(actor["pid"], resource.RLIMIT_NOFILE, (had + 2 * MOST_CONNECTIONS, had + 2 * MOST_CONNECTIONS))
    with ExitStack() as opened:
        for _ in range(1500):
            stranger = socket.create_connection((running["address"], running["weights"]["port"]), 30)
            opened.enter_context(stranger).sendall(b"G")
        assert sum(1 for _ in files.iterdir()) < had + MOST_CONNECTIONS
        world.write(flooded, model("late", 1, on("c", weights)))
        assert outcome(world, "late")["weights"]["source"] == "peer"
        assert world.ask(ready)["FLEETCTL_MODEL"] == "flooded"
    now = world.actors()["ModelActor:flooded:0"]
    assert (now["state"], now["pid"]) == ("ALIVE", actor["pid"])


def test_a_replica_whose_engine_still_loads_serves_its_weights_to_replicas_the_busy_source_refuses(
    world: World, disks: dict[str, Path], origin: Path
) -> None:
    one, weights = only_copy(world, origin, '{"for": "those that load"}')
    [running] = world.replicas()[0]["members"]
    address, artifact = f"{running['address']}:{running['weights']['port']}", weights["index"]
    secret = world.cluster.session_secret().encode()

    world.write(one, model("loading", 1, member(*world.loads, node="b", gpus=0, weights=weights)))
    assert world.apply("--no-wait").returncode in {0, 3}
    eventually(lambda: "ModelActor:loading:0" in world.actors() and engine_pids(world.fleet)[1:], "its engine loads")
    with held_busy(address, secret, artifact):
        connection, proof = connect(address, secret, LEASE_S)
        status, busy = ask(connection, proof, f"/v2/{artifact}/files/config.json")
        connection.close()
        [named] = json.loads(busy)
        assert (status, named["replica"]) == (429, "loading/0")
        world.write(model("late", 1, on("c", weights)))
        assert planned_sources(world.plan()) == [[("one/0", None)]]
        made = outcome(world, "late")["weights"]
        assert (made["source"], made["from"]) == ("peer", f"loading/0 at {named['address']}")

    for pid in world.engines():
        if str(disks["b"]) in Path(f"/proc/{pid}/environ").read_text():
            end(pid)
    host, port = named["address"].split(":")
    with pytest.raises(ConnectionRefusedError):
        eventually(lambda: socket.create_connection((host, int(port))).close(), "it serves no more")


def test_a_source_that_has_restarted_since_the_plan_is_found_and_one_that_restarts_is_waited_for(
    world: World, disks: dict[str, Path], origin: Path, tmp_path: Path
) -> None:
    one, weights = only_copy(world, origin, '{"for": "those that look"}')
    one["restart"] = {"max": 9, "backoff": "6s"}
    before = world.replicas()[0]["members"][0]["weights"]["port"]
    world.write(one, model("late", 1, on("b", weights)))
    saved = tmp_path / "saved.plan"
    world.run("plan", "-f", world.file, "--out", saved)
    restarted = world.run("restart", "one/0", "-f", world.file, "--yes")
    assert restarted.returncode == 0, restarted.stderr
    now = world.replicas()[0]["members"][0]["weights"]["port"]
    assert now != before, "otherwise the plan knows where it is"
    applied = world.run("apply", saved, "--yes", "--format", "json")
    assert applied.returncode == 0, applied.stderr
    [made] = json.loads(applied.stdout)["outcomes"]
    assert (made["outcome"], made["weights"]["source"]) == ("ready", "peer"), made
    assert "left" not in made["weights"] or not made["weights"]["left"], "the old port was not even tried"

    world.run("evict", "late/0", "-f", world.file, "--yes")
    shutil.rmtree(disks["b"], ignore_errors=True)
    [engine] = world.engines()[:1]
    end(world.actors()["ModelActor:one:0"]["pid"])
    eventually(lambda: world.actors()["ModelActor:one:0"]["state"] == "RESTARTING", "it backs off")
    assert engine
    made = outcome(world, "late")
    assert (made["weights"]["source"], made["weights"]["from"].partition(" ")[0]) == ("peer", "one/0")


@pytest.mark.long
def test_the_startup_timeout_holds_for_an_origin_whose_header_drips(world: World, origin: Path) -> None:
    weights = indexed(world, origin)
    with dripping(b"HTTP/1.1 200 OK\r\nX-Slow: ") as (port, _):
        slow = {**weights, "from": [{"http": f"http://127.0.0.1:{port}/"}]}
        world.write(model("slow", 1, on("a", slow), startupTimeout="5s"))
        [failed] = world.apply_result()["outcomes"]
    assert (failed["outcome"], failed["code"]) == ("failed", "STARTUP_TIMEOUT")
    assert f"http://127.0.0.1:{port}/" in failed["message"]


@pytest.mark.long
def test_a_real_model_from_another_replica_answers_as_the_one_from_the_origin(world: World, tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    [packaged] = (Path(magika.__file__).parent / "models").iterdir()
    shutil.copytree(packaged, origin)
    weights = indexed(world, origin)
    engine = {"command": [sys.executable, str(MAGIKA), "--port", "$(FLEETCTL_PORT)"], "env": {"OMP_NUM_THREADS": "1"},
              "readiness": {"http": {"path": "/health"}, "period": "200ms"}}
    anywhere = member(gpus=0, engine=engine, weights=weights, nodeSelector={"fleet.io/node": "in(a, b)"})
    made = []
    for replicas, source in ((1, "origin"), (2, "peer")):
        world.write(model("magika", replicas, anywhere))
        made.append(outcome(world, "magika"))
        assert made[-1]["weights"]["source"] == source
        shutil.rmtree(origin, ignore_errors=True)
    assert made[0]["weights"]["bytes"] == made[1]["weights"]["bytes"] > 1 << 20
    assert {world.ask(one, "/health")["model"] for one in made} == {"files"}  # not the folder of the package
    first, second = (httpx.post(f"http://{one['address']}/classify", content=MAGIKA.read_bytes(), timeout=30).json()
                     for one in made)
    assert first.pop("replica") != second.pop("replica")
    assert first == second
    assert first["label"] == "python"


def test_weights_are_on_a_node_before_its_replica_and_are_removed_when_no_fleet_file_names_them(
    world: World, disks: dict[str, Path], origin: Path
) -> None:
    one, weights = only_copy(world, origin, '{"one": "more artifact"}')

    fetched = world.run("prefetch", "one", "-f", world.file, "--node", "b", "--format", "json")
    assert fetched.returncode == 0, fetched.stderr
    [row] = json.loads(fetched.stdout)["rows"]
    assert (row["node"], row["fetched"]["source"], row["fetched"]["bytes"] > 0) == ("b", "peer", True)
    world.write(one, model("two", 1, on("b", weights)))
    two = outcome(world, "two")
    assert (two["weights"]["source"], two["weights"]["bytes"]) == ("disk", 0)

    assert world.run("evict", "two/0", "--yes").returncode == 0
    artifact = weights["index"]
    world.write(model("three", 0, member("--plain", gpus=0)))
    # without the replica's own report, so that only its use of the files protects them
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fleetctl.cli.disks.named_weights", lambda *_: [])
        eventually(lambda: pruned(world, artifact)["b"] == (False, True), "the evicted replica's processes ended")
    assert {name: (disks[name] / artifact / "files").exists() for name in "ab"} == {"a": True, "b": False}


def pruned(world: World, artifact: str) -> dict[str, tuple[bool, bool]]:
    """Prune the test's nodes; return for each whether it uses the artifact, and whether it was removed."""
    done = world.run("prune", "-f", world.file, "--nodes", "fleet.io/node in (a, b)", "--yes",
                     "--format", "json")
    assert done.returncode == 0, done.stderr
    return {node["node"]: (one["used"], one["removed"]) for node in json.loads(done.stdout)["nodes"]
            for one in node["artifacts"] if one["artifact"] == artifact}


def test_a_file_changed_on_a_node_is_named_by_doctor_and_fetched_again_while_the_engines_run(
    world: World, disks: dict[str, Path], origin: Path
) -> None:
    data = random.Random(1).randbytes(20 << 20)  # more than a start hashes
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    (origin / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    weights = indexed(world, origin)
    one, two = (model(key, 1, on("a", weights)) for key in ("one", "two"))
    world.write(one)
    outcome(world, "one")
    good, path = (origin / "model.safetensors").read_bytes(), disks["a"] / weights["index"] / "files/model.safetensors"
    before = path.stat()
    eventually(lambda: "are verified" in world.run("logs", "one").stdout, "the first check is over")
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(-8, 2)
        file.write(b"POISONED")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    world.write(one, two)
    started = outcome(world, "two")
    assert (started["weights"]["source"], started["weights"]["bytes"]) == ("disk", 0), "the start waits for no check"
    engines = world.engines()

    eventually(lambda: path.read_bytes() == good, "it was fetched again")
    found = eventually(lambda: [row for row in json.loads(world.run("doctor", "--format", "json").stdout)["findings"]
                                if row["code"] == "WEIGHTS_WRONG"], "doctor names it")
    [wrong] = found
    assert wrong["subject"] == "a"
    assert wrong["message"].startswith(
        f"model.safetensors of weights {weights['index'][:12]} was not what the index says: piece 0, its content has ")
    assert "one/0" in wrong["message"]
    assert "model.safetensors" in world.run("status").stdout
    assert "verified since" in world.run("status", "--format", "wide").stdout
    assert world.engines() == engines, "no engine was touched"


class Stalling(http.server.BaseHTTPRequestHandler):
    """Serves the index, and of the files only a byte now and then."""

    def do_GET(self) -> None:
        data = (self.server.folder / self.path.lstrip("/")).read_bytes()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.path.endswith(".json"):
            self.wfile.write(data)
            return
        self.server.requests.append(self.path)  # type: ignore[attr-defined]
        for byte in data:
            try:
                self.wfile.write(bytes([byte]))
            except OSError:
                self.server.gone.append(self.path)  # type: ignore[attr-defined]
                return
            time.sleep(0.05)

    def log_message(self, *_: object) -> None:
        return


def test_weights_without_a_working_source_fail_with_the_reasons_and_an_eviction_ends_a_fetch_immediately(
    world: World, disks: dict[str, Path], origin: Path
) -> None:
    (origin / "config.json").write_text('{"another": "artifact"}')
    weights = indexed(world, origin)
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stalling)
    server.folder, server.requests, server.gone = origin, [], []
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    nowhere = {**weights, "from": [{"path": "/nowhere"}, {"hf": "org/none@main"}]}
    slow = {**weights, "from": [{"http": f"http://127.0.0.1:{server.server_address[1]}/"}]}
    try:
        world.write(model("none", 1, on("a", nowhere)))
        [failed] = world.apply_result()["outcomes"]
        assert (failed["outcome"], failed["code"]) == ("failed", "WEIGHTS_FAILED")
        assert "/nowhere: " in failed["message"]
        assert "hf org/none@main: " in failed["message"]

        world.write(model("slow", 1, on("a", slow)), model("gang", 1, *gang(slow)))
        started = world.apply("--no-wait")
        assert started.returncode in {0, 3}, started.stderr
        eventually(lambda: len(server.requests) == 2, "one fetch on each node")
        evicted = world.run("evict", "slow/0", "gang/0", "-f", world.file, "--yes", "--format", "json")
        assert [row["outcome"] for row in json.loads(evicted.stdout)["outcomes"]] == ["gone"] * 2, evicted.stderr
        eventually(lambda: len(server.gone) == len(server.requests), "no fetch reads any more")
        eventually(lambda: not world.actors(), "the replicas are gone")
    finally:
        server.shutdown()
        server.server_close()
    assert not (disks["a"] / weights["index"] / "files").exists(), "no unfinished artifact is called complete"


@pytest.mark.long
def test_four_ranks_fetch_a_model_once_and_one_apply_copies_it_to_eight_nodes(
    world: World, ray_cluster: RayCluster, origin: Path, tmp_path: Path
) -> None:
    names = [f"chain-{number}" for number in range(9)]
    header = json.dumps({"w": {"dtype": "U8", "shape": [2048, 1024], "data_offsets": [0, 2 << 20]}}).encode()
    (origin / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + DATA * 1024)
    for name in names:
        ray_cluster.add(names=[name], gpus=0, labels={"fleet.io/replica-slots": "2"},
                        env={"FLEETCTL_CACHE_DIR": str(tmp_path / name)})
    try:
        weights = indexed(world, origin)
        models = [model("first", 1, on(names[0], weights))]
        world.write(*models)
        size = outcome(world, "first")["weights"]["bytes"]
        origin.rename(tmp_path / "away")
        part = {**weights, "view": SHARD}
        world.write(*models, model("gang", 1, on(names[1], part, "Leader"), *(
            on(name, part, "Worker") for name in names[2:5])))
        got = outcome(world, "gang")["weights"]
        assert (got["source"], got["bytes"] <= 1.02 * size) == ("peer", True), (got, size)

        anywhere = member("--plain", gpus=0, weights=weights,
                          nodeSelector={"fleet.io/node": f"in({','.join(names[1:])})"})
        world.write(*models, model("all", 16, anywhere, placement={"spread": "fleet.io/node"}))
        planned = {(one["replica"], one.get("wave"), each["nodeId"]) for action in world.plan()["actions"]
                   for each in action["members"] for one in each["weights"]["sources"]}
        assert Counter((replica, wave) for replica, wave, _ in planned) == {("first/0", None): 4, ("first/0", 2): 4}
        rows = [row for row in world.apply_result()["outcomes"] if row["model"] == "all"]
        assert [row["outcome"] for row in rows] == ["ready"] * 16
        assert sorted(Counter(row["nodes"][0] for row in rows).items()) == [(name, 2) for name in names[1:]]
        assert sum(row["weights"]["bytes"] for row in rows) == 8 * size, "one rank per node fetches"
        assert {row["weights"]["source"] for row in rows} == {"peer", "disk"}
    finally:
        for name in names:
            ray_cluster.remove_if_there(name=name)
