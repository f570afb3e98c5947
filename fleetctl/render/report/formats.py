"""The output formats of documents, and the rendering of a report into the formats shared by all documents.

`table` is printed to a console, see `terminal.py`; `json` is the document itself; `jsonl` is written here: one object
per line, for programs that process a stream. `version` comes first, `summary` last. Between them are the facts, the
totals, every row of every table under the key of its table, and every finding. Readers must ignore types and keys they
do not know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

from fleetctl.documents.base import FORMAT_VERSION
from fleetctl.render.report.model import Cell, Column, Report
from fleetctl.version import __version__

ReportFormat = Literal["table", "json", "jsonl", "markdown", "html", "github", "sarif", "junit"]
"""The values of --format and --report."""

RunFormat = Literal["table", "json", "jsonl", "markdown", "html", "github"]
"""The formats of runs: SARIF and JUnit are for findings about files, and a run has outcomes."""

OWN_FORMATS = frozenset({"table", "json"})
"""Formats that `render_report` does not render."""


def render_report(report: Report, chosen: ReportFormat, *, root: str = "", cwd: str = "") -> str:
    """Return the report as text, in any format but OWN_FORMATS.

    Paths of findings, relative to `cwd`, become relative to `root`, the folder of the repository; "" = unchanged.
    """
    from fleetctl.render.page.report_page import report_page
    from fleetctl.render.report.annotations import Checkout, render_github, render_junit, render_sarif
    from fleetctl.render.report.markdown import render_markdown

    checkout = Checkout(root, cwd)
    write: dict[ReportFormat, Callable[[Report], str]] = {
        "markdown": render_markdown, "html": report_page, "junit": render_junit, "jsonl": render_jsonl,
        "github": partial(render_github, checkout=checkout), "sarif": partial(render_sarif, checkout=checkout)}
    return write[chosen](report)


def render_jsonl(report: Report) -> str:
    """Return the report as lines of JSON; texts are unchanged, with non-ASCII characters escaped."""
    return "".join(json.dumps(line) + "\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[dict[str, Any]]:
    totals = {total.key: total.count for total in report.totals}
    yield {"type": "version", "formatVersion": FORMAT_VERSION, "toolVersion": __version__, "kind": report.kind,
           "identity": report.identity, "fleet": report.fleet, "title": report.title}
    yield from ({"type": "fact", "name": name, "value": value} for name, value in report.facts)
    yield {"type": "totals", "totals": totals}
    for table in report.tables:
        for row in table.rows if "program" in table.readers else ():
            cells = zip(table.columns, row, strict=True)
            yield {"type": table.key, **{column.key: _value(cell, column) for column, cell in cells}}
    for finding in report.findings:
        yield {"type": "finding", "level": finding.level, "code": finding.code, "subject": finding.subject,
               "message": finding.message, "details": list(finding.details),
               "source": finding.source.model_dump(by_alias=True) if finding.source else None}
    yield {"type": "summary", "message": report.conclusion, "totals": totals, "exitCode": report.exit_code}


def _value(cell: Cell, column: Column) -> int | str | list[str]:
    if isinstance(cell, tuple):
        return list(cell)
    return int(cell) if column.numeric and cell.lstrip("-").isdecimal() else cell
