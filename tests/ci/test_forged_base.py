"""A pull request that brings its own idea of the base: the review reads the checkout's, and sends no token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import IDENTITY, git
from cluster_stand_in import ClusterStandIn, serve
from git_folder import GitFolder
from github_stand_in import GitHubStandIn
from hostile_git import embed, forge
from pull_request import FLEET, PullRequest

BOT, FILE = "github-actions[bot]", "fleets/lab.yaml"
MORE = FLEET.replace("replicas: 1", "replicas: 12")


@pytest.fixture
def canary() -> Iterator[ClusterStandIn]:
    """A cluster of the change's author."""
    stand_in = ClusterStandIn()
    stand_in.add_node("node-a")
    with serve(stand_in):
        stand_in.url = stand_in.url.replace("127.0.0.1", "0.0.0.0")
        yield stand_in


def with_embedded_base(pull: PullRequest, text: str, level: str) -> None:
    """Push a change that says, in a bare repository of ordinary files, that the base was like it."""
    desk = GitFolder(pull.remote.desk, {"PATH": "/usr/bin:/bin", "HOME": str(pull.tmp_path), **IDENTITY})
    pull.main = pull.remote.commit("main", FLEET, FILE)
    git(desk.folder, "checkout", "-q", "-b", "change")
    embed(desk, level, pull.main, {FILE: text.encode()})
    git(desk.folder, "add", "--force", ".")
    git(desk.folder, "commit", "-q", "-m", "embedded")
    pull.push(text, name=FILE)


@pytest.fixture(autouse=True)
def folder(pull: PullRequest) -> None:
    (pull.remote.desk / "fleets").mkdir()


def test_an_address_that_only_the_change_names_gets_no_token(
    job, pull: PullRequest, canary: ClusterStandIn
) -> None:
    with_embedded_base(pull, FLEET.replace("spec:\n", f"spec:\n  cluster: {{address: '{canary.url}'}}\n"), "fleets")
    result = job("ci", "review", "-f", FILE, "--no-comment", RAY_AUTH_TOKEN="t0ken")
    assert result.code == 1
    assert "the change sets another spec.cluster.address than its base" in result.log
    assert canary.headers == []


def test_the_comment_compares_with_the_base_of_the_checkout(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    with_embedded_base(pull, MORE, "fleets")
    assert job("ci", "review", "-f", "fleets", "--inventory", snapshot_file).code == 0
    [comment] = hub.of(BOT)
    assert f"### This change alone, since `{pull.main[:10]}`\n\n1 more to create, 10 more blocked" in comment
    assert "HEAD^1" not in comment


def test_a_forged_base_in_the_checkouts_own_objects_is_an_error(
    job, pull: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    pull.main = pull.remote.commit("main", FLEET, FILE)
    place = pull.push(MORE, name=FILE)
    checkout = GitFolder(place, {"PATH": "/usr/bin:/bin", "HOME": str(pull.tmp_path), **IDENTITY})
    forged = forge(checkout, f"{pull.main}:{FILE}", MORE.encode())
    result = job("ci", "review", "-f", FILE, "--inventory", snapshot_file)
    assert (result.code, f"git blob {forged} is forged or damaged" in result.log) == (1, True)
    assert "forged or damaged" in hub.of(BOT)[0]
