"""`fleetctl import` without files: a fleet file from the running replicas and the records of past applies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_result import Cli
from cluster_stand_in import ClusterStandIn


@pytest.fixture
def node(cluster: ClusterStandIn) -> str:
    """The id of the first node."""
    found: str = cluster.nodes[0]["node_id"]
    return found


def recorded_spec(cluster: ClusterStandIn, key: str) -> str:
    """The spec hash of a model in the record of the only apply."""
    [job] = cluster.jobs.values()
    record = next(json.loads(line) for line in job.log.splitlines() if "planAccepted" in line)
    spec: str = next(model["specHash"] for model in record["models"] if model["key"] == key)
    return spec


def plan(cli: Cli, file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("plan", "-f", file, "--format", "json").out)
    return found


def test_the_record_of_an_apply_becomes_the_fleet_file(
    cli: Cli, cluster: ClusterStandIn, node: str, fleet_file: Path, tmp_path: Path
) -> None:
    assert cli("apply", "-f", fleet_file, "--yes").code == 3
    cluster.add_replica("org/two", 0, node, gpus=10_000, spec_hash=recorded_spec(cluster, "org/two"))
    out = tmp_path / "imported.yaml"
    done = cli("import", "-o", out)
    assert (done.code, done.out) == (0, "")
    text = out.read_text()
    assert "command: [serve, two]" in text
    assert f"address: {cluster.url}" in text
    assert "does not know node policies (caps, reserves, cordons), spec.policy, spec.defaults, or the labels," in text
    made = plan(cli, out)
    assert (made["actions"], made["blocked"], made["drift"]) == ([], [], [])


def test_replicas_without_a_record_are_written_as_observed_and_marked_to_do(
    cli: Cli, cluster: ClusterStandIn, node: str, tmp_path: Path
) -> None:
    cluster.add_replica("org/lost", 3, node, gpus=10_000, spec_hash="0123456789abcdef")
    out = tmp_path / "imported.yaml"
    done = cli("import", "-o", out)
    assert done.code == 3
    assert "no apply log on this cluster has spec 0123456789abcdef" in done.err
    made = plan(cli, out)
    assert (made["actions"], made["blocked"]) == ([], [])
    assert [one["code"] for one in made["drift"]] == ["SPEC_CHANGED"]


def test_masked_values_are_named_and_their_secrets_never_shown(
    cli: Cli, cluster: ClusterStandIn, node: str, fleet_file: Path
) -> None:
    cli("apply", "-f", fleet_file, "--yes")
    cluster.add_replica("org/one", 0, node, spec_hash=recorded_spec(cluster, "org/one"))
    done = cli("import")
    assert done.code == 3
    assert "1 env value unknown to the cluster: WORD" in " ".join(done.err.split())
    assert "FROM: {fromNode: HF_TOKEN}" in done.out
    assert "hush-hush" not in done.out + done.err


def test_one_of_several_fleets_is_named(cli: Cli, cluster: ClusterStandIn, node: str) -> None:
    cluster.add_replica("a", 0, node, gpus=10_000)
    cluster.add_replica("b", 0, node, gpus=10_000, fleet="theirs")
    refused = cli("import")
    assert (refused.code, "several fleets run here: lab, theirs" in refused.err) == (64, True)
    chosen = cli("import", "--fleet", "theirs")
    assert "metadata: {name: theirs}" in chosen.out
    assert "key: a" not in chosen.out


def test_an_unreadable_list_of_applies_is_noted_in_the_file(
    cli: Cli, cluster: ClusterStandIn, node: str
) -> None:
    cluster.add_replica("a", 0, node, gpus=10_000)
    cluster.refusals["GET", "/api/jobs/"] = [(404, "a proxy lets nothing else pass")] * 9
    done = cli("import")
    assert done.code == 3
    assert "list of applies, which has the commands, could not be read" in " ".join(done.out.split())


def test_an_inventory_document_is_imported_without_commands(
    cli: Cli, cluster: ClusterStandIn, node: str, tmp_path: Path
) -> None:
    cluster.add_replica("a", 0, node, gpus=10_000)
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text(cli("inventory", "--format", "json").out)
    cluster.requests.clear()
    done = cli("import", "--inventory", snapshot)
    assert (done.code, cluster.requests) == (3, [])
    assert "FILL-IN-THE-ENGINE-COMMAND" in done.out
    assert "An inventory document has no commands" in done.out


@pytest.mark.parametrize("arguments", [(), ("--fleet", "lab")])
def test_without_replicas_there_is_nothing_to_import(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = cli("import", *arguments)
    assert (done.code, done.out) == (1, "")
    assert "runs here" in done.err


def test_an_incomplete_inventory_is_not_imported(cli: Cli, cluster: ClusterStandIn, node: str) -> None:
    cluster.add_replica("a", 0, node, gpus=10_000)
    cluster.refusals["GET", "/api/v0/actors"] = [(500, "no")] * 50
    done = cli("import")
    assert (done.code, done.out) == (1, "")


def test_importing_writes_nothing(cli: Cli, cluster: ClusterStandIn, node: str) -> None:
    cluster.add_replica("a", 0, node, gpus=10_000)
    cli("import")
    assert cluster.writes() == []
