"""The page of a report: state, totals, findings, tables and the facts it was made from; a plan's page has a map too."""

from __future__ import annotations

from fleetctl.documents.answers import PlacementMap
from fleetctl.documents.plan import Plan
from fleetctl.render.page.map_section import map_part, map_rules, planned_alone
from fleetctl.render.page.markup import Markup, el
from fleetctl.render.page.shell import html_page
from fleetctl.render.page.tables import Part, contents, facts, filter_bar, header, is_unchanged, table_parts, totals
from fleetctl.render.report.model import Report
from fleetctl.render.report.of_plan import plan_report

BELOW_THE_MAP = frozenset({"lost", "drift", "hold", "unmanaged", "note"})
INSPECTOR = el("div", id="inspector", hidden=True, aria_hidden="true")
"""The line at the bottom of the window that names the holders of a card; the script fills it.

Hidden from screen readers: the focused cell has the same text as its label.
"""


def plan_page(plan: Plan, picture: PlacementMap | None, report: Report | None = None) -> str:
    """Return the page of a plan: its report, or `report` instead, and the placement map before and after.

    `picture` is the placement map with this plan's new replicas. None if only the plan is known; then the map
    shows only the nodes the plan places on.
    """
    drawn = picture or planned_alone(plan)
    return report_page(report or plan_report(plan), map_part(drawn, whole=picture is not None), map_rules(drawn))


def report_page(report: Report, map_: Part | None = None, rules: str = "") -> str:
    """Return the page of a report, with an optional placement map and its style rules."""
    return html_page(report.title, report_content(report, map_), rules=rules)


def report_content(report: Report, map_: Part | None = None) -> Markup:
    """Return the content of a report's page, with an optional placement map."""
    parts = list(table_parts(report.tables))
    if map_:
        place = next((number for number, part in enumerate(parts) if part.anchor in BELOW_THE_MAP), len(parts))
        parts.insert(place, map_)
    links = [*((part.anchor, part.title) for part in parts if part.title), ("facts", "Made from")]
    bar = filter_bar(nodes=bool(map_), same=bool(map_) or any(map(is_unchanged, report.tables)))
    main = el("main", header(report), totals(report), contents(links), bar, (part.body for part in parts),
              facts(report.facts), data_kind=report.kind, data_exit_code=report.exit_code)
    return Markup(main + INSPECTOR)
