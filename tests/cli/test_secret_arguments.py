"""A secret in an engine's arguments: the cluster gets it, a saved plan has it, and no output shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from cluster_stand_in import ClusterStandIn

from fleetctl.cli.reporting import ReportFormat

SECRET = "hunter5-hunter6"


@pytest.fixture
def secretive(fits: Path) -> Path:
    """A fleet file that has the secret after a flag, in a flag and in a shell's command line."""
    args = f"[--api-key, {SECRET}, '--token={SECRET}', 'exec x --password {SECRET}']"
    text = fits.read_text()
    fits.write_text(text.replace("engine: {command: [serve, one],", f"engine: {{command: [serve, one], args: {args},"))
    assert fits.read_text() != text
    return fits


def test_no_command_shows_it(cli, cluster: ClusterStandIn, secretive: Path, tmp_path: Path) -> None:
    saved = tmp_path / "lab.fleetplan"
    cli("plan", "-f", secretive, "--out", saved)
    assert SECRET in saved.read_text()
    commands: list[tuple[str | Path, ...]] = [
        ("validate", "-f", secretive), ("render", "-f", secretive), ("render", "-f", secretive, "--format", "json"),
        ("show", saved), ("status", "-f", secretive), ("capacity", "-f", secretive), ("doctor", "-f", secretive),
        ("diff", secretive, saved.with_name("other.yaml")), ("apply", saved, "--yes", "--format", "jsonl"),
        ("history", "show", "latest"), ("history", "show", "latest", "--format", "json"), ("import", "-f", secretive)]
    saved.with_name("other.yaml").write_text(secretive.read_text().replace(f"token={SECRET}", f"token=other-{SECRET}"))
    commands += [("plan", "-f", secretive, "--format", one) for one in get_args(ReportFormat)]
    commands += [("validate", "-f", secretive, "--format", one) for one in ("json", "sarif", "junit", "github")]
    for words in commands:
        result = cli(*words)
        assert result.out + result.err, words
        assert SECRET not in result.out + result.err, words


def test_the_agent_gets_it_and_the_record_of_the_apply_does_not(cli, cluster: ClusterStandIn, secretive: Path) -> None:
    assert cli("apply", "-f", secretive, "--yes").code == 0
    [job] = cluster.jobs
    request = cluster.request_of(job)
    assert SECRET in json.dumps(request["plan"])
    assert SECRET not in json.dumps(request["record"])
    assert SECRET not in json.dumps(cluster.jobs[job].body) + cluster.jobs[job].log
