"""A diff as text: differing items of lists, shared differences shown once, and safe for a terminal."""

from __future__ import annotations

import io
from difflib import SequenceMatcher
from typing import Any

import pytest
from rich.console import Console

from fleetctl.documents.difference import Difference, FleetDiff, FleetSize, Revision
from fleetctl.documents.position import Position
from fleetctl.render.report.of_diff import diff_report, revision_text, value_text, values_of
from fleetctl.render.report.terminal import print_report


def difference(model: str | None = "org/a", **more: Any) -> Difference:
    place = Position(file="f.yaml", line=3, column=5)
    values = {"path": "priority", "kind": "changed", "effect": "none", "old": 1, "new": 2, "message": "it says so",
              "old_source": place, "new_source": place}
    return Difference.model_validate({"model": model, **values, **more})


def diff(*differences: Difference) -> FleetDiff:
    return FleetDiff(
        fleet="lab", base=Revision(name="main", commit="0123456789abcdef"), head=Revision(name="the working tree"),
        before=FleetSize(models=1, replicas=2, gpus=5_000), after=FleetSize(models=1, replicas=2, gpus=20_000),
        summary={"none": len(differences)}, differences=list(differences), exit_code=2 if differences else 0)


def printed(found: FleetDiff, width: int = 120) -> str:
    out = io.StringIO()
    print_report(diff_report(found), Console(file=out, width=width))
    return out.getvalue()


def test_without_differences_the_diff_is_one_sentence() -> None:
    assert printed(diff()).splitlines() == [
        "Fleet lab, from main (0123456789) to the working tree",
        "Wanted: 1 model, 2 replicas, 0.5 -> 2 GPUs", "", "Diff: no difference in meaning"]


@pytest.mark.parametrize(("old", "new", "expected"), [
    (["--a", "1", "--b"], ["--a", "2", "--b"], ("--a 1 …", "--a 2 …")),
    (["x", "--a", "1"], ["x", "--a", "2"], ("… --a 1", "… --a 2")),
    (["a"], ["a", "b"], ("not set", "… b")),
    ([], ["a"], ("not set", "a")),
    (["a b"], ["a", "b"], ('"a b"', "a b")),
    (["x"] * 200, ["y"] * 200, None),
])
def test_two_lists_show_their_differing_items_with_the_flag(
    old: list[str], new: list[str], expected: tuple[str, str] | None
) -> None:
    found = values_of(difference(old=old, new=new))
    if expected is None:
        assert all(len(text) == 120 and text.endswith("…") for text in found)
    else:
        assert found == expected


