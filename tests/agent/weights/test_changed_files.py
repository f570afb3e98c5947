"""A file that was changed on a node, whatever its size and mtime say, is found, never served, and fetched again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from changed_node import (
    BEFORE_A_START,
    FILE,
    FILES,
    KEEP_SIZE,
    Change,
    NodeUnderTest,
    a_link_to_a_folder,
    eight_bytes,
    source_of,
)
from small_pieces import SECRET
from weights_world import SHARD, eventually, fetch, files_in

from fleetctl.agent import model_files
from fleetctl.agent.weights import check
from fleetctl.agent.weights.check import Verified
from fleetctl.agent.weights.index import WeightsError
from fleetctl.agent.weights.store import Entry
from fleetctl.agent.weights.views import MODEL


@pytest.mark.parametrize("change", KEEP_SIZE)
@pytest.mark.parametrize("view", [None, FILES, SHARD], ids=["whole", "files", "shard"])
def test_a_change_is_found_once_the_engine_runs_and_meanwhile_the_file_is_not_served(
    node: NodeUnderTest, tmp_path: Path, change: Change, view: dict[str, Any] | None
) -> None:
    first = node.start(view)
    first._check.sweep()
    before, name = files_in(first.folder), MODEL if view == SHARD else FILE
    change(Path(first.folder, name))
    again = node.start(view)
    assert node.lines[-1].startswith("weights: already on this node"), "an engine's start waits for no check"
    with Path(again.folder, name).open("rb") as engine:
        loaded = engine.read()
        described = source_of(again)
        assert again.served is not None
        assert again.served.verified is None
        refused = list[str]()
        with contextlib.suppress(WeightsError):  # a view can be made from the artifact's own files, which are verified
            got = fetch(tmp_path / "peer", node.artifact, described, view=view, lines=refused)
            assert files_in(got.entry.folder) == before
        assert "has changed on the disk since it was verified" in refused[0]
        again._check.sweep()
        assert files_in(again.folder) == before, "it was fetched again for the next start"
        engine.seek(0)
        assert engine.read() == loaded, "the engine keeps the file that it has open"
    note = node.note()
    assert (note["file"], note["now"], note["artifact"]) == (name, "fetched", node.artifact)
    assert note["piece"] == (len(before[name]) - 8) // check.PIECE
    said = [line for line in node.lines if "is not what the index says" in line]
    assert len(said) == 1
    assert f"{name} in {again.folder}" in said[0]
    again._check.sweep()
    assert fetch(tmp_path / "another", node.artifact, described, view=view).left == []
    assert not Path(again.folder + ".wrong").exists()


@pytest.mark.parametrize("change", BEFORE_A_START)
@pytest.mark.parametrize("view", [None, FILES], ids=["whole", "files"])
def test_what_is_no_file_of_the_entry_is_fetched_before_the_start(
    node: NodeUnderTest, tmp_path: Path, change: Change, view: dict[str, Any] | None
) -> None:
    first = node.start(view)
    before = files_in(first.folder)
    change(Path(first.folder, FILE))
    outside = files_in(tmp_path / "others") if change is a_link_to_a_folder else {}
    again = node.start(view)
    assert files_in(again.folder) == before
    assert (node.note()["now"], node.note()["reason"]) in {("fetched", "it is no plain file"),
                                                           ("fetched", "its folder is a link")}
    assert not Path(again.folder).is_symlink()
    assert not Path(again.folder, FILE).is_symlink()
    assert (files_in(tmp_path / "others") if outside else {}) == outside


def test_removed_files_are_fetched_again_and_that_is_no_finding(node: NodeUnderTest) -> None:
    Path(node.start().folder, FILE).unlink()
    assert files_in(node.start().folder) == files_in(node.origin)
    assert list(node.notes.glob("fleetctl-wrong-*")) == []


@pytest.mark.parametrize("at", [0, 0.3, 0.9])
@pytest.mark.parametrize("view", [None, SHARD], ids=["whole", "shard"])
def test_a_changed_byte_of_a_record_is_found(node: NodeUnderTest, at: float, view: dict[str, Any] | None) -> None:
    first = node.start(view)
    before, record = files_in(first.folder), Path(first.folder + ".json")
    data = bytearray(record.read_bytes())
    place = int(at * len(data))
    data[place] = ord("1") if data[place] != ord("1") else ord("2")
    record.write_bytes(bytes(data))
    again = node.start(view)
    for _ in range(3):
        again._check.sweep()
    assert files_in(again.folder) == before
    entry = Entry(str(node.root), node.artifact, first._fetched.entry.view)
    index = entry.index()
    assert index is not None
    assert [file.chunks for file in index.files] == [file.chunks for file in first._fetched.held.files]
    assert Verified(str(node.root), node.artifact, SECRET).since(entry, index)


def test_the_files_of_a_running_replica_are_found_by_the_next_sweep(node: NodeUnderTest, tmp_path: Path) -> None:
    weights = node.start()
    described = source_of(weights)
    weights._check.sweep()
    for name in (FILE, "config.json"):
        eight_bytes(Path(weights.folder, name))
    with pytest.raises(WeightsError, match="has changed on the disk"):
        fetch(tmp_path / "peer", node.artifact, described)
    weights._check.sweep()
    assert files_in(weights.folder) == files_in(node.origin)


def test_small_files_are_hashed_before_a_start(node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "AT_ONCE", 1000)
    weights = node.start()
    for name in ("config.json", FILE):
        eight_bytes(Path(weights.folder, name))
    again = node.start()
    assert Path(again.folder, "config.json").read_bytes() == (node.origin / "config.json").read_bytes()
    assert (node.note()["file"], node.note()["now"]) == ("config.json", "fetched")
    said = "config.json on this node is not what the index says (its content has changed): fetching it again"
    assert any(said in line for line in node.lines)


def test_all_that_was_fetched_is_read_from_the_disk_once(node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    read, hashed = list[int](), check._piece
    monkeypatch.setattr(check, "_piece", lambda opened, number: (read.append(number), hashed(opened, number))[1])
    weights = node.start()
    size = sum(len(file.chunks) for file in weights._fetched.held.files)
    weights._check.sweep()
    assert len(read) == size
    assert "are verified" in node.lines[-1]
    weights._check.sweep()
    node.start()._check.sweep()
    assert len(read) == size, "nothing has changed since"
    monkeypatch.setattr(model_files, "session_secret", lambda: b"of another session")
    node.start()._check.sweep()
    assert len(read) == 2 * size, "the table of another session counts for nothing"


def test_two_clusters_that_share_a_cache_do_not_make_each_other_hash_again(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, hashed = list[int](), check._piece
    both = []
    for secret in (b"of one", b"of the other"):
        monkeypatch.setattr(model_files, "session_secret", lambda secret=secret: secret)
        both.append(node.start())
        both[-1]._check.sweep()
    monkeypatch.setattr(check, "_piece", lambda opened, number: (read.append(number), hashed(opened, number))[1])
    for weights in both * 2:
        weights._check.sweep()
    assert read == []
    tables = list((node.root / node.artifact).glob("verified-*.json"))
    assert len(tables) == 2
    for table in tables:
        os.utime(table, (0, 0))
    monkeypatch.setattr(model_files, "session_secret", lambda: b"of a third")
    node.start()._check.sweep()
    assert [table for table in tables if table.exists()] == [], "tables of sessions long gone are removed"


def test_our_own_links_are_no_change(node: NodeUnderTest, tmp_path: Path) -> None:
    whole = node.start()
    described = source_of(whole)
    whole._check.sweep()
    verified, entry = Verified(str(node.root), node.artifact, SECRET), whole._fetched.entry
    assert verified.due(entry, whole._fetched.held) == []
    views = [node.start(view) for view in (FILES, SHARD)]
    fetch(tmp_path / "peer", node.artifact, described, view=SHARD, rank=2)  # a view made for another node
    assert verified.due(entry, whole._fetched.held) == []
    assert Path(views[0].folder, FILE).samefile(Path(whole.folder, FILE))
    assert verified.due(views[0]._fetched.entry, views[0]._fetched.held) == []
    assert [file.path for file in verified.due(views[1]._fetched.entry, views[1]._fetched.held)] == [MODEL]
    assert whole._source is not None
    eventually(lambda: not whole._source or not whole._source.table._fetches)
    for held in whole._source.checked(own=True)[1:]:
        whole._source.table.remove_if_idle(held.entry.view)
        assert not Path(held.entry.folder).exists()
    assert verified.due(entry, whole._fetched.held) == []


def test_a_link_that_was_not_recorded_costs_a_check(node: NodeUnderTest, tmp_path: Path) -> None:
    weights = node.start()
    weights._check.sweep()
    (tmp_path / "link").hardlink_to(Path(weights.folder, FILE))  # as if we had been killed right after it
    verified = Verified(str(node.root), node.artifact, SECRET)
    assert [file.path for file in verified.due(weights._fetched.entry, weights._fetched.held)] == [FILE]
    weights._check.sweep()
    assert verified.due(weights._fetched.entry, weights._fetched.held) == []
    assert list(node.notes.glob("fleetctl-wrong-*")) == []
