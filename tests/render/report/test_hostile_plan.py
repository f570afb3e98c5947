"""A plan made of hostile text in every field keeps its shape in every format."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

from hypothesis import given, settings
from random_cases import cases

from fleetctl.documents.difference import CountsThen, Difference, ModelEffect, PlanChange, Revision
from fleetctl.documents.plan import (
    Blocked,
    Drift,
    FleetSource,
    GitFacts,
    Hold,
    Lost,
    Note,
    Plan,
    PlanFleet,
    PlanInventory,
    PolicyFinding,
    Reason,
    Unmanaged,
)
from fleetctl.documents.position import Position
from fleetctl.render.report.formats import ReportFormat, render_report
from fleetctl.render.report.of_plan import plan_report
from tests.render.render_plans import create, member, plan, row
from tests.render.report import gfm
from tests.render.report.samples import hostile_texts


def hostile(text: str) -> Plan:
    """A plan with `text` in every field that holds untrusted text."""
    text = text or "empty"  # a fact without text is omitted
    place = Position(file=text, line=7, column=5)
    then = CountsThen(wanted=1, create=1, blocked=0)
    return plan(
        fleet=PlanFleet(name=text, namespace=text, files=[FleetSource(path=text, sha256="0")],
                        git=GitFacts(commit=text, branch=text)),
        inventory=PlanInventory(observed_at="2026-03-04T12:00:00Z", source=text), plan_id=text, tool_version=text,
        models=[row(f"0{text}", 1, 0, create=1, reason=text, source=place),
                row(f"1{text}", 1, 0, blocked=1, reason=text),
                row(f"2{text}", 1, 2, surplus=1, reason=text), row(f"3{text}", 1, 1, reason=text)],
        actions=[create(f"0{text}", 0, member(text, gpus=10_000))],
        holds=[Hold(model=f"2{text}", wanted=1, live=2, surplus=1)],
        blocked=[Blocked(model=f"1{text}", replicas=1, code="INSUFFICIENT_GPU", message=text, no_remedy=text, reasons=[
            Reason(code="INSUFFICIENT_GPU", node_count=1, need=text, best=text, short=text, examples=[text])])],
        drift=[Drift(model=f"0{text}", replica_id=0, code="SPEC_CHANGED", message=text)],
        unmanaged=[Unmanaged(model=text, state=text, message=text)],
        lost=[Lost(model=f"0{text}", replica_id=1, nodes=[text], message=text)],
        notes=[Note(code="SLOTS_LABEL_IGNORED", level="notice", message=text, node_count=1, nodes=[text])],
        policy=[PolicyFinding(code="MAX_NEW_GPUS", key="spec.policy.maxNewGpus", message=text, limit=text, found=text,
                              liftable=True, source=place)],
        change=PlanChange(base=Revision(name=text, commit=text), create=1, blocked=0, also_without=0, models=[
            ModelEffect(key=text, kind="changed", before=then, after=then, message=text)], differences=[
            Difference(model=text, path=text, kind="changed", effect="drift", old=text, new=[text], new_source=place,
                       message=text)]),
        options={"targets": [text]},
    )


def text_of(plan: Plan, chosen: ReportFormat) -> str:
    return render_report(plan_report(plan), chosen, root="/repo", cwd="/repo")


LINE_ENDS = "[\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]"
MARKDOWN = gfm.shape(text_of(hostile("x"), "markdown"))


@settings(max_examples=cases(80))
@given(hostile_texts)
def test_every_format_keeps_its_structure(text: str) -> None:
    document = hostile(text)
    markdown = text_of(document, "markdown")
    assert gfm.shape(markdown) == MARKDOWN
    assert {kind for run in gfm.inlines(markdown) for kind in run.kinds} <= {
        "text", "code_inline", "<br>", "strong_open", "strong_close"}
    assert len(json.loads(text_of(document, "sarif"))["runs"][0]["results"]) == 8
    assert len(list(ElementTree.fromstring(text_of(document, "junit")).iter("testcase"))) >= 5
    commands = re.split(LINE_ENDS, text_of(document, "github").removesuffix("\n"))
    assert [line.split(" ")[0] for line in commands] == ["::error"] * 2 + ["::warning"] * 2 + ["::notice"] * 5
    assert text_of(document, "jsonl").splitlines()[-1].startswith('{"type": "summary"')
