"""The page of a plan: everything its report says, and the placement map before and after."""

from __future__ import annotations

from fleetctl.documents.placement_map import PlacementMap
from fleetctl.documents.plan import Plan
from fleetctl.render.page.map_ink import map_rules
from fleetctl.render.page.map_section import map_part
from fleetctl.render.page.picture import planned_alone
from fleetctl.render.page.report_page import report_page
from fleetctl.render.report.of_plan import plan_report

BELOW_THE_MAP = frozenset({"lost", "drift", "place", "hold", "unmanaged", "note"})


def render_plan_page(plan: Plan, picture: PlacementMap | None) -> str:
    """Return the page as text.

    `picture` = the placement map with this plan's new replicas drawn in; None = only the plan is known, and the map
    shows no more than the nodes it places on.
    """
    drawn = picture or planned_alone(plan)
    part = map_part(drawn, whole=picture is not None)
    return report_page(plan_report(plan), own=[part], before=BELOW_THE_MAP, rules=map_rules(drawn))
