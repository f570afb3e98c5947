"""A fleet of members with caches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from caches_world import Fleet


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """The nodes of a test."""
    found = Fleet(tmp_path, monkeypatch)
    yield found
    found.end()
