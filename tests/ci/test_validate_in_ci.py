"""`fleetctl ci validate`: the check without a cluster, annotated at the lines."""

from __future__ import annotations

from pathlib import Path

from pull_request import FLEET, PullRequest


def test_sound_files_exit_with_0_and_no_comment_is_written(job, pull: PullRequest) -> None:
    checkout = pull.push(FLEET + "# pushed\n")
    result = job("ci", "validate", "-f", "fleet.yaml", "--report", "junit=fleet.xml")
    assert result.code == 0
    assert result.outputs["reports"] == "fleet.xml"
    assert Path(checkout / "fleet.xml").read_text().startswith("<?xml")
    assert "1 model, 1 replica wanted" in result.summary
    assert "valid: fleet lab: 1 model" in result.log
    assert pull.hub.requests == []


def test_errors_exit_with_1_and_are_annotated_at_their_lines(job, pull: PullRequest) -> None:
    pull.push(FLEET.replace("replicas: 1", "replicas: many"))
    result = job("ci", "validate", FLEETCTL_FILES="fleet.yaml")
    assert result.code == 1
    assert "::error file=fleet.yaml,line=7,col=15" in result.log
    assert "FL022" in result.summary
    assert result.outputs["summary"] == "1 error, 0 warnings"


def test_no_files_is_a_usage_error(job, pull: PullRequest) -> None:
    pull.push(FLEET + "# pushed\n")
    assert job("ci", "validate").code == 64
