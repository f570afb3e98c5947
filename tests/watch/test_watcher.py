"""One watcher on a stand-in cluster: what it reads, the metrics it exports, and the failures it survives."""

from __future__ import annotations

import gc
import json
import re
import socket
import struct
import subprocess
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from cluster_stand_in import ClusterStandIn, serve
from external_programs import eventually, free_port, needed, running
from prometheus_client.parser import text_string_to_metric_families
from record_rows import record
from small_watcher import FLEET, NOW, advance
from stand_in_server import Answer

from fleetctl.apply.prepare import ApplyTask
from fleetctl.cli.watch_server import serving
from fleetctl.documents.events import ReplicaOutcome, RunSummary
from fleetctl.documents.inventory import LAST_OUTPUT
from fleetctl.errors import ApplyError, RevisionError
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.watch.source import Files
from fleetctl.watch.step import ApplyEnded, MakePlan, Notify, PlanMade, StartApply, WatchState, step
from fleetctl.watch.watcher import LATE_S, Watcher

ALERTS, HINT = Path(__file__).parents[2] / "docs/watch-alerts.yaml", "install Debian's package `prometheus`"


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    stand_in = ClusterStandIn()
    stand_in.add_node("a")
    with serve(stand_in):
        yield stand_in


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


def test_metrics_describe_the_fleet_the_nodes_and_the_loop(watcher: Watcher) -> None:
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


def leaves_all_starting(task: ApplyTask) -> RunSummary:
    rows = [ReplicaOutcome(model=one.model, replica_id=one.replica_id, outcome="starting")
            for one in task.plan.actions]
    return RunSummary(seq=0, time=NOW, message="0 of 2 ready", exit_code=0, waited=False, outcomes=rows)


def test_an_apply_counts_once_what_it_has_begun_has_ended_and_its_end_is_news(
    watcher: Watcher, cluster: ClusterStandIn
) -> None:
    def turn() -> list[str]:
        done = advance(watcher)
        if any(isinstance(one, StartApply) for one in done):
            watcher.state, todo = step(watcher.state, watcher.apply())
            done += todo
        return [f"{one.about}: {one.text.partition(': ')[2]}" for one in done
                if isinstance(one, Notify) and one.about in ("applied", "ended")]

    watcher.run = leaves_all_starting
    node, spec = cluster.nodes[0]["node_id"], inspect_fleet(watcher.source.paths).sound().models[0].spec_hash
    assert turn() == ["applied: org/m 2 starting"]
    assert (dict(watcher.applies), watcher.state.failures, watcher.state.behind_at) == ({}, 0, None)
    cluster.add_replica("org/m", 0, node, gpus=40_000, spec_hash=spec)
    cluster.add_failure("org/m", node, spec, "the engine ended with 1", replica_id=1)
    news = turn()
    assert news[0].startswith("ended: org/m/0: ready after ")
    assert "ended: org/m/1: failed after " in news[1]
    assert "the engine ended with 1" in news[1]
    assert (dict(watcher.applies), watcher.state.failures) == ({"failed": 1}, 1)


def test_the_news_of_an_apply_tell_when_what_it_has_begun_will_be_ready(
    watcher: Watcher, cluster: ClusterStandIn
) -> None:
    watcher.run = leaves_all_starting
    spec = inspect_fleet(watcher.source.paths).sound().models[0].spec_hash
    cluster.add_replica("org/m", 0, cluster.nodes[0]["node_id"], gpus=40_000, spec_hash=spec, started_in=250.2)
    advance(watcher)
    ended = watcher.apply()
    assert ended.message == "org/m 1 starting (ready in about 4m10s)"
    assert ended.gist == "org/m 1 starting"


