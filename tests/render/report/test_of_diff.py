"""A diff as a report: the document's totals, every difference, and shared differences once for people."""

from __future__ import annotations

from typing import Any

from fleetctl.documents.difference import Difference, FleetDiff, FleetSize, Revision
from fleetctl.documents.position import Position
from fleetctl.render.report.model import Report, Table
from fleetctl.render.report.of_diff import diff_report


def difference(model: str | None, line: int | None, **more: Any) -> Difference:
    place = Position(file="f.yaml", line=line, column=5) if line else None
    values = {"path": "priority", "kind": "changed", "effect": "none", "old": 1, "new": 2, "message": "it says so",
              "old_source": place, "new_source": place}
    return Difference.model_validate({"model": model, **values, **more})


def diff(*differences: Difference) -> FleetDiff:
    effects = [one.effect for one in differences]
    return FleetDiff(
        fleet="lab", base=Revision(name="main", commit="c" * 40, files=["f.yaml"]),
        head=Revision(name="HEAD", commit="d" * 40, files=["f.yaml", "g.yaml"]), before=FleetSize(), after=FleetSize(),
        summary={effect: effects.count(effect) for effect in ("additive", "none", "drift", "held")},
        differences=list(differences), exit_code=2 if differences else 0)


def on_pages(report: Report) -> list[Table]:
    return [table for table in report.tables if "page" in table.readers]


def test_totals_conclusion_and_exit_code_come_from_the_document() -> None:
    report = diff_report(diff(difference("a", 1), difference("b", 2, effect="held"), difference(None, 3)))
    assert {total.key: total.count for total in report.totals} == {"additive": 0, "none": 2, "drift": 0, "held": 1}
    assert report.conclusion.startswith("Diff: 3 differences: 0 additive, 2 no effect, 0 drift, 1 held")
    assert (report.kind, report.identity, report.exit_code, report.subjects) == ("diff", "diff:lab", 2, ("a", "b"))
    assert dict(report.facts)["files"] == "f.yaml, g.yaml"


def test_without_differences_there_is_no_table_and_no_finding() -> None:
    report = diff_report(diff())
    assert (report.tables, report.findings, report.exit_code) == ((), (), 0)


def test_drift_and_held_are_warnings_and_nothing_is_an_error() -> None:
    effects = ("additive", "none", "drift", "held")
    report = diff_report(diff(*(difference(effect, 1, effect=effect) for effect in effects)))
    assert {one.code: one.level for one in report.findings} == {
        "ADDITIVE": "notice", "NONE": "notice", "DRIFT": "warning", "HELD": "warning"}


def test_a_finding_points_at_the_new_file_or_has_no_position() -> None:
    gone = difference("a", 4, kind="removed", new=None, new_source=None)
    report = diff_report(diff(difference("b", 7), gone))
    assert [one.source.line if one.source else None for one in report.findings] == [7, None]


def test_a_shared_difference_is_one_finding_one_row_on_pages_and_all_rows_for_programs() -> None:
    report = diff_report(diff(*(difference(key, 4) for key in "abcde"), difference("a", 9, path="replicas")))
    shared, own = report.findings
    assert (shared.subject, shared.details) == ("a", ("the same in 4 more models: b, c, d, e",))
    assert own.details == ()
    people, programs = on_pages(report)
    assert [row[1] for row in people.rows] == [("a", "b", "c", "and 2 more"), ("a",)]
    assert programs.counted
    assert [row[1] for row in programs.rows] == ["a", "b", "c", "d", "e", "a"]


def test_without_shared_differences_there_is_one_table() -> None:
    [table] = on_pages(diff_report(diff(difference("a", 1), difference("b", 2))))
    assert not table.counted
    assert all(len(row) == len(table.columns) for row in table.rows)
