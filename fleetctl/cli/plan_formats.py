"""A plan in every format: what `plan`, `show` and the review in CI print and write."""

from __future__ import annotations

from collections.abc import Callable

from fleetctl.cli.reporting import Formats
from fleetctl.documents.placement_map import PlacementMap
from fleetctl.documents.plan import Plan
from fleetctl.render.plan_json import render_plan_json
from fleetctl.render.report.of_plan import plan_report


def plan_formats(plan: Plan, placement_map: Callable[[], PlacementMap | None]) -> Formats:
    """Return the plan in every format; `placement_map` is called only for the page, which shows it."""

    def page() -> str:
        from fleetctl.render.page.report_page import plan_page  # its parts, which no other format needs

        return plan_page(plan, placement_map())

    return Formats(
        json=lambda: render_plan_json(plan),
        report=lambda: plan_report(plan),
        page=page,
    )
