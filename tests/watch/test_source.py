"""The sources of a watcher, on real git repositories and real files."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, serve
from git_folder import GitFolder
from hostile_git import forge
from small_watcher import advance, watcher_of

from fleetctl.errors import RevisionError
from fleetctl.watch import source as source_module
from fleetctl.watch.source import Branch, Files, why_unverified
from fleetctl.watch.step import Apply, Notify
from fleetctl.watch.watcher import Watcher

FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: org/m
    replicas: %s
    workers:
    - name: main
      members: [{resources: {gpus: 1}, engine: {command: [serve]}}]
"""


class Upstream:
    """A bare repository, and a clone that pushes to it."""

    def __init__(self, tmp_path: Path) -> None:
        self.bare, self.work = tmp_path / "repo.git", tmp_path / "work"
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1",
                        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
                        "GIT_COMMITTER_EMAIL": "a@b"}
        self.git("init", "--quiet", "--bare", "--initial-branch=main", str(self.bare), cwd=tmp_path)
        self.git("clone", "--quiet", str(self.bare), str(self.work), cwd=tmp_path)
        (self.work / "fleets").mkdir()

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        return subprocess.run(["git", *arguments], cwd=cwd or self.work, env=self.environ, check=True, text=True,
                              capture_output=True).stdout.strip()

    def push(self, text: str, *flags: str) -> str:
        (self.work / "fleets/lab.yaml").write_text(text)
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", "change", *flags)
        self.git("push", "--quiet", "--force", "origin", "HEAD:main")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


def branch(upstream: Upstream, folder: str = "clone", **settings: bool) -> Branch:
    return Branch(str(upstream.bare), "main", ("fleets",), upstream.work.parent / folder, upstream.environ, time.time,
                  **settings)


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
        assert isinstance(done[-1], Apply)
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


def rot_objects(clone: Path) -> None:
    for file in (clone / "objects").rglob("*"):
        if file.is_file():
            file.chmod(0o600)
            file.write_bytes(b"\0" * file.stat().st_size)


def cut_objects(clone: Path) -> None:
    for file in (clone / "objects").rglob("*"):
        if file.is_file():
            file.chmod(0o600)
            file.write_bytes(b"")


def lose_objects(clone: Path) -> None:
    shutil.rmtree(clone / "objects")


def lose_commits(clone: Path) -> None:
    for file in (clone / "objects").rglob("*"):
        if file.is_file():
            file.unlink()


def break_references(clone: Path) -> None:
    for file in (clone / "refs").rglob("newest"):
        file.write_text("nonsense\n")


def break_head(clone: Path) -> None:
    (clone / "HEAD").write_text("")


def break_config(clone: Path) -> None:
    (clone / "config").write_bytes(b"\0[core\n")


DAMAGE = [rot_objects, cut_objects, lose_objects, lose_commits, break_references, break_head, break_config]


def newest_soon(source: Branch, looks: int = 3) -> tuple[str, list[str]]:
    """Look until the source answers; returns the commit and what was said before."""
    said: list[str] = []
    for _ in range(looks):
        try:
            return source.newest(), said
        except RevisionError as error:
            said.append(error.message)
    raise AssertionError(said)


@pytest.mark.parametrize(("damage", "changed"), [*((damage, True) for damage in DAMAGE), (rot_objects, False)])
def test_a_damaged_clone_is_made_again_and_remembers_the_last_good_commit(
    upstream: Upstream, damage: Callable[[Path], None], changed: bool
) -> None:
    source = branch(upstream)
    good = upstream.push(FLEET % 1)
    assert source.newest() == good
    source.accept(good)
    damage(source.folder)
    pushed = upstream.push(FLEET % 2) if changed else good
    restarted = branch(upstream)
    found, said = newest_soon(restarted)
    for _ in range(2):  # git may find the damage only when it reads the commit
        try:
            assert (found, restarted.fault(found), restarted.load(found).sound().models[0].replicas) == (
                pushed, "", 2 if changed else 1)
            break
        except RevisionError as error:
            said.append(error.message)
            found, more = newest_soon(restarted)
            said += more
    else:
        raise AssertionError(said)
    assert restarted.remembered() == good
    assert sorted(said) == sorted({*said}), "said once"
    assert all("is made again" in text for text in said), said
    assert not (source.folder / "fresh").exists()


