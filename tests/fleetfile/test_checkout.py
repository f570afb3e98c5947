"""Bases must be in the checkout of the file that names them; a run reveals nothing outside it, not even existence."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.fleetfile.file_tree import DISK
from fleetctl.fleetfile.load import inspect_fleet, load_fleet

from .fleets import fleet

OVERLAY = "apiVersion: fleetctl/v1\nkind: Fleet\nextends: {base}\nmetadata: {{name: lab}}\nspec: {{}}\n"


def overlay(file: Path, base: str) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(OVERLAY.format(base=base))
    return str(file)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    (tmp_path / "secret.yaml").write_text(fleet())
    return tmp_path / "repository"


def refusal(given: str) -> str:
    [problem] = inspect_fleet([given]).problems
    assert problem.code == "FL018"
    assert problem.suggestion is None
    return problem.message


def test_a_base_anywhere_in_the_repository_is_read(repository: Path) -> None:
    (repository / "base.yaml").write_text(fleet())
    given = overlay(repository / "fleets" / "envs" / "prod" / "fleet.yaml", "../../../base.yaml")
    assert load_fleet([given]).name == "lab"


@pytest.mark.parametrize("name", ["secret.yaml", "secrets.yaml", "", "nowhere/at-all.yaml"])
def test_a_refusal_reveals_nothing_outside_the_repository(repository: Path, name: str) -> None:
    given = overlay(repository / "fleets" / "fleet.yaml", f"../../{name}")
    assert refusal(given) == f'"../../{name}" leads outside the checkout'


@pytest.mark.parametrize("target", ["../../secret.yaml", "../../gone.yaml"])
def test_a_link_out_of_the_repository_is_not_followed(repository: Path, target: str) -> None:
    given = overlay(repository / "fleets" / "fleet.yaml", "base.yaml")
    (repository / "fleets" / "base.yaml").symlink_to(target)
    assert refusal(given) == '"base.yaml" leads outside the checkout'


def test_the_git_folder_is_not_part_of_the_checkout(repository: Path) -> None:
    (repository / ".git" / "config").write_text("token = hunter5\n")
    given = overlay(repository / "fleet.yaml", ".git/config")
    assert refusal(given) == '".git/config" leads outside the checkout'


def test_a_base_in_the_checkout_cannot_extend_a_file_outside_it(repository: Path) -> None:
    overlay(repository / "base.yaml", "../secret.yaml")
    assert refusal(overlay(repository / "fleet.yaml", "base.yaml")) == '"../secret.yaml" leads outside the checkout'


def test_without_a_repository_a_sibling_folder_is_allowed(tmp_path: Path) -> None:
    for folder in ("base", "far/base"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "models.yaml").write_text(fleet())
    assert load_fleet([overlay(tmp_path / "prod" / "fleet.yaml", "../base/models.yaml")]).name == "lab"
    given = overlay(tmp_path / "far" / "envs" / "fleet.yaml", "../../base/models.yaml")
    assert refusal(given) == '"../../base/models.yaml" leads outside the checkout'


def test_a_folder_right_below_the_root_does_not_open_the_whole_disk() -> None:
    assert DISK.in_checkout("/a-folder/of/mine.yaml", "/a-folder/fleet.yaml")
    assert not DISK.in_checkout("/etc/hostname", "/a-folder/fleet.yaml")


def test_a_cycle_of_links_is_reported_as_a_missing_file(repository: Path) -> None:
    (repository / "base.yaml").symlink_to("base.yaml")
    given = overlay(repository / "fleet.yaml", "base.yaml")
    assert refusal(given).startswith("no such file: ")


def out_of(*given: str | Path) -> list[tuple[str, str]]:
    """The files that are refused because they lead out of the checkout, and where their links lead."""
    found = inspect_fleet([str(one) for one in given]).problems
    assert all(problem.code == "FL001" and "a file of the same git repository" in (problem.allowed or "")
               for problem in found)
    return [(problem.file, problem.message) for problem in found]


def test_a_link_in_a_folder_must_stay_in_the_checkout(repository: Path) -> None:
    folder = repository / "fleets"
    folder.mkdir()
    (folder / "own.yaml").write_text(fleet())
    (folder / "link.yaml").symlink_to("../../secret.yaml")
    message = "this is a link to ../../secret.yaml, which leads outside the checkout"
    assert out_of(folder) == [(str(folder / "link.yaml"), message)]


@pytest.mark.parametrize("target", ["../.git/config", "/etc/hostname", "../../gone.yaml"])
def test_a_named_link_in_a_repository_must_stay_in_it(repository: Path, target: str) -> None:
    (repository / ".git" / "config").write_text("token: hunter5\n")
    (repository / "fleets").mkdir()
    link = repository / "fleets" / "prod.yaml"
    link.symlink_to(target)
    assert out_of(link) == [(str(link), f"this is a link to {target}, which leads outside the checkout")]


def test_a_named_link_to_a_folder_must_stay_in_the_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.yaml").write_text(fleet())
    (repository / "fleets").symlink_to("../outside")
    monkeypatch.chdir(repository)
    assert out_of("fleets") == [("fleets", "this is a link to ../outside, which leads outside the checkout")]
    assert out_of("fleets/secret.yaml") == [
        ("fleets/secret.yaml", "this is below fleets, a link to ../outside, which leads outside the checkout")]


@pytest.mark.parametrize("named", ["mine", "mine/secret.yaml", "hop", "deep/secret.yaml"])
def test_a_link_of_the_user_to_one_in_a_repository_does_not_lead_further(
    repository: Path, tmp_path: Path, named: str
) -> None:
    (tmp_path / "outside/sub").mkdir(parents=True)
    for folder in ("outside", "outside/sub"):
        (tmp_path / folder / "secret.yaml").write_text(fleet())
    (repository / "fleets").symlink_to("../outside")
    (tmp_path / "mine").symlink_to("repository/fleets")
    (tmp_path / "hop").symlink_to("mine")
    (tmp_path / "deep").symlink_to(repository / "fleets/sub")
    [(_, message)] = out_of(tmp_path / named)
    assert message == f"this is below {repository}/fleets, a link to ../outside, which leads outside the checkout"


def test_links_that_stay_in_the_checkout_are_followed(repository: Path) -> None:
    for folder in ("common", "fleets"):
        (repository / folder).mkdir()
    (repository / "common" / "lab.yaml").write_text(fleet())
    (repository / "fleets" / "lab.yaml").symlink_to("../common/lab.yaml")
    (repository / "also").symlink_to("fleets")
    for given in ("fleets", "fleets/lab.yaml", "also", "also/lab.yaml"):
        assert load_fleet([str(repository / given)]).name == "lab"


def test_without_a_repository_a_named_link_is_followed_and_a_link_in_a_folder_is_not(tmp_path: Path) -> None:
    for folder in ("far/away", "here/fleets"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "far" / "away" / "lab.yaml").write_text(fleet())
    link = tmp_path / "here" / "fleets" / "lab.yaml"
    link.symlink_to("../../far/away/lab.yaml")
    assert load_fleet([str(link)]).name == "lab"
    assert [file for file, _ in out_of(link.parent)] == [str(link)]


def test_a_link_from_outside_into_a_repository_is_followed(repository: Path, tmp_path: Path) -> None:
    (repository / "fleet.yaml").write_text(fleet())
    (tmp_path / "shortcut").symlink_to("repository")
    assert load_fleet([str(tmp_path / "shortcut" / "fleet.yaml")]).name == "lab"
