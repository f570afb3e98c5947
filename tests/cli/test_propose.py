"""`fleetctl propose` from its command line: files, real git, and answers in the format of Prometheus."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from checkout import IDENTITY, git, make_remote
from cluster_stand_in import ClusterStandIn, all_ready, serve
from git_folder import GitFolder
from github_stand_in import github
from gitlab_stand_in import gitlab
from hostile_git import embed
from in_process import run_here
from stand_in_server import Answer, Request, serving

FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: org/a   # the one
    replicas: 2
    workers: [{name: main, members: [{resources: {gpus: 1}, engine: {command: [serve]}}]}]
  - key: org/b
    replicas: 1
    workers: [{name: main, members: [{resources: {gpus: 1}, engine: {command: [serve]}}]}]
"""


@dataclass
class Prometheus:
    """Answers every query with its `series`; a series without a value is a native histogram."""

    series: list[tuple[dict[str, str], str]] = field(default_factory=list)
    kind: str = "vector"
    url: str = ""

    def answer(self, request: Request) -> Answer:
        if request.path != "/api/v1/query" or request.query["query"] == "(":
            return Answer(400, {"status": "error", "error": "parse error"})
        result: list[Any] = [{"metric": labels, **({"value": [0, value]} if value else {"histogram": [0, {}]})}
                             for labels, value in self.series]
        return Answer(200, {"status": "success", "data": {"resultType": self.kind, "result": result}})


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    stand_in = Prometheus()
    with serving(stand_in):
        yield stand_in


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    remote = make_remote(tmp_path)
    (remote.desk / "fleets").mkdir()
    remote.commit("main", FLEET, "fleets/prod.yaml")
    return remote.desk


def propose(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), **IDENTITY, **variables}
    return run_here("propose", *arguments, env=env, folder=folder)


def test_scale_writes_the_number_and_shows_the_difference(desk: Path) -> None:
    tried = propose(desk, "scale", "org/a", "--replicas", "5", "-f", "fleets", "--dry-run")
    assert (tried.returncode, git(desk, "status", "--porcelain")) == (0, "")
    done = propose(desk, "scale", "org/a", "--replicas", "5", "-f", "fleets/prod.yaml")
    assert done.returncode == 0, done.stderr
    assert tried.stdout == done.stdout
    assert "-    replicas: 2\n+    replicas: 5\n" in done.stdout
    assert (desk / "fleets/prod.yaml").read_text() == FLEET.replace("replicas: 2", "replicas: 5")
    again = propose(desk, "scale", "org/a", "--replicas", "5", "-f", "fleets")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "note: nothing to change\n")


def test_a_branch_has_the_change_and_the_checkout_stays(desk: Path) -> None:
    (desk / "other.txt").write_text("staged")
    git(desk, "add", "other.txt")
    before = git(desk, "status", "--porcelain"), git(desk, "rev-parse", "HEAD")
    done = propose(desk, "scale", "org/b", "--replicas", "3", "-f", "fleets", "--branch", "more/b")
    assert done.returncode == 0, done.stderr
    assert "git push origin more/b" in done.stderr
    assert (git(desk, "status", "--porcelain"), git(desk, "rev-parse", "HEAD")) == before
    assert git(desk, "diff", "--numstat", "main", "more/b") == "1\t1\tfleets/prod.yaml"
    assert git(desk, "log", "-1", "--format=%s %an", "more/b") == "org/b: 1 to 3 replicas Ann"
    assert git(desk, "fsck", "--strict") == ""
    again = propose(desk, "scale", "org/b", "--replicas", "4", "-f", "fleets", "--branch", "more/b")
    assert (again.returncode, "already exists" in again.stderr) == (1, True)


def test_a_branch_name_that_looks_like_an_option_of_git_is_refused(desk: Path) -> None:
    done = propose(desk, "scale", "org/b", "--replicas", "3", "-f", "fleets", "--branch=-m")
    assert (done.returncode, "not a valid branch name" in done.stderr) == (1, True)
    assert git(desk, "branch", "--format=%(refname:short)") == "main"


def test_an_empty_branch_name_is_refused_and_nothing_is_written(desk: Path) -> None:
    done = propose(desk, "scale", "org/b", "--replicas", "3", "-f", "fleets", "--branch", "")
    assert (done.returncode, "'' is not a valid branch name" in done.stderr) == (1, True)
    assert git(desk, "status", "--porcelain") == ""


