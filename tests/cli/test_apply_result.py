"""What an apply reports to programs: every event, and a summary as the last line, however it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from apply_answers import VERSION, add_all_replicas, outcome
from cluster_stand_in import ClusterStandIn, all_ready, event, summary

HOLDER = {"job": "j9", "who": "bob@ci"}
ENDS = {
    "an agent that died": (1, [("FAILED", VERSION)]),
    "an agent that could not begin": (1, [("FAILED", event(0, "runSummary", "no Python", outcomes=[], exitCode=1))]),
    "a lock that is held": (5, [("FAILED", VERSION + summary(1, code=5, message="the lock is held", holder=HOLDER))]),
    "a plan that was used": (6, [("FAILED", VERSION + summary(1, code=6, message="used", usedBy="j7"))]),
    "a time limit": (7, [("RUNNING", VERSION)]),
}


@pytest.mark.parametrize("output", ["json", "jsonl"])
@pytest.mark.parametrize("end", ENDS)
def test_the_last_line_is_a_summary_however_it_ends(
    cli, cluster: ClusterStandIn, fits: Path, end: str, output: str
) -> None:
    code, steps = ENDS[end]
    cluster.on_submit = lambda _: list(steps)
    result = cli("apply", "-f", fits, "--yes", "--format", output, "--wait-timeout", "10ms" if code == 7 else "1h")
    assert result.code == code
    *before, last = result.lines
    assert [line["type"] for line in before] == (["version"] if output == "jsonl" else [])
    assert (last["type"], last["exitCode"], last["level"], last["outcomes"]) == ("runSummary", code, "error", [])
    assert last["message"] in result.err
    assert last.get("holder") == (HOLDER if code == 5 else None)
    assert [line["seq"] for line in result.lines] == list(range(len(result.lines))) or output == "json"


def test_an_error_before_the_plan_is_made_is_a_summary_too(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.refusals["GET", "/api/v0/actors"] = [(500, "")] * 10
    lines = cli("apply", "-f", fits, "--yes", "--format", "jsonl").lines
    assert [(line["type"], line.get("exitCode")) for line in lines] == [("version", None), ("runSummary", 1)]


def test_json_has_the_whole_result_on_one_line(cli, fleet_file: Path) -> None:
    report = cli("apply", "-f", fleet_file, "--yes", "--format", "json").summary
    assert sorted(row["outcome"] for row in report["outcomes"]) == ["blocked", "ready", "ready", "ready"]
    assert report["message"] == "Apply: 3 ready, 1 blocked, 0 removed"
    assert len(report["planId"]) == 64


def test_jsonl_has_every_event_from_the_version_to_the_summary(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.on_submit = all_ready
    lines = cli("apply", "-f", fits, "--yes", "--format", "jsonl").lines
    assert [line["type"] for line in lines] == [
        "version", "lockAcquired", "planAccepted", "replicaReady", "replicaReady", "replicaReady", "runSummary"]
    assert [line["seq"] for line in lines] == list(range(7))
    assert lines[3]["address"] == "10.0.0.7:7001"


def test_an_unknown_event_of_a_newer_agent_is_relayed_unchanged(cli, cluster: ClusterStandIn, fits: Path) -> None:
    future = event(1, "cardRepaired", "a card was repaired", card={"index": 3})
    cluster.on_submit = lambda _: [("SUCCEEDED", VERSION + future + summary(2, outcome("ready")))]
    result = cli("apply", "-f", fits, "--yes", "--format", "jsonl")
    assert result.lines[1]["card"] == {"index": 3}
    assert "a card was repaired" in cli("apply", "-f", fits, "--yes").err


def test_jsonl_begins_with_a_version_even_when_nothing_is_submitted(
    cli, cluster: ClusterStandIn, fleet_file: Path
) -> None:
    add_all_replicas(cluster)
    lines = cli("apply", "-f", fleet_file, "--format", "jsonl").lines
    assert [(line["seq"], line["type"]) for line in lines] == [(0, "version"), (1, "runSummary")]
    assert lines[0]["version"] == "1.0"


@pytest.mark.parametrize(("kinds", "code"), [
    (["ready", "ready"], 0), (["ready", "starting"], 3), (["ready", "failed"], 3), (["ready", "skipped"], 3),
    (["blocked", "ready"], 3), (["failed", "failed"], 3),
], ids=lambda value: "-".join(value) if isinstance(value, list) else str(value))
@pytest.mark.parametrize("output", ["table", "json", "jsonl"])
def test_text_json_and_exit_code_agree(
    cli, cluster: ClusterStandIn, fits: Path, kinds: list[str], code: int, output: str
) -> None:
    why = {kind: "" if kind == "ready" else f"because {kind}" for kind in kinds}
    rows = [outcome(kind, number, message=why[kind]) for number, kind in enumerate(kinds)]
    cluster.on_submit = lambda _: [("SUCCEEDED", VERSION + summary(1, *rows, code=code))]
    result = cli("apply", "-f", fits, "--yes", "--format", output)
    assert result.code == code
    if output == "table":
        words = {kind: f"{kinds.count(kind)} {kind}" for kind in kinds}
        assert all(word in result.out.splitlines()[-1] for word in words.values())
        assert all(f"because {kind}" in result.out for kind in kinds if kind != "ready")
    else:
        last = result.lines[-1]
        assert (last["type"], last["exitCode"]) == ("runSummary", code)
        assert [row["outcome"] for row in last["outcomes"]] == kinds
