"""`fleetctl status`: a row per replica, whatever its state; read-only."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from cluster_stand_in import ClusterStandIn
from rich.console import Console

from fleetctl.cli import status
from fleetctl.documents.schemas import json_schema
from fleetctl.fleetfile.load import load_fleet
from fleetctl.inventory.engine_log import log_name


@pytest.fixture
def busy(cluster: ClusterStandIn) -> ClusterStandIn:
    """A replica in every state, one of another fleet, and one without a mark."""
    first, second = (node["node_id"] for node in cluster.nodes)
    cluster.add_replica("org/one", 0, first)
    cluster.add_replica("org/one", 1, second, state="RESTARTING")
    cluster.add_replica("org/two:x", 0, second, state="PENDING_CREATION", gpus=2_500)
    cluster.add_replica("other", 7, second, fleet="theirs")
    cluster.add_replica("odd", 0, second, fleet=None)
    return cluster


def rows(out: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in out.splitlines()[1:]
            if line.strip() and not line.startswith(" ") and "/" in line.split()[0]}


def test_every_replica_has_a_row_with_state_node_and_address(cli, busy: ClusterStandIn) -> None:
    result = cli("status")
    assert result.code == 0
    found = rows(result.out)
    assert found["org/one/0"] == ["ready", "node-a", "8", "-", "10.0.0.7:7001", "lab"]
    assert found["org/one/1"][:7] == ["restarting", "(restart", "1", "of", "5)", "node-b", "8"]
    assert found["org/two:x/0"][:3] == ["starting", "node-b", "0.25"]
    assert found["other/7"][-1] == "theirs"
    assert found["odd/0"][-1] == "(unmanaged)"
    assert result.out.splitlines()[-1] == "Replicas: 3 ready, 1 restarting, 1 starting"


def test_wide_output_into_a_pipe_wraps_no_row(cli, cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    model = f"org/{'a-long-name-' * 12}"
    cluster.add_replica(model, 0, cluster.nodes[0]["node_id"], gpus=80_000)
    [row] = [line for line in cli("status", "--format", "wide").out.splitlines() if "main/0 rank 0" in line]
    assert model in row
    assert "10.0.0.7:7001" in row
    monkeypatch.setenv("COLUMNS", "90")
    assert max(map(len, cli("status", "--format", "wide").out.splitlines())) <= 90


def test_wide_shows_what_a_member_is_estimated_and_was_measured_to_take(cli, tmp_path: Path) -> None:
    fleet, inventory = tmp_path / "fleet.yaml", tmp_path / "inventory.json"
    fleet.write_text("""\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: org/one
    replicas: 2
    model: {parameters: 8B}
    workers: [{name: main, members: [{resources: {gpus: 1, vram: auto}, engine: {command: [vllm, serve, m]}}]}]
