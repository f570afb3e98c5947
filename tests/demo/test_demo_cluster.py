"""The demo on a real Ray: up, the whole tour, up again, a killed keeper, down. One cluster for the whole file."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from in_process import run_here

from fleetctl.demo.cluster import DEMO_NODES
from fleetctl.demo.home import DemoHome
from fleetctl.demo.lifecycle import find_processes, stop_cluster
from fleetctl.demo.tour import Tour, demo_fleet, stops_after_asking, stops_before_asking

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parents[2]
FLEETCTL = [sys.executable, "-m", "fleetctl"]
EXAMPLE = ROOT / "fleets" / "real-model"
PROGRAMS = os.pathsep.join([str(EXAMPLE), str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.fixture(scope="module")
def home() -> Iterator[DemoHome]:
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as folder:
        home = DemoHome(Path(folder) / "d")
        yield home
        stop_cluster(home)


def environment(**more: str) -> dict[str, str]:
    """This machine's environment without Ray settings, with the example's programs on the PATH."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "FLEETCTL_"))}
    return {**env, "PATH": PROGRAMS, **more}


def fleetctl(home: DemoHome, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*FLEETCTL, *arguments], env=environment(FLEETCTL_DEMO_HOME=str(home.path)),
                          capture_output=True, text=True, check=False, timeout=280)


@pytest.fixture(scope="module")
def exported(home: DemoHome) -> dict[str, str]:
    done = fleetctl(home, "demo", "up")
    assert done.returncode == 0, done.stderr
    words = [shlex.split(line) for line in done.stdout.splitlines()]
    assert {line[0] for line in words} == {"export"}
    return dict(line[1].split("=", 1) for line in words)


def get(url: str, token: str | None = None) -> dict:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_the_nodes_have_their_declared_names_labels_and_cards(exported: dict[str, str]) -> None:
    token = Path(exported["RAY_AUTH_TOKEN_PATH"]).read_text()
    nodes = get(f"{exported['FLEETCTL_ADDRESS']}/api/v0/nodes?detail=true", token)["data"]["result"]["result"]
    found = {node["node_name"]: node for node in nodes if node["state"] == "ALIVE"}
    assert set(found) == {node.name for node in DEMO_NODES}
    for node in DEMO_NODES:
        assert found[node.name]["resources_total"].get("GPU", 0) == node.gpus
        assert node.all_labels().items() <= found[node.name]["labels"].items()


def test_the_cluster_refuses_requests_without_its_token(exported: dict[str, str]) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(f"{exported['FLEETCTL_ADDRESS']}/api/v0/nodes")
    with caught.value as refused:
        assert refused.code == 401


def test_the_demo_writes_only_to_its_own_folder(home: DemoHome, exported: dict[str, str]) -> None:
    assert (home.sessions / "ray_current_cluster").exists()
    assert Path(exported["RAY_AUTH_TOKEN_PATH"]).is_relative_to(home.path)


