"""Wherever a command line names a model of a fleet file, the checkpoint in an NDIF key names it, too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn
from model_keys import NDIF_KEY

CHECKPOINT = "openai-community/gpt2"


@pytest.fixture
def ndif_file(fleet_file: Path) -> Path:
    """The fleet file, with a key of NDIF in place of org/one."""
    fleet_file.write_text(fleet_file.read_text().replace("org/one", f"'{NDIF_KEY}'"))
    return fleet_file


def planned(cli, *arguments: str | Path) -> set[str]:
    plan = json.loads(cli("plan", *arguments, "--format", "json").out)
    return {row["model"] for row in plan["actions"] + plan["blocked"]}


def test_a_plan_is_limited_to_it_or_leaves_it_out(cli, cluster: ClusterStandIn, ndif_file: Path) -> None:
    assert planned(cli, "-f", ndif_file, "--target", CHECKPOINT) == {NDIF_KEY}
    assert planned(cli, "-f", ndif_file, "--exclude", CHECKPOINT) == {"org/two"}


def test_a_saved_plan_records_the_key(cli, cluster: ClusterStandIn, ndif_file: Path) -> None:
    plan = json.loads(cli("plan", "-f", ndif_file, "--target", CHECKPOINT, "--format", "json").out)
    assert plan["options"]["targets"] == [NDIF_KEY]


def test_questions_take_it(cli, cluster: ClusterStandIn, ndif_file: Path) -> None:
    counted = json.loads(cli("capacity", "-f", ndif_file, "--model", CHECKPOINT, "--format", "json").out)
    assert [row["model"] for row in counted["rows"]] == [NDIF_KEY]
    supposed = json.loads(cli("what-if", "-f", ndif_file, "--scale", f"{CHECKPOINT}=9", "--format", "json").out)
    assert NDIF_KEY in supposed["changes"][0]["message"]


def test_a_pause_notes_the_key_and_a_resume_finds_it(cli, cluster: ClusterStandIn, ndif_file: Path) -> None:
    assert cli("pause", CHECKPOINT, "-f", ndif_file).code == 0
    blocked = json.loads(cli("plan", "-f", ndif_file, "--format", "json").out)["blocked"]
    assert {(row["model"], row["code"]) for row in blocked} == {(NDIF_KEY, "PAUSED")}
    assert cli("resume", CHECKPOINT).code == 0
    blocked = json.loads(cli("plan", "-f", ndif_file, "--format", "json").out)["blocked"]
    assert "PAUSED" not in {row["code"] for row in blocked}
