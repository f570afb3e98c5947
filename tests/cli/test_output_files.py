"""A file is written completely or not at all, with the given mode or that of the file it replaces."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from fleetctl.errors import FleetctlError
from fleetctl.workflow.output_files import check_out, write_file


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_has_the_mode_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "new"
    write_file(path, "größe\n", mode=0o600)
    assert (path.read_bytes(), mode_of(path)) == ("größe\n".encode(), 0o600)


def test_with_a_mode_a_link_is_replaced_and_its_target_stays(tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "link"
    other.write_text("theirs")
    link.symlink_to(other)
    write_file(link, "ours", mode=0o600)
    assert (other.read_text(), link.read_text(), link.is_symlink()) == ("theirs", "ours", False)


def test_a_link_loop_is_an_error_or_is_replaced(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)
    check_out(link, ["-", str(tmp_path)])
    with pytest.raises(FleetctlError, match="not a regular file"):
        write_file(link, "ours", mode=None)
    write_file(link, "ours", mode=0o600)
    assert link.read_text() == "ours"


def test_without_a_mode_a_link_and_its_permissions_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("before")
    real.chmod(0o640)
    link.symlink_to(real)
    write_file(link, "after", mode=None)
    assert (real.read_text(), mode_of(real), link.is_symlink()) == ("after", 0o640, True)


@pytest.mark.parametrize(("name", "mode"), [(".", 0o600), (".", None), ("missing", None), ("no/folder/file", 0o600)])
def test_a_failed_write_is_an_error_and_leaves_no_file(tmp_path: Path, name: str, mode: int | None) -> None:
    with pytest.raises(FleetctlError, match="cannot write"):
        write_file(tmp_path / name, "x", mode=mode)
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_not_replaced() -> None:
    with pytest.raises(FleetctlError, match="not a regular file"):
        write_file(Path("/dev/null"), "x", mode=0o600)


def test_text_that_cannot_be_encoded_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        write_file(path, "\ud800", mode=None)
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("file", "before")]
