"""The formats a document can be shown in, and the way from a report to the ones that are the same for all documents.

`table` goes to a console, see `terminal.py`, and `json` is the document itself.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.render.report.model import Report

ReportFormat = Literal["table", "json", "jsonl", "markdown", "html", "github", "sarif", "junit"]
"""What --format and --report take."""

OWN_FORMATS = frozenset({"table", "json"})
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

    checkout = Checkout(root, cwd)
    write: dict[ReportFormat, Callable[[Report], str]] = {
        "markdown": render_markdown, "html": report_page, "junit": render_junit, "jsonl": render_jsonl,
        "github": partial(render_github, checkout=checkout), "sarif": partial(render_sarif, checkout=checkout)}
    return write[chosen](report)
