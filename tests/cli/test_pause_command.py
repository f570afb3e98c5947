"""`pause` and `resume`: a note that blocks new replicas of a model or a fleet, and that everything shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, all_ready
from record_rows import record

PAUSE = {"verb": "pause", "fleet": "lab", "namespace": "fleet"}


def blocked(cli, fleet_file: Path) -> dict[str, str]:
    plan = json.loads(cli("plan", "-f", fleet_file, "--format", "json").out)
    return {row["model"]: row["code"] for row in plan["blocked"]}


def add_pause(cluster: ClusterStandIn, at: str = "2026-03-04T12:00:00.000Z", **note: str) -> None:
    subject = json.dumps(["fleet", "lab", note.get("model")], separators=(",", ":"))
    cluster.records.add("pause", record(subject, at, **PAUSE, **note))


def test_a_paused_model_gets_no_replicas_until_it_is_resumed_and_the_others_do(
        cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    cluster.add_replica("org/one", 0, cluster.nodes[0]["node_id"])
    done = cli("pause", "org/one", "--for", "2h", "--reason", "bad answers")
    assert (done.code, "paused org/one of fleet lab until 20" in done.err) == (0, True)
    assert "`fleetctl resume org/one --fleet lab` ends it" in done.err
    result = cli("plan", "-f", fleet_file, "--detailed-exitcode")
    text = " ".join(result.out.split())
    assert (result.code, "PAUSED" in text, ": bad answers" in text) == (3, True, True)
    assert "1 of 3 live" in text
    assert blocked(cli, fleet_file) == {"org/one": "PAUSED"}
    assert cli("resume", "org/one").code == 0
    assert blocked(cli, fleet_file) == {"org/one": "INSUFFICIENT_GPU"}


def test_an_apply_starts_the_rest_and_exits_with_3(cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    cluster.on_submit = lambda request: all_ready(request)[-1:]
    assert cli("pause", "org/one", "-f", fleet_file).code == 0
    result = cli("apply", "-f", fleet_file, "--yes", "--format", "json")
    assert result.code == 3
    rows = {(row["model"], row["outcome"], row.get("code")) for row in json.loads(result.out)["outcomes"]}
    assert rows == {("org/one", "blocked", "PAUSED"), ("org/two", "ready", None)}


def test_a_paused_fleet_gets_nothing_and_another_fleet_does(
        cli, cluster: ClusterStandIn, fleet_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(fleet_file.read_text().replace("name: lab", "name: prod"))
    cluster.add_replica("org/three", 0, cluster.nodes[0]["node_id"], gpus=0)
    done = cli("pause", "--fleet", "lab")
    assert (done.code, "paused fleet lab\n" in done.err) == (0, True)
    assert blocked(cli, fleet_file) == {"org/one": "PAUSED", "org/two": "PAUSED"}
    assert blocked(cli, other) == {"org/one": "INSUFFICIENT_GPU"}
    assert cli("resume", "--fleet", "lab").code == 0
    assert blocked(cli, fleet_file) == {"org/one": "INSUFFICIENT_GPU"}


def test_everything_shows_a_pause(cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    cluster.add_replica("org/one", 0, cluster.nodes[0]["node_id"])
    cli("pause", "org/one", "--reason", "bad answers", "-f", fleet_file)
    [one] = json.loads(cli("inventory", "--format", "json").out)["pauses"]
    assert (one["fleet"], one["model"], one["until"], one["reason"]) == ("lab", "org/one", None, "bad answers")
    assert "org/one of fleet lab: paused since" in cli("inventory").out
    for words in (("status",), ("status", "-f", fleet_file), ("status", "org/one")):
        assert "org/one of fleet lab" in (out := cli(*words).out)
        assert "bad answers" in out
    assert "org/one of fleet lab" not in cli("status", "org/two", "-f", fleet_file).out
    assert "paused org/one of fleet lab: bad answers" in cli("history").out
    assert "paused org/one" in cli("history", "--fleet", "lab").out
    findings = json.loads(cli("doctor", "-f", fleet_file, "--format", "json").out)["findings"]
    [found] = [row for row in findings if row["code"] == "PAUSED"]
    assert (found["subject"], found["command"]) == ("org/one", "fleetctl resume org/one --fleet lab")
    assert "It has no end" in found["advice"]


def test_a_pause_ends_at_its_time(cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    add_pause(cluster, model="org/one", until="2026-03-04T14:00:00Z")
    assert blocked(cli, fleet_file) == {"org/one": "INSUFFICIENT_GPU"}
    add_pause(cluster, model="org/two", until="soon")
    assert blocked(cli, fleet_file)["org/two"] == "PAUSED", "an end that cannot be read is none"


def test_a_pause_in_another_namespace_is_none_of_this_fleets(cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    cluster.records.add("pause", record("s", "2026-03-04T12:00:00.000Z", **{**PAUSE, "namespace": "other"}))
    assert blocked(cli, fleet_file) == {"org/one": "INSUFFICIENT_GPU"}
    assert "s of fleet" not in cli("status").out


def test_what_takes_something_away_still_works(cli, cluster: ClusterStandIn) -> None:
    cluster.add_replica("org/one", 0, cluster.nodes[0]["node_id"])
    cli("pause", "org/one")
    row = {"model": "org/one", "replicaId": 0, "outcome": "gone", "nodes": [], "message": ""}
    cluster.on_submit = lambda _: [("SUCCEEDED", json.dumps(
        {"seq": 0, "time": "2026-03-04T12:00:00Z", "type": "runSummary", "message": "", "outcomes": [row],
         "exitCode": 0}) + "\n")]
    assert cli("evict", "org/one/0", "--yes").code == 0


def test_resume_without_a_pause_writes_nothing_and_says_what_still_holds(
        cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    result = cli("resume", "org/one", "-f", fleet_file)
    assert (result.code, "no note pauses org/one of fleet lab" in result.err) == (0, True)
    add_pause(cluster)
    add_pause(cluster, model="org/two")
    result = cli("resume", "org/one", "-f", fleet_file)
    assert "fleet lab is paused since" in result.err
    assert "`fleetctl resume --fleet lab` ends it" in result.err
    assert cluster.writes() == []
    result = cli("resume", "--fleet", "lab")
    assert "org/two stays paused since" in result.err
    assert blocked(cli, fleet_file) == {"org/one": "INSUFFICIENT_GPU", "org/two": "PAUSED"}


def test_the_same_pause_again_replaces_the_former(cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    for reason in ("first", "second"):
        assert cli("pause", "org/one", "--reason", reason, "-f", fleet_file).code == 0
    [one] = json.loads(cli("inventory", "--format", "json").out)["pauses"]
    assert one["reason"] == "second"


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize(("words", "code", "says"), [
    ((), 64, "name a model, or a whole fleet by --fleet NAME"),
    (("org/ones",), 1, "nothing is known of a model org/ones"),
    (("--fleet", "labs"), 1, "nothing is known of a fleet labs"),
    (("org/shared",), 64, "org/shared runs in fleets lab and prod"),
    (("org/one", "--fleet", "prod"), 1, "nothing is known of a model org/one of fleet prod"),
], ids=["nothing", "model", "fleet", "two fleets", "not of this fleet"])
def test_an_unknown_or_unclear_subject_is_refused(
        cli, cluster: ClusterStandIn, verb: str, words: tuple[str, ...], code: int, says: str) -> None:
    for number, (model, fleet) in enumerate((("org/one", "lab"), ("org/shared", "lab"), ("org/shared", "prod"))):
        cluster.add_replica(model, number, cluster.nodes[0]["node_id"], gpus=0, fleet=fleet)
    result = cli(verb, *words)
    assert (result.code, says in result.err) == (code, True), result.err
    assert cluster.writes() == []


def test_a_model_of_two_fleets_is_paused_in_the_one_that_is_named(cli, cluster: ClusterStandIn) -> None:
    for number, fleet in enumerate(("lab", "prod")):
        cluster.add_replica("m", number, cluster.nodes[0]["node_id"], gpus=0, fleet=fleet)
    assert cli("pause", "m", "--fleet", "prod").code == 0
    [one] = json.loads(cli("inventory", "--format", "json").out)["pauses"]
    assert (one["fleet"], one["model"]) == ("prod", "m")


def test_a_model_that_never_became_ready_can_be_paused_by_its_key(cli, cluster: ClusterStandIn) -> None:
    cluster.add_failure("org/one", cluster.nodes[0]["node_id"], "h", "CUDA out of memory")
    assert cli("pause", "org/one").code == 0


@pytest.mark.parametrize("words", [
    ("pause", "m", "--for", "soon"), ("pause", "m", "--for", "40d"), ("pause", "m", "--fleet", ""),
    ("resume", "m", "--for", "1h")])
def test_invalid_arguments_exit_with_64(cli, cluster: ClusterStandIn, words: tuple[str, ...]) -> None:
    assert cli(*words).code == 64
    assert cluster.writes() == []


def test_a_fleet_that_its_files_do_not_describe_is_refused(cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    result = cli("pause", "--fleet", "prod", "-f", fleet_file)
    assert (result.code, "--fleet prod, but the files describe fleet lab" in result.err) == (64, True)


def test_a_pause_of_a_made_up_record_shows_no_control_characters(
        cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    hostile: dict[str, Any] = {"model": "org/one", "reason": "\x1b]0;x\x07", "who": "a\u202eb"}
    add_pause(cluster, **hostile)
    for words in (("plan", "-f", fleet_file), ("status",), ("inventory",), ("doctor",)):
        result = cli(*words)
        assert "\x1b]" not in result.out + result.err
        assert "\u202e" not in result.out + result.err