""")
    member = {"group": "main", "nodeId": "a", "gpus": 10_000, "vram": 70 << 30}
    ready = {"model": "org/one", "fleet": "lab", "specHash": load_fleet([str(fleet)]).models[0].spec_hash,
             "readyAt": "2026-03-04T11:00:00Z"}
    cards = [{"index": index, "memoryTotal": 80 << 30, "memoryUsed": 75 << 30, "share": 1.0} for index in range(2)]
    inventory.write_text(json.dumps({
        "formatVersion": "1.0", "kind": "Inventory", "observedAt": "2026-03-04T12:00:00Z", "source": "test",
        "nodes": [{"id": "a", "name": "node-a", "gpus": cards, "resources": {"total": {"GPU": 2}}}],
        "replicas": [{**ready, "replicaId": number, "members": [{**member, "gpuIndices": indices}]}
                     for number, indices in enumerate(([1], []))]}))
    shown = cli("status", "-f", str(fleet), "--inventory", str(inventory), "--format", "wide").out
    assert re.search(r"org/one/0 main/0 rank 0 .* 70Gi +74.10Gi +75Gi", shown)
    assert re.search(r"org/one/1 main/0 rank 0 .* 70Gi +74.10Gi +- ", shown), "its cards are not known"


NOON_MS = 1_772_625_600_000
ENGINE = "fleetctl: starting main/0 rank 0 at 2026-03-04T{}Z\n"
ENDED = "fleetctl: ended at 2026-03-04T{}Z: {}\n"


@pytest.fixture
def crashing(cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch) -> ClusterStandIn:
    """A replica ready at noon and now in its fourth restart, one that has just restarted, and one that is starting."""
    cluster.ahead_s = None
    monkeypatch.setattr("fleetctl.cli.process.now_text", lambda: "2026-03-04T14:05:00Z")
    node = cluster.nodes[0]["node_id"]
    cluster.add_replica("org/one", 0, node, gpus=0, state="RESTARTING", restarts=4, up_ms=(NOON_MS, NOON_MS))
    cluster.add_replica("org/one", 1, node, gpus=0, restarts=1, up_ms=(NOON_MS - 90_000_000, NOON_MS + 7_440_000))
    cluster.add_replica("org/one", 2, node, gpus=0, state="PENDING_CREATION")
    cluster.jobs["earlier-00000002"].start_time = NOON_MS + 7_200_000
    cluster.log_files |= {(node, log_name("fleet", "org/one", number, "main", 0, 0)): log for number, log in enumerate([
        ENDED.format("11:00:00", "of another one") + ENGINE.format("11:59:00") + ENDED.format("14:02:03", "signal 9")
        + ENGINE.format("14:02:10") + "CUDA\n" + ENDED.format("14:03:00", "ENGINE_EXITED: out of memory"),
        ENDED.format("14:03:59", "the engine exited with code 1") + ENGINE.format("14:04:00") + "serving\n",
        ENGINE.format("13:00:00") + ENGINE.format("14:04:20")])}
    return cluster


def test_a_replica_shows_the_age_of_its_state_and_why_it_ended(cli, crashing: ClusterStandIn) -> None:
    document = json.loads(cli("status", "--format", "json").out)
    assert [(one["since"], one["restartMax"], one["error"]) for one in document["replicas"]] == [
        ("2026-03-04T14:02:03Z", 5, "ENGINE_EXITED: out of memory"),
        ("2026-03-04T14:04:00Z", 5, "the engine exited with code 1"), ("2026-03-04T14:04:20Z", None, None)]
    found = rows(cli("status").out)
    assert found["org/one/0"][:7] == ["restarting", "(restart", "4", "of", "5)", "node-a", "0"]
    assert [found[f"org/one/{number}"][at] for number, at in ((0, 7), (1, 7), (2, 3))] == ["2m57s", "1m00s", "40s"]


def test_a_crash_loop_is_never_reported_as_nothing_to_do(
    cli, crashing: ClusterStandIn, fleet_file: Path
) -> None:
    result = cli("plan", "-f", fleet_file, "--target", "org/one", "--format", "json")
    [row] = [one for one in json.loads(result.out)["models"] if one["key"] == "org/one"]
    assert "1 restarting since 14:02 UTC (4 of 5 restarts used: ENGINE_EXITED: out of memory)" in row["reason"]
    assert "1 restarted at 14:04 UTC (1 of 5 restarts used: the engine exited with code 1)" in row["reason"]
    assert "nothing to do" not in row["reason"]


def test_unreadable_ages_are_left_out_and_reported(cli, crashing: ClusterStandIn) -> None:
    crashing.refusals["GET", "/logical/actors"] = [(404, "")]
    result = cli("status")
    assert result.code == 0
    assert "the times when replicas became ready could not be read" in result.err


def test_a_plan_without_restarted_replicas_sends_no_extra_request(
    cli, busy: ClusterStandIn, fleet_file: Path
) -> None:
    del busy.actors[1]
    cli("plan", "-f", fleet_file)
    assert ("GET", "/logical/actors") not in busy.requests


def test_a_replica_on_a_dead_node_is_lost(cli, busy: ClusterStandIn) -> None:
    busy.nodes[0]["state"] = "DEAD"
    result = cli("status")
    assert rows(result.out)["org/one/0"][0] == "lost"
    assert "1 lost" in result.out.splitlines()[-1]


def test_a_model_or_a_fleet_file_limits_the_rows(cli, busy: ClusterStandIn, fleet_file: Path) -> None:
    assert set(rows(cli("status", "org/one").out)) == {"org/one/0", "org/one/1"}
    found = rows(cli("status", "-f", fleet_file).out)
    assert set(found) == {"org/one/0", "org/one/1", "org/two:x/0", "org/one", "org/two"}
    assert found["org/one"][1] == "1", "one of two is ready, the other is restarting"
    assert "org/two" not in rows(cli("status", "org/one", "-f", fleet_file).out)


def test_json_is_an_inventory_of_the_chosen_replicas(cli, busy: ClusterStandIn) -> None:
    result = cli("status", "org/one", "--format", "json")
    document = json.loads(result.out)
    jsonschema.validate(document, json_schema("inventory"))
    assert [replica["replicaId"] for replica in document["replicas"]] == [0, 1]
    assert len(document["nodes"]) == 2


def test_status_writes_nothing(cli, busy: ClusterStandIn) -> None:
    cli("status")
    assert busy.writes() == []


def test_an_incomplete_inventory_is_shown_and_exits_with_1(cli, busy: ClusterStandIn) -> None:
    busy.refusals["GET", "/api/version"] = [(500, "")] * 10
    result = cli("status")
    assert result.code == 1
    assert "org/one/0" in result.out
    assert "incomplete" in result.err


def test_a_snapshot_is_shown_without_a_cluster(
    cli, busy: ClusterStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "inventory.json"
    snapshot.write_text(cli("inventory", "--format", "json").out)
    expected = cli("status").out
    monkeypatch.delenv("FLEETCTL_ADDRESS")
    assert cli("status", "--inventory", snapshot).out == expected


def test_standard_input_is_read_once(cli) -> None:
    assert cli("status", "-f", "-", "--inventory", "-").code == 64


def test_a_name_cannot_control_the_terminal(cli, cluster: ClusterStandIn) -> None:
    cluster.add_replica("\x1b[2Jm", 0, cluster.nodes[0]["node_id"], fleet="\x1b[31mf")
    out = cli("status").out
    assert "\x1b" not in out
    assert "\\x1b[2Jm/0" in out


@pytest.mark.parametrize("flags", [[], ["-f"]], ids=["alone", "with a file"])
def test_an_unknown_model_exits_with_1_and_suggests_the_nearest_key(
    cli, busy: ClusterStandIn, fleet_file: Path, flags: list[str]
) -> None:
    result = cli("status", "org/onee", *flags, *([fleet_file] if flags else []))
    assert (result.code, result.out) == (1, "")
    assert "there is no replica of org/onee" in result.err
    assert "did you mean org/one?" in result.err
    assert ("in fleet lab" in result.err) is bool(flags)


def test_an_unknown_model_without_a_similar_key_exits_with_1(cli, busy: ClusterStandIn) -> None:
    result = cli("status", "zzz")
    assert result.code == 1
    assert "`fleetctl status` lists what runs" in result.err


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_model_in_the_file_without_replicas_exits_with_0(
    cli, cluster: ClusterStandIn, fleet_file: Path, output: str
) -> None:
    result = cli("status", "org/one", "-f", fleet_file, "--format", output)
    assert result.code == 0
    assert "no replica of org/one runs; the fleet file wants 3" in result.err


def test_a_model_is_not_reported_as_missing_if_the_inventory_is_incomplete(cli, busy: ClusterStandIn) -> None:
    busy.refusals["GET", "/api/version"] = [(500, "")] * 10
    result = cli("status", "org/onee")
    assert result.code == 1
    assert "that could be read: " in result.err


def test_a_replica_in_a_running_eviction_is_draining(cli, cluster: ClusterStandIn) -> None:
    node = cluster.nodes[0]["node_id"]
    cluster.add_replica("org/one", 0, node, gpus=0)
    cluster.add_replica("org/one", 1, node, gpus=0)
    job = cluster.add_job("e", ("SUCCEEDED", ""), verb="evict", fleet="lab", namespace="fleet",
                          replicas='["org/one/0"]')
    result = cli("status")
    assert "Replicas: 1 draining, 1 ready" in result.out
    job.step()
    assert "Replicas: 2 ready" in cli("status").out


class ChangesThenCtrlC:
    """Replaces the waits of --follow: each wait makes one change to the cluster, and the last one raises Ctrl-C."""

    def __init__(self, *changes: Callable[[], object]) -> None:
        self._changes = list(changes)

    def __call__(self, _: float) -> None:
        if not self._changes:
            raise KeyboardInterrupt
        self._changes.pop(0)()


@pytest.fixture
def changing(busy: ClusterStandIn, monkeypatch: pytest.MonkeyPatch) -> ClusterStandIn:
    """A replica restarts, the dashboard fails, recovers partly, then fully with one replica fewer."""
    first, second = busy.actors[0], busy.actors[1]
    changes = ChangesThenCtrlC(
        lambda: None, lambda: first.update(state="RESTARTING", num_restarts="1"),
        lambda: busy.refusals.update({("GET", "/api/v0/nodes"): [(500, "")] * 6}),
        lambda: busy.refusals.update({("GET", "/api/v0/nodes"): [], ("GET", "/api/version"): [(500, "")]}),
        lambda: (busy.refusals.clear(), busy.actors.remove(second)))
    monkeypatch.setattr(time, "sleep", changes)
    return busy


def test_following_into_a_pipe_prints_a_line_per_change_until_ctrl_c(cli, changing: ClusterStandIn) -> None:
    result = cli("status", "--follow")
    assert result.code == 130
    before, _, after = result.out.partition("Replicas: 3 ready, 1 restarting, 1 starting\n")
    assert set(rows(before)) >= {"org/one/0", "other/7"}
    assert [line.split(" ", 1)[1].split("  ")[0] for line in after.splitlines()] == [
        "org/one/0 restarting (restart 1 of 5)", "org/one/1 gone"]
    assert result.err.count("the cluster cannot be read: ") == result.err.count("the cluster can be read again") == 1


def test_a_last_error_that_disappears_is_not_a_change(
    cli, crashing: ClusterStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = (crashing.nodes[0]["node_id"], log_name("fleet", "org/one", 1, "main", 0, 0))
    monkeypatch.setattr(time, "sleep", ChangesThenCtrlC(lambda: crashing.log_files.update({log: "line\n"})))
    before, _, after = cli("status", "--follow").out.partition("Replicas: ")
    assert "exited with" in before
    assert "org/one/1" not in after


def test_following_on_a_terminal_redraws_in_place_and_shows_an_unreachable_cluster(
    cli, changing: ClusterStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=120, height=40)
    monkeypatch.setattr(status, "result_console", lambda: screen)
    monkeypatch.setattr(status, "moves", lambda _: True)
    assert cli("status", "org/one", "--follow").code == 130
    frames = re.split(r"(?:\x1b\[1A\x1b\[2K)+", screen.file.getvalue())
    assert len(frames) == 7, "the last frame stays on the screen"
    assert "Replicas: 1 ready, 1 restarting" in frames[0]
    assert "every 2 s" in frames[0]
    assert "as of " in frames[3]
    assert "500" in frames[3]
    assert "Replicas: 2 restarting" in frames[3], "the last known state stays"
    assert "not everything could be read" in frames[4]
    assert "Replicas: 1 restarting" in frames[5]


@pytest.mark.parametrize("flags", [["--format", "json"], ["--inventory", "x"]])
def test_following_requires_a_table_and_a_live_cluster(cli, flags: list[str]) -> None:
    assert cli("status", "--follow", *flags).code == 64


def test_a_column_names_variants_only_where_a_model_has_some(cli, cluster: ClusterStandIn, tmp_path: Path) -> None:
    ways = json.dumps([{"name": name, "workers": [{"name": "main", "members": [
        {"resources": {"gpus": gpus}, "engine": {"command": ["serve"]}}]}]}
        for name, gpus in (("h100", 1), ("a100", 2))])
    head = "apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: lab}\nspec:\n  models:\n"
    plain = ("  - key: n\n    replicas: 1\n    workers: [{name: main, members: [{resources: {gpus: 1}, "
             "engine: {command: [serve]}}]}]\n")
    path = tmp_path / "fleet.yaml"
    path.write_text(f"{head}  - key: m\n    replicas: 3\n    variants: {ways}\n{plain}")
    model = load_fleet([str(path)]).models[0]
    node = cluster.nodes[0]["node_id"]
    cluster.add_replica("m", 0, node, gpus=10_000, spec_hash=model.variants[1].spec_hash, variant="former")
    cluster.add_replica("m", 1, node, gpus=10_000, variant="gone")
    cluster.add_replica("m", 2, node, gpus=10_000, variant="h100")
    cluster.add_replica("n", 0, node, gpus=10_000)
    found = rows(cli("status", "-f", path).out)
    assert [found[name][:2] for name in ("m/0", "m/1", "m/2", "n/0")] == [
        ["a100", "ready"], ["gone", "ready,"], ["h100", "ready,"], ["-", "ready,"]]
    assert "VARIANT" not in cli("status", "-f", path, "n").out
    assert rows(cli("status").out)["m/0"][:2] == ["former", "ready"], "without a file, as in its mark"
    path.write_text(head + plain)
    assert "VARIANT" not in cli("status", "-f", path).out
