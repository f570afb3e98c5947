"""A model on an origin, with small pieces."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_pieces import PIECE
from weights_world import model

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
