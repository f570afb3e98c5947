"""The formats a document can be shown in, and the way from a report to the ones that are the same for all documents.

`table` and `json` are the document's own: each has its table for a terminal, and its JSON is the document itself.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
"""What a report cannot be turned into."""


def render_report(report: Report, chosen: ReportFormat, *, root: str = "", cwd: str = "") -> str:
    """Return the report as text. `root` = where the repository lies, `cwd` = what relative paths are relative to.

    Paths of findings are told from `root` on, as forges want them; "" = as they came. Not for OWN_FORMATS.
    """
    if chosen is ReportFormat.GITHUB:
        from fleetctl.render.report.github import render_github
        from fleetctl.render.report.places import Checkout

        return render_github(report, Checkout(root, cwd))
    if chosen is ReportFormat.SARIF:
        from fleetctl.render.report.places import Checkout
        from fleetctl.render.report.sarif import render_sarif

        return render_sarif(report, Checkout(root, cwd))
    if chosen is ReportFormat.MARKDOWN:
        from fleetctl.render.report.markdown import render_markdown

        return render_markdown(report)
    if chosen is ReportFormat.HTML:
        from fleetctl.render.report.html import render_html

        return render_html(report)
    if chosen is ReportFormat.JUNIT:
        from fleetctl.render.report.junit import render_junit

        return render_junit(report)
    if chosen is ReportFormat.JSONL:
        from fleetctl.render.report.jsonl import render_jsonl

        return render_jsonl(report)
    raise ValueError(f"{chosen.value} is the document's own")
