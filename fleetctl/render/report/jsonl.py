"""A report as JSON, one object per line, for programs that process a stream: `version` first, `summary` last.

Between them are the facts, the totals, every row of every table under the key of its table, and every finding. Readers
must ignore types and keys they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fleetctl.documents.base import FORMAT_VERSION
from fleetctl.render.report.model import Cell, Column, Finding, Report, Table
from fleetctl.version import __version__


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
        if "program" in table.readers:
            yield from _rows(table)
    yield from map(_finding, report.findings)
    yield {"type": "summary", "message": report.conclusion, "totals": totals, "exitCode": report.exit_code}


def _rows(table: Table) -> Iterator[dict[str, Any]]:
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        yield {"type": table.key, **{column.key: _value(cell, column) for column, cell in cells}}


def _value(cell: Cell, column: Column) -> int | str | list[str]:
    if isinstance(cell, tuple):
        return list(cell)
    return int(cell) if column.numeric and cell.lstrip("-").isdecimal() else cell


def _finding(finding: Finding) -> dict[str, Any]:
    place = finding.place
    return {"type": "finding", "level": finding.level, "code": finding.code, "subject": finding.subject,
            "message": finding.message, "details": list(finding.details),
            "source": place.model_dump(by_alias=True) if place else None}
