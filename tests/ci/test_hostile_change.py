"""A pull request from a stranger: nothing in its fleet file may steer the runner, the page or a later step."""

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
    """A fleet with these strings wherever a fleet file takes text."""
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
    """The workflow commands a runner would find in a log, those between stop-commands and its word left out.

    The newer form begins a line, after blanks; the older one may stand anywhere in it.
    """
    found: list[str] = []
    until = None
    for line in log.splitlines():
        if until:
            until = None if line == f"::{until}::" else until
        elif line.startswith("::stop-commands::"):
            until = line.removeprefix("::stop-commands::")
        elif "##[" in line or line.lstrip().startswith("::"):
            found.append(line)
    assert until is None
    return found


@pytest.mark.parametrize("broken", [False, True], ids=["sound", "broken"])
def test_a_hostile_file_stays_text(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path, broken: bool
) -> None:
    keys = [key for key in HOSTILE if key.isprintable() and " " not in key]
    text = hostile_fleet(keys)
    place = pull.push(text.replace("replicas: 9", "replicas: '::error::x'") if broken else text, fork=True)
    ended = job("ci", "review", "-f", "fleet.yaml", "--inventory", snapshot_file)
    assert ended.code == (1 if broken else 0)

    told = commands(ended.log)
    assert told
    assert {line.split(" ", 1)[0].split("::")[1] for line in told} <= {"error", "warning", "notice"}
    assert not [line for line in told if "file=" in line and "file=fleet.yaml,line=" not in line]

    assert ended.outputs.keys() <= {"plan_id", "has_changes", "exit_code", "summary", "plan_file", "reports"}
    assert ended.outputs["exit_code"] == ("1" if broken else "3")
    assert not [key for key in keys if key in ended.outputs["summary"]]

    [comment] = hub.of(BOT)
    tokens = [token for block in MarkdownIt("gfm-like", {"linkify": False}).parse(comment)
              for token in [block, *(block.children or [])]]
    assert not [token for token in tokens if token.type in {"image", "fence", "code_block"}]
    assert [token.attrs["href"] for token in tokens if token.type == "link_open"] == [
        "https://github.example.com/lab/fleet/actions/runs/99"]
    html = [token.content for token in tokens if token.type.startswith("html")]
    assert not [tag for tag in html if any(sign in tag for sign in ("script", "other", "owned"))]
    assert "\x1b" not in ended.log + comment + ended.summary
    assert not [line for line in comment.splitlines() if line.startswith("/")], "GitLab would obey it"
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
    ended = job("ci", "review", "-f", "fleet.yaml", "--inventory", snapshot_file, "--report", "html=p.html",
                RAY_AUTH_TOKEN="ray-token")
    shown = ended.log + ended.summary + str(ended.outputs) + hub.of(BOT)[0]
    for secret in ("hush-hush", "other-secret", "ray-token", pull.environ["GITHUB_TOKEN"]):
        assert secret not in shown
