"""The formats a document can be shown in, and the way from a report to the ones that are the same for all documents.

`table` goes to a console, see `terminal.py`, and `json` is the document itself.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.render.report.model import Report


class ReportFormat(str, Enum):
    """What --format and --report take."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    MARKDOWN = "markdown"
    HTML = "html"
    GITHUB = "github"
    SARIF = "sarif"
    JUNIT = "junit"


OWN_FORMATS = frozenset({ReportFormat.TABLE, ReportFormat.JSON})
"""Formats that are no text made from a report."""


def render_report(report: Report, chosen: ReportFormat, *, root: str = "", cwd: str = "") -> str:
    """Return the report as text. `root` = the folder of the repository, `cwd` = what relative paths are relative to.

    Paths of findings begin at `root`, as forges want them; "" = as they came. Not for OWN_FORMATS.
    """
    from fleetctl.render.page.report_page import report_page
    from fleetctl.render.report.github import render_github
    from fleetctl.render.report.jsonl import render_jsonl
    from fleetctl.render.report.junit import render_junit
    from fleetctl.render.report.markdown import render_markdown
    from fleetctl.render.report.places import Checkout
    from fleetctl.render.report.sarif import render_sarif

    if chosen in OWN_FORMATS:
        raise ValueError(f"{chosen.value} is no text made from a report")
    if chosen is ReportFormat.GITHUB:
        return render_github(report, Checkout(root, cwd))
    if chosen is ReportFormat.SARIF:
        return render_sarif(report, Checkout(root, cwd))
    write: dict[ReportFormat, Callable[[Report], str]] = {
        ReportFormat.MARKDOWN: render_markdown, ReportFormat.HTML: report_page,
        ReportFormat.JUNIT: render_junit, ReportFormat.JSONL: render_jsonl,
    }
    return write[chosen](report)