def test_a_commit_without_an_author_says_how_to_set_one(desk: Path) -> None:
    git(desk, "config", "user.useConfigOnly", "true")
    no_author = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"), "")
    done = propose(desk, "scale", "org/b", "--replicas", "3", "-f", "fleets", "--branch", "more", **no_author)
    assert (done.returncode, "hint: git needs an author for the commit: set user.name" in done.stderr) == (1, True)


def test_a_byte_order_mark_stays_and_is_not_a_change(desk: Path) -> None:
    file = desk / "fleets/prod.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + FLEET.encode())
    git(desk, "commit", "-qam", "a mark")
    done = propose(desk, "scale", "org/a", "--replicas", "5", "-f", "fleets", "--branch", "more")
    assert done.returncode == 0, done.stderr
    assert git(desk, "diff", "--numstat", "main", "more") == "1\t1\tfleets/prod.yaml"
    assert propose(desk, "scale", "org/a", "--replicas", "5", "-f", "fleets").returncode == 0
    assert file.read_bytes() == b"\xef\xbb\xbf" + FLEET.replace("replicas: 2", "replicas: 5").encode()


def test_line_ends_converted_by_git_are_not_a_change(desk: Path) -> None:
    (desk / ".gitattributes").write_text("*.yaml text eol=crlf\n")
    file = desk / "fleets/prod.yaml"
    file.write_bytes(FLEET.replace("\n", "\r\n").encode())
    git(desk, "add", ".")
    git(desk, "commit", "-qm", "line ends")
    assert git(desk, "status", "--porcelain") == ""
    done = propose(desk, "scale", "org/a", "--replicas", "5", "-f", "fleets", "--branch", "more")
    assert done.returncode == 0, done.stderr
    assert git(desk, "diff", "--numstat", "main", "more") == "1\t1\tfleets/prod.yaml"
    assert "\r" not in git(desk, "show", "more:fleets/prod.yaml")


def test_a_branch_needs_a_repository_and_committed_files(desk: Path, tmp_path: Path) -> None:
    (desk / "fleets/prod.yaml").write_text(FLEET + "# mine\n")
    done = propose(desk, "scale", "org/a", "--replicas", "3", "-f", "fleets", "--branch", "x")
    assert (done.returncode, "uncommitted changes" in done.stderr) == (1, True)
    assert git(desk, "branch", "--list", "x") == ""
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "fleet.yaml").write_text(FLEET)
    outside = propose(alone, "scale", "org/a", "--replicas", "3", "-f", "fleet.yaml", "--branch", "x")
    assert (outside.returncode, "not in a git repository" in outside.stderr) == (1, True)
    assert (alone / "fleet.yaml").read_text() == FLEET


def test_a_query_raises_numbers_only_and_is_quoted_in_the_commit(desk: Path, prometheus: Prometheus) -> None:
    prometheus.series = [({"model": "org/a"}, "1"), ({"model": "org/b"}, "4.2"), ({"model": "org/other"}, "7"),
                         ({"model": "org/a"}, "NaN"), ({"job": "x"}, "9")]
    done = propose(desk, "from-metrics", "-f", "fleets", "--prometheus", prometheus.url, "--query", "load",
                   "--branch", "more")
    assert done.returncode == 0, done.stderr
    assert "org/a: the query asks for 1, the file has 2; `fleetctl evict` ends replicas" in done.stderr
    assert "org/other is not a model in the fleet file" in done.stderr
    assert git(desk, "show", "more:fleets/prod.yaml") + "\n" == FLEET.replace("replicas: 1", "replicas: 5")
    assert git(desk, "log", "-1", "--format=%B", "more") == (
        "org/b: 1 to 5 replicas\n\nQuery: load\norg/b: 1 in the file, the query returned 4.2")
    limited = propose(desk, "from-metrics", "-f", "fleets", "--prometheus", prometheus.url, "--query", "load",
                      "--max", "3", "--dry-run")
    assert "+    replicas: 3" in limited.stdout
    assert "limited to 3" in limited.stderr
    capped = propose(desk, "from-metrics", "-f", "fleets", "--prometheus", prometheus.url, "--query", "load",
                     "--max", "1", "--dry-run")
    assert "evict" in capped.stderr
    assert "org/b: the query asks for" not in capped.stderr, "the query asks for more, and --max limits it"


