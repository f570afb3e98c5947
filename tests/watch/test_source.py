"""The sources of a watcher, on real git repositories and real files."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, serve
from git_branch import FLEET, Upstream, branch
from git_folder import GitFolder
from hostile_git import forge
from small_watcher import advance, watcher_of

from fleetctl.errors import RevisionError
from fleetctl.watch import source as source_module
from fleetctl.watch.source import Branch, Files, why_unverified
from fleetctl.watch.step import Notify, StartApply
from fleetctl.watch.watcher import Watcher


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)



def test_fetched_objects_are_synced_to_disk_before_the_branch_moves(upstream: Upstream) -> None:
    """By default git does not sync small objects and refs, so a power failure can leave them empty."""
    upstream.push(FLEET % 1)
    trace = upstream.work.parent / "trace"
    source = branch(upstream)
    source.environ = {**upstream.environ, "GIT_TRACE2_EVENT": str(trace)}
    source.newest()
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    flushed = sum(int(event["value"]) for event in events if event.get("key") == "fsync/hardware-flush")
    written = len([file for file in (source.folder / "objects").rglob("*") if file.is_file()])
    assert (written, flushed > written) == (4, True), "a commit, two trees, a file; and the ref"


def test_a_branch_gives_its_newest_commit_and_the_fleet_in_it(upstream: Upstream) -> None:
    source = branch(upstream)
    for replicas in (1, 2):
        pushed = upstream.push(FLEET % replicas)
        assert source.newest() == pushed
        fleet = source.load(pushed).sound()
        assert (fleet.name, fleet.models[0].replicas) == ("lab", replicas)
    assert source.load(upstream.git("rev-parse", "HEAD~1")).sound().models[0].replicas == 1
    assert not (source.folder / "fleets").exists(), "nothing is checked out"


def test_the_default_branch_needs_no_name(upstream: Upstream, tmp_path: Path) -> None:
    pushed = upstream.push(FLEET % 1)
    source = Branch(str(upstream.bare), "HEAD", ("fleets",), tmp_path / "clone", upstream.environ, time.time)
    assert source.newest() == pushed


@pytest.mark.parametrize(("url", "ref"), [("repo.git", "no-such-branch"), ("no-such-repo.git", "main"),
                                          ("ext::touch hacked", "main"), ("--upload-pack=touch hacked", "main")])
def test_a_failed_fetch_is_reported_and_runs_nothing(
    upstream: Upstream, tmp_path: Path, url: str, ref: str
) -> None:
    upstream.push(FLEET % 1)
    url = str(tmp_path / url) if url.endswith(".git") else url
    source = Branch(url, ref, ("fleets",), tmp_path / "clone", upstream.environ, time.time)
    with pytest.raises(RevisionError, match="git fetch: "):
        source.newest()
    assert not list(tmp_path.rglob("hacked"))


class Silent:
    """A server that accepts connections and never answers."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"

    def accept(self) -> socket.socket:
        return self._listening.accept()[0]

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    server = Silent()
    yield server
    server.close()


def read_until_closed(client: socket.socket) -> bool:
    """Read until the client closes the connection; return True then."""
    with client:
        client.settimeout(60)
        while client.recv(4096):
            pass
    return True


@pytest.mark.parametrize("protocol", ["git", "http"])
def test_a_silent_server_is_awaited_in_the_background_up_to_a_limit(
    upstream: Upstream, silent: Silent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, protocol: str
) -> None:
    monkeypatch.setattr(source_module, "PATIENCE_S", 0.01)
    now = [0.0]
    source = Branch(f"{protocol}://{silent.address}/fleets", "main", ("fleets",), tmp_path / "clone",
                    upstream.environ, lambda: now[0])
    for now[0] in (0.0, 60.0, 119.0):
        with pytest.raises(RevisionError, match="git fetch: no answer"):
            source.newest()
    client = silent.accept()
    now[0] = 121.0
    with pytest.raises(RevisionError, match="git fetch: no answer"):
        source.newest()
    assert read_until_closed(client), "git has ended, and its helper for the protocol too"
    with pytest.raises(RevisionError, match="git fetch: no answer"):
        source.newest()
    again = silent.accept()
    source.close()
    assert read_until_closed(again), "a watch that ends leaves no git behind"


