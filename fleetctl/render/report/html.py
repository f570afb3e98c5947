"""Any report as one HTML page that needs nothing beside itself; a plan has a page of its own, with the map."""

from __future__ import annotations

from fleetctl.render.page.report_page import report_page
from fleetctl.render.report.model import Report


def render_html(report: Report) -> str:
    """Return the page as text."""
    return report_page(report)