def test_an_unusable_query_result_changes_nothing(desk: Path, prometheus: Prometheus) -> None:
    def failed(query: str, url: str = "") -> str:
        done = propose(desk, "from-metrics", "-f", "fleets", "--prometheus", url or prometheus.url, "--query", query)
        assert (done.returncode, done.stdout, git(desk, "status", "--porcelain")) == (1, "", "")
        return done.stderr

    assert "no series of the query has a number and the label model" in failed("load")
    prometheus.series = [({"model": "org/a"}, "")]
    assert "no series of the query has a number and the label model" in failed("native_histogram")
    assert "Prometheus: " in failed("(")
    prometheus.kind = "matrix"
    assert "is not an instant vector" in failed("load[5m]")


def test_an_unknown_model_gets_a_suggestion(desk: Path) -> None:
    done = propose(desk, "scale", "org/aa", "--replicas", "3", "-f", "fleets")
    assert (done.returncode, "org/a" in done.stderr) == (1, True)


@pytest.fixture
def server(desk: Path, tmp_path: Path) -> Path:
    """The repository that `desk` pushes to."""
    git(tmp_path, "clone", "-q", "--bare", str(desk), "server.git")
    git(desk, "remote", "add", "origin", str(tmp_path / "server.git"))
    return tmp_path / "server.git"


def test_a_pull_request_is_opened_once_and_then_updated_with_its_branch(desk: Path, server: Path) -> None:
    def opened(replicas: int) -> str:
        done = propose(desk, "scale", "org/b", "--replicas", str(replicas), "-f", "fleets", "--open",
                       **hub.environment())
        assert done.returncode == 0, done.stderr
        return done.stderr

    branch = "fleetctl/lab/scale-org%2Fb"
    with github() as hub:
        assert "pull request: opened: https://github.example.com/lab/fleet/pull/50" in opened(3)
        first = git(server, "rev-parse", branch)
        assert git(server, "diff", "--numstat", "main", branch) == "1\t1\tfleets/prod.yaml"
        assert f"nothing: {branch} is up to date" in opened(3)
        assert git(server, "rev-parse", branch) == first
        assert "pull request: updated" in opened(4)
        assert git(server, "rev-list", "--count", f"main..{branch}") == "1"
        [pull] = hub.opened
        assert (pull["title"], pull["head"]["ref"], pull["base"]["ref"]) == ("org/b: 1 to 4 replicas", branch, "main")
        assert git(desk, "branch", "--format=%(refname:short)") == "main", "the checkout stays unchanged"
        pull["state"] = "closed"
        assert "pull request: opened" in opened(5)


def test_a_merge_request_of_gitlab_is_opened_with_the_evidence(
    desk: Path, server: Path, prometheus: Prometheus
) -> None:
    prometheus.series = [({"model": "org/b"}, "4")]
    with gitlab() as lab:
        for _ in range(2):
            done = propose(desk, "from-metrics", "-f", "fleets", "--prometheus", prometheus.url, "--query", "load",
                           "--branch", "more", "--open", **lab.environment())
            assert done.returncode == 0, done.stderr
        [merge] = lab.opened
    assert (merge["source_branch"], merge["target_branch"]) == ("more", "main")
    assert merge["description"] == ("    Query: load\n    org/b: 1 in the file, the query returned 4\n\n"
                                    "Made by `fleetctl propose`.")
    assert "\n\nProposed-by: fleetctl propose (" in git(server, "log", "-1", "--format=%B", "more")


def test_a_proposal_from_a_fork_with_the_same_branch_name_is_left_alone(desk: Path, server: Path) -> None:
    command = ("scale", "org/b", "--replicas", "3", "-f", "fleets", "--open", "--branch", "more")
    with gitlab() as lab:
        theirs = {"iid": 60, "state": "opened", "source_branch": "more", "target_branch": "main", "title": "theirs",
                  "source_project_id": 43, "target_project_id": 42, "web_url": "https://gitlab.example.com/60"}
        lab.opened.append(dict(theirs))
        assert "merge request: opened" in propose(desk, *command, **lab.environment()).stderr
        assert lab.opened[0] == theirs
    for repository in ({"full_name": "lab/fork"}, None):  # None = the fork was deleted
        with github() as hub:
            pull = {"number": 50, "state": "open", "title": "theirs", "user": {"login": "mallory"}, "html_url": "",
                    "head": {"ref": "more", "repo": repository}, "base": {"ref": "main"}}
            hub.opened.append(dict(pull))
            assert "pull request: opened" in propose(desk, *command, **hub.environment()).stderr
            assert hub.opened[0] == pull