def test_the_news_of_an_apply_say_what_follows_its_pilot_and_the_run_is_fine(watcher: Watcher) -> None:
    def run(_: ApplyTask) -> RunSummary:
        rows = [ReplicaOutcome(model="org/m", replica_id=0, outcome="starting"),
                ReplicaOutcome(model="org/m", outcome="skipped", code="AFTER_PILOT", replicas=39)]
        return RunSummary(seq=0, time=NOW, message="0 of 40 ready", exit_code=3, waited=False, outcomes=rows)

    watcher.run = run
    advance(watcher)
    ended = watcher.apply()
    assert (ended.outcome, ended.message) == ("begun", "org/m 1 starting; org/m 39 after a pilot")


@pytest.mark.parametrize(("own", "message"), [(0, "another apply had created what was missing"),
                                              (1, "org/n 1 starting")])
def test_what_another_apply_had_created_is_no_news_of_this_one(watcher: Watcher, own: int, message: str) -> None:
    def run(_: ApplyTask) -> RunSummary:
        rows = [ReplicaOutcome(model="org/m", replica_id=0, outcome="skipped", code="TARGET_REACHED")]
        rows += [ReplicaOutcome(model="org/n", replica_id=0, outcome="starting")] * own
        return RunSummary(seq=0, time=NOW, message="0 of 2 ready", exit_code=0, waited=False, outcomes=rows)

    watcher.run = run
    advance(watcher)
    ended = watcher.apply()
    assert (ended.outcome, ended.message) == ("begun" if own else "fine", message)


def test_the_news_of_an_apply_name_the_error_on_one_line_and_its_retries_have_the_same_gist(watcher: Watcher) -> None:
    def run(task: ApplyTask) -> RunSummary:
        output = f"serving on {len(ends)}\nout of memory"
        rows = [ReplicaOutcome(model="org/m", replica_id=0, outcome="failed", code="ENGINE_EXITED",
                               message=f"the engine exited with code 1{LAST_OUTPUT}{output}")]
        return RunSummary(seq=0, time=NOW, message="0 of 2 ready", exit_code=3, outcomes=rows)

    ends: list[ApplyEnded] = []
    watcher.run = run
    advance(watcher)
    for _ in range(2):
        ends.append(watcher.apply())
    assert [one.message for one in ends] == ["org/m 1 failed (ENGINE_EXITED: out of memory)"] * 2
    assert [one.gist for one in ends] == ["org/m 1 failed (ENGINE_EXITED)"] * 2


def test_a_changed_engine_line_is_news_with_the_command_that_rolls_it_out(
        watcher: Watcher, cluster: ClusterStandIn) -> None:
    for number in range(2):
        cluster.add_replica("org/m", number, cluster.nodes[0]["node_id"], gpus=10_000, spec_hash="0" * 64)
    [news] = [one.text for one in advance(watcher) if isinstance(one, Notify) and one.about == "outdated"]
    assert news.endswith(f": running replicas of org/m keep their former spec; `fleetctl rollout -f "
                         f"{watcher.source.paths[0]}` replaces them")


def test_a_crash_between_a_look_and_its_plan_is_told_though_its_name_is_used_again(
    watcher: Watcher, cluster: ClusterStandIn
) -> None:
    def run(task: ApplyTask) -> RunSummary:
        rows = [ReplicaOutcome(model="org/m", replica_id=0, outcome="starting")]
        return RunSummary(seq=0, time=NOW, message="0 of 1 ready", exit_code=0, waited=False, outcomes=rows)

    watcher.run = run
    node, spec = cluster.nodes[0]["node_id"], inspect_fleet(watcher.source.paths).sound().models[0].spec_hash
    watcher.state = replace(watcher.state, good=watcher.source.newest())
    watcher.look()
    assert isinstance(watcher.plan("r"), PlanMade)
    watcher.apply()
    cluster.add_replica("org/m", 0, node, gpus=40_000, spec_hash=spec, state="PENDING_CREATION")
    assert watcher.look().endings == ()
    cluster.actors.clear()
    cluster.add_failure("org/m", node, spec, "the engine ended with 1")
    watcher.plan("r")
    watcher.apply()
    cluster.add_replica("org/m", 0, node, gpus=40_000, spec_hash=spec)
    first, second = watcher.look().endings
    assert "org/m/0: failed after " in first
    assert "org/m/0: ready after " in second
    assert dict(watcher.applies) == {"failed": 1, "fine": 1}


