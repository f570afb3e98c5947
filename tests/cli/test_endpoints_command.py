"""`fleetctl endpoints`: a table, and files for load balancers that an unreachable cluster never empties."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from cluster_stand_in import ClusterStandIn
from model_keys import NDIF_KEY
from published_schemas import validator

from fleetctl.cli import endpoints as command
from fleetctl.render.endpoint_formats import FORMATS
from tests.agent.marked_processes import alive, eventually

MODEL = "org/one"


@pytest.fixture
def running(cluster: ClusterStandIn) -> ClusterStandIn:
    for replica_id, node in enumerate(cluster.nodes):
        cluster.add_replica(MODEL, replica_id, node["node_id"])
    cluster.add_replica(MODEL, 2, cluster.nodes[0]["node_id"], state="PENDING_CREATION", gpus=0)
    return cluster


def test_the_table_has_a_row_per_endpoint_and_lists_models_without_any(cli, running: ClusterStandIn, fleet_file: Path):
    result = cli("endpoints", "-f", fleet_file)
    assert result.code == 0
    assert f"{MODEL}/0" in result.out
    assert "http://10.0.0.7:7002/v1" in result.out
    assert f"{MODEL}/2" not in result.out
    assert "none is ready" in result.out
    assert "2 endpoints of" in result.out


def test_a_replica_whose_address_does_not_count_is_named_and_not_listed(cli, running: ClusterStandIn):
    running.actors[1]["repr_name"] = running.actors[1]["repr_name"].replace("10.0.0.7", "203.0.113.9")
    result = cli("endpoints", "--format", "nginx")
    assert "10.0.0.7:7001" in result.out
    assert "203.0.113.9" not in result.out
    assert f"warning: replica ModelActor:{MODEL}:1: it says that it serves at '203.0.113.9', but" in result.err


def test_json_is_the_published_document(cli, running: ClusterStandIn):
    document = json.loads(cli("endpoints", "--format", "json").out)
    validator("endpoints").validate(document)
    assert [one["url"] for model in document["models"] for one in model["endpoints"]] == [
        "http://10.0.0.7:7001/v1", "http://10.0.0.7:7002/v1"]
    assert running.writes() == []


@pytest.mark.parametrize("output", ["json", "prometheus", "vllm-router"])
def test_a_document_on_standard_output_moves_no_cursor_and_means_what_the_cluster_said(
    cli, running: ClusterStandIn, output: str
):
    name = "node\x9b2J\u202e\u2028"
    running.nodes[0]["node_name"] = name
    text = cli("endpoints", "--format", output).out
    assert not set(text) & {"\x9b", "\u202e", "\u2028"}
    if output == "json":
        assert json.loads(text)["models"][0]["endpoints"][0]["node"] == name
    if output == "prometheus":
        assert json.loads(text)[0]["labels"]["node"] == name


def test_a_dash_is_standard_output(cli, running: ClusterStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert json.loads(cli("endpoints", "--format", "json", "-o", "-").out)["models"]
    assert not (tmp_path / "-").exists()
    assert cli("endpoints", "--format", "json", "-o", "-", "--follow").code == 64


def test_an_incomplete_read_leaves_the_file_alone(cli, running: ClusterStandIn, tmp_path: Path):
    out = tmp_path / "targets.json"
    out.write_text("as it was")
    running.refusals["GET", "/api/version"] = [(500, "")] * 10
    result = cli("endpoints", "--format", "prometheus", "--out", out)
    assert result.code == 1
    assert "not everything could be read" in result.err
    assert out.read_text() == "as it was"


def test_following_writes_changes_and_nothing_while_the_cluster_is_unreachable(
        cli, running: ClusterStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    out, log = tmp_path / "up.conf", tmp_path / "log"
    note = tmp_path / "note.py"
    note.write_text(f"open({str(log)!r}, 'a').write(str(open({str(out)!r}).read().count('weight')))")
    rounds = iter(["same", "away", "less", "end"])

    def sleep(seconds: float) -> None:
        assert seconds == 2
        what = next(rounds)
        if what == "away":
            running.refusals["GET", "/api/version"] = [(500, "")] * 10
        elif what == "less":
            running.refusals.clear()
            running.actors.pop(0)
        elif what == "end":
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=sleep))
    result = cli("endpoints", "--format", "nginx", "--out", out, "--follow", "--interval", "2s",
                "--on-change", f"{sys.executable} {note}")
    assert result.code == 130
    assert log.read_text() == "21", "two endpoints, then one, and no write between"
    assert result.err.count("stays as it is") == 1
    assert result.err.count("is up to date again") == 1


def test_following_continues_after_the_file_could_not_be_written(
        cli, running: ClusterStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "conf"
    folder.mkdir()
    rounds = iter(["gone", "same", "back", "end"])

    def sleep(_: float) -> None:
        what = next(rounds)
        if what == "gone":
            running.actors.pop(0)
            folder.rename(tmp_path / "away")
        elif what == "back":
            folder.mkdir()
        elif what == "end":
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=sleep))
    result = cli("endpoints", "--format", "json", "--out", folder / "x.json", "--follow")
    assert result.code == 130
    assert result.err.count(f"{folder}/x.json stays as it is: cannot write") == 1
    assert len(json.loads((folder / "x.json").read_text())["models"][0]["endpoints"]) == 1


def test_following_into_a_missing_folder_fails_at_once(cli, running: ClusterStandIn, tmp_path: Path):
    assert cli("endpoints", "--format", "json", "--out", tmp_path / "no" / "x.json", "--follow").code == 1


def test_check_omits_and_reports_silent_endpoints(cli, running: ClusterStandIn, fleet_file: Path):
    class Ready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Ready) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        for node in running.nodes:
            node["node_ip"] = "127.0.0.1"
        for actor in running.actors:
            for old, new in (("10.0.0.7", "127.0.0.1"), ('"port":7001', f'"port":{port}'), ('"port":7002', '"port":1')):
                actor["repr_name"] = actor["repr_name"].replace(old, new)
        result = cli("endpoints", "-f", fleet_file, "--format", "json", "--check")
        server.shutdown()
    [found] = [one for model in json.loads(result.out)["models"] for one in model["endpoints"]]
    assert found["port"] == port
    assert f"{MODEL}/1 does not answer at 127.0.0.1:1; left out" in result.err


LIES = {
    "a second server": "10.0.0.7; } server { listen 8089; location / { root /etc; } } upstream x { server 10.0.0.7",
    "a name": "localhost", "another machine": "192.0.2.66", "a zone": "fe80::1%eth0", "a number": 167772167,
    "every machine": "0.0.0.0", "a line end": "10.0.0.7\n", "octal": "012.0.0.07", "a list": ["10.0.0.7"],
}


@pytest.mark.parametrize("lie", LIES)
def test_an_actor_that_lies_about_its_address_is_reported_and_gets_no_requests(
        cli, running: ClusterStandIn, lie: str, monkeypatch: pytest.MonkeyPatch):
    mark = json.loads(running.actors[0]["repr_name"])
    mark["members"][0]["ip"] = LIES[lie]
    running.actors[0]["repr_name"] = json.dumps(mark)
    for output_format in FORMATS:
        result = cli("endpoints", "--format", output_format)
        assert (result.code, "7002" in result.out, "7001" in result.out) == (0, True, False)
        assert "listen" not in result.out
    assert f"replica ModelActor:{MODEL}:0: " in " ".join(cli("status").err.split())
    asked = list[object]()
    monkeypatch.setattr(command, "answering", lambda endpoints: asked.extend(endpoints) or [True] * len(endpoints))
    assert cli("endpoints", "--format", "json", "--check").code == 0
    assert asked == [("10.0.0.7", 7002, None)]


@pytest.mark.parametrize("port", [0, -1, 65_536, "80", True, 80.5, [80], "80; }"])
def test_an_actor_that_lies_about_its_port_gets_no_requests(cli, running: ClusterStandIn, port: object):
    mark = json.loads(running.actors[0]["repr_name"])
    mark["members"][0]["port"] = port
    running.actors[0]["repr_name"] = json.dumps(mark)
    found = json.loads(cli("endpoints", "--format", "json").out)
    assert [one["port"] for model in found["models"] for one in model["endpoints"]] == [7002]
    assert "is not a port" in " ".join(cli("status").err.split())


def test_a_model_whose_name_means_something_else_in_a_format_is_left_out_and_reported(cli, running: ClusterStandIn):
    for key, port in (("*", 2), ("os.environ/SECRET", 3)):
        running.add_replica(key, port, running.nodes[0]["node_id"])
    result = cli("endpoints", "--format", "vllm-router")
    assert json.loads(result.out)["static_models"] == f"*,{MODEL},{MODEL},os.environ/SECRET"
    assert result.err == ""
    result = cli("endpoints", "--format", "litellm")
    assert [row["model_name"] for row in yaml.safe_load(result.out)["model_list"]] == [MODEL, MODEL]
    assert result.err.count("is left out") == 2


def test_a_model_whose_key_cannot_be_a_name_in_requests_has_none_until_the_file_gives_it_one(
        cli, running: ClusterStandIn, fleet_file: Path):
    running.add_replica(NDIF_KEY, 0, running.nodes[0]["node_id"])
    for output_format, is_listed in (("table", True), ("json", True), ("prometheus", True), ("litellm", False),
                                     ("envoy", False), ("nginx", False), ("vllm-router", False)):
        result = cli("endpoints", "--format", output_format)
        assert ("repo_id" in result.out) == is_listed, output_format
        told = f"warning: {NDIF_KEY} {'has' if is_listed else 'is left out: it has'} no name in requests"
        assert told in " ".join(result.err.split()), output_format
    names = {one["key"]: one["name"] for one in json.loads(cli("endpoints", "--format", "json").out)["models"]}
    assert names == {NDIF_KEY: "", MODEL: MODEL}
    text = fleet_file.read_text().replace(f"key: {MODEL}", f"key: '{NDIF_KEY}'\n    serving: {{name: gpt2}}", 1)
    fleet_file.write_text(text)
    result = cli("endpoints", "-f", fleet_file, "--format", "vllm-router")
    assert (json.loads(result.out)["static_models"], result.err) == (f"gpt2,{MODEL},{MODEL}", "")


def test_check_names_the_proxy_through_which_it_asked(
    cli, running: ClusterStandIn, fleet_file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.delenv("http_proxy", raising=False)
    fleet_file.write_text(fleet_file.read_text().replace(
        "engine: {command: [serve, one]", "engine: {readiness: {http: {path: /health}}, command: [serve, one]"))
    result = cli("endpoints", "-f", fleet_file, "--format", "json", "--check")
    assert "does not answer at 10.0.0.7:7001 through the proxy http://127.0.0.1:9 (HTTP_PROXY); left out" in result.err


def test_following_reports_silent_endpoints_once(
        cli, running: ClusterStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    answers = iter([[True, False], [True, False], [True, True], [True, False]])
    monkeypatch.setattr(command, "answering", lambda _: next(answers))
    pauses = iter(range(3))

    def sleep(_: float) -> None:
        if next(pauses, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=sleep))
    result = cli("endpoints", "--format", "json", "--out", tmp_path / "x.json", "--follow", "--check")
    assert result.code == 130
    assert result.err.count(f"{MODEL}/1 does not answer") == 2, "reported again after it had answered"


def test_a_command_that_fails_is_a_warning(cli, running: ClusterStandIn, tmp_path: Path):
    result = cli("endpoints", "--format", "json", "--out", tmp_path / "x.json", "--on-change", "false")
    assert result.code == 0
    assert "--on-change false ended with exit code 1" in result.err
    missing = cli("endpoints", "--format", "json", "--out", tmp_path / "x.json", "--on-change", "no-such-program")
    assert missing.code == 0
    assert "--on-change no-such-program: No such file or directory" in missing.err


def follow_with(cli, out: Path, monkeypatch: pytest.MonkeyPatch, on_change: str, at: dict[int, Callable[[], object]],
                interval: str = "5s") -> tuple[Any, list[float]]:
    """Follow, and do something after so many pauses; the last of them ends it. Returns the pauses, in seconds."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        at.get(len(pauses), lambda: None)()
        if len(pauses) == max(at):
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=sleep))
    result = cli("endpoints", "--format", "nginx", "--out", out, "--follow", "--interval", interval,
                 "--on-change", on_change)
    assert result.code == 130
    return result, pauses


