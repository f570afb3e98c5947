"""A change of 2,000 models still fits a comment, with correct totals, and omissions are counted."""

from __future__ import annotations

import json
import re

import pytest

from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.load import load_fleet
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.planner.plan import make_plan
from fleetctl.render.report.markdown import length, render_markdown
from fleetctl.render.report.of_plan import plan_report
from tests.benchmarks.report import fleet_text, snapshot
from tests.render.report import gfm

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def plan() -> Plan:
    """2,000 models of five sizes with two replicas each, on 500 nodes with room for about 1,300 replicas."""
    inventory = Inventory.model_validate(json.loads(snapshot(500)))
    fleet = load_fleet(["-"], stdin=fleet_text(2_000, 2).encode)
    return make_plan(fleet, inventory, PlanOptions(), PlanFacts(tool_version="0.1.0"))


def test_a_change_of_2000_models_fits_a_comment_with_its_totals(plan: Plan) -> None:
    markdown = render_markdown(plan_report(plan))
    assert 50_000 < length(markdown) <= 60_000
    _, totals = gfm.tables(markdown)[0]
    assert list(map(int, totals[:4])) == [4_000, 0, len(plan.actions), sum(one.replicas for one in plan.blocked)]
    assert f"{len(plan.actions)} to create" in markdown.splitlines()[4]


def test_every_row_is_shown_or_counted_as_omitted(plan: Plan) -> None:
    markdown = render_markdown(plan_report(plan))
    omissions = re.search(r"^Left out to stay within 60,000 characters: (.*)\. `--format json` has", markdown, re.M)
    assert omissions
    assert "Facts" not in omissions[1]
    missing = {title: int(count) for title, count in re.findall(r"([A-Z][a-z ]+) \((\d+) rows?\)", omissions[1])}
    tables = {table.title: table for table in plan_report(plan).tables if "page" in table.readers}
    rows = {"Models": gfm.tables(markdown)[1], "Blocked": gfm.tables(markdown)[2]}
    for title, part in rows.items():
        assert len(part) - 1 > 50
        assert len(part) - 1 + missing[title] == len(tables[title].rows)
    assert missing["Would create"] == len(tables["Would create"].rows)
