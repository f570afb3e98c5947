"""All formats of a plan have the same counts and exit code, for every outcome; each format is parsed back."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from html.parser import HTMLParser
from typing import get_args
from xml.etree import ElementTree

import pytest
from rich.console import Console

from fleetctl.documents.plan import Plan
from fleetctl.render.page.plan_page import plan_page
from fleetctl.render.plan_json import render_plan_json
from fleetctl.render.report.annotations import PER_LEVEL
from fleetctl.render.report.formats import ReportFormat, render_report
from fleetctl.render.report.of_plan import LABELS, plan_report
from fleetctl.render.report.terminal import print_report
from tests.render.report import gfm
from tests.render.report.plan_cases import cases

BESIDE = ("starting", "restarting", "outdated")
KEYS = ("wanted", "live", "create", "blocked", "hold", *BESIDE, "drift", "lost", "unmanaged", "policy")
Counts = dict[str, int]

each_plan = pytest.mark.parametrize("plan", cases().values(), ids=cases())


def counted(plan: Plan) -> Counts:
    """The plan's counts, from its lists only, not from its summary."""
    return {
        "wanted": sum(row.wanted for row in plan.models), "live": sum(row.live for row in plan.models),
        "create": len(plan.actions), "blocked": sum(one.replicas for one in plan.blocked),
        "hold": sum(one.surplus for one in plan.holds),
        "starting": sum(row.starting - row.restarting for row in plan.models),
        "restarting": sum(row.restarting for row in plan.models),
        "outdated": sum(one.code == "SPEC_CHANGED" for one in plan.drift),
        "drift": len(plan.drift), "lost": len(plan.lost), "unmanaged": len(plan.unmanaged), "policy": len(plan.policy),
    }


def code_of(plan: Plan) -> int:
    """The exit code, from the rules of the documentation."""
    if any(not finding.lifted for finding in plan.policy):
        return 4
    return 3 if plan.blocked else 2 if plan.actions else 0


def text(plan: Plan, chosen: ReportFormat) -> str:
    return render_report(plan_report(plan), chosen)


def table_of(plan: Plan) -> str:
    out = io.StringIO()
    print_report(plan_report(plan), Console(file=out, width=200, color_system=None))
    return out.getvalue()


@each_plan
def test_the_summary_of_a_plan_has_the_counts_of_its_lists(plan: Plan) -> None:
    assert plan.exit_code == code_of(plan)
    assert {**plan.summary.model_dump(), "policy": len(plan.policy)} == counted(plan)


@each_plan
def test_json_has_the_counts_of_the_plan(plan: Plan) -> None:
    document = json.loads(render_plan_json(plan))
    assert {**document["summary"], "policy": len(document["policy"])} == counted(plan)
    assert document["exitCode"] == code_of(plan)


@each_plan
def test_the_last_line_of_the_table_has_the_counts_of_the_plan(plan: Plan) -> None:
    table, counts = table_of(plan), counted(plan)
    last = re.fullmatch(r"Plan: (\d+) to create, (\d+) blocked, (\d+) held(, .*)?, 0 to remove .*",
                        table.splitlines()[-1])
    assert last
    assert [int(count) for count in last.groups()[:3]] == [counts["create"], counts["blocked"], counts["hold"]]
    assert (last[4] or "") == "".join(f", {counts[key]} {key}" for key in BESIDE if counts[key])
    for key, title in (("drift", "Drift"), ("unmanaged", "Unmanaged"), ("lost", "Lost")):
        assert (f"\n{title}: {counts[key]} (" in table) == bool(counts[key])


@each_plan
def test_markdown_has_the_counts_of_the_plan(plan: Plan) -> None:
    markdown = text(plan, "markdown")
    heads, cells = gfm.tables(markdown)[0]
    labels = (*LABELS, ("policy", "against policy"))
    expected = {label: count for (key, label), count in zip(labels, counted(plan).values(), strict=True)
                if count or key in KEYS[:4]}
    assert dict(zip(heads, map(int, cells), strict=True)) == expected
    models = next((rows[1:] for rows in gfm.tables(markdown) if "wanted" in rows[0] and "reason" in rows[0]), [])
    counts = counted(plan)
    assert [sum(int(row[column]) for row in models) for column in (4, 5)] == [counts["create"], counts["blocked"]]
    quiet = re.search(r"^(\d+) models? with nothing to do\.$", markdown, re.MULTILINE)
    assert len(models) + (int(quiet[1]) if quiet else 0) == len(plan.models)


