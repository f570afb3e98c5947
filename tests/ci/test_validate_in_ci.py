"""`fleetctl ci validate`: the check that needs no cluster, told at the lines."""

from __future__ import annotations

from pathlib import Path

from pull_request import FLEET, PullRequest


def test_sound_files_are_0_and_no_comment_is_written(job, pull: PullRequest) -> None:
    place = pull.push(FLEET + "# pushed\n")
    ended = job("ci", "validate", "-f", "fleet.yaml", "--report", "junit=fleet.xml")
    assert ended.code == 0
    assert ended.outputs["reports"] == "fleet.xml"
    assert Path(place / "fleet.xml").read_text().startswith("<?xml")
    assert "1 model, 1 replica wanted" in ended.summary
    assert "valid: fleet lab: 1 model" in ended.log
    assert pull.hub.requests == []


def test_errors_are_1_and_are_at_their_lines(job, pull: PullRequest) -> None:
    pull.push(FLEET.replace("replicas: 1", "replicas: many"))
    ended = job("ci", "validate", FLEETCTL_FILES="fleet.yaml")
    assert ended.code == 1
    assert "::error file=fleet.yaml,line=7,col=15" in ended.log
    assert "FL022" in ended.summary
    assert ended.outputs["summary"] == "1 error, 0 warnings"


def test_no_files_is_a_usage_error(job, pull: PullRequest) -> None:
    pull.push(FLEET + "# pushed\n")
    assert job("ci", "validate").code == 64
