"""A clone of a watch that is damaged is made again, and nothing that it remembered is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from git_branch import FLEET, Upstream, branch

from fleetctl.errors import RevisionError
from fleetctl.watch.source import Branch


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


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