@each_plan
def test_the_page_has_the_counts_of_the_plan(plan: Plan) -> None:
    page = Totals()
    page.feed(plan_page(plan, None))
    assert page.totals == counted(plan)
    assert page.exit_code == code_of(plan)


class Totals(HTMLParser):
    """The counts in a page's attributes, and those shown to a reader."""

    def __init__(self) -> None:
        super().__init__()
        self.totals: Counts = {}
        self.exit_code = -1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "data-total" in values:
            self.totals[values["data-total"]] = int(values["data-count"])
        if "data-exit-code" in values:
            self.exit_code = int(values["data-exit-code"])


@each_plan
def test_junit_has_the_counts_of_the_plan_and_fails_blocked_models(plan: Plan) -> None:
    suite = ElementTree.fromstring(text(plan, "junit"))[0]
    properties = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert {key: int(properties[key] or "") for key in KEYS} == counted(plan)
    assert properties["exitCode"] == str(code_of(plan))
    failed = {case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None}
    refused = {one.model or one.key for one in plan.policy if not one.lifted}
    assert failed == {one.model for one in plan.blocked} | refused
    assert suite.get("failures") == str(len(failed))
    assert {row.key for row in plan.models} <= {case.get("name") for case in suite.iter("testcase")}


@each_plan
def test_json_lines_have_the_counts_of_the_plan(plan: Plan) -> None:
    lines = [json.loads(line) for line in text(plan, "jsonl").splitlines()]
    types = Counter(line["type"] for line in lines)
    models = [line for line in lines if line["type"] == "model"]
    blocked = [line["replicas"] for line in lines if line["type"] == "blocked"]
    assert {key: sum(line[key] for line in models) for key in KEYS[:4]} | {"blocked": sum(blocked)} | {
        "hold": sum(line["surplus"] for line in lines if line["type"] == "hold"),
        "outdated": sum(line["type"] == "drift" and line["code"] == "SPEC_CHANGED" for line in lines),
        **{key: lines[-1]["totals"][key] for key in ("starting", "restarting")},
        **{key: types[key] for key in ("drift", "lost", "unmanaged", "policy")}} == counted(plan)
    assert (lines[-1]["totals"], lines[-1]["exitCode"]) == (counted(plan), code_of(plan))


def findings_by_level(plan: Plan) -> Counter[str]:
    """The counts to be shown, from the plan's lists."""
    lifted = sum(one.lifted for one in plan.policy)
    return +Counter(
        error=len(plan.blocked) + len(plan.policy) - lifted, warning=lifted + len(plan.drift) + len(plan.lost)
        + len(plan.file_warnings) + sum(bool(row.restarting) for row in plan.models),
        notice=len(plan.holds) + len(plan.unmanaged) + sum(bool(row.create) for row in plan.models))


@each_plan
def test_sarif_has_the_counts_of_the_plan_and_a_result_per_finding(plan: Plan) -> None:
    run = json.loads(text(plan, "sarif"))["runs"][0]
    assert run["properties"] == counted(plan)
    assert run["invocations"][0]["exitCode"] == code_of(plan)
    levels = Counter({"note": "notice"}.get(one["level"], one["level"]) for one in run["results"])
    assert levels == findings_by_level(plan)


@each_plan
def test_annotations_have_the_counts_of_the_plan(plan: Plan) -> None:
    *lines, last = text(plan, "github").splitlines()
    assert Counter(re.findall(r"^::(\w+) ", "\n".join(lines), re.MULTILINE)) == {
        level: min(count, PER_LEVEL) for level, count in findings_by_level(plan).items()}
    counts = counted(plan)
    assert f"Plan: {counts['create']} to create, {counts['blocked']} blocked, {counts['hold']} held" in last


@pytest.mark.parametrize("chosen", [one for one in get_args(ReportFormat) if one not in ("table", "json")])
def test_no_format_shows_an_env_value(chosen: ReportFormat) -> None:
    for plan in cases().values():
        assert "hush-hush" not in text(plan, chosen)


def test_the_plans_cover_every_kind_of_outcome() -> None:
    assert {key for plan in cases().values() for key, count in counted(plan).items() if count} == set(KEYS)
    assert {plan.exit_code for plan in cases().values()} == {0, 2, 3, 4}
    assert any(plan.change for plan in cases().values())