def test_a_branch_of_another_author_is_not_overwritten(desk: Path, server: Path) -> None:
    git(server, "branch", "theirs", "main")
    with github() as hub:
        done = propose(desk, "scale", "org/b", "--replicas", "3", "-f", "fleets", "--open", "--branch", "theirs",
                       **hub.environment())
        assert (done.returncode, "was not made by" in done.stderr) == (1, True)
        assert hub.opened == []
    assert git(server, "rev-parse", "theirs") == git(server, "rev-parse", "main")


def refused(desk: Path, server: Path, *arguments: str, code: int = 1) -> str:
    """Open a proposal that must be refused before anything is pushed; return the message."""
    before = git(server, "for-each-ref")
    with github() as hub:
        done = propose(desk, "scale", "org/b", "--replicas", "4", "-f", "fleets", "--open", *arguments,
                       **hub.environment())
        assert (done.returncode, hub.opened) == (code, [])
    assert git(server, "for-each-ref") == before
    return done.stderr


def open_more(desk: Path) -> None:
    with github() as hub:
        done = propose(desk, "scale", "org/b", "--replicas", "3", "-f", "fleets", "--open", "--branch", "more",
                       **hub.environment())
        assert done.returncode == 0, done.stderr


def test_a_branch_to_merge_into_is_not_overwritten(desk: Path, server: Path) -> None:
    open_more(desk)
    for branch in ("main", "release"):  # as after a merge by fast-forward: they end with our commit
        git(server, "update-ref", f"refs/heads/{branch}", "more")
    assert "main is a branch to merge into" in refused(desk, server, "--branch", "main")
    assert "main is a branch to merge into" in refused(desk, server, "--branch", "main", "--into", "release")
    assert "release is a branch to merge into" in refused(desk, server, "--branch", "release", "--into", "release")


@pytest.mark.parametrize("change", ["content", "message"])
def test_an_amended_proposal_is_not_overwritten(desk: Path, server: Path, change: str) -> None:
    open_more(desk)
    git(desk, "fetch", "-q", "origin", "more")
    git(desk, "checkout", "-q", "--detach", "FETCH_HEAD")
    message = git(desk, "log", "-1", "--format=%B")
    if change == "content":
        (desk / "fleets/prod.yaml").write_text(FLEET.replace("replicas: 1", "replicas: 7"))
    git(desk, "commit", "-q", "-a", "--amend", "-m", message if change == "content" else f"Look first\n\n{message}")
    git(desk, "push", "-q", "--force", "origin", "HEAD:more")
    git(desk, "checkout", "-q", "main")
    assert "was not made by" in refused(desk, server, "--branch", "more")


def test_extra_commits_and_a_missing_target_are_refused_before_the_push(desk: Path, server: Path) -> None:
    assert "has no branch nowhere" in refused(desk, server, "--into", "nowhere")
    git(desk, "commit", "-q", "--allow-empty", "-m", "mine")
    assert "HEAD has commits that main of origin does not have: 1" in refused(desk, server)


def test_a_checkout_behind_its_target_can_propose(desk: Path, server: Path) -> None:
    git(desk, "commit", "-q", "--allow-empty", "-m", "theirs")
    git(desk, "push", "-q", "origin", "main")
    git(desk, "reset", "-q", "--hard", "HEAD~1")
    open_more(desk)
    assert git(server, "rev-list", "--count", "main..more") == "1"


@pytest.mark.parametrize("url", ["https://ann:s3cret@127.0.0.1:1/x.git", "https://s3cret@127.0.0.1:1/x.git"])
def test_an_address_with_a_password_is_refused_and_not_repeated(desk: Path, server: Path, url: str) -> None:
    message = refused(desk, server, "--remote", url, code=64)
    assert "credential helper" in message
    assert "s3cret" not in message


def test_a_refused_push_says_why(desk: Path, server: Path) -> None:
    hook = server / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho 'fleets are frozen today' >&2\nexit 1\n")
    hook.chmod(0o755)
    message = refused(desk, server)
    assert "[remote rejected]" in message
    assert "fleets are frozen today" in message