def test_a_rewound_branch_is_refused_after_the_clone_was_made_again(upstream: Upstream) -> None:
    source = branch(upstream)
    upstream.push(FLEET % 1)
    good = upstream.push(FLEET % 2)
    source.newest()
    source.accept(good)
    rot_objects(source.folder)
    upstream.git("reset", "--quiet", "--hard", "HEAD~1")
    rewound = upstream.push(FLEET % 3)
    assert newest_soon(source)[0] == rewound
    for watcher in (source, branch(upstream)):
        assert watcher.remembered() == good
        assert watcher.fault(rewound).startswith(f"it does not follow {good[:10]}")
    assert branch(upstream, rewind=True).fault(rewound) == ""


def test_the_other_watches_of_a_clone_that_was_made_again_remember_theirs(upstream: Upstream) -> None:
    source, other = branch(upstream), branch(upstream, rewind=True)
    first, second = upstream.push(FLEET % 1), upstream.push(FLEET % 2)
    assert source.newest() == other.newest() == second
    source.accept(second)
    other.accept(first)
    rot_objects(source.folder)
    assert newest_soon(source)[0] == second
    assert (source.remembered(), other.remembered()) == (second, first)
    assert other.newest() == second


def test_a_clone_stays_while_the_repository_cannot_be_cloned(upstream: Upstream, tmp_path: Path) -> None:
    now, source = [1_000.0], branch(upstream)
    source.clock = lambda: now[0]
    good = upstream.push(FLEET % 1)
    source.newest()
    source.accept(good)
    kept = {file: file.read_bytes() for file in source.folder.rglob("*") if file.is_file()}
    away = upstream.bare.rename(tmp_path / "away.git")
    upstream.bare.mkdir()
    shutil.copytree(away, upstream.bare, dirs_exist_ok=True)
    upstream.push(FLEET % 2)
    rot_objects(upstream.bare)
    said = []
    for _ in range(4):
        with pytest.raises(RevisionError) as caught:
            source.newest()
        said.append(caught.value.message)
    assert "is made again" in said[0]
    assert not any("is made again" in text for text in said[1:]), "tried once"
    assert len({*said[2:]}) == 1
    assert {file: file.read_bytes() for file in source.folder.rglob("*") if file.is_file()} == kept
    shutil.rmtree(upstream.bare)
    away.rename(upstream.bare)
    assert source.newest() == good


@pytest.mark.parametrize("theirs", ["refs/heads/main", "notes.txt", "objects/../README"])
def test_a_folder_with_more_than_our_clone_is_never_removed(upstream: Upstream, theirs: str) -> None:
    source = branch(upstream)
    pushed = upstream.push(FLEET % 1)
    source.newest()
    (source.folder / theirs).write_text(f"{pushed}\n")
    rot_objects(source.folder)
    for _ in range(3):
        with pytest.raises(RevisionError) as caught:
            source.newest()
        assert "is made again" not in caught.value.message
    assert f"if {source.folder} is only a clone, remove it" in (caught.value.hint or "")
    assert (source.folder / theirs).read_text() == f"{pushed}\n"


@pytest.mark.parametrize("step", ["complete", "some removed", "moving", "some moved"])
def test_a_watch_killed_while_it_replaces_a_clone_is_continued_by_the_next(upstream: Upstream, step: str) -> None:
    source = branch(upstream)
    good = upstream.push(FLEET % 1)
    source.newest()
    source.accept(good)
    fresh = source.folder / "fresh"
    upstream.git("init", "--quiet", "--bare", str(fresh))
    (fresh / "fleetctl-good").write_text(json.dumps({source.key: good}))
    (fresh / ("complete" if "mov" not in step else "moving")).touch()
    if step != "complete":
        shutil.rmtree(source.folder / "objects")
    if "mov" in step:
        shutil.rmtree(source.folder / "refs")
        for name in ("HEAD", "config", "description"):
            (source.folder / name).unlink()
        shutil.rmtree(source.folder / "hooks", ignore_errors=True)
        shutil.rmtree(source.folder / "info", ignore_errors=True)
    if step == "some moved":
        (fresh / "objects").rename(source.folder / "objects")
    again = branch(upstream)
    assert again.newest() == good
    assert again.remembered() == good
    assert not fresh.exists()
