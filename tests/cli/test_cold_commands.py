"""`prefetch` and `prune`: which nodes do what, the question before anything is removed, and the result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_result import Cli
from cluster_stand_in import ClusterStandIn, Steps, event, summary
from published_schemas import validator_of

from fleetctl.cli.disks import named_weights, nodes_for
from fleetctl.cli.drain import Draining
from fleetctl.documents.answers import Prefetched, Pruned
from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.workflow.scaling import Scaling

ONE, TWO, OLD, USED = ("1" * 64, "2" * 64, "a" * 64, "b" * 64)
RANKS = {"files": "rank-$(FLEETCTL_RANK)-*"}
Answer = Callable[[str, Any], list[dict[str, Any]]]


def member(index: str | None = ONE, view: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    weights = {"from": [{"path": "/models/m"}], "index": index, **({"view": view} if view else {})}
    return {"resources": {"gpus": 1}, "engine": {"command": ["serve"], "env": {"TOKEN": {"fromNode": "HF"}}},
            **({"weights": weights} if index else {}), **more}


def write(path: Path, *members: dict[str, Any], fleet: str = "lab", **more: Any) -> Path:
    models = [{"key": "m", "replicas": 1, "workers": [{"name": "main", "members": list(members)}], **more}]
    path.write_text(yaml.safe_dump({"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": fleet},
                                    "spec": {"models": models}}))
    return path


def answer_with(cluster: ClusterStandIn, answer: Answer) -> list[tuple[str, dict[str, Any]]]:
    """Let the agent answer with events of one kind; return the list that collects the verb and request of each job."""
    requests: list[tuple[str, dict[str, Any]]] = []

    def respond(request: dict[str, Any]) -> Steps:
        job = cluster.jobs[request["job"]]
        requests.append((job.body["metadata"]["verb"], request))
        kind = "weightsFetched" if requests[-1][0] == "prefetch" else "weightsCached"
        lines = [event(1, kind, "", nodeId=node_id, **row) for node_id, about in request["nodes"].items()
                 for row in answer(node_id, about)]
        return [("SUCCEEDED", event(0, "version", "agent", version="1.0") + "".join(lines) + summary(9))]

    cluster.on_submit = respond
    return requests


def fetched(failing: tuple[str, ...] = ()) -> Answer:
    def answer(node_id: str, members: Any) -> list[dict[str, Any]]:
        got = {"source": "peer", "from": "m/0", "bytes": 5 << 30, "seconds": 2.5, "reused": 0, "left": []}
        return [{"artifact": one["weights"]["artifact"],
                 **({"trouble": "no source gave them"} if node_id in failing else {"fetched": got})} for one in members]

    return answer


def ids(cluster: ClusterStandIn) -> dict[str, str]:
    return {node["node_name"]: node["node_id"] for node in cluster.nodes}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "lab.yaml", member())


@pytest.mark.parametrize(("failing", "code"), [((), 0), (("node-b",), 3), (("node-a", "node-b"), 1)])
def test_every_node_that_may_run_the_model_fetches_and_has_a_row(
    cli: Cli, cluster: ClusterStandIn, file: Path, failing: tuple[str, ...], code: int
) -> None:
    cluster.add_node("small", gpus=0)
    cluster.add_node("dead", state="DEAD")
    cluster.add_node("closed")
    cluster.add_job("n", ("SUCCEEDED", ""), verb="cordon", nodeName="closed", node=ids(cluster)["closed"]).step()
    requests = answer_with(cluster, fetched(tuple(ids(cluster)[name] for name in failing)))
    result = cli("prefetch", "m", "-f", file, "--format", "json")
    assert result.code == code, result.err
    answer = json.loads(result.out)
    validator_of(Prefetched).validate(answer)
    assert answer["exitCode"] == code
    assert [(row["node"], bool(row["fetched"]), row["trouble"]) for row in answer["rows"]] == [
        (name, name not in failing, "no source gave them" if name in failing else "") for name in ("node-a", "node-b")]
    [(verb, request)] = requests
    assert (verb, request["timeout"], request["atOnce"]) == ("prefetch", 1800, 4)
    [order] = request["nodes"][ids(cluster)["node-a"]]
    assert order["weights"] == {"artifact": ONE, "from": [{"path": "/models/m"}], "view": None, "sources": []}
    assert order["engine"]["env"] == {"TOKEN": {"fromNode": "HF"}}
    table = cli("prefetch", "m", "-f", file)
    assert ("5Gi" in table.out) == (code != 1)
    assert ("no source gave them" in table.out) == bool(failing)


@pytest.mark.parametrize("flags", [("--node", "node-b"), ("--nodes", "zone=b"), ("--nodes", "zone notin (a)")])
def test_only_the_named_nodes_fetch(
    cli: Cli, cluster: ClusterStandIn, file: Path, flags: tuple[str, str]
) -> None:
    cluster.nodes[0]["labels"]["zone"], cluster.nodes[1]["labels"]["zone"] = "a", "b"
    requests = answer_with(cluster, fetched())
    assert cli("prefetch", "m", "-f", file, *flags, "--timeout", "90s").code == 0
    [(_, request)] = requests
    assert ([*request["nodes"]], request["timeout"]) == ([ids(cluster)["node-b"]], 90)


def test_an_artifact_is_fetched_once_and_whole_if_ranks_need_different_parts(
    cli: Cli, cluster: ClusterStandIn, tmp_path: Path
) -> None:
    same = {"tensors": "a"}
    file = write(tmp_path / "lab.yaml", member(ONE, RANKS, role="Leader"), member(ONE, RANKS, role="Worker", count=3),
                 member(TWO, same, role="Worker", count=2, nodeSelector={"zone": "b"}))
    cluster.nodes[1]["labels"]["zone"] = "b"
    requests = answer_with(cluster, fetched())
    assert cli("prefetch", "m", "-f", file).code == 0
    [(_, request)] = requests
    parts = {name: [(one["weights"]["artifact"], one["weights"]["view"]) for one in request["nodes"][node_id]]
             for name, node_id in ids(cluster).items()}
    assert parts == {"node-a": [(ONE, None)], "node-b": [(ONE, None), (TWO, same)]}


@pytest.mark.parametrize(("words", "code", "message"), [
    (["plain"], 1, "the fleet file has no model plain"), (["m", "--node", "node-x"], 1, "there is no node node-x"),
    (["m", "--nodes", "zone=none"], 1, "no node with the labels zone=none is alive"),
    (["m", "--nodes", "zone=a", "--node", "node-a"], 64, "either"),
])
def test_impossible_requests_are_refused_before_a_job_starts(
    cli: Cli, cluster: ClusterStandIn, file: Path, words: list[str], code: int, message: str
) -> None:
    result = cli("prefetch", *words, "-f", file)
    assert (result.code, message in result.err, cluster.writes()) == (code, True, []), result.err


def test_a_model_without_weights_cannot_be_fetched(cli: Cli, cluster: ClusterStandIn, tmp_path: Path) -> None:
    result = cli("prefetch", "m", "-f", write(tmp_path / "lab.yaml", member(None)))
    assert (result.code, cluster.writes()) == (1, [])
    assert "m has no weights in the fleet file" in result.err


def test_an_interrupt_stops_the_job(cli: Cli, cluster: ClusterStandIn, file: Path,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    answer_with(cluster, fetched())
    monkeypatch.setattr("fleetctl.cli.disks._report", interrupted)
    result = cli("prefetch", "m", "-f", file)
    assert result.code == 130
    assert "stopped: nodes keep what they have fetched; the same command continues" in result.err
    assert [job.stopped for job in cluster.jobs.values()] == [True]


def caches(**states: Any) -> Answer:
    """Every node has an unused artifact and one in use; `states` = the state of the unused one at its removal."""
    def answer(_: str, about: Any) -> list[dict[str, Any]]:
        rows = [{"artifact": OLD, "bytes": 3 << 30, "used": False}, {"artifact": USED, "bytes": 1 << 30, "used": True}]
        if OLD in about:  # the second job: remove it
            rows = [{**rows[0], **states, "removed": not states}]
        return [{"root": "/cache", "trouble": "", "artifacts": rows}]

    return answer


def test_only_listed_and_confirmed_weights_are_removed(cli: Cli, cluster: ClusterStandIn, file: Path) -> None:
    requests = answer_with(cluster, caches())
    assert cli("prune", "-f", file, typed="n\n").code == 1
    assert [verb for verb, _ in requests] == ["caches"]
    requests.clear()
    result = cli("prune", "-f", file, "--format", "json", typed="y\n")
    assert result.code == 0, result.err
    assert "Remove 6Gi from 2 nodes?" in result.err
    both = ids(cluster).values()
    assert [(verb, request["nodes"]) for verb, request in requests] == [
        ("caches", {node_id: [ONE] for node_id in both}), ("prune", {node_id: [OLD] for node_id in both})]
    answer = json.loads(result.out)
    validator_of(Pruned).validate(answer)
    assert [[(one["artifact"], one["removed"]) for one in node["artifacts"]] for node in answer["nodes"]] == [
        [(OLD, True), (USED, False)]] * 2


def test_a_dry_run_and_no_terminal_remove_nothing(cli: Cli, cluster: ClusterStandIn, file: Path) -> None:
    requests = answer_with(cluster, caches())
    result = cli("prune", "-f", file, "--dry-run")
    assert result.code == 0
    assert "would be removed" in result.out
    assert "in use, kept" in result.out
    assert cli("prune", "-f", file).code == 64
    assert {verb for verb, _ in requests} == {"caches"}


def test_only_nodes_with_something_to_remove_are_counted(
    cli: Cli, cluster: ClusterStandIn, file: Path
) -> None:
    answer_with(cluster, lambda node, _: [{"root": "/cache", "trouble": "", "artifacts": [
        {"artifact": OLD, "bytes": 3 << 30, "used": False}] if node == ids(cluster)["node-b"] else []}])
    assert "3Gi can be removed from 1 node\n" in cli("prune", "-f", file, "--dry-run").out


def test_weights_in_use_by_then_stay_and_a_silent_node_makes_the_prune_partial(
    cli: Cli, cluster: ClusterStandIn, file: Path
) -> None:
    answer_with(cluster, caches(used=True))
    result = cli("prune", "-f", file, "--yes")
    assert result.code == 0
    assert "nothing was removed from 2 nodes" in result.out
    answer_with(cluster, lambda *_: [{"trouble": "no worker answered"}])
    result = cli("prune", "-f", file, "--yes")
    assert (result.code, "no worker answered" in result.out) == (3, True)


def test_weights_named_by_any_of_several_fleets_stay(
    cli: Cli, cluster: ClusterStandIn, file: Path, tmp_path: Path
) -> None:
    requests = answer_with(cluster, lambda *_: [])
    other = write(tmp_path / "other.yaml", member(TWO), fleet="other")
    result = cli("prune", "-f", file, "-f", other, "--yes")
    assert (result.code, "no answer" in result.out) == (3, True)
    assert {tuple(keep) for _, request in requests for keep in request["nodes"].values()} == {(ONE, TWO)}


def test_weights_of_every_variant_are_fetched_and_stay(cli: Cli, cluster: ClusterStandIn, file: Path) -> None:
    fleet = yaml.safe_load(file.read_text())
    model = fleet["spec"]["models"][0]
    first = model.pop("workers")
    second = [{"name": "main", "members": [member(TWO)]}]
    model["variants"] = [{"name": "a", "workers": first}, {"name": "b", "workers": second}]
    file.write_text(yaml.safe_dump(fleet))
    requests = answer_with(cluster, lambda *_: [])
    cli("prune", "-f", file, "--yes")
    assert {tuple(keep) for _, request in requests for keep in request["nodes"].values()} == {(ONE, TWO)}
    loaded = inspect_fleet([str(file)]).sound()
    seen = Inventory.model_validate({"observedAt": "2026-03-04T12:00:00Z", "source": "x", "nodes": [
        {"id": "n", "name": "n", "ip": "10.0.0.1", "state": "ALIVE", "resources": {"total": {"GPU": 8, "CPU": 64}}}]})
    [parts] = nodes_for(loaded, loaded.models[0], seen, None).values()
    assert [part.weights.index for part in parts] == [ONE, TWO]


def test_weights_served_by_a_restarting_replica_stay() -> None:
    served = {"model": "m", "state": "RESTARTING", "members": [{"weights": {"artifact": USED, "port": 7}}]}
    seen = Inventory.model_validate({"observedAt": "2026-03-04T12:00:00Z", "source": "x", "replicas": [served]})
    assert named_weights([], seen) == [USED]


def test_history_has_only_runs_that_changed_something(
    cli: Cli, cluster: ClusterStandIn, file: Path
) -> None:
    answer_with(cluster, caches())
    assert cli("prune", "-f", file, "--yes").code == 0
    runs = json.loads(cli("history", "--format", "json").out)["runs"]
    assert [run["verb"] for run in runs] == ["prune"]
    assert cli("history").code == 0


def test_drain_and_scale_leave_cold_weights_to_the_next_apply(tmp_path: Path) -> None:
    loaded = inspect_fleet([str(write(tmp_path / "lab.yaml", member(), cold={"nodes": {}}))])
    assert loaded.sound().models[0].cold is not None
    seen = Inventory.model_validate({"observedAt": "2026-01-01T00:00:00Z", "source": "test", "nodes": [
        {"id": "n", "name": "n"}]})
    for changed in (Draining(loaded, seen, seen.nodes[0]).with_replacements([]), Scaling(loaded, "m", 1, 0).to(2),
                    Scaling(loaded, "other", 1, 0).to(2)):
        assert [model.cold for model in changed.sound().models] == [None]
