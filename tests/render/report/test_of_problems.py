"""The result of `validate` as a report: each problem at its line, or a summary of the fleet."""

from __future__ import annotations

from pathlib import Path

from fleetctl.documents.position import Position
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.render.problems import problems_report
from tests.conftest import FLEET

BROKEN = "apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: lab}\nspec:\n  models:\n  - key: x\n    replica: 2\n"


def test_every_problem_is_a_finding_at_its_line_and_a_row() -> None:
    report = problems_report(inspect_fleet(["-"], stdin=BROKEN.encode))
    assert [(one.level, one.code, one.source) for one in report.findings] == [
        ("error", "FL021", Position(file="<stdin>", line=6, column=5)),
        ("error", "FL020", Position(file="<stdin>", line=7, column=5))]
    assert report.findings[1].details[1] == "did you mean replicas?"
    assert report.tables[0].rows[1][:3] == ("<stdin>:7:5", "error", "FL020")
    assert [(one.key, one.count) for one in report.totals] == [("errors", 2), ("warnings", 0)]
    assert (report.exit_code, report.conclusion) == (1, "2 errors")


def test_sound_files_make_a_report_with_a_test_case_per_file(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    report = problems_report(inspect_fleet([str(path)]))
    assert (report.exit_code, report.conclusion) == (0, "fleet lab: 2 models, 4 replicas wanted")
    assert (report.subjects, report.tables, report.findings) == ((str(path),), (), ())
