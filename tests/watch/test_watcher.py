"""One watcher on a stand-in of a cluster: what it sees, what it tells Prometheus, and what it survives."""

from __future__ import annotations

import gc
import json
import re
import socket
import struct
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, serve
from programs import needed
from prometheus_client.parser import text_string_to_metric_families
from stand_in_server import Answer
from watched import FLEET, advance, watcher_of

from fleetctl.apply.prepare import ApplyTask
from fleetctl.cli.watch_server import serving
from fleetctl.documents.events import RunSummary
from fleetctl.errors import ApplyError, RevisionError
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.watch.source import Files
from fleetctl.watch.step import ApplyEnded, MakePlan, step
from fleetctl.watch.watcher import LATE_S, Watcher


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    stand_in = ClusterStandIn()
    stand_in.add_node("a")
    with serve(stand_in):
        yield stand_in


@pytest.fixture
def watcher(cluster: ClusterStandIn, tmp_path: Path) -> Watcher:
    return watcher_of(cluster, tmp_path / "fleet.yaml")


@contextmanager
def served(watcher: Watcher, listen: str, token: str | None) -> Iterator[str]:
    with serving(watcher, listen, token) as found:
        assert found
        yield found.url


def get(url: str, token: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metrics(text: str) -> dict[tuple[str, ...], float]:
    return {(sample.name, *(value for key, value in sorted(sample.labels.items()) if key != "version")): sample.value
            for family in text_string_to_metric_families(text) for sample in family.samples}


def test_prometheus_reads_the_fleet_the_nodes_and_the_loop(watcher: Watcher) -> None:
    with served(watcher, "127.0.0.1:0", None) as url:
        assert [get(f"{url}/{page}")[0] for page in ("healthz", "readyz", "metrics", "other")] == [200, 503, 200, 404]
        advance(watcher)
        watcher.state, _ = step(watcher.state, watcher.apply())
        assert get(f"{url}/readyz")[0] == 200
        found = metrics(get(f"{url}/metrics")[1])
    assert found["fleetctl_model_replicas", "lab", "org/m", "wanted"] == 3
    assert found["fleetctl_model_replicas", "lab", "org/m", "missing"] == 3
    assert found["fleetctl_model_blocked_replicas", "INSUFFICIENT_GPU", "lab", "org/m"] == 1
    assert found["fleetctl_node_gpus", "a", "total"] == 8
    assert found["fleetctl_watch_applies_total", "locked"] == 1
    assert (found["fleetctl_watch_cluster_up",], found["fleetctl_watch_in_sync",]) == (1, 0)
    assert found["fleetctl_watch_info", "lab", watcher.state.good or ""] == 1


def test_prometheus_reads_what_cools(watcher: Watcher, cluster: ClusterStandIn) -> None:
    model = inspect_fleet(watcher.source.paths).sound().models[0]
    cluster.add_node("b")
    for node in (*cluster.nodes, cluster.nodes[0]):
        cluster.add_failure(model.key, node["node_id"], model.spec_hash, "out of memory")
    with served(watcher, "127.0.0.1:0", None) as url:
        advance(watcher)
        found = metrics(get(f"{url}/metrics")[1])
    assert found["fleetctl_model_cooling", "lab", "org/m"] == 1
    assert found["fleetctl_node_cooling", "a"] == 0
    assert found["fleetctl_watch_locked",] == 0


def test_the_dashboard_asks_for_metrics_that_there_are(watcher: Watcher) -> None:
    with served(watcher, "127.0.0.1:0", None) as url:
        advance(watcher)
        watcher.state, _ = step(watcher.state, watcher.apply())
        there = {name for name, *_ in metrics(get(f"{url}/metrics")[1])}
    dashboard = json.loads((Path(__file__).parents[2] / "docs/grafana-dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [one["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    named = {name for text in asked for name in re.findall(r"fleetctl_\w+", text)}
    assert named
    assert named <= there
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_a_loop_that_does_not_turn_is_not_healthy(watcher: Watcher) -> None:
    now = 0.0
    watcher.clock = lambda: now
    with served(watcher, "127.0.0.1:0", None) as url:
        watcher.turns_within(30)
        for now, status in ((30 + 3 * 30, 200), (30 + LATE_S, 200), (31 + LATE_S, 503)):
            assert get(f"{url}/healthz")[0] == status, now
        assert "has not turned" in get(f"{url}/healthz")[1]
        watcher.turns_within(None)
        assert get(f"{url}/healthz")[0] == 200, "an apply takes its time"


def test_promtool_accepts_the_metrics_and_the_alerts(watcher: Watcher) -> None:
    promtool = needed("FLEETCTL_PROMTOOL", "promtool", "install Debian's package `prometheus`")
    with served(watcher, "127.0.0.1:0", None) as url:
        advance(watcher)
        shown = get(f"{url}/metrics")[1]
    rules = Path(__file__).parents[2] / "docs/watch-alerts.yaml"
    for arguments, text in ((("metrics",), shown), (("rules", str(rules)), "")):
        done = subprocess.run([promtool, "check", *arguments], input=text, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_metrics_may_ask_for_a_token(watcher: Watcher) -> None:
    with served(watcher, "127.0.0.1:0", "a-secret") as url:
        assert [get(f"{url}/metrics", token)[0] for token in (None, "guess", "a-secret")] == [401, 401, 200]
        assert get(f"{url}/healthz")[0] == 200


def test_a_probe_that_does_not_wait_leaves_no_traceback(watcher: Watcher, capfd: pytest.CaptureFixture[str]) -> None:
    with served(watcher, "127.0.0.1:0", None) as url:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as probe:
            probe.sendall(b"GET /metrics")
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its end is a reset
        assert get(f"{url}/healthz")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_an_inventory_that_is_not_whole_is_not_planned_on(watcher: Watcher, cluster: ClusterStandIn) -> None:
    cluster.refusals[("GET", "/api/v0/actors")] = [Answer(500, {"msg": "no"}) for _ in range(20)]
    assert not [do for do in advance(watcher) if isinstance(do, MakePlan)]
    assert watcher.state.away == 1
    cluster.refusals.clear()
    assert [do for do in advance(watcher) if isinstance(do, MakePlan)]


def test_a_look_leaves_nothing_behind(watcher: Watcher) -> None:
    def objects_after_looks() -> int:
        for _ in range(5):
            watcher.look()
        return gc.get_freeze_count() + len(gc.get_objects())

    objects_after_looks()
    before = objects_after_looks()
    assert objects_after_looks() - before < 1000, "a look makes some 500 that only the collector frees"


def test_an_apply_that_cannot_begin_is_an_event_not_an_end(watcher: Watcher) -> None:
    def refuse(task: ApplyTask) -> RunSummary:
        raise ApplyError(f"no job agent for {task.plan.fleet.name}")

    advance(watcher)
    watcher.run = refuse
    assert watcher.apply() == ApplyEnded(0.0, "error", "no job agent for lab")


def test_a_renamed_fleet_is_left_out(watcher: Watcher, tmp_path: Path) -> None:
    advance(watcher)
    (tmp_path / "fleet.yaml").write_text(FLEET % "another")
    looked = watcher.look()
    assert looked.fault.startswith("it renames fleet lab to another")
    assert watcher.good is not None
    assert watcher.good.sound().name == "lab"


def test_a_revision_that_cannot_be_judged_is_not_in_force(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_answer(*_: object) -> str:
        raise RevisionError("git merge-base did not answer within 30 s")

    monkeypatch.setattr(Files, "fault", no_answer)
    advance(watcher)
    assert (watcher.good, watcher.state.good) == (None, None)
    assert watcher.state.told["source"].startswith("git merge-base did not answer")
