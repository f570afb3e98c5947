"""`fleetctl history`: which runs there were, who started them and how they ended, in every format; read-only."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from cli_result import Result
from cluster_stand_in import ClusterStandIn, event, ready, summary

from fleetctl.apply.jobs import agent_package
from fleetctl.documents.schemas import json_schema
from fleetctl.render.report.formats import RunFormat

BEGUN = event(0, "version", "fleetctl agent", version="1.0") + event(1, "lockAcquired", "lock of fleet lab acquired")
FAILED = {"model": "org/m", "replicaId": 1, "outcome": "failed", "nodes": ["node-b"], "code": "ENGINE_EXITED",
          "message": "the engine exited with code 3"}
HOSTILE = "eve\x1b[2J\u202e|`x`</td><script>@all\n::error::no"
NOON_MS = 1_772_625_600_000


def add_run(cluster: ClusterStandIn, number: int, log: str, status: str, verb: str = "apply", **metadata: str) -> None:
    job = cluster.add_job(f"fleetctl-{verb}-{number:012x}", verb=verb,
                          **{"fleet": "lab", "who": "ann@laptop", "planId": f"{number:064x}", **metadata})
    job.status, job.log, job.steps = status, log, []
    job.start_time, job.end_time = NOON_MS + number * 60_000, NOON_MS + number * 60_000 + 9_100


@pytest.fixture
def past_runs(cluster: ClusterStandIn) -> ClusterStandIn:
    """One run in each state, the oldest first."""
    add_run(cluster, 1, BEGUN + summary(2, ready("org/m", 0)), "SUCCEEDED", commit="c0ffee" * 7, dirty="true")
    add_run(cluster, 2, BEGUN + summary(2, ready("org/m", 0), FAILED, code=3), "FAILED")
    add_run(cluster, 3, BEGUN, "FAILED", who=HOSTILE)
    add_run(cluster, 4, summary(0, code=5, message="the lock of fleet lab is held by job j"), "FAILED")
    ending = event(0, "version") + event(1, "replicaEnding")
    add_run(cluster, 5, ending + summary(2), "SUCCEEDED", "evict", replica="org/m/0")
    add_run(cluster, 6, BEGUN, "RUNNING", create="3")
    return cluster


def checked_json(result: Result, schema: str) -> Any:
    assert result.code == 0, result.err
    document = json.loads(result.out)
    jsonschema.validate(document, json_schema(schema))
    return document


def test_every_run_has_a_row_with_the_newest_first(cli, past_runs: ClusterStandIn) -> None:
    lines = cli("history").out.splitlines()
    assert lines[0].split() == ["STARTED", "ID", "STATE", "RESULT", "VERB", "TOOK", "WHO", "COMMIT", "PLAN"]
    rows = [line.split() for line in lines if line.startswith("2026")]
    assert [(row[1], row[2]) for row in rows] == [
        (f"{number:012x}", state) for number, state in
        [(6, "running"), (5, "ok"), (4, "refused"), (3, "unknown"), (2, "partial"), (1, "ok")]]
    assert rows[-1][0] == "2026-03-04T12:01:00Z"
    assert rows[-1][-2:] == ["c0ffeec-dirty", "00000000"]
    assert lines[-1] == "Runs: 2 ok, 1 partial, 1 unknown, 1 running, 1 refused"


def test_a_narrow_terminal_shows_starter_and_commit_below(
    cli, past_runs: ClusterStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = cli("history").out
    assert max(map(len, out.splitlines())) <= 80
    assert "apply, 9.1s, ann@laptop, c0ffeec-dirty" in " ".join(out.split())


def test_limit_shows_the_newest_runs_and_the_total(cli, past_runs: ClusterStandIn) -> None:
    result = cli("history", "--limit", "2")
    assert result.out.splitlines()[-1] == "Runs: 1 ok, 1 running; the newest 2 of 6"


def test_a_cluster_without_any_run_says_so(cli) -> None:
    assert cli("history").out == "Runs: none\n"
    result = cli("history", "show", "latest")
    assert (result.code, "no such run" in result.err) == (1, True)


def test_runs_can_be_limited_to_one_fleet_by_name_or_by_file(cli, past_runs: ClusterStandIn, fleet_file: Path) -> None:
    add_run(past_runs, 9, BEGUN, "RUNNING", fleet="theirs")
    assert "theirs" in cli("history").out
    by_name = checked_json(cli("history", "--fleet", "theirs", "--format", "json"), "history")
    assert [run["fleet"] for run in by_name["runs"]] == ["theirs"]
    by_file = checked_json(cli("history", "-f", fleet_file, "--format", "json"), "history")
    assert {run["fleet"] for run in by_file["runs"]} == {"lab"}
    refused = cli("history", "-f", fleet_file, "--fleet", "theirs")
    assert (refused.code, "describe fleet lab" in refused.err) == (64, True)


def test_one_run_is_shown_with_its_facts_log_and_replicas(cli, past_runs: ClusterStandIn) -> None:
    out = cli("history", "show", "000000000002").out
    for text in ("fleetctl-apply-000000000002", "2026-03-04T12:02:00Z, took 9.1s",
                 "12:00:00.000Z  info   lock of fleet lab acquired", "org/m/1 failed (ENGINE_EXITED)",
                 "the engine exited with code 3", "Apply partial: 1 ready, 1 failed"):
        assert text in out


def test_a_note_about_a_node_is_a_run_of_no_fleet(cli, cluster: ClusterStandIn) -> None:
    add_run(cluster, 1, BEGUN + summary(2), "SUCCEEDED", "slots", fleet="", namespace="prod")
    shown = cli("history", "show", "latest").out
    assert "\nnamespace  prod\n" in shown
    assert "\nfleet" not in shown


def test_one_run_as_json_has_its_outcomes_and_its_events(cli, past_runs: ClusterStandIn) -> None:
    run = checked_json(cli("history", "show", "000000000002", "--format", "json"), "history-run")
    assert (run["kind"], run["state"], run["counts"]) == ("HistoryRun", "partial", {"ready": 1, "failed": 1})
    assert [(row["model"], row["replicaId"], row["outcome"]) for row in run["outcomes"]] == [
        ("org/m", 0, "ready"), ("org/m", 1, "failed")]
    assert [line["type"] for line in run["events"]] == ["version", "lockAcquired", "runSummary"]


def test_a_run_is_named_by_the_command_that_submitted_it(cli, cluster: ClusterStandIn, fits: Path) -> None:
    for words in (("deploy", "org/one", "--replicas", "1", "--yes"), ("scale", "org/one", "--replicas", "2", "--yes"),
                  ("apply", "--yes"), ("ci", "apply", "--forge", "none")):
        assert cli(*words, "-f", fits).code == 0
    assert [run["command"] for run in checked_json(cli("history", "--format", "json"), "history")["runs"]] == [
        "apply", "apply", "scale", "deploy"]
    rows = [line.split() for line in cli("history").out.splitlines() if " ok " in line]
    assert [verb for row in rows for verb in ("apply", "scale", "deploy") if verb in row] == [
        "apply", "apply", "scale", "deploy"]
    assert "Deploy ok: 1 ready" in cli("history", "show", rows[-1][1]).out


def test_the_list_and_one_run_show_what_became_of_replicas_that_were_starting(cli, cluster: ClusterStandIn) -> None:
    left = [{"model": "org/m", "replicaId": number, "outcome": "starting", "nodes": ["a"], "message": ""}
            for number in range(2)]
    created = [event(2 + number, "replicaCreated", model="org/m", replicaId=number) for number in range(2)]
    add_run(cluster, 1, BEGUN + "".join(created) + summary(4, *left, waited=False), "SUCCEEDED", command="watch")
    cluster.jobs["fleetctl-apply-000000000001"].driver_id = "d1"
    cluster.add_replica("org/m", 0, cluster.add_node("a"))
    cluster.actors[-1]["job_id"] = "d1"
    [row] = [line for line in cli("history").out.splitlines() if "000000000001" in line]
    assert row.split()[2:9] == ["unknown", "1", "ready,", "1", "no", "longer", "known"]
    assert " watch " in row
    assert "Watch unknown: 1 ready, 1 no longer known" in (out := cli("history", "show", "000000000001").out)
    assert "the cluster no longer knows what became of it" in " ".join(out.split())
    [run] = checked_json(cli("history", "--format", "json"), "history")["runs"]
    assert (run["state"], run["code"], run["counts"], run["forgotten"]) == (
        "unknown", "NO_LONGER_KNOWN", {"ready": 1}, 1)


def test_a_run_of_a_release_that_recorded_no_command_is_named_by_its_verb(cli, past_runs: ClusterStandIn) -> None:
    runs = checked_json(cli("history", "--format", "json"), "history")["runs"]
    assert {(run["command"], run["agent"], run["agentOfThisVersion"]) for run in runs} == {(None, None, None)}
    assert " apply " in next(line for line in cli("history").out.splitlines() if "000000000002" in line)


def test_a_run_has_the_hash_of_its_agent_and_whether_this_fleetctl_sends_the_same(
    cli, past_runs: ClusterStandIn
) -> None:
    ours = hashlib.sha256(agent_package().data).hexdigest()
    add_run(past_runs, 7, BEGUN, "RUNNING", agent=ours)
    add_run(past_runs, 8, BEGUN, "RUNNING", agent="b" * 64)
    runs = checked_json(cli("history", "--limit", "3", "--format", "json"), "history")["runs"]
    assert [(run["agent"], run["agentOfThisVersion"]) for run in runs] == [
        ("b" * 64, False), (ours, True), (None, None)]
    assert f"{ours}, as this fleetctl sends it" in " ".join(cli("history", "show", "000000000007").out.split())
    assert "not the one that this fleetctl sends" in " ".join(cli("history", "show", "000000000008").out.split())
    assert "agent" not in cli("history", "show", "000000000002").out.splitlines()[6:9]


def test_flags_before_show_are_refused(cli, past_runs: ClusterStandIn) -> None:
    result = cli("history", "--fleet", "theirs", "show", "latest")
    assert result.code == 64
    assert "--fleet before `show` has no effect" in result.err


@pytest.mark.parametrize("chosen", get_args(RunFormat))
@pytest.mark.parametrize("what", [("history",), ("history", "show", "000000000003")])
def test_no_format_prints_a_hostile_name_unescaped(
    cli, past_runs: ClusterStandIn, what: tuple[str, ...], chosen: RunFormat
) -> None:
    result = cli(*what, "--format", chosen)
    assert result.code == 0, result.err
    assert "eve" in result.out or chosen == "github"
    assert "\x1b" not in result.out
    assert "\n::error::no" not in result.out
    if chosen == "html":
        assert "</td><script>" not in result.out
    if chosen not in ("json", "jsonl"):
        assert "\u202e" not in result.out


def test_every_format_counts_the_same(cli, past_runs: ClusterStandIn) -> None:
    expected = {"ok": 2, "partial": 1, "unknown": 1, "running": 1, "refused": 1}
    lines = [json.loads(line) for line in cli("history", "--format", "jsonl").out.splitlines()]
    assert next(line for line in lines if line["type"] == "totals")["totals"] == expected
    markdown = cli("history", "--format", "markdown").out
    assert "| 2 | 1 | 1 | 1 | 1 |" in markdown
    levels = sorted(line["level"] for line in lines if line["type"] == "finding")
    assert levels == ["error", "error", "notice", "warning"]


@pytest.mark.parametrize("chosen", ["sarif", "junit"])
@pytest.mark.parametrize("what", [("history",), ("history", "show", "000000000003")])
def test_formats_for_findings_about_files_are_refused_with_the_list_of_the_others(
    cli, past_runs: ClusterStandIn, what: tuple[str, ...], chosen: str
) -> None:
    for flags in (("--format", chosen), ("--report", f"{chosen}=runs.txt")):
        result = cli(*what, *flags)
        assert (result.code, result.out) == (64, "")
        assert all(name in result.err for name in get_args(RunFormat))
    assert past_runs.requests == []


def test_reports_are_written_in_addition_to_the_output(cli, past_runs: ClusterStandIn, tmp_path: Path) -> None:
    file = tmp_path / "history.md"
    result = cli("history", "--report", f"markdown={file}")
    assert result.out.splitlines()[-1].startswith("Runs: ")
    assert file.read_text().startswith("<!-- fleetctl:history:all -->")


def test_a_mistyped_report_is_refused_before_the_cluster_is_contacted(cli, past_runs: ClusterStandIn) -> None:
    result = cli("history", "--report", "pdf=x.pdf")
    assert result.code == 64
    assert past_runs.requests == []


def test_history_writes_nothing(cli, past_runs: ClusterStandIn) -> None:
    cli("history")
    cli("history", "show", "latest")
    assert past_runs.writes() == []


def test_an_apply_is_listed_with_the_files_it_was_made_from(cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    assert cli("apply", "-f", fleet_file, "--yes").code == 3
    run = checked_json(cli("history", "show", "latest", "--format", "json"), "history-run")
    assert (run["state"], run["create"], run["fleet"]) == ("partial", 3, "lab")
    assert run["counts"] == {"ready": 3, "blocked": 1}
    assert [source["path"] for source in run["files"]] == [str(fleet_file)]
    assert "hush-hush" not in json.dumps(run)
