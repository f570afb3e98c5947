"""A plan as a report: the order of its parts, the texts about a model, and the places of its findings."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from fleetctl.documents.difference import PlanChange, Revision
from fleetctl.documents.plan import GrowingModel, Growth, Note, PlanFleet, PlanPrice
from fleetctl.render.report.markdown import render_markdown
from fleetctl.render.report.model import Report, Table
from fleetctl.render.report.of_plan import plan_report
from fleetctl.render.report.of_weights import planned_weights
from fleetctl.render.report.terminal import print_report
from tests.render.render_plans import plan, row
from tests.render.report.plan_cases import cases
from tests.small_plans import FLEET, small_plan


def report_of(case: str) -> Report:
    return plan_report(cases()[case])


def table(report: Report, key: str) -> Table:
    return next(table for table in report.tables if table.key == key)


def test_policy_findings_come_first_then_changes_then_models() -> None:
    assert [one.key for one in report_of("everything").tables] == [
        "policy", "model", "model", "place", "blocked", "fileWarning", "lost", "drift", "hold", "unmanaged"]
    assert [one.key for one in report_of("change").tables] == [
        "effect", "difference", "fileWarning", "model", "place", "blocked", "fileWarning"]


def test_models_with_nothing_to_do_are_counted_and_not_listed() -> None:
    busy, quiet = (one for one in report_of("everything").tables if one.key == "model")
    assert [line[0] for line in busy.rows] == ["!", "+", "~", "*", "+"]
    assert (quiet.counted, len(quiet.rows), quiet.title) == (True, 1, "model with nothing to do")
    assert [one.title for one in report_of("nothing to do").tables] == [
        "model with nothing to do", "Warnings of the fleet files"]


def test_a_blocked_model_has_its_arithmetic_and_a_remedy() -> None:
    [line] = table(report_of("blocked"), "blocked").rows
    assert line[:3] == ("org/one", "2", "INSUFFICIENT_GPU")
    assert isinstance(line[3], tuple)
    assert line[3][0].startswith("needs 16 free GPUs on one node")
    assert any(text.startswith("would fit with") for text in line[3])


def test_findings_have_a_level_and_point_at_the_model() -> None:
    found = {(one.code, one.subject): one for one in report_of("everything").findings}
    assert found["INSUFFICIENT_GPU", "org/blocked"].level == "error"
    assert found["MAX_NEW_REPLICAS", "spec.policy.maxNewReplicas"].level == "error"
    assert found["PROTECTED_MODEL", "org/new"].level == "error"
    assert [found[key].level for key in (("LOST", "org/lost"), ("SPEC_CHANGED", "org/drift"))] == ["warning"] * 2
    assert [found[key].level for key in (("HELD", "org/held"), ("CREATE", "org/new"), ("UNMANAGED", "org/theirs"))] == [
        "notice"] * 3
    blocked = found["INSUFFICIENT_GPU", "org/blocked"].source
    assert blocked is not None
    assert (blocked.line, blocked.column) == (7, 5)
    assert found["UNMANAGED", "org/theirs"].source is None


def test_ignored_node_labels_are_in_the_table_and_the_findings() -> None:
    notes = [Note(code="SLOTS_LABEL_IGNORED", level="warning", message="a, b: ignored", node_count=2, nodes=["a", "b"]),
             Note(code="SLOTS_LABEL_OVERRULED", level="notice", message="c: the file wins", node_count=1, nodes=["c"])]
    report = plan_report(plan(notes=notes))
    assert table(report, "note").rows == (("warning", "SLOTS_LABEL_IGNORED", "a, b: ignored"),
                                          ("notice", "SLOTS_LABEL_OVERRULED", "c: the file wins"))
    assert [(one.level, one.code, one.subject) for one in report.findings] == [
        ("warning", "SLOTS_LABEL_IGNORED", "a, b"), ("notice", "SLOTS_LABEL_OVERRULED", "c")]


def test_warnings_about_the_files_that_a_change_brings_come_before_those_that_the_base_has() -> None:
    report = report_of("change")
    new, known = (one for one in report.tables if one.key == "fileWarning")
    assert (new.title, new.folded) == ("New warnings of the fleet files", False)
    assert (known.title, known.folded) == ("Warnings of the fleet files, which the base has, too", True)
    found = [one for one in report.findings if one.code == "FL070"]
    assert [one.subject for one in found] == ["org/two", "org/new", "org/one"]
    assert [str(one.source) for one in found] == [row[0] for row in (*new.rows, *known.rows)]


def test_a_policy_that_was_lifted_is_a_warning_and_does_not_refuse() -> None:
    report = report_of("policy is lifted")
    assert (report.findings[0].level, report.findings[0].code) == ("warning", "MAX_NEW_REPLICAS")
    assert table(report, "policy").rows[0][2] == "lifted by --force"
    assert report.exit_code == 2


def test_the_effect_of_a_change_is_shown_before_and_after() -> None:
    effects = table(report_of("change"), "effect")
    assert effects.note.startswith("2 to create, 1 no longer to create, 1 more blocked")
    assert effects.rows[1][:4] == ("org/one", "changed", "1 wanted, 1 to create", "1 wanted, 1 blocked")
    assert effects.rows[0][2] == "not in the file"


def test_the_facts_list_the_inputs_of_the_plan() -> None:
    facts = dict(report_of("everything").facts)
    assert facts["commit"] == "1a2b3c4d5e on main with uncommitted changes"
    assert facts["inventory"] == "2026-03-04T12:00:00Z from a test"
    assert dict(report_of("policy is lifted").facts)["options"] == "--force"
    assert dict(report_of("change").facts)["compared with"] == "main"


def test_replicas_with_the_same_place_share_a_row() -> None:
    assert table(plan_report(small_plan("a", "b")), "place").rows[0] == ("org/one:1/0", "8 GPUs on a")
    assert table(report_of("create"), "place").rows[0][0] == "org/one/0-1"


def test_a_plan_shows_the_source_of_weights_and_no_times() -> None:
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


def test_weights_that_are_on_the_node_already_are_not_promised_as_a_fetch() -> None:
    fleet = FLEET.replace("        engine: {command: [serve, one]", f"""\
        weights: {{from: [{{path: /models/one}}], index: {'a' * 64}}}
        engine: {{command: [serve, one]""")
    served = {"artifact": "a" * 64, "port": 7000, "bytes": 3 << 29}
    beside = {"model": "org/one:1", "replicaId": 0, "fleet": "lab", "level": "WARM", "members": [
        {"nodeId": "id-a", "gpus": 0, "address": "10.0.0.1", "weights": served, "group": "main", "role": "Standalone"}]}
    plan = small_plan("a", fleet=fleet.replace("replicas: 3", "replicas: 1"), replicas=[beside])
    [action] = plan.actions
    created, promoted = (action.model_copy(update={"op": op}) for op in ("create", "promote"))
    unserved = promoted.model_copy(deep=True)
    assert unserved.members[0].weights
    unserved.members[0].weights.sources.clear()
    shown = [planned_weights([one]).rows[0][1] for one in (promoted, unserved, created)]
    assert shown == ["memory on a (nothing to fetch)", "memory on a (nothing to fetch)",
                     "org/one:1/0 on a (on this node already, nothing to fetch)"]


PROMISE = "Plan: 0 to create, 0 blocked, 0 held, 0 to remove (fleetctl never removes)"


@pytest.mark.parametrize(("price", "by_change", "sentence"), [
    ({"adds": 7_500_000, "total": 52_500_000}, None,
     "Adds 7.5 an hour; the fleet's replicas then cost 52.5 an hour"),
    ({"adds": 0, "total": 52_500_000}, None, "The fleet's replicas cost 52.5 an hour"),
    ({"adds": 7_500_000, "total": 52_500_000}, 7_500_000,
     "Adds 7.5 an hour; the fleet's replicas then cost 52.5 an hour"),
    ({"adds": 7_500_000, "total": 52_500_000, "new_nodes": 2_000_000}, 5_000_000,
     "Adds 7.5 an hour (2 for new nodes, 5 by the change alone); the fleet's replicas then cost 52.5 an hour"),
    ({"adds": 0, "total": 3_000_000}, -250_000,
     "Adds 0 an hour (0.25 less than without the change); the fleet's replicas then cost 3 an hour"),
    ({"adds": 83_333, "total": 83_333, "unpriced": 1, "examples": ["a"]}, None,
     "Adds 0.08333 an hour; the fleet's replicas then cost 0.08333 an hour, without 1 node that has no price (a)"),
    ({"adds": 0, "total": 0, "unpriced": 9, "examples": ["a", "b", "c", "d", "e"]}, None,
     "The fleet's replicas cost 0 an hour, without 9 nodes that have no price"),
])
def test_the_conclusion_says_what_a_plan_adds_and_what_the_fleet_costs(
    price: dict[str, Any], by_change: int | None, sentence: str
) -> None:
    change = None if by_change is None else PlanChange(
        base=Revision(name="main"), create=0, blocked=0, also_without=0, adds=by_change)
    report = plan_report(plan(price=PlanPrice(**price), change=change))
    assert report.conclusion == f"{PROMISE}. {sentence}"
    assert sentence in render_markdown(report)
    assert plan_report(plan()).conclusion == PROMISE


def test_new_nodes_have_their_price() -> None:
    def growth(price: int | None) -> Growth:
        return Growth(name="l4", labels={}, gpus=1, cpus=1, keeps=[], nodes=2, max=4, price=price,
                      replicas=[GrowingModel(model="m", count=2)])

    priced, plain = (table(plan_report(plan(growth=[growth(price)])), "growth") for price in (800_000, None))
    assert priced.rows == (("l4", "2", "4", "2 of m", "0.8"),)
    assert plain.rows == (("l4", "2", "4", "2 of m"),)
    assert plain.line == "{name}: {nodes}, at most {max}; for {models}"
    out = io.StringIO()
    print_report(plan_report(plan(growth=[growth(800_000), growth(None)])), Console(file=out, width=120))
    line = "+ l4: 2 nodes, at most 4; for 2 of m;"
    assert f"{line} 0.8 an hour each\n  {line} ? an hour each" in out.getvalue()
