"""`fleetctl capacity`, `what-if` and `map` from flags to exit code, on a snapshot, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from cluster_stand_in import ClusterStandIn
from published_schemas import validator_of
from pydantic import BaseModel

from fleetctl.cli.entry import run
from fleetctl.documents.answers import Capacity, PlacementMap, WhatIf

NOTHING_WANTED = ["--scale", "org/one=0", "--scale", "org/two=0"]
Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("FLEETCTL_ADDRESS", "FLEETCTL_NAMESPACE", "FLEETCTL_DEBUG", "NO_COLOR", "FORCE_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def inputs(fleet_file: Path, snapshot_file: Path) -> list[str]:
    """The flags for a fleet of two models on two nodes, with one replica running."""
    document = json.loads(snapshot_file.read_text())
    document["replicas"] = [{"model": "org/one", "replicaId": 0, "fleet": "lab", "state": "ALIVE",
                             "members": [{"group": "main", "nodeId": "a1", "gpus": 80_000, "slot": 0}]}]
    snapshot_file.write_text(json.dumps(document))
    return ["-f", str(fleet_file), "--inventory", str(snapshot_file)]


def answer(model: type[BaseModel], capsys: Capsys) -> dict[str, Any]:
    """Standard output as a document, validated against its model."""
    document = json.loads(capsys.readouterr().out)
    validator_of(model).validate(document)
    return document


def test_capacity_is_a_table_on_standard_output_and_nothing_else(inputs: list[str], capsys: Capsys) -> None:
    assert run(["capacity", *inputs]) == 0
    out, err = capsys.readouterr()
    head = next(line for line in out.splitlines() if line.startswith("MODEL"))
    assert head.split() == ["MODEL", "ONE", "REPLICA", "TAKES", "FITS", "NOW", "AFTER", "PLAN", "AT", "MOST"]
    row = next(line for line in out.splitlines() if line.startswith("org/one"))
    assert row.split() == ["org/one", "8", "GPUs", "1", "0", "0"]
    assert "one more does not fit: needs 8 free GPUs" in out
    assert err == ""


def test_capacity_of_a_shape_needs_no_fleet(inputs: list[str], capsys: Capsys) -> None:
    assert run(["capacity", *inputs[2:], "--shape", "2x1", "--shape", "4", "--format", "json"]) == 0
    document = answer(Capacity, capsys)
    assert document["fleet"] is None
    assert [(row["shape"], row["now"]["fits"], row["afterPlan"]) for row in document["rows"]] == [
        ("2x1", 0, None), ("4", 2, None)]


def test_capacity_of_models_and_shapes_together(inputs: list[str], capsys: Capsys) -> None:
    assert run(["capacity", *inputs, "--model", "org/two", "--shape", "1", "--format", "json"]) == 0
    document = answer(Capacity, capsys)
    assert [(row["model"], row["shape"]) for row in document["rows"]] == [("org/two", None), (None, "1")]
    assert document["fleet"] == "lab"


def test_capacity_shows_where_it_stopped_counting(inputs: list[str], capsys: Capsys) -> None:
    run(["capacity", *inputs[2:], "--shape", "0.01", "--limit", "7"])
    out = capsys.readouterr().out
    assert " 7+" in out
    assert "counting stopped at 7" in out


@pytest.mark.parametrize(("flags", "message"), [
    ([], "--shape 8"), (["--model", "m", "--shape", "1"], "-f"), (["--shape", "eight"], "2x8"),
    (["--shape", "8", "--limit", "0"], "--limit"),
])
def test_capacity_with_missing_or_invalid_flags_is_a_usage_error(
    flags: list[str], message: str, capsys: Capsys
) -> None:
    assert run(["capacity", *flags]) == 64
    assert message in capsys.readouterr().err


def test_what_if_compares_and_writes_nothing(inputs: list[str], tmp_path: Path, capsys: Capsys) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert run(["what-if", *inputs, "--lose-node", "node-a"]) == 0
    out, err = capsys.readouterr()
    assert "- loses node-a" in out
    row = next(line for line in out.splitlines() if "  org/one " in line)
    assert row.split("  ")[-1].strip() == "1 lost: 1 without a place"
    assert "Lost: 1 replica; 0 placed again, 1 without a place" in out
    assert err == ""
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_what_if_as_json_is_a_published_document(inputs: list[str], capsys: Capsys) -> None:
    flags = ["--lose-node", "a1", "--cordon", "ray.io/node-id=b2", "--add-node", "like:node-a x2", "--scale",
             "org/two=0", "--each-node", "--format", "json"]
    assert run(["what-if", *inputs, *flags]) == 0
    document = answer(WhatIf, capsys)
    assert [change["op"] for change in document["changes"]] == ["addNode", "loseNode", "cordon", "scale"]
    assert {member["node"] for one in document["created"] for member in one["members"]} == {"new-1", "new-2"}
    assert document["eachNode"]
    assert "hush-hush" not in json.dumps(document)


@pytest.mark.parametrize(("flags", "code"), [
    (["--lose-node", "node-a"], 3), (["--scale", "org/one=2"], 2), ([*NOTHING_WANTED], 0),
    (["--scale", "org/one=2", "--each-node"], 3), ([*NOTHING_WANTED, "--each-node"], 0),
])
def test_what_if_has_the_detailed_exit_codes_of_a_plan(flags: list[str], code: int, inputs: list[str]) -> None:
    assert run(["what-if", *inputs, *flags]) == 0
    assert run(["what-if", *inputs, *flags, "--detailed-exitcode"]) == code


@pytest.mark.parametrize(("flags", "code", "message"), [
    (["--lose-node", "node-c"], 1, "did you mean node-"), (["--scale", "org/onee=1"], 1, "did you mean org/one?"),
    (["--add-node", "8xXYZ"], 64, "vram="), ([], 64, "--each-node"), (["--cordon", "nod"], 1, "did you mean node-"),
])
def test_what_if_about_something_unknown_is_an_error_that_says_what_is_meant(
    flags: list[str], code: int, message: str, inputs: list[str], capsys: Capsys
) -> None:
    assert run(["what-if", *inputs, *flags]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_each_node_ends_with_the_number_of_nodes_that_can_be_lost(inputs: list[str], capsys: Capsys) -> None:
    run(["what-if", *inputs, "--each-node"])
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "2 of 2 nodes cannot be lost without leaving a replica without a place"
    run(["what-if", *inputs, "--each-node", "--scale", "org/one=1"])
    assert "Any one of the 2 nodes can be lost" in capsys.readouterr().out


def test_the_map_draws_running_replicas_and_with_a_fleet_new_ones(inputs: list[str], capsys: Capsys) -> None:
    assert run(["map", *inputs[2:]]) == 0
    out = capsys.readouterr().out
    assert next(line for line in out.splitlines() if line.startswith("node-a")).count("A █") == 8
    assert "+" not in out
    assert run(["map", *inputs]) == 0
    out = capsys.readouterr().out
    assert next(line for line in out.splitlines() if line.startswith("node-b")).count("+A █") == 8


def test_the_map_is_available_as_json_and_svg(inputs: list[str], capsys: Capsys) -> None:
    assert run(["map", *inputs, "--format", "json"]) == 0
    document = answer(PlacementMap, capsys)
    assert [(entry["model"], entry["live"], entry["new"]) for entry in document["legend"]] == [
        ("org/one", 1, 1), ("org/two", 0, 1)]
    assert run(["map", *inputs, "--format", "svg"]) == 0
    assert ElementTree.fromstring(capsys.readouterr().out).tag.endswith("svg")


def test_an_incomplete_inventory_is_drawn_with_exit_1_and_one_error(
    inputs: list[str], snapshot_file: Path, capsys: Capsys
) -> None:
    document = {**json.loads(snapshot_file.read_text()), "complete": False, "warnings": ["actors: cut off"]}
    snapshot_file.write_text(json.dumps(document))
    assert run(["map", *inputs[2:]]) == 1
    out, err = capsys.readouterr()
    assert "node-b" in out
    assert "actors: cut off" in err
    for command in (["map", *inputs], ["capacity", *inputs], ["what-if", *inputs, "--each-node"]):
        assert run(command) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert "not complete" in err


@pytest.mark.parametrize("command", [["capacity"], ["what-if", "--each-node"], ["map"]])
def test_standard_input_is_read_once(command: list[str], capsys: Capsys) -> None:
    assert run([*command, "-f", "-", "--inventory", "-"]) == 64
    assert "standard input" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["capacity"], ["what-if", "--each-node"], ["map"]])
def test_equal_input_gives_equal_bytes(command: list[str], inputs: list[str], capsys: Capsys) -> None:
    run([*command, *inputs, "--format", "json"])
    first = capsys.readouterr().out
    run([*command, *inputs, "--format", "json"])
    assert capsys.readouterr().out == first


def test_all_three_send_only_get_requests_to_a_live_cluster(cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    for command in (["capacity", "-f", fleet_file], ["capacity", "--shape", "8"], ["map", "-f", fleet_file], ["map"],
                    ["what-if", "-f", fleet_file, "--lose-node", "node-a", "--each-node"]):
        result = cli(*command)
        assert (result.code, result.err) == (0, "")
        assert cluster.url in result.out
    assert cluster.writes() == []
