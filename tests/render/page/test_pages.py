"""Pages without a browser: bytes, security policy, limits, and the parts of any report."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from fleetctl.render.page.plan_page import plan_page
from fleetctl.render.page.report_page import ROWS_SHOWN, SCRIPTS, STYLES, report_page
from fleetctl.render.report.model import Column, Report, Table, Total
from tests.render.map_worlds import everything
from tests.render.render_plans import create, member, plan, row

ASSETS = Path(__file__).parents[3] / "fleetctl" / "render" / "page" / "assets"


def report(*tables: Table) -> Report:
    return Report(kind="history", identity="history:lab", fleet="lab", title="History of fleet lab",
                  conclusion="2 runs",
                  facts=(("cluster", "a test"),), totals=(Total("ok", "ok", 2),), tables=tables, findings=(),
                  subjects=(), exit_code=0)


def runs(count: int, **more: bool) -> Table:
    columns = (Column("id", "id", name=True), Column("took", "took", numeric=True), Column("message", "what"))
    rows = tuple((f"run-{number}", str(number), ("first", "second")) for number in range(count))
    return Table("run", "Runs", columns, rows, **more)


def test_equal_input_gives_equal_bytes() -> None:
    made = plan(actions=[create("org/a", 1, member("coming", gpus=10_000))], models=[row("org/a", 1, 0, create=1)])
    assert plan_page(made, everything()) == plan_page(made, everything())


def test_the_policy_names_style_and_script_by_their_hashes() -> None:
    page = report_page(report(runs(1)))
    policy = re.search(r'content="(default-src [^"]*)"', page)
    assert policy
    for name in ("style", "script"):
        source = re.search(f"<{name}>(.*?)</{name}>", page, re.DOTALL)
        assert source
        digest = base64.b64encode(hashlib.sha256(source[1].encode()).digest()).decode()
        assert f"{name}-src &#x27;sha256-{digest}&#x27;" in policy[1]


def test_every_asset_is_used_and_none_contains_an_address_or_a_closing_tag() -> None:
    assert sorted(path.name for path in ASSETS.iterdir()) == sorted([*STYLES, *SCRIPTS, "live.js"])
    for path in ASSETS.iterdir():
        assert not re.search(r"https?:|url\(|@import|</|innerHTML|eval\(", path.read_text(encoding="utf-8")), path.name


def test_a_page_has_no_inline_styles_or_event_handlers() -> None:
    page = plan_page(plan(), everything())
    assert not re.search(r"<[^>]+ (style|on[a-z]+)=", page.partition("<body>")[2].partition("<script>")[0])


def test_rows_beyond_the_limit_are_counted() -> None:
    page = report_page(report(runs(ROWS_SHOWN + 3)))
    assert page.count("<tr data-about") == ROWS_SHOWN
    assert "and 3 more rows; --format json has everything" in page


def test_long_details_are_folded() -> None:
    assert re.search("<details open><summary><h2>Runs", report_page(report(runs(3, folded=True))))
    assert re.search("<details><summary><h2>Runs", report_page(report(runs(30, folded=True))))


def test_a_counted_table_is_folded() -> None:
    page = report_page(report(runs(3, counted=True)))
    assert "<summary>3 Runs</summary>" in page
    assert page.count("<tr data-about") == 3


def test_lines_of_one_cell_are_stacked() -> None:
    assert "<div>first</div><div>second</div>" in report_page(report(runs(1)))


def test_a_report_without_tables_makes_a_page() -> None:
    page = report_page(report())
    assert "History of fleet lab" in page
    assert 'data-total="ok" data-count="2"' in page
