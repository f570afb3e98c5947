"""Arguments that `fleetctl apply` refuses, and the question before it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn


@pytest.mark.parametrize("arguments", [
    [],
    ["PLAN", "-f", "FLEET"],
    ["PLAN", "--target", "org/one"],
    ["PLAN", "--exclude", "org/one"],
    ["PLAN", "--adopt-from", "old"],
    ["PLAN", "--wait-for-nodes", "1m"],
    ["PLAN", "--namespace", "other"],
    ["--attach", "--target", "org/one"],
    ["--attach", "--exclude", "org/one"],
    ["--attach", "--adopt-from", "old"],
    ["-f", "FLEET", "--parallelism", "0"],
    ["-f", "FLEET", "--lock-timeout", "soon"],
    ["-f", "FLEET", "--wait-timeout", "-3s"],
    ["-f", "FLEET", "--format", "yaml"],
    ["--attach", "--force"],
    ["-f", "FLEET", "--prune"],
    ["PLAN", "PLAN"],
    ["--attach", "--report", "html=run.html"],
], ids=" ".join)
def test_conflicting_arguments_exit_with_64_and_write_nothing(
    cli, cluster: ClusterStandIn, fleet_file: Path, tmp_path: Path, arguments: list[str]
) -> None:
    saved = tmp_path / "lab.fleetplan"
    assert cli("plan", "-f", fleet_file, "--out", saved).code == 0
    names = {"FLEET": fleet_file, "PLAN": saved}
    result = cli("apply", *[names.get(argument, argument) for argument in arguments])
    assert result.code == 64
    assert result.err.startswith("error: ")
    assert cluster.writes() == []


def test_flags_without_effect_on_a_saved_plan_are_refused(cli, fleet_file: Path, tmp_path: Path) -> None:
    saved = tmp_path / "lab.fleetplan"
    cli("plan", "-f", fleet_file, "--out", saved)
    result = cli("apply", saved, "--target", "org/one", "--namespace", "other")
    assert "--target, --namespace" in result.err


def test_without_a_terminal_nothing_starts_unless_yes_is_given(
    cli, cluster: ClusterStandIn, fleet_file: Path
) -> None:
    result = cli("apply", "-f", fleet_file)
    assert result.code == 64
    assert "there is no terminal to ask on" in result.err
    assert "--yes" in result.err
    assert cluster.writes() == []


@pytest.mark.parametrize("typed", ["n\n", "\n", "", "yep\n"])
def test_any_answer_but_yes_changes_nothing(
    cli, cluster: ClusterStandIn, fleet_file: Path, typed: str
) -> None:
    result = cli("apply", "-f", fleet_file, typed=typed)
    assert result.code == 1
    assert "Create 3 replicas? [y/N]" in result.err
    assert "nothing was done" in result.err
    assert cluster.writes() == []


def test_the_plan_is_shown_before_the_question(cli, fleet_file: Path) -> None:
    result = cli("apply", "-f", fleet_file, typed="n\n")
    assert "Plan: 3 to create, 1 blocked, 0 held, 0 to remove" in result.out
    assert "hush-hush" not in result.out + result.err


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_the_question_shows_the_plan_in_every_format(cli, fleet_file: Path, output: str) -> None:
    result = cli("apply", "-f", fleet_file, "--format", output, typed="n\n")
    assert result.out == ""
    assert "Plan: 3 to create" in result.err


def test_typing_yes_starts_the_apply(cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    assert cli("apply", "-f", fleet_file, typed="yes\n").code == 3
    assert len(cluster.jobs) == 1


def test_there_is_no_question_if_there_is_nothing_to_create(cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    fleet_file.write_text(fleet_file.read_text().replace("replicas: 3", "replicas: 0").replace(": 1\n", ": 0\n"))
    result = cli("apply", "-f", fleet_file)
    assert result.code == 0
    assert "?" not in result.err


@pytest.mark.parametrize("text", ["", "a: [", "apiVersion: fleetctl/v1\n", "\x00"])
def test_a_broken_or_empty_file_causes_no_action_and_no_request(
    cli, cluster: ClusterStandIn, fleet_file: Path, text: str
) -> None:
    fleet_file.write_text(text)
    assert cli("apply", "-f", fleet_file, "--yes").code == 1
    assert cluster.requests == []


@pytest.mark.parametrize("command", ["apply", "rollout"])
def test_a_format_for_findings_about_files_is_refused_with_the_list_of_the_others(
    cli, cluster: ClusterStandIn, fleet_file: Path, command: str
) -> None:
    for chosen in ("sarif", "junit", "json"):
        result = cli(command, "-f", fleet_file, "--yes", "--report", f"{chosen}=run.txt")
        assert result.code == 64
        assert f"{chosen} is not a format of this command" in result.err
        assert "formats: table, markdown, html, github; in a CI job also comment, summary, outputs" in result.err
    assert cluster.requests == []


def test_after_a_no_nothing_is_reported(
    cli, cluster: ClusterStandIn, fleet_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert cli("apply", "-f", fleet_file, "--report", "summary", typed="n\n").code == 1
    assert (cluster.writes(), summary.exists()) == ([], False)