def test_metrics_show_how_long_the_fleet_is_out_of_sync(watcher: Watcher, cluster: ClusterStandIn) -> None:
    now = [100.0]
    watcher.clock = lambda: now[0]

    def sync() -> tuple[float, float]:
        found = metrics(get(f"{url}/metrics")[1])
        return found["fleetctl_watch_in_sync",], found["fleetctl_watch_out_of_sync_seconds",]

    with served(watcher, "127.0.0.1:0", None) as url:
        advance(watcher)
        now[0] = 130.0
        assert sync() == (0, 30)
        watcher.state, _ = step(watcher.state, ApplyEnded(130.0, "fine", "all run"))
        assert sync() == (1, 0)
        cluster.add_node("b")
        advance(watcher)
        watcher.state, _ = step(watcher.state, watcher.apply())
        now[0] = 142.0
        assert sync() == (0, 12), "replicas are missing while another apply runs"


def test_metrics_show_cooling_models_and_nodes(watcher: Watcher, cluster: ClusterStandIn) -> None:
    model = inspect_fleet(watcher.source.paths).sound().models[0]
    cluster.add_node("b")
    for node in (*cluster.nodes, cluster.nodes[0]):
        cluster.add_failure(model.key, node["node_id"], model.spec_hash, "out of memory")
    with served(watcher, "127.0.0.1:0", None) as url:
        advance(watcher)
        found = metrics(get(f"{url}/metrics")[1])
    assert found["fleetctl_model_cooling", "lab", "org/m", ""] == 1
    assert found["fleetctl_node_cooling", "a"] == 0
    assert found["fleetctl_watch_locked",] == 0


def test_a_watch_starts_nothing_while_its_fleet_is_paused_and_all_of_it_after_that(
        watcher: Watcher, cluster: ClusterStandIn) -> None:
    note = {"fleet": "lab", "namespace": "fleet", "reason": "bad answers"}
    cluster.records.add("pause", record("lab", verb="pause", **note))
    with served(watcher, "127.0.0.1:0", None) as url:
        assert not any(isinstance(done, StartApply) for done in advance(watcher))
        found, page = metrics(get(f"{url}/metrics")[1]), get(url)[1]
    assert found["fleetctl_model_paused", "lab", "org/m"] == 1
    assert found["fleetctl_model_blocked_replicas", "PAUSED", "lab", "org/m"] == 3
    assert "fleet lab is paused since" in page
    assert "bad answers" in page
    cluster.records.add("pause", record("lab", verb="resume", **note))
    assert any(isinstance(done, StartApply) for done in advance(watcher)), "a resumed fleet is planned at the next look"


