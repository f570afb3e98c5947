"""A plan in every format: what `plan`, `show` and the review in CI print and write."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fleetctl.cli.reporting import Faces

if TYPE_CHECKING:
    from fleetctl.documents.placement_map import PlacementMap
    from fleetctl.documents.plan import Plan
    from fleetctl.render.report.model import Report


def plan_faces(plan: Plan, picture: Callable[[], PlacementMap | None]) -> Faces:
    """Return the plan in every format; `picture` is the placement map of the page, drawn only where one is written."""
    from fleetctl.render.plan_json import render_plan_json

    def report() -> Report:
        from fleetctl.render.report.of_plan import plan_report

        return plan_report(plan)

    def page() -> str:
        from fleetctl.render.page.report_page import plan_page

        return plan_page(plan, picture())

    return Faces(json=lambda: render_plan_json(plan), report=report, page=page)
