"""A model on an origin, with small pieces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from changed_node import NodeUnderTest
from small_pieces import PIECE, SECRET
from weights_world import model

from fleetctl.agent import model_files
from fleetctl.agent.weights import check, fetch, gather, index, store


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (index, gather, store, fetch, check):
        monkeypatch.setattr(module, "PIECE", PIECE)
    monkeypatch.setattr(store, "HEADROOM", 0)
    monkeypatch.setattr(fetch, "BUSY_S", 0.02)


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """The folder of an origin with a model."""
    model(tmp_path / "origin")
    return tmp_path / "origin"


@pytest.fixture
def artifact(origin: Path) -> str:
    """The id of the origin's artifact."""
    return index.name_of((origin / index.NAME).read_bytes())


@pytest.fixture
def node(tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeUnderTest]:
    """A node with a cache and a folder for notes."""
    found = NodeUnderTest(tmp_path, origin, artifact)
    monkeypatch.setenv("FLEETCTL_CACHE_DIR", str(found.root))
    monkeypatch.setattr(model_files, "session_secret", lambda: SECRET)
    monkeypatch.setattr(model_files, "path_prefix",
                        lambda artifact, prefix=model_files.NOTE: f"{found.notes}/{prefix}n-{artifact}")
    monkeypatch.setattr(check, "AT_ONCE", 0)
    yield found
    for weights in found.started:
        weights.release()
        if weights._server is not None:
            weights._server.close()
