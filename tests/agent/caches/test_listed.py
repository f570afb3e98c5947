"""`prune` lists compile caches, and removes those that no running member has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from caches_world import Fleet

from fleetctl.agent import leftovers
from fleetctl.agent.caches import folder
from fleetctl.agent.caches.snapshot import CacheError
from fleetctl.agent.leftovers import list_here, remove_here
from fleetctl.agent.wire import document_of
from fleetctl.documents.answers import CachedArtifact, NodeCache, Pruned
from fleetctl.render.report.of_weights import pruned_report


def test_caches_of_running_members_stay_and_others_go(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "path_prefix", lambda artifact, prefix: f"{tmp_path}/{prefix}{artifact}")
    first = fleet.start(0, "a").watch()
    first.compile()
    offer = first.offered()
    rows = list_here([]).artifacts
    assert [(row.cache, row.used) for row in rows] == [("m, fleet lab", True)] * 2
    assert [row.removed for row in remove_here([row.artifact for row in rows]).artifacts] == [False, False]
    assert first.files()
    first.end()
    rows = list_here([]).artifacts
    assert offer.artifact in {row.artifact for row in rows}
    assert [row.used for row in rows] == [False, False]
    assert [row.removed for row in remove_here([offer.artifact]).artifacts] == [True]
    assert [row.removed for row in remove_here([row.artifact for row in rows]).artifacts] == [True]
    assert list_here([]).artifacts == []
    documents = [CachedArtifact.model_validate(document_of(row._replace(removed=True))) for row in rows]
    shown = pruned_report(Pruned(nodes=[NodeCache(node_id="a", node="a", artifacts=documents)]))
    assert "compile cache of m, fleet lab" in str(shown.tables[0].rows)
    assert fleet.start(0, "a").files() == {}


def test_nothing_else_below_the_folder_is_listed_or_removed(tmp_path: Path) -> None:
    caches = tmp_path / "root" / "caches"
    (caches / "notes").mkdir(parents=True)
    (caches / "notes" / "mine.txt").write_text("mine")
    other = tmp_path / "other" / "0" / "files"
    other.mkdir(parents=True)
    (other / "mine.txt").write_text("mine")
    (caches / ("a" * 16)).symlink_to(tmp_path / "other")
    (caches / ("b" * 16)).mkdir()
    (caches / ("b" * 16) / "0").symlink_to(tmp_path / "other" / "0")
    assert list(folder.listed(str(tmp_path / "root"))) == []
    assert list(folder.remove(str(tmp_path / "root"), [folder.id_of(f"x/{'b' * 16}/0")])) == []
    assert (other / "mine.txt").exists()


@pytest.mark.parametrize("what", ["link", "folder"])
def test_a_lock_that_is_none_hides_no_other_cache_and_takes_no_folder_from_a_start(tmp_path: Path, what: str) -> None:
    odd, fine = (tmp_path / "caches" / (letter * 16) / "0" for letter in "ab")
    for path in (odd, fine):
        (path / "files" / "A").mkdir(parents=True)
        (path / "files" / "A" / "code.so").write_text("code")
    if what == "link":
        (odd / "lock").symlink_to("/etc/passwd")
    else:
        (odd / "lock").mkdir()
    os.mkfifo(odd / "key.json")
    os.mkfifo(odd / "snapshot.json")
    rows = {row.artifact: row for row in folder.listed(str(tmp_path))}
    assert {(row.used, bool(row.trouble)) for row in rows.values()} == {(True, True), (False, False)}
    documents = [CachedArtifact.model_validate(document_of(row)) for row in rows.values()]
    shown = pruned_report(Pruned(dry_run=True, nodes=[NodeCache(node_id="a", node="a", artifacts=documents)]))
    assert {str(row[-1]).partition(":")[0] for row in shown.tables[0].rows} == {"kept", "would be removed"}
    removed = {row.artifact: row for row in folder.remove(str(tmp_path), list(rows))}
    assert (removed[folder.id_of(str(odd))].removed, removed[folder.id_of(str(fine))].removed) == (False, True)
    assert removed[folder.id_of(str(odd))].trouble
    taken = folder.take_folder(str(tmp_path), odd.parent.name, linger_s=0)
    assert taken.path == str(odd.parent / "1")
    taken.release()


def test_where_no_folder_can_be_made_the_reason_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "caches" / ("a" * 16)).mkdir(parents=True)
    for number in range(folder.MOST_ODD):
        (tmp_path / "caches" / ("a" * 16) / str(number)).write_text("no folder")
    with pytest.raises(CacheError, match="there is no folder for it below"):
        folder.take_folder(str(tmp_path), "a" * 16, linger_s=0)
