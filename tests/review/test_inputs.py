"""Reading both sides: missing files are an empty fleet, and the problems of both sides are reported at once."""

from __future__ import annotations

import pytest
from fleet_texts import fleet
from git_folder import GitFolder

from fleetctl.errors import FleetFileError, UsageError
from fleetctl.review.compare import compare
from fleetctl.review.inputs import Side, files_of_sides, load_base, read_sides


def sides(repository: GitFolder, *files: str, base: str | None = None, head: str | None = None) -> tuple[Side, Side]:
    return read_sides(*files_of_sides(base, head, files, repository.environ), bytes)


def targets(repository: GitFolder, *files: str) -> list[int | None]:
    """The replicas of the only model on both sides; None = the side has no fleet."""
    return [side.fleet.models[0].replicas if side.fleet else None for side in sides(repository, *files)]


def test_new_or_deleted_files_are_an_empty_fleet_on_the_other_side(repository: GitFolder) -> None:
    (repository.folder / "new.yaml").write_text(fleet("org/new", replicas=2))
    assert targets(repository, "new.yaml") == [None, 2]
    (repository.folder / "fleets/prod.yaml").unlink()
    assert targets(repository, "fleets/prod.yaml") == [3, None]
    assert targets(repository, "fleets") == [3, None]


def test_a_folder_that_held_no_fleet_file_is_an_empty_fleet(repository: GitFolder) -> None:
    repository.commit({"more/README.md": "soon", "more/.hidden.yaml": "x"})
    (repository.folder / "more/fleet.yaml").write_text(fleet("org/new"))
    assert targets(repository, "more") == [None, 1]
    [came] = compare(*sides(repository, "more")).differences
    assert (came.model, came.kind) == ("org/new", "added")


def test_a_moved_file_is_named_on_both_sides(repository: GitFolder) -> None:
    repository.git("mv", "fleets/prod.yaml", "production.yaml")
    assert compare(*sides(repository, "fleets/prod.yaml", "production.yaml")).differences == []


def test_a_new_file_beside_an_unchanged_one_adds_only_its_model(repository: GitFolder) -> None:
    (repository.folder / "fleets/more.yaml").write_text(fleet("org/b", replicas=2))
    for files in (("fleets",), ("fleets/prod.yaml", "fleets/more.yaml")):
        [came] = compare(*sides(repository, *files)).differences
        assert (came.model, came.effect) == ("org/b", "additive")


def test_all_problems_of_both_sides_are_reported_with_their_revision(repository: GitFolder) -> None:
    repository.commit({"fleets/prod.yaml": fleet("org/a").replace("replicas: 1", "replicas: -1")})
    (repository.folder / "fleets/prod.yaml").write_text("kind: [")
    with pytest.raises(FleetFileError) as caught:
        sides(repository, "fleets")
    assert [problem.file for problem in caught.value.problems] == ["HEAD:fleets/prod.yaml", "fleets/prod.yaml"]


def test_warnings_do_not_prevent_a_comparison(repository: GitFolder) -> None:
    warned = fleet("org/a", replicas=2).replace('"--port"', '"$FLEETCTL_PORT"')
    (repository.folder / "fleets/prod.yaml").write_text(warned)
    assert targets(repository, "fleets") == [3, 2]


def test_standard_input_is_read_only_once(repository: GitFolder) -> None:
    with pytest.raises(UsageError, match="can be read only once"):
        sides(repository, base="-", head="-")


def test_the_base_of_a_plan_is_a_revision_or_a_merge_base(repository: GitFolder) -> None:
    repository.git("checkout", "--quiet", "-b", "side")
    repository.commit({"fleets/prod.yaml": fleet("org/a", replicas=7)})
    repository.git("checkout", "--quiet", "main")
    repository.commit({"fleets/prod.yaml": fleet("org/a", replicas=4)})
    repository.git("checkout", "--quiet", "side")
    for name, replicas in {"main": 4, "main...": 3, "main...HEAD": 3, "side": 7}.items():
        base = load_base(("fleets",), name, repository.environ)
        assert base.fleet is not None
        assert base.fleet.models[0].replicas == replicas, name
        assert base.revision.commit is not None
    assert load_base(("new.yaml",), "main", repository.environ).fleet is None
    with pytest.raises(UsageError, match="standard input has no revisions"):
        load_base(("-",), "main", repository.environ)