def test_a_command_that_failed_is_run_again_until_it_works(
        cli, running: ClusterStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    works, log = tmp_path / "works", tmp_path / "log"
    on_change = f"sh -c 'echo run >> {log}; test -e {works}'"
    result, pauses = follow_with(cli, tmp_path / "up.conf", monkeypatch, on_change,
                                 {4: works.touch, 9: lambda: None})
    assert log.read_text().count("run") == 4, "at the start, and after 5, 15 and 35 s"
    assert {*pauses} == {5.0}
    assert result.err.count("ended with exit code 1") == 1, "the first failure alone is a warning"
    assert result.err.count("works again") == 1


def test_the_pauses_of_a_command_that_fails_grow_to_a_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(command, "why_failed", lambda _: "it failed")
    file, pauses = command.KeptFile(Path("x"), "nginx", ["x"]), []
    file._run()
    for _ in range(7):
        pauses.append(file.retry_in_s)
        file.passed(file.retry_in_s)
    assert pauses == [5, 10, 20, 40, 60, 60, 60]


def test_a_long_interval_does_not_delay_the_next_try(
        cli, running: ClusterStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    works = tmp_path / "works"
    _, pauses = follow_with(cli, tmp_path / "up.conf", monkeypatch, f"test -e {works}",
                            {2: works.touch, 4: lambda: None}, interval="1h")
    assert pauses == [5.0, 10.0, 3600.0, 3600.0]


def test_a_command_is_run_again_while_the_cluster_cannot_be_read(
        cli, running: ClusterStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = tmp_path / "log"

    def away() -> None:
        running.refusals["GET", "/api/version"] = [(500, "")] * 100

    follow_with(cli, tmp_path / "up.conf", monkeypatch, f"sh -c 'echo run >> {log}; false'", {1: away, 4: lambda: None})
    assert log.read_text().count("run") == 3, "at the start, and after 5 and 15 s"


def test_a_change_runs_a_command_that_fails_at_once(
        cli, running: ClusterStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = tmp_path / "log"
    result, _ = follow_with(cli, tmp_path / "up.conf", monkeypatch, f"sh -c 'echo run >> {log}; false'",
                            {2: lambda: running.actors.pop(0), 3: lambda: None})
    assert log.read_text().count("run") == 3, "at the start, after 5 s, and with the change"
    assert result.err.count("ended with exit code 1") == 1


def test_a_follower_runs_the_command_at_its_start_even_if_the_file_is_current(
        cli, running: ClusterStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One that was killed between the file and the command has left a load balancer with the old endpoints."""
    out, log = tmp_path / "up.conf", tmp_path / "log"
    cli("endpoints", "--format", "nginx", "--out", out)
    follow_with(cli, out, monkeypatch, f"sh -c 'echo run >> {log}'", {2: lambda: None})
    assert log.read_text().count("run") == 1


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_killed_with_its_children(
        cli, running: ClusterStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(command, "ON_CHANGE_S", 3)
    started = tmp_path / "started"
    result = cli("endpoints", "--format", "json", "--out", tmp_path / "x.json",
                "--on-change", f"sh -c 'sleep 1000 & echo $! > {started}; wait'")
    assert result.code == 0
    assert "was killed after 3 s" in result.err
    eventually(lambda: not alive(int(started.read_text())), "the command's child has ended")


@pytest.mark.parametrize("words", [
    ("--follow",), ("--out", "x"), ("--on-change", "true"), ("--follow", "--out", "x", "--inventory", "y"),
    ("--interval", "0s"), ("--format", "json", "--out", "x", "--on-change", "sh -c 'open"),
])
def test_conflicting_flags_are_usage_errors(cli, running: ClusterStandIn, words: tuple[str, ...]):
    assert cli("endpoints", *words).code == 64
