"""The artifacts in a node's cache; removal spares artifacts in use and everything outside the cache."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from other_node import Node
from weights_world import SHARD, files_in

from fleetctl.agent import leftovers
from fleetctl.agent.weights import store
from fleetctl.agent.weights.store import Entry, cached, remove
from fleetctl.agent.wire import document_of
from fleetctl.documents.answers import CachedArtifact, NodeCache, Pruned
from fleetctl.render.report.of_weights import pruned_report

pytestmark = pytest.mark.slow


@contextmanager
def using(root: Path, artifact: str, origin: Path, view: dict | None = None) -> Iterator[None]:
    """A process of the node that has fetched the artifact and serves it."""
    node = Node(root, artifact, origins=[{"path": str(origin)}], view=view)
    try:
        node.read_report("serving")
        yield
        node.stop()
    finally:
        node.end()


@pytest.mark.parametrize("view", [None, SHARD])
def test_an_artifact_in_use_stays_until_its_process_has_ended(
    tmp_path: Path, origin: Path, artifact: str, view: dict | None
) -> None:
    root = tmp_path / "node"
    with using(root, artifact, origin, view):
        [found] = cached(str(root))
        before = files_in(root)
        assert (found.artifact, found.used, remove(str(root), artifact)) == (artifact, True, False)
        assert files_in(root) == before
    assert [one.used for one in cached(str(root))] == [False]
    assert remove(str(root), artifact)
    assert list(cached(str(root))) == []
    assert sum(path.stat().st_size for path in root.rglob("*.safetensors")) == 0
    with using(root, artifact, origin, view):  # it can be fetched again
        assert [one.used for one in cached(str(root))] == [True]


def test_an_artifact_whose_lock_cannot_be_opened_hides_no_other_one(tmp_path: Path) -> None:
    for letter in "ab":
        (tmp_path / (letter * 64) / "files").mkdir(parents=True)
        (tmp_path / (letter * 64) / "files" / "weights").write_text("x")
    (tmp_path / ("a" * 64) / "files.use").mkdir()
    rows = {row.artifact[0]: row for row in cached(str(tmp_path))}
    assert [(rows[letter].used, bool(rows[letter].trouble)) for letter in "ab"] == [(True, True), (False, False)]
    assert remove(str(tmp_path), "b" * 64)


def test_the_size_counts_each_file_once_and_unfinished_files(tmp_path: Path, origin: Path, artifact: str) -> None:
    root = tmp_path / "node"
    whole = sum(len(data) for data in files_in(origin).values())
    part = root / artifact / "files.part"
    part.mkdir(parents=True)
    (part / "half").write_bytes(b"x" * 1000)
    assert list(cached(str(root))) == [store.CachedArtifact(artifact, 1000, used=False)]
    assert remove(str(root), artifact)
    assert not part.exists()
    with using(root, artifact, origin), using(root, artifact, origin, {"files": "model-00001-*"}):
        assert [one.bytes for one in cached(str(root))] == [whole]  # the view links to the same files


def test_nothing_but_artifacts_of_this_folder_is_listed_or_removed(tmp_path: Path, artifact: str, origin: Path) -> None:
    root, other = tmp_path / "node", tmp_path / "other"
    with using(other, artifact, origin):
        pass
    root.mkdir()
    (root / "notes").mkdir()
    (root / "notes" / "mine.txt").write_text("mine")
    (root / ("a" * 64)).symlink_to(other / artifact)
    (root / ("b" * 64)).mkdir()
    (root / ("b" * 64) / "files").symlink_to(other / artifact / "files")
    (root / ("b" * 64) / "views").symlink_to(other / artifact)
    before = files_in(tmp_path)
    assert list(cached(str(root))) == []
    for name in ("a" * 64, "b" * 64):
        remove(str(root), name)
    after = files_in(tmp_path)
    assert {path: after.get(path) for path in before} == before
    assert list(cached(str(tmp_path / "nowhere"))) == []


def test_a_node_keeps_the_artifacts_to_keep_and_removes_only_named_artifacts(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "node"
    monkeypatch.setenv("FLEETCTL_CACHE_DIR", str(root))
    monkeypatch.setattr(leftovers, "path_prefix", lambda artifact, *_: f"{tmp_path}/note-{artifact}")
    note, of_another = tmp_path / f"note-{artifact}.json", tmp_path / f"note-{'a' * 64}.json"
    for path in (note, of_another):
        path.touch()
    with using(root, artifact, origin):
        pass
    assert leftovers.list_here([artifact]).artifacts == []
    [listed] = leftovers.list_here(["a" * 64]).artifacts
    assert (listed.artifact, listed.used, listed.bytes > 0) == (artifact, False, True)
    assert leftovers.remove_here(["a" * 64]).artifacts == []
    assert [row.removed for row in leftovers.remove_here([artifact]).artifacts] == [True]
    assert (root / artifact).exists()
    assert (note.exists(), of_another.exists()) == (False, True)
    assert leftovers.list_here([]).artifacts == []


def test_an_artifact_that_cannot_be_removed_is_reported_and_the_others_are_removed(
        tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_CACHE_DIR", str(tmp_path / "node"))
    with using(tmp_path / "node", artifact, origin):
        pass
    shutil.copytree(tmp_path / "node" / artifact, tmp_path / "node" / ("a" * 64))

    def wiped(entry: Entry, wipe: Callable[[Entry], None] = Entry.wipe) -> None:
        if entry.artifact == artifact:
            raise OSError(errno.EROFS, "Read-only file system")
        wipe(entry)

    monkeypatch.setattr(leftovers, "path_prefix", lambda *_: str(tmp_path / "no-note"))
    monkeypatch.setattr(Entry, "wipe", wiped)
    rows = {row.artifact: row for row in leftovers.remove_here([artifact, "a" * 64]).artifacts}
    assert (rows["a" * 64].removed, rows[artifact].removed) == (True, False)
    document = CachedArtifact.model_validate(document_of(rows[artifact]))
    report = pruned_report(Pruned(nodes=[NodeCache(node_id="n", node="n", artifacts=[document])]))
    assert (report.tables[0].rows[0][3], report.exit_code) == ("not removed: Read-only file system", 3)
