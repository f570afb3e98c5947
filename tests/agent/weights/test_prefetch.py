"""`prefetch` on a node: it fetches as a starting member does, so that a later member finds everything on disk."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_pieces import SECRET
from weights_world import SHARD, fetch, files_in, model, serving

from fleetctl.agent import cold, prefetch, prune
from fleetctl.agent.messages import PrefetchMember
from fleetctl.agent.prefetch import Order, fetch_here
from fleetctl.agent.wire import parse
from fleetctl.inventory.cold import _FILE_NAME, NOTE

NONE: dict[str, str] = {"FLEETCTL_RANK": "0", "FLEETCTL_GROUP_SIZE": "4", "FLEETCTL_MODEL": "m"}


def wanted(artifact: str, origin: str | Path, *sources: dict[str, Any], **more: Any) -> PrefetchMember:
    """A member of a request; a variable of its engine holds the origin's folder."""
    return parse(PrefetchMember, {
        "weights": {"artifact": artifact, "from": [{"path": "$(MODELS)"}], "sources": list(sources), **more},
        "engine": {"command": [], "env": {"MODELS": str(origin)}}, "variables": NONE})


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_CACHE_DIR", str(tmp_path / "here"))
    monkeypatch.setattr(prefetch, "session_secret", lambda: SECRET)
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(cold, "log_path", lambda name: str(tmp_path / "logs" / name))
    monkeypatch.setattr(cold.ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "n1"))


def notes(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "logs").iterdir())


def test_complete_weights_have_a_note_until_they_are_removed(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_here(Order([wanted("f" * 64, origin)], 60))
    assert notes(tmp_path) == []
    fetch_here(Order([wanted(artifact, origin, view=SHARD)], 60))
    found = [_FILE_NAME.fullmatch(name.removeprefix(f"{NOTE}n1")) for name in notes(tmp_path)]
    events = [json.loads((tmp_path / "logs" / name).read_text()) for name in notes(tmp_path)]
    # the origin has no separate parts, so the whole model is on this node
    assert [(one[1], one[2]) for one in found if one] == [(one["artifact"], one["view"]) for one in events]
    assert {one["view"] is None for one in events} == {True, False}
    before = notes(tmp_path)
    for removed, left in ((False, before), (True, [])):
        monkeypatch.setattr(prune, "remove", lambda *_, removed=removed: removed)
        prune.remove_here([artifact])
        assert notes(tmp_path) == left


def test_a_node_fetches_from_a_replica_and_a_member_there_fetches_nothing(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    there = fetch(tmp_path / "there", artifact, origins=[{"path": str(origin)}])
    with serving(tmp_path / "there", there) as (_, source):
        [row] = fetch_here(Order([wanted(artifact, tmp_path / "gone", source)], 60))
    got = row.fetched
    assert got is not None
    assert (got.source, got.from_.split()[0], got.bytes) == ("peer", source["replica"], there.size)
    for view in (None, SHARD):
        member = fetch(tmp_path / "here", artifact, view=view, rank=3)
        assert (member.source, member.size) == ("disk", 0)
    [again] = fetch_here(Order([wanted(artifact, tmp_path / "gone")], 60))
    assert again.fetched is not None
    assert (again.fetched.source, again.fetched.bytes) == ("disk", 0)


def test_each_artifact_has_its_own_result(tmp_path: Path, origin: Path, artifact: str) -> None:
    other = model(tmp_path / "other", seed=1)
    members = [wanted(other, origin), wanted(artifact, origin), wanted(other, tmp_path / "other")]
    rows = fetch_here(Order(members, 60))
    assert [row.artifact for row in rows] == [other, artifact, other]
    trouble = rows[0].trouble or ""
    assert "has another hash" in trouble or "no source has the index" in trouble
    assert [row.fetched.source for row in rows[1:3] if row.fetched] == ["origin", "origin"]
    assert files_in(tmp_path / "here" / artifact / "files") == files_in(origin)


def test_weights_that_are_not_there_in_time_are_reported(artifact: str, origin: Path) -> None:
    [row] = fetch_here(Order([wanted(artifact, origin)], 0))
    assert "in time" in (row.trouble or "")