def test_every_stop_of_the_tour_ends_with_the_expected_exit_code(
    exported: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    fleet = demo_fleet(ROOT)
    lines: list[str] = []
    tour = Tour(FLEETCTL, environment(**exported), lines.append)
    for stop in stops_before_asking(fleet):
        tour.visit(stop)
    tour.ask_engine()
    for stop in stops_after_asking(fleet, Path(fleet).read_text()):
        tour.visit(stop)
    printed = "\n".join(lines)
    assert "a gang of 2" in printed
    assert "warning" not in printed, "a newcomer's first run is quiet"


def test_the_example_is_answered_by_the_model_of_each_replica(exported: dict[str, str]) -> None:
    done = subprocess.run([EXAMPLE / "run.sh", "here"], text=True, capture_output=True, check=False, timeout=280,
                          env=environment(**exported))
    assert done.returncode == 0, done.stdout + done.stderr
    answers = re.findall(r"^  (\S+): (\w+), [\d.]+% sure \(replica (\d)\)$", done.stdout, re.MULTILINE)
    kinds = {"ask.py": "python", "fleet.yaml": "yaml", "magika_engine.py": "python", "run.sh": "shell",
             "README.md": "markdown"}
    assert answers == [(name, kind, replica) for replica in "01" for name, kind in kinds.items()]


def secret_fleet(dump: Path) -> str:
    """A fleet of one engine that writes its environment to `dump` and is then ready."""
    engine = {"command": ["sh", "-c", 'echo says hello; env > "$1"; exec sleep 1000', "sh", str(dump)],
              "readiness": {"exec": {"command": ["test", "-s", str(dump)]}, "period": "200ms"}}
    member = {"resources": {"cpus": 0.1}, "engine": engine}
    model = {"key": "one", "replicas": 1, "workers": [{"name": "main", "members": [member]}]}
    return json.dumps({"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "secret"},
                       "spec": {"models": [model]}})


def test_reading_and_applying_require_the_token_which_is_never_shown(
    exported: dict[str, str], tmp_path: Path
) -> None:
    token = Path(exported["RAY_AUTH_TOKEN_PATH"]).read_text().strip()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "FLEETCTL_NAMESPACE": "secret",
           "FLEETCTL_ADDRESS": exported["FLEETCTL_ADDRESS"]}
    (tmp_path / "fleet.yaml").write_text(secret_fleet(tmp_path / "environment"))
    apply = ("apply", "-f", tmp_path / "fleet.yaml", "--yes")

    refused = run_here(*apply, env=env)
    assert refused.returncode == 1
    assert "401" in refused.stderr
    assert "RAY_AUTH_TOKEN" in refused.stderr
    wrong = run_here(*apply, env={**env, "RAY_AUTH_TOKEN": "wrong" * 8})
    assert wrong.returncode == 1
    assert "403" in wrong.stderr

    env["RAY_AUTH_TOKEN"] = token
    done = run_here(*apply, env=env)
    assert done.returncode == 0, done.stderr
    assert [line for line in (tmp_path / "environment").read_text().splitlines() if line.startswith("RAY_")] == []
    status = run_here("status", "--format", "json", env=env)
    assert [row["state"] for row in json.loads(status.stdout)["replicas"] if row["fleet"] == "secret"] == ["ALIVE"]
    log = run_here("logs", "one/0", env=env)
    assert "says hello" in log.stdout
    evicted = run_here("evict", "one/0", "--yes", env=env)
    assert evicted.returncode == 0, evicted.stderr
    for command in (refused, wrong, done, status, log, evicted):
        assert token not in command.stdout + command.stderr


def test_a_node_fetches_weights_from_a_replica_on_another_node(
    home: DemoHome, exported: dict[str, str], tmp_path: Path
) -> None:
    env, origin = environment(**exported), tmp_path / "origin"
    origin.mkdir()
    (origin / "config.json").write_text('{"of": "the demo"}')
    indexed = run_here("weights", "index", origin, env=env)
    assert indexed.returncode == 0, indexed.stderr
    weights = yaml.safe_load(indexed.stdout)["weights"]

    def fleet(name: str, *nodes: str) -> Path:
        models = [{"key": f"on/{node}", "replicas": 1, "workers": [{"name": "main", "members": [{
            "nodeSelector": {"fleet.io/node": node}, "resources": {"cpus": 1}, "weights": weights,
            "engine": {"command": ["sleep", "1000"]}}]}]} for node in nodes]
        path = tmp_path / name
        path.write_text(json.dumps({"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "weights"},
                                    "spec": {"models": models}}))
        return path

    for file, model, source in ((fleet("one.yaml", "node-a"), "on/node-a", "origin"),
                                (fleet("two.yaml", "node-a", "node-b"), "on/node-b", "peer")):
        done = run_here("apply", "-f", file, "--yes", "--format", "json", env=env)
        assert done.returncode == 0, done.stderr
        [made] = [row for row in json.loads(done.stdout)["outcomes"] if row["model"] == model]
        assert made["weights"]["source"] == source
    assert {folder.name for folder in home.weights.iterdir()} == {"node-a", "node-b"}
    assert run_here("evict", "on/node-a", "on/node-b", "--yes", env=env).returncode == 0


def test_demo_up_changes_nothing_if_the_cluster_is_up(home: DemoHome, exported: dict[str, str]) -> None:
    before = home.read()
    again = fleetctl(home, "demo", "up")
    assert again.returncode == 0
    assert "already up" in again.stderr
    assert exported["FLEETCTL_ADDRESS"] in again.stdout
    assert home.read() == before


def test_the_tour_does_not_touch_a_cluster_in_use(home: DemoHome, exported: dict[str, str]) -> None:
    refused = fleetctl(home, "demo", "run")
    assert refused.returncode == 1
    assert "demo down" in refused.stderr


def test_down_cleans_up_after_a_killed_keeper_and_may_be_repeated(home: DemoHome, exported: dict[str, str]) -> None:
    state = home.read()
    assert state is not None
    os.kill(state.keeper_pid, signal.SIGKILL)
    assert fleetctl(home, "demo", "down").returncode == 0
    assert find_processes(state.mark) == set()
    assert {path.name for path in home.path.iterdir()} <= {"lock", "keeper.log"}
    again = fleetctl(home, "demo", "down")
    assert again.returncode == 0
    assert "no demo cluster is up" in again.stderr
