"""A wrong file on a node: who reports it, how it is fetched again, and what a check costs and survives."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from changed_node import FILE, INJECTED, NodeUnderTest, eight_bytes, rot, source_of
from small_pieces import SECRET
from weights_world import SHARD, eventually, fetch, files_in, serving, status_and_body

from fleetctl.agent.run_messages import PrefetchMember
from fleetctl.agent.weights import check
from fleetctl.agent.weights.check import BackgroundCheck, CheckedEntry, CheckResult, Verified, check_changed
from fleetctl.agent.weights.fetch import Fetched
from fleetctl.agent.weights.index import WeightsError
from fleetctl.agent.weights.protocol import wrong_path
from fleetctl.agent.weights.store import Entry, Wrong, require_own_folder
from fleetctl.agent.weights.views import MODEL
from fleetctl.agent.wire import parse


def test_a_receiver_that_gets_a_wrong_piece_tells_the_source_which_then_fetches_the_file_again(
    node: NodeUnderTest, tmp_path: Path
) -> None:
    weights = node.start()
    described = source_of(weights)
    weights._check.sweep()
    rot(weights)
    weights._check.sweep()
    assert list(node.notes.glob("fleetctl-wrong-*")) == []
    got = fetch(tmp_path / "peer", node.artifact, described, origins=[{"path": str(node.origin)}])
    assert "does not match the index" in got.left[0][1]
    eventually(lambda: weights._check._requested)
    weights._check.sweep()
    assert files_in(weights.folder) == files_in(node.origin)
    assert node.note()["now"] == "fetched"
    assert fetch(tmp_path / "next", node.artifact, described).left == []


def test_a_wrong_file_from_which_a_view_is_made_is_reported_too(node: NodeUnderTest, tmp_path: Path) -> None:
    weights = node.start()
    described = source_of(weights)
    weights._check.sweep()
    rot(weights)
    assert weights._source is not None
    whole = weights._fetched.whole
    assert whole is not None
    whole._verified.clear()
    got = fetch(tmp_path / "peer", node.artifact, described, view=SHARD, origins=[{"path": str(node.origin)}])
    assert "does not match the index" in " ".join(node.lines) or got.left
    eventually(lambda: weights._check._requested)
    weights._check.sweep()
    assert files_in(weights.folder) == files_in(node.origin)


def test_a_lying_receiver_can_only_cause_checks_and_few_of_them(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, read, hashed = node.start(), list[int](), check._piece
    described = source_of(weights)
    weights._check.sweep()
    monkeypatch.setattr(check, "_piece", lambda opened, number: (read.append(number), hashed(opened, number))[1])
    path = wrong_path(node.artifact)

    def report(body: Any, secret: bytes = SECRET) -> int:
        return status_and_body(described["address"], path, "POST", json.dumps(body).encode(), secret)[0]

    for body in ([], 5, {"view": ["a"], "path": FILE}):
        assert report(body) == 400
    for body in ({"view": "a" * 16, "path": FILE}, {"view": None, "path": "../secret"}, {"view": None}):
        assert report(body) == 200
    assert report({"view": None, "path": FILE}, b"another") == 401
    assert not weights._check._requested
    for name in (FILE, FILE, "config.json", FILE):
        assert report({"view": None, "path": name}) == 200
        weights._check.sweep()
    assert len(read) == next(len(file.chunks) for file in weights._fetched.held.files if file.path == FILE)
    assert files_in(weights.folder) == files_in(node.origin)


def test_requests_take_a_small_part_of_the_time(tmp_path: Path, origin: Path, artifact: str) -> None:
    now, got = [0.0], fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    verified = Verified(str(tmp_path / "a"), artifact, SECRET)
    checked = BackgroundCheck(lambda: [CheckedEntry(got.entry, got.held)], verified, lambda _: None, lambda _: None,
                              lambda: now[0])
    checked.sweep()
    for later, accepted in ((0.0, True), (check.SWEEP_S - 1, False), (check.SWEEP_S, True)):
        now[0] += later
        checked.request(got.entry, FILE)
        assert bool(checked._requested) is accepted
        checked.sweep()


def test_a_wrong_file_that_cannot_be_fetched_again_is_tried_again_later_and_the_next_start_fetches_it(
    node: NodeUnderTest
) -> None:
    weights = node.start()
    weights._check.sweep()
    eight_bytes(Path(weights.folder, FILE))
    away = node.origin.rename(node.origin.with_name("away"))
    now = [1000.0]
    weights._check._clock = lambda: now[0]
    for _ in range(3):
        weights._check.sweep()
    assert node.note()["now"] == "unfetched"
    assert "no source" in node.note()["trouble"]
    failed = [line for line in node.lines if "could not be fetched again" in line]
    assert len(failed) == 1
    assert sum("is not what the index says" in line for line in node.lines) == 1, "it is said once"
    with pytest.raises(Exception, match="no source supplied all files"):
        node.start()
    assert node.note()["now"] == "unfetched"
    away.rename(node.origin)
    now[0] += check.RETRY_S
    weights._check.sweep()
    assert files_in(weights.folder) == files_in(node.origin)
    assert node.note()["now"] == "fetched"


def test_the_next_start_reads_only_the_wrong_file(node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = node.start()
    weights._check.sweep()
    eight_bytes(Path(weights.folder, FILE))
    assert check_changed(weights._fetched.entry, weights._fetched.held, weights._verified)
    parts = list[str]()
    verified_part = Entry.verified_part
    monkeypatch.setattr(Entry, "verified_part", lambda entry, file: (
        parts.append(file.path), verified_part(entry, file))[1])
    again = node.start()
    assert parts == [FILE]
    assert files_in(again.folder) == files_in(node.origin)


def test_the_check_of_a_started_replica_runs_by_itself_at_the_lowest_priority(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    nice, hashed = set[int](), check._piece

    def piece(opened: int, number: int) -> str:
        nice.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return hashed(opened, number)

    monkeypatch.setattr(check, "_piece", piece)
    weights = node.start()
    eight_bytes(Path(weights.folder, FILE))
    weights.check()
    try:
        eventually(lambda: files_in(weights.folder) == files_in(node.origin))
        eventually(lambda: "are verified" in node.lines[-1])
    finally:
        weights.release()
    assert nice == {check.NICE}


def test_two_replicas_of_a_node_do_not_hash_the_same_files_at_a_time(node: NodeUnderTest) -> None:
    first, second = node.start(), node.start()
    with Path(first.folder + ".check").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second._check.sweep()
        assert not any("are verified" in line for line in node.lines)
    first._check.sweep()
    count = len(node.lines)
    second._check.sweep()
    assert len(node.lines) == count, "the first one has verified them for both"


def test_locks_that_are_held_for_ever_stop_neither_a_start_nor_a_check(
    node: NodeUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.agent.weights.check.LOCK_S", 0.05)
    weights = node.start()
    with Path(weights.folder + ".check").open("w") as one, (
            next((node.root / node.artifact).glob("verified-*.json.lock"))).open("r+") as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        fcntl.flock(other, fcntl.LOCK_EX)
        eight_bytes(Path(weights.folder, FILE))
        again, now = node.start(), [0.0]
        again._check._clock = lambda: now[0]
        again._check.sweep()
        assert list(node.notes.glob("fleetctl-wrong-*")) == []
        now[0] += check.SWEEP_S + 1
        again._check.sweep()
    assert files_in(again.folder) == files_in(node.origin)


def test_a_file_that_keeps_changing_is_never_verified(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    got, hashed = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}]), check._piece
    verified = Verified(str(tmp_path / "a"), artifact, b"another session")

    def piece(opened: int, number: int) -> str:
        os.utime(got.entry.path(FILE))
        return hashed(opened, number)

    monkeypatch.setattr(check, "_piece", piece)
    assert check_changed(got.entry, got.held, verified) is None
    assert verified.since(got.entry, got.held) is None
    assert [file.path for file in verified.due(got.entry, got.held)] == [FILE]


def test_a_view_is_not_made_from_a_file_that_changes_meanwhile(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleetctl.agent.weights import gather

    fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    blocks, entry = gather._blocks, Entry(str(tmp_path / "a"), artifact, None)

    def changing(*given: Any) -> Iterator[Any]:
        yield from blocks(*given)
        eight_bytes(Path(entry.path(FILE)))

    monkeypatch.setattr(gather, "_blocks", changing)
    with pytest.raises(WeightsError, match="changed while a view was made from it"):
        fetch(tmp_path / "a", artifact, view=SHARD)


def test_a_read_error_counts_as_a_wrong_piece(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    got = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])

    def broken(*_: Any) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(check.os, "preadv", broken)
    wrong = check_changed(got.entry, got.held, Verified(str(tmp_path / "a"), artifact, b"another session"))
    assert wrong is not None
    assert wrong.reason == "it cannot be read: Input/output error"


@pytest.mark.parametrize("call", ["open", "preadv"])
def test_a_process_without_a_free_file_finds_nothing_wrong_and_checks_later(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    weights = node.start()

    def short(*_: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(check.os, call, short)
        with pytest.raises(OSError, match="Too many"):
            check_changed(weights._fetched.entry, weights._fetched.held, Verified("/nowhere", node.artifact, SECRET))
    assert weights._fetched.entry.wrong() is None
    weights._check.sweep()
    assert "are verified" in node.lines[-1]


def test_on_a_read_only_disk_a_wrong_file_is_still_not_served_and_reported_once(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    got, found = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}]), list[CheckResult]()
    eight_bytes(Path(got.entry.path(FILE)))

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("fleetctl.agent.weights.store.replace_own", refuse)
    monkeypatch.setattr("fleetctl.agent.weights.check.replace_own", refuse)
    with serving(tmp_path / "a", got) as (source, described):
        checked = BackgroundCheck(lambda: [CheckedEntry(got.entry, got.held, own=False)], source.verified,
                                  lambda _: None, found.append)
        for _ in range(3):
            checked.sweep()
        with pytest.raises(WeightsError, match="has changed on the disk"):
            fetch(tmp_path / "b", artifact, described)
    assert [one.what for one in found] == ["wrong"]


def test_prefetched_weights_are_checked_before_they_count_as_complete(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleetctl.agent import prefetch

    monkeypatch.setattr(prefetch, "session_secret", lambda: SECRET)
    weights = {"artifact": node.artifact, "from": [{"path": str(node.origin)}], "view": None}
    order = prefetch.Order([parse(PrefetchMember, {"weights": weights, "variables": INJECTED})], 60)
    prefetch.fetch_here(order)
    entry = Entry(str(node.root), node.artifact, None)
    eight_bytes(Path(entry.path(FILE)))
    [row] = prefetch.fetch_here(order)
    assert row.fetched is not None
    assert row.fetched.bytes > 0
    assert files_in(entry.folder) == files_in(node.origin)


def test_a_folder_of_another_user_in_a_cache_that_anyone_may_write_is_refused(
    tmp_path: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "cache"
    (root / artifact).mkdir(parents=True)
    root.chmod(0o777)
    require_own_folder(str(root), artifact)
    monkeypatch.setattr("fleetctl.agent.weights.store._own_uid", lambda _: os.geteuid() + 1)
    with pytest.raises(WeightsError, match="set FLEETCTL_CACHE_DIR to a folder to which only this user may write"):
        require_own_folder(str(root), artifact)
    root.chmod(0o755)
    require_own_folder(str(root), artifact)


def test_the_folder_of_an_artifact_is_ours_alone_whatever_the_umask(tmp_path: Path, artifact: str) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    before = os.umask(0)
    try:
        require_own_folder(str(tmp_path / "cache"), artifact)
    finally:
        os.umask(before)
    assert (tmp_path / "cache" / artifact).stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(("limit", "cores", "threads"), [
    ("max 100000", 64, 4), ("max 100000", 8, 2), ("max 100000", 2, 2), ("max 100000", 1, 1), ("1200000 100000", 64, 3),
    ("150000 100000", 64, 1), ("50000 100000", 64, 1), ("", 64, 4),
])
def test_as_many_threads_hash_as_a_quarter_of_the_cores_that_the_container_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, cores: int, threads: int
) -> None:
    from fleetctl.agent.weights import memory

    (tmp_path / "own").write_text("0::/pod\n")
    (tmp_path / "pod").mkdir()
    (tmp_path / "pod" / "cpu.max").write_text(limit)
    monkeypatch.setattr(memory, "OWN_GROUP", str(tmp_path / "own"))
    monkeypatch.setattr(memory, "GROUPS", str(tmp_path))
    monkeypatch.setattr(memory.os, "sched_getaffinity", lambda _: range(cores))
    assert check.cores() == threads


def test_a_wrong_view_that_was_made_for_another_node_is_removed_and_made_again(
    node: NodeUnderTest, tmp_path: Path
) -> None:
    weights = node.start()
    described, source = source_of(weights), weights._source
    assert source is not None
    first = fetch(tmp_path / "peer", node.artifact, described, view=SHARD, rank=2)
    eventually(lambda: not source.table._fetches)
    [_, made] = source.checked(own=True)
    weights._check.sweep()
    eight_bytes(Path(made.entry.path(MODEL)))
    weights._check.sweep()
    assert (node.note()["file"], node.note()["now"]) == (MODEL, "wrong")
    weights._check.sweep()
    assert len(source.checked(own=True)) == 1
    again = fetch(tmp_path / "next", node.artifact, described, view=SHARD, rank=2)
    assert (again.left, files_in(again.entry.folder)) == ([], files_in(first.entry.folder))


@pytest.mark.parametrize("where", ["part", "record", "index"])
def test_a_link_in_the_cache_is_never_written_through(
    tmp_path: Path, origin: Path, artifact: str, where: str
) -> None:
    folder, victim = tmp_path / "node" / artifact, tmp_path / "rc"
    victim.write_text("export PATH\n")
    path = folder / {"part": f"files.part/{FILE}", "record": "files.json", "index": "fleetctl-weights.json"}[where]
    path.parent.mkdir(parents=True)
    path.symlink_to(victim)
    got = fetch(tmp_path / "node", artifact, origins=[{"path": str(origin)}])
    assert files_in(got.entry.folder) == files_in(origin)
    assert victim.read_text() == "export PATH\n"


def test_a_damaged_mark_of_a_wrong_file_still_counts(tmp_path: Path, artifact: str, origin: Path) -> None:
    got: Fetched = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    Path(got.entry.folder + ".wrong").write_text("{")
    assert isinstance(got.entry.wrong(), Wrong)
    assert got.entry.index() is None
