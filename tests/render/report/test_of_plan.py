"""A plan as a report: the order of its parts, the texts about a model, and the places of its findings."""

from __future__ import annotations

import io

from rich.console import Console

from fleetctl.documents.plan import Note, PlanFleet
from fleetctl.render.report.model import Report, Table
from fleetctl.render.report.of_plan import plan_report
from fleetctl.render.report.terminal import print_report
from tests.render.render_plans import plan, row
from tests.render.report.plan_cases import cases
from tests.small_plans import FLEET, small_plan


def of(case: str) -> Report:
    return plan_report(cases()[case])


def table(report: Report, key: str) -> Table:
    return next(table for table in report.tables if table.key == key)


def test_what_is_refused_comes_before_what_changes_before_the_models() -> None:
    assert [one.key for one in of("everything").tables] == [
        "policy", "model", "model", "place", "blocked", "lost", "drift", "hold", "unmanaged"]
    assert [one.key for one in of("change").tables] == ["effect", "difference", "model", "place", "blocked"]


def test_models_with_nothing_to_do_are_counted_not_listed() -> None:
    busy, quiet = (one for one in of("everything").tables if one.key == "model")
    assert [line[0] for line in busy.rows] == ["!", "+", "~", "*", "+"]
    assert (quiet.counted, len(quiet.rows), quiet.title) == (True, 1, "model with nothing to do")
    assert [one.title for one in of("nothing to do").tables] == ["model with nothing to do"]


def test_a_blocked_model_is_told_with_its_arithmetic_and_what_would_help() -> None:
    [line] = table(of("blocked"), "blocked").rows
    assert line[:3] == ("org/one", "2", "INSUFFICIENT_GPU")
    assert isinstance(line[3], tuple)
    assert line[3][0].startswith("needs 16 free GPUs on one node")
    assert any(text.startswith("would fit with") for text in line[3])


def test_findings_are_graded_and_point_at_the_model() -> None:
    found = {(one.code, one.subject): one for one in of("everything").findings}
    assert found["INSUFFICIENT_GPU", "org/blocked"].level == "error"
    assert found["MAX_NEW_REPLICAS", "spec.policy.maxNewReplicas"].level == "error"
    assert found["PROTECTED_MODEL", "org/new"].level == "error"
    assert [found[key].level for key in (("LOST", "org/lost"), ("SPEC_CHANGED", "org/drift"))] == ["warning"] * 2
    assert [found[key].level for key in (("HELD", "org/held"), ("CREATE", "org/new"), ("UNMANAGED", "org/theirs"))] == [
        "notice"] * 3
    blocked = found["INSUFFICIENT_GPU", "org/blocked"].place
    assert blocked is not None
    assert (blocked.line, blocked.column) == (7, 5)
    assert found["UNMANAGED", "org/theirs"].place is None


def test_labels_of_nodes_that_do_not_count_stand_in_table_and_findings() -> None:
    notes = [Note(code="SLOTS_LABEL_IGNORED", level="warning", message="a, b: ignored", node_count=2, nodes=["a", "b"]),
             Note(code="SLOTS_LABEL_OVERRULED", level="notice", message="c: the file wins", node_count=1, nodes=["c"])]
    report = plan_report(plan(notes=notes))
    assert table(report, "note").rows == (("warning", "SLOTS_LABEL_IGNORED", "a, b: ignored"),
                                          ("notice", "SLOTS_LABEL_OVERRULED", "c: the file wins"))
    assert [(one.level, one.code, one.subject) for one in report.findings] == [
        ("warning", "SLOTS_LABEL_IGNORED", "a, b"), ("notice", "SLOTS_LABEL_OVERRULED", "c")]


def test_a_policy_that_was_lifted_is_a_warning_and_does_not_refuse() -> None:
    report = of("policy is lifted")
    assert (report.findings[0].level, report.findings[0].code) == ("warning", "MAX_NEW_REPLICAS")
    assert table(report, "policy").rows[0][2] == "lifted by --force"
    assert report.exit_code == 2


def test_what_a_change_causes_is_told_before_and_after() -> None:
    effects = table(of("change"), "effect")
    assert effects.note.startswith("2 to create, 1 no longer to create, 1 more blocked")
    assert effects.rows[1][:4] == ("org/one", "changed", "1 wanted, 1 to create", "1 wanted, 1 blocked")
    assert effects.rows[0][2] == "not in the file"


def test_facts_say_what_the_plan_was_made_of() -> None:
    facts = dict(of("everything").facts)
    assert facts["commit"] == "1a2b3c4d5e on main with uncommitted changes"
    assert facts["inventory"] == "2026-03-04T12:00:00Z from a test"
    assert dict(of("policy is lifted").facts)["options"] == "--force"
    assert dict(of("change").facts)["compared with"] == "main"


def test_replicas_with_the_same_place_share_a_row() -> None:
    assert table(plan_report(small_plan("a", "b")), "place").rows[0] == ("org/one:1/0", "8 GPUs on a")
    assert table(of("create"), "place").rows[0][0] == "org/one/0-1"


def test_a_plan_says_in_a_line_where_weights_come_from_and_never_when() -> None:
    fleet = FLEET.replace("        engine: {command: [serve, one]", f"""\
        weights: {{from: [{{path: /models/one}}], index: {'a' * 64}}}
        engine: {{command: [serve, one]""")
    served = {"artifact": "a" * 64, "port": 7000, "bytes": 3 << 29}
    running = {"model": "org/one:1", "replicaId": 0, "fleet": "lab", "members": [
        {"nodeId": "id-a", "gpus": 80_000, "address": "10.0.0.1", "weights": served}]}
    assert table(plan_report(small_plan("a", "b", fleet=fleet)), "weights").rows == (
        ("org/one:1/0-1", "path /models/one"),)
    out = io.StringIO()
    print_report(plan_report(small_plan("a", "b", "c", fleet=fleet, replicas=[running])), Console(file=out, width=120))
    assert "org/one:1/1-2: weights from org/one:1/0 on a (1.50Gi)" in out.getvalue()
    crowd = small_plan(*"abcdefg", fleet=fleet.replace("replicas: 3", "replicas: 7"), replicas=[running])
    assert table(plan_report(crowd), "weights").rows == (
        ("org/one:1/1-4", "org/one:1/0 on a (1.50Gi)"), ("org/one:1/5-6", "org/one:1/0 on a (1.50Gi, wave 2)"))


def test_a_plan_without_files_still_makes_a_report() -> None:
    report = plan_report(plan(models=[row("m", 1, 1)], fleet=PlanFleet(name="lab")))
    assert (report.file, report.subjects, report.identity) == ("", ("m",), "plan:lab")