@pytest.fixture
def matched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the lists compared item by item, which takes quadratic time."""
    lengths: list[int] = []

    def matcher(a: list[str], b: list[str], autojunk: bool) -> SequenceMatcher[str]:
        lengths.extend((len(a), len(b)))
        return SequenceMatcher(a=a[:500], b=b[:500], autojunk=autojunk)

    monkeypatch.setattr("fleetctl.render.report.of_diff.SequenceMatcher", matcher)
    return lengths


def test_long_lists_are_compared_only_between_their_equal_ends(matched: list[int]) -> None:
    many = [f"x{number}" for number in range(20_000)]
    old, new = [*many, "--a", "1", "--b", "2", *many], [*many, "--a", "3", "--b", "4", *many]
    assert values_of(difference(old=old, new=new)) == ("… --a 1 --b 2 …", "… --a 3 --b 4 …")
    assert values_of(difference(old=many, new=[*many, "y"])) == ("not set", "… y")
    assert values_of(difference(old=["y", "y"], new=["y"])) == ("… y", "not set")
    assert max(matched) == 3


def test_long_lists_with_little_in_common_are_shown_from_the_first_difference(matched: list[int]) -> None:
    old, new = ([f"{name}{number}" for number in range(20_000)] for name in "xy")
    left, right = values_of(difference(old=["--a", *old, "end"], new=["--a", *new, "end"]))
    assert left.startswith("--a x0 x1 x2 ")
    assert right.startswith("--a y0 y1 y2 ")
    assert [len(left), len(right)] == [120, 120]
    assert values_of(difference(old=["a", *old], new=["b"]))[1] == "b"
    assert matched == []


def test_two_masked_values_do_not_look_equal() -> None:
    assert values_of(difference(old="***", new="***")) == ("***", "*** (a different value)")
    assert values_of(difference(old=None, new="***")) == ("not set", "***")


@pytest.mark.parametrize(("value", "text"), [
    (None, "not set"), ("", '""'), ("16Gi", "16Gi"), (0.5, "0.5"), (True, "true"), ({"a": [1]}, '{"a": [1]}'),
    ("two\nlines", '"two\\nlines"'), (["a", "b c", ""], 'a "b c" ""'),
])
def test_values_are_shown_as_in_a_fleet_file(value: object, text: str) -> None:
    assert value_text(value) == text


def test_a_revision_shows_its_commit_once() -> None:
    assert revision_text(Revision(name="main", commit="0123456789abcdef")) == "main (0123456789)"
    assert revision_text(Revision(name="0123456", commit="0123456789abcdef")) == "0123456"
    assert revision_text(Revision(name="new.yaml")) == "new.yaml"
    parted = Revision(name="origin/main...HEAD", commit="0123456789abcdef")
    assert revision_text(parted) == "the merge base of origin/main and HEAD (0123456789)"
    forge, base = "ab" * 20, "cd" * 20
    assert revision_text(Revision(name=f"{forge}...HEAD", commit=base)) == (
        "the merge base of ababababab and HEAD (cdcdcdcdcd)"), "the base of a GitLab merge request"
    assert revision_text(Revision(name=forge, commit=forge)) == "ababababab"


def test_the_effect_of_one_line_on_many_models_is_shown_once() -> None:
    models = [f"org/{number}" for number in range(5)]
    own = difference("org/2", path="replicas", old=1, new=3, new_source=Position(file="f.yaml", line=9, column=1))
    text = printed(diff(difference(None, path="nodes[0].cordon"), *map(difference, models), own))
    assert text.count("priority: 1 -> 2") == 1
    assert "~ 5 models: org/0, org/1, org/2 and 2 more" in text
    assert text.index("~ the fleet as a whole") < text.index("~ 5 models") < text.index("~ org/2\n")
    assert "Diff: 7 differences" in text


def test_the_same_change_at_two_lines_is_shown_twice() -> None:
    other_place = Position(file="f.yaml", line=9, column=5)
    text = printed(diff(difference("a"), difference("b", new_source=other_place)))
    assert text.count("priority: 1 -> 2") == 2


def test_a_shared_effect_is_shown_once_below_its_differences() -> None:
    text = printed(diff(difference(path="restart.max"), difference(path="restart.backoff")))
    assert text.count("it says so") == 1


def test_a_removed_value_shows_its_old_place() -> None:
    removed = difference(path="", kind="removed", effect="held", old="2 replicas", new=None, new_source=None)
    text = printed(diff(removed))
    assert "- org/a\n  held       2 replicas  (was f.yaml:3:5)" in text


def test_long_lines_stay_in_their_column() -> None:
    for line in printed(diff(difference(old="x" * 100, new="y" * 100)), width=60).splitlines():
        assert len(line) <= 60


def test_no_text_can_control_the_terminal_in_a_diff() -> None:
    evil = "\x1b[2J\u202e\r\n[red]"
    place = Position(file=evil, line=1, column=1)
    found = diff(difference(evil, path=evil, old=evil, new=[evil], message=evil, new_source=place))
    found = found.model_copy(update={"fleet": evil, "base": Revision(name=evil)})
    text = printed(found)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\r" not in text
    assert "[red]" in text
