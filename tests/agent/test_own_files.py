"""Files in a folder of others are opened only if they are ours; what else has their names is moved aside, untouched."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.agent import model_files, own_files
from fleetctl.agent.engine import EngineLog
from fleetctl.agent.own_files import open_own, replace_own
from fleetctl.agent.supervisor import Output
from fleetctl.agent.weights.check import CheckResult
from fleetctl.agent.weights.store import Entry, Wrong

VICTIM = "export PATH\n"
Put = Callable[[Path, Path, pytest.MonkeyPatch], None]


def socket_at(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def of_another_user(path: Path, patch: pytest.MonkeyPatch) -> None:
    path.write_text("theirs\n")
    path.chmod(0o666)
    theirs, geteuid, fstat, lstat = path.stat().st_ino, os.geteuid(), os.fstat, os.lstat

    def owned(status: os.stat_result) -> os.stat_result:
        return os.stat_result((*status[:4], geteuid + (status.st_ino == theirs), *status[5:]))

    patch.setattr(own_files.os, "fstat", lambda fd: owned(fstat(fd)))
    patch.setattr(own_files.os, "lstat", lambda name: owned(lstat(name)))


PUT: dict[str, Put] = {
    "a link to a file": lambda path, victim, _: path.symlink_to(victim),
    "a link to nothing": lambda path, victim, _: path.symlink_to(victim.with_name("made")),
    "a hard link": lambda path, victim, _: path.hardlink_to(victim),
    "a pipe": lambda path, victim, _: os.mkfifo(path),
    "a folder": lambda path, victim, _: path.mkdir(),
    "a socket": lambda path, victim, _: socket_at(path),
    "a file of another user": lambda path, victim, patch: of_another_user(path, patch),
}


@pytest.fixture(params=PUT)
def taken(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a log whose name something else has."""
    (tmp_path / "home").mkdir()
    victim, path = tmp_path / "home" / "rc", tmp_path / "logs" / "e.log"
    path.parent.mkdir()
    victim.write_text(VICTIM)
    PUT[request.param](path, victim, monkeypatch)
    return path


def test_an_engines_log_is_never_written_to_what_is_not_ours(taken: Path) -> None:
    before = os.lstat(taken)
    reader, writer = os.pipe()
    os.write(writer, b"secret\n")
    EngineLog(str(taken)).say("hello")
    Output(reader, str(taken)).drain()
    os.close(reader)
    os.close(writer)
    status = taken.lstat()
    assert stat.S_ISREG(status.st_mode)
    assert (status.st_nlink, stat.S_IMODE(status.st_mode)) == (1, 0o640)
    assert (taken.parents[1] / "home" / "rc").read_text() == VICTIM
    assert [path.name for path in (taken.parents[1] / "home").iterdir()] == ["rc"]
    [aside] = [path for path in taken.parent.iterdir() if path != taken]
    assert (aside.lstat().st_ino, aside.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert not stat.S_ISREG(before.st_mode) or "secret" not in aside.read_text()
    text = taken.read_text()
    assert text.count(aside.name) == 1, "the log says where it is"
    assert "hello" in text
    assert "secret" in text
    assert "secret" in EngineLog(str(taken)).last_output()


def test_what_is_not_ours_is_not_read_either(taken: Path) -> None:
    assert EngineLog(str(taken)).last_output() == ""
    with pytest.raises(OSError):  # noqa: PT011 - ELOOP, EPERM, EISDIR: whatever it is
        open_own(str(taken), os.O_RDONLY)


def test_a_note_replaces_what_has_its_name(taken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "path_prefix", lambda *_: str(taken.with_suffix("")))
    taken.rename(taken.with_suffix(".json"))
    wrong = Wrong("model.bin", 5, "it has another size", "")
    model_files.note_wrong(CheckResult("wrong", Entry("/root", "a", None), wrong))
    assert '"piece": 5' in taken.with_suffix(".json").read_text()
    assert (taken.parents[1] / "home" / "rc").read_text() == VICTIM


def test_the_temporary_file_of_a_note_has_a_name_that_nobody_can_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, replace = list[str](), os.replace

    def noted(new: str, path: str) -> None:
        seen.append(new)
        replace(new, path)

    monkeypatch.setattr(own_files.os, "replace", noted)
    for _ in range(2):
        replace_own(str(tmp_path / "note"), b"x")
    assert len(set(seen)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_a_file_of_ours_is_continued_and_not_moved(tmp_path: Path) -> None:
    path = str(tmp_path / "e.log")
    for _ in range(2):
        EngineLog(path).say("hello")
    assert Path(path).read_text().count("hello") == 2
    assert [one.name for one in tmp_path.iterdir()] == ["e.log"]


def test_somebody_who_keeps_putting_links_there_costs_output_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, path, rename = tmp_path / "rc", tmp_path / "e.log", os.rename
    victim.write_text(VICTIM)
    path.symlink_to(victim)

    def again(old: str, new: str) -> None:
        rename(old, new)
        path.symlink_to(victim)

    monkeypatch.setattr(own_files.os, "rename", again)
    EngineLog(str(path)).say("hello")
    with pytest.raises(PermissionError):
        open_own(str(path), os.O_RDWR | os.O_CREAT)
    assert victim.read_text() == VICTIM


def test_an_unreadable_file_of_ours_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened = tmp_path / "e.log", os.open
    path.write_text("x")

    def full(name: str, *how: int) -> int:
        raise OSError(24, "Too many open files", name)

    monkeypatch.setattr(own_files.os, "open", full)
    with pytest.raises(OSError, match="Too many"):
        open_own(str(path), os.O_RDWR | os.O_CREAT)
    monkeypatch.setattr(own_files.os, "open", opened)
    assert [one.name for one in tmp_path.iterdir()] == ["e.log"]