def test_a_slow_fetch_is_not_started_again(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pushed = upstream.push(FLEET % 1)
    (tmp_path / "ssh").write_text(
        f"#!/bin/sh\necho begun >> {tmp_path}/begun\nwhile ! [ -e {tmp_path}/go ]; do sleep 0.02; done\n"
        f"exec git upload-pack {upstream.bare}\n")
    (tmp_path / "ssh").chmod(0o755)
    environ = {**upstream.environ, "GIT_SSH_COMMAND": str(tmp_path / "ssh"), "GIT_SSH_VARIANT": "simple"}
    source = Branch("host:fleets", "main", ("fleets",), tmp_path / "clone", environ, lambda: 0.0)
    monkeypatch.setattr(source_module, "PATIENCE_S", 0.1)
    while not (tmp_path / "begun").exists():
        with pytest.raises(RevisionError, match="no answer"):
            source.newest()
    (tmp_path / "go").touch()
    monkeypatch.setattr(source_module, "PATIENCE_S", 60)
    assert source.newest() == pushed
    assert (tmp_path / "begun").read_text() == "begun\n"


def test_a_clone_that_cannot_be_created_is_an_error_of_the_source(upstream: Upstream, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("")
    with pytest.raises(RevisionError, match="cannot be created: Not a directory"):
        branch(upstream, "a-file/clone").newest()


@pytest.mark.parametrize("url", ["https//ana:s3cret@git.example.org/fleets", "ext://ana:s3cret@git.example.org/fleets",
                                 "https://ana:s3cret@127.0.0.1:1/fleets", "https://s3cret@127.0.0.1:1/fleets",
                                 "https://ana:s3/cret@127.0.0.1:1/fleets"])
def test_a_token_in_the_address_is_not_shown(upstream: Upstream, tmp_path: Path, url: str) -> None:
    source = Branch(url, "main", ("fleets",), tmp_path / "clone", upstream.environ, time.time)
    with pytest.raises(RevisionError, match="git fetch: ") as caught:
        source.newest()
    assert "cret" not in caught.value.message


def test_a_rewound_branch_is_refused_by_the_next_watcher_too(upstream: Upstream) -> None:
    source = branch(upstream)
    upstream.push(FLEET % 1)
    good = upstream.push(FLEET % 2)
    assert source.newest() == good
    source.accept(good)
    upstream.git("reset", "--quiet", "--hard", "HEAD~1")
    rewound = upstream.push(FLEET % 3)
    for watcher in (source, branch(upstream)):
        assert watcher.newest() == rewound
        assert watcher.fault(rewound).startswith(f"it does not follow {good[:10]}")
    assert branch(upstream, rewind=True).fault(rewound) == ""


def test_a_new_clone_does_not_know_what_was_rewound(upstream: Upstream) -> None:
    source = branch(upstream)
    upstream.push(FLEET % 1)
    good = upstream.push(FLEET % 2)
    source.newest()
    source.accept(good)
    upstream.git("reset", "--quiet", "--hard", "HEAD~1")
    rewound = upstream.push(FLEET % 3)
    other = branch(upstream, "another-clone")
    assert other.newest() == rewound
    assert other.fault(rewound) == ""


@pytest.mark.parametrize("newest", ["broken", "unreachable"])
def test_a_restarted_watch_continues_with_the_last_good_commit(
    upstream: Upstream, tmp_path: Path, newest: str
) -> None:
    cluster = ClusterStandIn()
    cluster.add_node("a")
    good = upstream.push(FLEET % 1)

    def start_watcher() -> Watcher:
        watcher = watcher_of(cluster, tmp_path / "unused.yaml")
        watcher.source = branch(upstream)
        return watcher

    with serve(cluster):
        advance(start_watcher())
        if newest == "broken":
            broken = upstream.push("kind: [")
        else:
            upstream.bare.rename(tmp_path / "elsewhere.git")
        again = start_watcher()
        done = advance(again)
        assert isinstance(done[-1], StartApply)
        assert again.state.good == good
        assert again.state.seen == (broken if newest == "broken" else None)
        assert again.state.conditions.keys() == {"revision" if newest == "broken" else "source"}, "it is reported"
        assert not [do for do in advance(again) if isinstance(do, Notify)], "reported only once"


def test_a_remembered_commit_is_checked_again(upstream: Upstream, tmp_path: Path) -> None:
    cluster, source = ClusterStandIn(), branch(upstream, signed=True)
    cluster.add_node("a")
    unsigned = upstream.push(FLEET % 1)
    source.newest()
    source.accept(unsigned)
    with serve(cluster):
        watcher = watcher_of(cluster, tmp_path / "unused.yaml")
        watcher.source = source
        advance(watcher)
    assert (watcher.good, watcher.state.good) == (None, None)


def git_wrapper(upstream: Upstream, tmp_path: Path, script: str) -> dict[str, str]:
    """An environment whose git first runs a line of shell, in which `$*` are the arguments of git."""
    (tmp_path / "bin").mkdir(parents=True)
    (tmp_path / "bin/git").write_text(f'#!/bin/sh\n{script}\nexec {shutil.which("git")} "$@"\n')
    (tmp_path / "bin/git").chmod(0o755)
    return {**upstream.environ, "PATH": f"{tmp_path}/bin:{upstream.environ['PATH']}"}


def test_a_killed_git_does_not_reject_the_branch(upstream: Upstream, tmp_path: Path) -> None:
    source = branch(upstream)
    good, pushed = upstream.push(FLEET % 1), upstream.push(FLEET % 2)
    source.newest()
    source.accept(good)
    for command in ("rev-parse", "merge-base"):
        environ = git_wrapper(upstream, tmp_path / command, f'case "$*" in *{command}*) kill -9 $$;; esac')
        with pytest.raises(RevisionError, match=f"git {command} was ended by signal 9"):
            replace(source, environ=environ).fault(pushed)
    assert source.fault(pushed) == ""


@pytest.mark.parametrize("fails", ["rev-parse", "cat-file", "verify-commit"])
@pytest.mark.parametrize("how", ["kill -9 $$", "echo 'fatal: Out of memory' >&2; exit 128"])
def test_a_failure_of_git_does_not_reject_a_commit_for_good(
    upstream: Upstream, tmp_path: Path, fails: str, how: str
) -> None:
    cluster = ClusterStandIn()
    cluster.add_node("a")
    (upstream.work / "fleets/more.yaml").symlink_to("../more/of-it.yaml")
    (upstream.work / "more").mkdir()
    (upstream.work / "more/of-it.yaml").write_text((FLEET % 1).replace("org/m", "org/other"))
    pushed = upstream.push(FLEET % 1)
    environ = git_wrapper(upstream, tmp_path, f"""
        case "$*" in *{fails}*) test -e {tmp_path}/once || {{ touch {tmp_path}/once; {how}; }};; esac
        case "$*" in *verify-commit*) exit 0;; esac""")
    with serve(cluster):
        watcher = watcher_of(cluster, tmp_path / "unused.yaml")
        watcher.source = replace(branch(upstream, signed=True), environ=environ)
        advance(watcher)
        in_force = [watcher.good]
        advance(watcher)
    assert watcher.state.good == pushed
    assert [len(one.sound().models) for one in (*in_force, watcher.good) if one] in ([2], [2, 2]), "never only a part"
    assert not watcher.state.conditions.keys() & {"source", "revision"}


def test_a_forged_object_in_the_clone_is_an_error_of_the_source(upstream: Upstream, tmp_path: Path) -> None:
    cluster = ClusterStandIn()
    cluster.add_node("a")
    good = upstream.push(FLEET % 1)
    with serve(cluster):
        watcher = watcher_of(cluster, tmp_path / "unused.yaml")
        watcher.source = source = branch(upstream)
        advance(watcher)
        pushed = upstream.push(FLEET % 2)
        source.newest()
        forged = forge(GitFolder(upstream.work, upstream.environ), f"{pushed}:fleets/lab.yaml", (FLEET % 9).encode(),
                       source.folder / "objects")
        advance(watcher)
    assert watcher.state.good == good
    assert f"git blob {forged} is forged or damaged" in watcher.state.conditions["source"]


def test_another_watch_of_the_branch_remembers_its_own_last_good_commit(upstream: Upstream) -> None:
    source, rewinding = branch(upstream), branch(upstream, rewind=True)
    first, second = upstream.push(FLEET % 1), upstream.push(FLEET % 2)
    assert source.newest() == rewinding.newest() == second
    source.accept(second)
    rewinding.accept(first)
    other_cluster = replace(source, cluster="http://another:8265")
    other_cluster.newest()
    assert other_cluster.fault(first) == ""
    assert source.fault(first), "a commit accepted by the other watch is not accepted here"


def test_leftovers_of_a_killed_git_do_not_stop_the_watch(upstream: Upstream) -> None:
    source = branch(upstream)
    upstream.push(FLEET % 1)
    source.newest()
    pushed, left = upstream.push(FLEET % 2), source.folder / f"refs/fleetctl/{source.key}/newest.lock"
    left.write_text("")
    with pytest.raises(RevisionError, match="git fetch: "):
        source.newest()
    assert left.exists(), "another git may be running"
    packs = [source.folder / f"objects/pack/tmp_pack_{name}" for name in ("young", "old")]
    for file in packs:
        file.write_bytes(b"half")
    for file in (left, packs[1]):
        os.utime(file, (1, 1))
    assert source.newest() == pushed
    assert [file.exists() for file in packs] == [True, False], "an old one may fill the disk"


def test_a_commit_received_by_another_watch_meanwhile_is_used(upstream: Upstream, tmp_path: Path) -> None:
    pushed = upstream.push(FLEET % 1)
    script = f'case "$*" in *fetch*) {shutil.which("git")} "$@"; echo "error: cannot lock ref" >&2; exit 1;; esac'
    source = replace(branch(upstream), environ=git_wrapper(upstream, tmp_path, script))
    assert source.newest() == pushed
    with pytest.raises(RevisionError, match="cannot lock ref"):
        source.newest()


def test_only_the_newest_commit_has_to_be_signed_and_any_allowed_key_may_sign_any_file(
    upstream: Upstream, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (tmp_path / "allowed").write_text(f"somebody@else {key.with_suffix('.pub').read_text()}")
    for setting, value in (("gpg.format", "ssh"), ("user.signingKey", key),
                           ("gpg.ssh.allowedSignersFile", tmp_path / "allowed")):
        upstream.git("config", "--global", setting, str(value))
    source = branch(upstream, signed=True)
    unsigned = upstream.push(FLEET % 1)
    signed = upstream.push(FLEET % 2, "-S")
    assert source.newest() == signed
    assert (source.fault(signed), source.fault(unsigned) != "") == ("", True)


def test_only_signed_commits_are_used_if_required(upstream: Upstream, tmp_path: Path) -> None:
    source = branch(upstream, signed=True)
    unsigned = upstream.push(FLEET % 1)
    source.newest()
    assert "signature" in source.fault(unsigned) or "signed" in source.fault(unsigned)
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    upstream.git("config", "--global", "gpg.format", "ssh")
    upstream.git("config", "--global", "user.signingKey", str(key))
    stranger = upstream.push(FLEET % 2, "-S")
    source.newest()
    assert "gpg.ssh.allowedSignersFile needs to be configured" in source.fault(stranger)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    (tmp_path / "allowed").write_text(f"a@b {(tmp_path / 'other.pub').read_text()}")
    upstream.git("config", "--global", "gpg.ssh.allowedSignersFile", str(tmp_path / "allowed"))
    printed = subprocess.run(["ssh-keygen", "-l", "-f", str(key)], check=True, capture_output=True, text=True).stdout
    assert source.fault(stranger) == (
        f"{NOT_VERIFIED}No principal matched: ED25519 key {printed.split()[1]}{NOT_AMONG}")
    (tmp_path / "allowed").write_text(f"a@b {key.with_suffix('.pub').read_text()}")
    assert source.fault(stranger) == ""
    assert source.fault(unsigned)


NOT_VERIFIED = "its signature cannot be verified: "
NOT_AMONG = " is not among the allowed signers (gpg.ssh.allowedSignersFile)"


@pytest.mark.parametrize(("printed", "why"), [
    ("", "it is not signed"),
    ("gpg: Signature made Friday\ngpg:           using EDDSA key AB\ngpg: Can't check signature: No public key\n",
     f"{NOT_VERIFIED}Can't check signature: No public key: EDDSA key AB"),
    ('gpg: Signature made x\ngpg: using RSA key AB\ngpg: Good signature from "a" \ngpg: WARNING: not certified\n',
     f"{NOT_VERIFIED}WARNING: not certified: RSA key AB"),
    ('Good "git" signature with ED25519 key SHA256:x\n/a:1: key has expired: y\nNo principal matched.\n',
     f"{NOT_VERIFIED}/a:1: key has expired: y; No principal matched: ED25519 key SHA256:x{NOT_AMONG}"),
    ("Could not verify signature.\nincorrect signature\n",
     f"{NOT_VERIFIED}Could not verify signature; incorrect signature"),
    ('Good "git" signature with ED25519 key SHA256:x\n', f"{NOT_VERIFIED}git gives no reason: ED25519 key SHA256:x"),
])
def test_a_signature_that_cannot_be_verified_names_reason_and_key(printed: str, why: str) -> None:
    assert why_unverified(printed) == why


def test_files_are_a_new_revision_when_any_of_them_changes(tmp_path: Path) -> None:
    folder, base = tmp_path / "fleets", tmp_path / "base.yaml"
    folder.mkdir()
    (folder / "lab.yaml").write_text(f"extends: ../base.yaml\n{FLEET % 1}")
    base.write_text("apiVersion: fleetctl/v1\nkind: Fleet\nspec: {}\n")
    source = Files((str(folder),))
    first = source.newest()
    assert source.load(first).sound().models[0].replicas == 1
    whole = source.newest()
    assert source.newest() == whole
    base.write_text("apiVersion: fleetctl/v1\nkind: Fleet\nspec: {policy: {maxNewGpus: 4}}\n")
    other = source.newest()
    assert other != whole, "a base is part of the revision"
    (folder / "more.yaml").write_text("")
    assert source.newest() != other


def test_breaking_and_repairing_a_base_are_new_revisions(tmp_path: Path) -> None:
    base, over = tmp_path / "bases" / "base.yaml", tmp_path / "over.yaml"
    base.parent.mkdir()
    base.write_text(FLEET % 1)
    over.write_text("apiVersion: fleetctl/v1\nkind: Fleet\nextends: bases/base.yaml\nmetadata: {name: lab}\n")
    source = Files([str(over)])
    source.load(source.newest())
    good = source.newest()
    base.write_text(FLEET % "many")
    broken = source.newest()
    assert source.load(broken).fleet is None
    assert source.newest() == broken
    base.write_text(FLEET % 22)
    assert source.load(source.newest()).fleet
    assert len({good, broken, source.newest()}) == 3
