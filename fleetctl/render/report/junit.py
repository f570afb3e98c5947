"""A report as JUnit XML: a test case per model, which fails if the report has an error about the model.

Any other finding has its own test case. Totals are properties of the suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from fleetctl.render.report.markdown_text import cut_visible
from fleetctl.render.report.model import Finding, Report, by_level
from fleetctl.render.visible import visible


def render_junit(report: Report) -> str:
    """Return the document; `failures` counts failed test cases, as readers expect, and `errors` is always 0."""
    by_subject: dict[str, list[Finding]] = {subject: [] for subject in report.subjects}
    for finding in by_level(report.findings):
        by_subject.setdefault(finding.subject, []).append(finding)
    failed = sum(any(one.level == "error" for one in findings) for findings in by_subject.values())
    counts = f'tests="{len(by_subject)}" failures="{failed}" errors="0"'
    name = _attribute(report.title)
    return "\n".join([
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites name={name} {counts}>",
        f'  <testsuite name={name} {counts} skipped="0">',
        *_properties(report),
        *(_case(subject, findings, report.fleet or report.kind) for subject, findings in by_subject.items()),
        f"    <system-out>{_text(report.conclusion)}</system-out>",
        "  </testsuite>",
        "</testsuites>",
    ]) + "\n"


def _properties(report: Report) -> list[str]:
    pairs = [*((total.key, str(total.count)) for total in report.totals), *report.facts,
             ("exitCode", str(report.exit_code))]
    lines = [f"      <property name={_attribute(name)} value={_attribute(value)}/>" for name, value in pairs]
    return ["    <properties>", *lines, "    </properties>"]


def _case(subject: str, findings: Sequence[Finding], group: str) -> str:
    head = f"    <testcase name={_attribute(subject)} classname={_attribute(group)}"
    if not findings:
        return f"{head}/>"
    errors = [finding for finding in findings if finding.level == "error"]
    inside = [_failure(errors)] if errors else []
    if rest := [finding for finding in findings if finding.level != "error"]:
        inside.append(f"      <system-out>{_text(*map(_text_of, rest))}</system-out>")
    return "\n".join([f"{head}>", *inside, "    </testcase>"])


def _failure(errors: Sequence[Finding]) -> str:
    first = errors[0]
    return (f"      <failure type={_attribute(first.code)} message={_attribute(first.message)}>"
            f"{_text(*map(_text_of, errors))}</failure>")


def _text_of(finding: Finding) -> str:
    place = f"{finding.place}: " if finding.place else ""
    return "\n".join(map(cut_visible, (f"{place}{finding.level} {finding.code}: {finding.message}", *finding.details)))


def _text(*parts: str) -> str:
    return escape("\n".join("\n".join(visible(line) for line in part.split("\n")) for part in parts))


def _attribute(text: str) -> str:
    return quoteattr(cut_visible(text))
