"""A hostile pull request: nothing in its fleet file may control the runner, the page or a later step."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from github_stand_in import GitHubStandIn
from markdown_it import MarkdownIt
from pull_request import FLEET, PullRequest

BOT = "github-actions[bot]"
HOSTILE = [
    "::error::owned", "##[error]owned", "::set-output name=plan_id::owned", "${{secrets.GITHUB_TOKEN}}",
    "$(touch${IFS}owned)", "`touch owned`", "<!--fleetctl:plan:other-->", "</details><script>alert(1)</script>",
    "@everyone", "[click](https://evil.example.com)", "|||", "-->", "/close", "x<<EOF", "&lt;b&gt;", "\u202eevil",
]


def hostile_fleet(keys: list[str]) -> str:
    """A fleet with these strings in every text field."""
    document = yaml.safe_load(FLEET)
    [model] = document["spec"]["models"]
    document["spec"]["models"] = [
        {**model, "key": key, "replicas": 9,
         "workers": [{"name": "main", "members": [{
             "resources": {"gpus": 8}, "nodeSelector": {"pool": "v1"},
             "engine": {"command": [key], "args": [key, "\x1b[31m" + key], "env": {"TOKEN": key}}}]}]}
        for key in keys]
    return yaml.safe_dump(document, allow_unicode=True)


def commands(log: str) -> list[str]:
    """The workflow commands a runner would find in a log, except between stop-commands and its end marker.

    The newer form starts a line, after blanks; the older one may be anywhere in it.
    """
    found: list[str] = []
    end_marker = None
    for line in log.splitlines():
        if end_marker:
            end_marker = None if line == f"::{end_marker}::" else end_marker
        elif line.startswith("::stop-commands::"):
            end_marker = line.removeprefix("::stop-commands::")
        elif "##[" in line or line.lstrip().startswith("::"):
            found.append(line)
    assert end_marker is None
    return found


@pytest.mark.parametrize("broken", [False, True], ids=["sound", "broken"])
def test_hostile_text_in_a_file_stays_text(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path, broken: bool
) -> None:
    keys = [key for key in HOSTILE if key.isprintable() and " " not in key]
    text = hostile_fleet(keys)
    place = pull.push(text.replace("replicas: 9", "replicas: '::error::x'") if broken else text, fork=True)
    result = job("ci", "review", "-f", "fleet.yaml", "--inventory", snapshot_file)
    assert result.code == (1 if broken else 0)

    annotations = commands(result.log)
    assert annotations
    assert {line.split(" ", 1)[0].split("::")[1] for line in annotations} <= {"error", "warning", "notice"}
    assert not [line for line in annotations if "file=" in line and "file=fleet.yaml,line=" not in line]

    assert result.outputs.keys() <= {"plan_id", "has_changes", "exit_code", "summary", "plan_file", "reports"}
    assert result.outputs["exit_code"] == ("1" if broken else "3")
    assert not [key for key in keys if key in result.outputs["summary"]]

    [comment] = hub.of(BOT)
    tokens = [token for block in MarkdownIt("gfm-like", {"linkify": False}).parse(comment)
              for token in [block, *(block.children or [])]]
    assert not [token for token in tokens if token.type in {"image", "fence", "code_block"}]
    assert [token.attrs["href"] for token in tokens if token.type == "link_open"] == [
        "https://github.example.com/lab/fleet/actions/runs/99"]
    html = [token.content for token in tokens if token.type.startswith("html")]
    assert not [tag for tag in html if any(sign in tag for sign in ("script", "other", "owned"))]
    assert "\x1b" not in result.log + comment + result.summary
    assert not [line for line in comment.splitlines() if line.startswith("/")], "GitLab would run it as a quick action"
    assert not (place / "owned").exists()


@pytest.mark.slow
def test_a_huge_change_still_gets_its_comment(job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path) -> None:
    pull.push(hostile_fleet([f"org/{'m' * 80}-{number}" for number in range(500)]))
    assert job("ci", "review", "-f", "fleet.yaml", "--inventory", snapshot_file).code == 0
    [comment] = hub.of(BOT)
    assert len(comment) < 65_536
    assert "| wanted | live | to create | blocked |\n| --: | --: | --: | --: |\n| 4500 | " in comment


def test_no_secret_of_the_job_or_the_file_is_shown(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    pull.push(FLEET.replace("hush-hush", "other-secret"))
    result = job("ci", "review", "-f", "fleet.yaml", "--inventory", snapshot_file, "--report", "html=p.html",
                RAY_AUTH_TOKEN="ray-token")
    output = result.log + result.summary + str(result.outputs) + hub.of(BOT)[0]
    for secret in ("hush-hush", "other-secret", "ray-token", pull.environ["GITHUB_TOKEN"]):
        assert secret not in output