def test_the_dashboard_queries_existing_metrics(watcher: Watcher) -> None:
    with served(watcher, "127.0.0.1:0", None) as url:
        advance(watcher)
        watcher.state, _ = step(watcher.state, watcher.apply())
        exported = {name for name, *_ in metrics(get(f"{url}/metrics")[1])}
    dashboard = json.loads((Path(__file__).parents[2] / "docs/grafana-dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [one["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    named = {name for text in queries for name in re.findall(r"fleetctl_\w+", text)}
    assert named
    assert named <= exported
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_a_loop_that_does_not_turn_is_not_healthy(watcher: Watcher) -> None:
    now = 0.0
    watcher.clock = lambda: now
    with served(watcher, "127.0.0.1:0", None) as url:
        watcher.note_turn(30)
        for now, status in ((30 + 3 * 30, 200), (30 + LATE_S, 200), (31 + LATE_S, 503)):
            assert get(f"{url}/healthz")[0] == status, now
        assert "has not turned" in get(f"{url}/healthz")[1]
        watcher.note_turn(None)
        assert get(f"{url}/healthz")[0] == 200, "an apply may take long"


def test_promtool_accepts_the_metrics_and_every_alert_fires_when_it_should(watcher: Watcher) -> None:
    promtool, cases = needed("FLEETCTL_PROMTOOL", "promtool", HINT), Path(__file__).parent / "alert_cases.yaml"
    with served(watcher, "127.0.0.1:0", None) as url:
        advance(watcher)
        exported = get(f"{url}/metrics")[1]
    for arguments, text in ((("check", "metrics"), exported), (("check", "rules", str(ALERTS)), ""),
                            (("test", "rules", str(cases)), "")):
        done = subprocess.run([promtool, *arguments], input=text, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
    named = {rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}
    for one in yaml.safe_load(cases.read_text())["tests"][:2]:
        assert {test["alertname"] for test in one["alert_rule_test"]} == named, one["name"]


def test_a_real_prometheus_scrapes_the_watch_and_evaluates_the_alerts(watcher: Watcher, tmp_path: Path) -> None:
    prometheus, url = needed("FLEETCTL_PROMETHEUS", "prometheus", HINT), f"http://127.0.0.1:{free_port()}"
    config, log, token = tmp_path / "prometheus.yml", tmp_path / "log", tmp_path / "token"
    token.write_text("a-secret")

    def answer(path: str) -> Any:
        with urllib.request.urlopen(f"{url}/api/v1/{path}") as found:  # it answers with 503 while starting
            return json.load(found)["data"]

    def values(query: str) -> list[float]:
        return [float(one["value"][1]) for one in answer(f"query?query={quote(query)}")["result"]]

    def state(alert: str) -> str:
        [group] = answer("rules")["groups"]
        assert {rule["lastError"] for rule in group["rules"] if "lastError" in rule} == set()
        return next(str(rule["state"]) for rule in group["rules"] if rule["name"] == alert)

    with served(watcher, "127.0.0.1:0", "a-secret") as watched:
        config.write_text(yaml.safe_dump({
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [{"job_name": "watch", "authorization": {"credentials_file": str(token)},
                                "static_configs": [{"targets": [watched[7:]]}]}]}))
        advance(watcher)
        with running(log, prometheus, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
                     f"--web.listen-address={url[7:]}"):
            eventually(lambda: values("up") == [1], "the watch is scraped", log)
            eventually(lambda: values('fleetctl_model_replicas{model="org/m",state="wanted"}') == [3], "3 wanted", log)
            eventually(lambda: values("fleetctl_watch_in_sync") == [0], "not in sync", log)
            eventually(lambda: state("FleetctlReplicasBlocked") == "pending", "the alerts are evaluated", log)


def test_a_token_may_be_any_text_and_the_scheme_is_case_insensitive(watcher: Watcher) -> None:
    def status_for(header: str) -> int:
        sent = {"Authorization": header.encode().decode("latin-1")}
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", headers=sent)) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            return refused.code

    with served(watcher, "127.0.0.1:0", "s\u00e9cret") as url:
        assert status_for("bearer s\u00e9cret") == 200
        assert status_for("basic " + b64encode("ana:s\u00e9cret".encode()).decode()) == 200
        for header in ("Bearer secret", "Basic \u00e9", "Basic /w==", "s\u00e9cret"):
            assert status_for(header) == 401


def test_a_probe_that_disconnects_leaves_no_traceback(watcher: Watcher, capfd: pytest.CaptureFixture[str]) -> None:
    with served(watcher, "127.0.0.1:0", None) as url:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as probe:
            probe.sendall(b"GET /metrics")
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing sends a reset
        assert get(f"{url}/healthz")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_without_a_host_the_server_listens_on_loopback_only(watcher: Watcher) -> None:
    with served(watcher, ":0", None) as url:
        assert get(f"{url}/healthz")[0] == 200
        with pytest.raises(urllib.error.URLError, match="refused"):
            get(f"{url.replace('127.0.0.1', '127.0.0.2')}/healthz")


def test_report_only_reports_missing_replicas_and_only_reads(watcher: Watcher, cluster: ClusterStandIn) -> None:
    watcher.state = WatchState(30, report_only=True)
    for _ in range(2):
        assert not [do for do in advance(watcher) if isinstance(do, StartApply)]
    assert watcher.state.conditions["wanted"] == "2"
    assert cluster.requests
    assert cluster.writes() == []


def test_an_incomplete_inventory_is_not_planned_on(watcher: Watcher, cluster: ClusterStandIn) -> None:
    cluster.refusals[("GET", "/api/v0/actors")] = [Answer(500, {"msg": "no"}) for _ in range(20)]
    assert not [do for do in advance(watcher) if isinstance(do, MakePlan)]
    assert watcher.state.cluster_failures == 1
    cluster.refusals.clear()
    assert [do for do in advance(watcher) if isinstance(do, MakePlan)]


@pytest.mark.slow
def test_looks_do_not_leak_objects(watcher: Watcher) -> None:
    def objects_after_looks() -> int:
        for _ in range(3):
            watcher.look()
        return gc.get_freeze_count() + len(gc.get_objects())

    objects_after_looks()
    before = objects_after_looks()
    assert objects_after_looks() - before < 1000, "a look creates some 500 objects that only the collector frees"


def test_an_apply_that_cannot_start_is_an_event_and_no_exception(watcher: Watcher) -> None:
    def refuse(task: ApplyTask) -> RunSummary:
        raise ApplyError(f"no job agent for {task.plan.fleet.name}")

    advance(watcher)
    watcher.run = refuse
    assert watcher.apply() == ApplyEnded(0.0, "error", "no job agent for lab")


def test_a_revision_that_renames_the_fleet_is_not_used(watcher: Watcher, tmp_path: Path) -> None:
    advance(watcher)
    (tmp_path / "fleet.yaml").write_text(FLEET % "another")
    looked = watcher.look()
    assert looked.fault.startswith("it renames fleet lab to another")
    assert watcher.good is not None
    assert watcher.good.sound().name == "lab"


def test_a_revision_that_cannot_be_checked_is_not_used(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_answer(*_: object) -> str:
        raise RevisionError("git merge-base did not answer within 30 s")

    monkeypatch.setattr(Files, "fault", no_answer)
    advance(watcher)
    assert (watcher.good, watcher.state.good) == (None, None)
    assert watcher.state.conditions["source"].startswith("git merge-base did not answer")


def test_the_metric_of_cooling_is_that_of_one_variant(watcher: Watcher, cluster: ClusterStandIn) -> None:
    [path] = watcher.source.paths
    way = "workers: [{name: main, members: [{resources: {gpus: 1}, engine: {command: [%s]}}]}]"
    Path(path).write_text(f"""\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {{name: lab}}
spec: {{models: [{{key: org/m, replicas: 1, variants: [{{name: a, {way % 'x'}}}, {{name: b, {way % 'y'}}}]}}]}}
""")
    first, _ = inspect_fleet(watcher.source.paths).sound().models[0].variants
    cluster.add_node("b")
    for node in (*cluster.nodes, cluster.nodes[0]):
        cluster.add_failure("org/m", node["node_id"], first.spec_hash, "out of memory")
    with served(watcher, "127.0.0.1:0", None) as url:
        advance(watcher)
        found = metrics(get(f"{url}/metrics")[1])
    assert found["fleetctl_model_cooling", "lab", "org/m", "a"] == 1
    assert found["fleetctl_model_cooling", "lab", "org/m", "b"] == 0
    assert ("fleetctl_model_cooling", "lab", "org/m", "") not in found
