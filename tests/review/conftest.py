"""Fixtures: a real git repository with a fleet in it, and fleets from text."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet_texts import fleet
from git_folder import GitFolder

from fleetctl.documents.difference import Revision
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.review.inputs import Side


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment in which git reads no user settings."""
    identity = {f"GIT_{who}_{what}": "t@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "GIT_CONFIG_NOSYSTEM": "1", **identity}


@pytest.fixture
def empty(tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> GitFolder:
    """A repository without a commit, as the current folder."""
    folder = tmp_path / "repo"
    folder.mkdir()
    repository = GitFolder(folder, environ)
    repository.git("init", "--quiet", "--initial-branch", "main")
    monkeypatch.chdir(folder)
    return repository


@pytest.fixture
def repository(empty: GitFolder) -> GitFolder:
    """A repository with one commit on main: one fleet, of one model with three replicas."""
    empty.commit({"fleets/prod.yaml": fleet("org/a", replicas=3)})
    return empty


@pytest.fixture
def side(tmp_path: Path) -> Callable[..., Side]:
    """Load texts as the files of one side."""

    def load(*texts: str, name: str = "side") -> Side:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        files = []
        for number, text in enumerate(texts):
            path = folder / f"{number}.yaml"
            path.write_text(text)
            files.append(str(path))
        loaded = inspect_fleet(files)
        assert loaded.errors == (), loaded.errors
        return Side(Revision(name=name, files=files), loaded.fleet, loaded.documents)

    return load