def test_the_ssh_key_of_the_checkout_is_used_without_a_question(desk: Path, server: Path, tmp_path: Path) -> None:
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nfor last; do :; done\neval "$last"\n')
    ssh.chmod(0o755)
    git(desk, "remote", "set-url", "origin", f"ssh://git@example.com{server}")
    git(desk, "config", "core.sshCommand", f"{ssh} -i the-key")
    open_more(desk)
    assert git(server, "branch", "--list", "more")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 3
    assert all(line.startswith("-i the-key -oBatchMode=yes ") for line in calls)


def test_without_a_token_or_a_forge_nothing_is_pushed(desk: Path, server: Path) -> None:
    with github() as hub:
        lacking = propose(desk, "scale", "org/b", "--replicas", "3", "-f", "fleets", "--open",
                          **{**hub.environment(), "GITHUB_TOKEN": ""})
    nowhere = propose(desk, "scale", "org/b", "--replicas", "3", "-f", "fleets", "--open")
    assert (lacking.returncode, "GITHUB_TOKEN is not set" in lacking.stderr) == (1, True)
    assert (nowhere.returncode, "--forge" in nowhere.stderr) == (64, True)
    assert git(server, "branch", "--format=%(refname:short)") == "main"


def test_running_models_missing_in_the_file_are_added(desk: Path, tmp_path: Path) -> None:
    file = desk / "fleets/prod.yaml"
    alone = FLEET[:FLEET.index("  - key: org/b")]
    cluster = ClusterStandIn(on_submit=lambda request: all_ready(request)[-1:])
    node = cluster.add_node("node-a")
    with serve(cluster):
        (tmp_path / "whole.yaml").write_text(FLEET)
        assert run_here("apply", "-f", tmp_path / "whole.yaml", "--yes", "--address", cluster.url,
                        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}).returncode == 0
        request = next(iter(cluster.jobs.values()))
        for action in cluster.request_of(request.body["submission_id"])["plan"]["actions"]:
            cluster.add_replica(action["model"], action["replicaId"], node, gpus=10_000, spec_hash=action["specHash"])
        cluster.add_replica("org/a", 7, node, gpus=10_000)
        cluster.add_replica("org/theirs", 0, node, gpus=10_000, fleet="theirs")
        file.write_text(f"{alone}\n# the end\n")
        done = propose(desk, "from-live", "-f", "fleets", "--address", cluster.url)
        assert done.returncode == 0, done.stderr
        text = file.read_text()
        assert text.startswith(alone.replace("replicas: 2", "replicas: 3"))
        assert text.endswith("\n# the end\n")
        assert "org/theirs" not in text
        planned = json.loads(run_here("plan", "-f", file, "--address", cluster.url, "--format", "json", env={
            "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}).stdout)
        assert (planned["actions"], planned["unmanaged"][0]["model"], len(planned["unmanaged"])) == (
            [], "org/theirs", 1)
        assert [one["model"] for one in planned["drift"]] == ["org/a"], "the replica whose spec is unknown"
        again = propose(desk, "from-live", "-f", "fleets", "--address", cluster.url)
        assert (again.returncode, again.stdout, again.stderr) == (0, "", "note: nothing to change\n")


def test_a_committed_repository_is_not_the_one_that_is_pushed_from(desk: Path, tmp_path: Path) -> None:
    """Its configuration would run a program, which sees the token of the forge."""
    repository = GitFolder(desk, {"PATH": "/usr/bin:/bin", "HOME": str(desk), **IDENTITY})
    ran = tmp_path / "ran"
    config = (f"[core]\n\trepositoryformatversion = 0\n\tworktree = ../\n\tsshCommand = touch {ran};\n"
              f"\tgitProxy = touch {ran};\n[remote \"origin\"]\n\turl = git@127.0.0.1:o/r.git\n")
    embed(repository, "fleets", git(desk, "rev-parse", "HEAD"), {}, config)
    for flags in (("--open", "--forge", "github"), ("--branch", "more")):
        with github() as hub:
            done = propose(desk, "scale", "org/a", "--replicas", "5", "-f", "fleets/prod.yaml", *flags,
                           **hub.environment())
        assert (done.returncode, ran.exists()) == ("--open" in flags, False), done.stderr
    assert git(desk, "branch", "--list", "more"), "the branch is in the checkout's own repository"
