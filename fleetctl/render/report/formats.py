"""The output formats of documents, and the rendering of a report into the formats shared by all documents.

`table` is printed to a console, see `terminal.py`; `json` is the document itself.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.render.report.model import Report

ReportFormat = Literal["table", "json", "jsonl", "markdown", "html", "github", "sarif", "junit"]
"""The values of --format and --report."""

OWN_FORMATS = frozenset({"table", "json"})
"""Formats that `render_report` does not render."""


def render_report(report: Report, chosen: ReportFormat, *, root: str = "", cwd: str = "") -> str:
    """Return the report as text, in any format but OWN_FORMATS.

    Paths of findings, relative to `cwd`, become relative to `root`, the folder of the repository; "" = unchanged.
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
