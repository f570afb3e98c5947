"""A diagnosis as a report: the findings by area, each with what to do, and the number of checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fleetctl.documents.diagnosis import AREAS, Diagnosed, Diagnosis
from fleetctl.documents.quantity import count_of
from fleetctl.render.report.model import Cell, Column, Finding, Report, Table, Total

TITLES = {"client": "This client", "cluster": "Cluster", "node": "Nodes", "replica": "Replicas", "fleet": "Fleet"}
ROW = (Column("severity", "severity"), Column("code", "code", name=True), Column("subject", "about", name=True),
       Column("message", "what"))
SIGNS = {"error": "!", "warning": "~"}


def diagnosis_report(diagnosis: Diagnosis) -> Report:
    """Return the report of `doctor`, with the findings in the order of the areas."""
    counts = Counter[str](one.severity for one in diagnosis.findings)
    return Report(
        kind="answer", identity="doctor", fleet=diagnosis.fleet or "", title="Doctor",
        tables=tuple(_tables(diagnosis)), notes=tuple(_notes(diagnosis)), conclusion=_sentence(diagnosis, counts),
        totals=(Total("errors", "errors", counts["error"]), Total("warnings", "warnings", counts["warning"])),
        findings=tuple(map(finding, diagnosis.findings)), exit_code=diagnosis.exit_code)


def finding(one: Diagnosed) -> Finding:
    """Return a finding for any report."""
    return Finding(one.severity, one.code, one.subject, f"{one.subject}: {one.message}", details=_below(one))


def _tables(diagnosis: Diagnosis) -> Iterator[Table]:
    for area in AREAS:
        found = [one for one in diagnosis.findings if one.area == area]
        if found:
            yield Table(area, TITLES[area], ROW, tuple(map(row, found)), rank=0, line="{code} {subject}: {message}",
                        signs=tuple(SIGNS[one.severity] for one in found))


def row(one: Diagnosed) -> tuple[Cell, ...]:
    """Return the cells of ROW."""
    return one.severity, one.code, one.subject, (one.message, *_below(one))


def _below(one: Diagnosed) -> tuple[str, ...]:
    lines = (f"to do: {one.advice}" if one.advice else "", f"$ {one.command}" if one.command else "")
    return tuple(line for line in lines if line)


def _notes(diagnosis: Diagnosis) -> Iterator[str]:
    skipped = Counter(check.skipped for check in diagnosis.checks if check.skipped)
    for reason, number in skipped.items():
        yield f"{count_of(number, 'check')} not made: {reason}"


def _sentence(diagnosis: Diagnosis, counts: Counter[str]) -> str:
    made = count_of(sum(check.skipped is None for check in diagnosis.checks), "check")
    on_nodes = f" on {count_of(diagnosis.nodes_examined, 'node')}" if diagnosis.nodes_examined else ""
    if not diagnosis.findings:
        return f"no problems found: {made}{on_nodes}"
    found = [count_of(counts[severity], severity) for severity in ("error", "warning") if counts[severity]]
    return f"{', '.join(found)}: {made}{on_nodes}"
