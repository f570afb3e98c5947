"""A plan in every format: what `plan`, `show` and the review in CI print and write."""

from __future__ import annotations

from collections.abc import Callable

from fleetctl.cli.reporting import Formats
from fleetctl.documents.placement_map import PlacementMap
from fleetctl.documents.plan import Plan
from fleetctl.render.page.plan_page import render_plan_page
from fleetctl.render.plan_json import render_plan_json
from fleetctl.render.plan_table import render_plan_table
from fleetctl.render.report.of_plan import plan_report


def plan_formats(plan: Plan, placement_map: Callable[[], PlacementMap | None]) -> Formats:
    """Return the plan in every format; `placement_map` is called only for the page, which shows it."""
    return Formats(
        table=lambda console: render_plan_table(plan, console),
        json=lambda: render_plan_json(plan),
        report=lambda: plan_report(plan),
        page=lambda: render_plan_page(plan, placement_map()),
    )
