"""A report's findings for forges: GitHub's workflow commands, SARIF 2.1.0 for code scanning, JUnit XML.

GitHub shows at most 10 annotations of each level per step and 50 per job, and drops the rest silently. The last line,
one of the ten notices, counts the dropped ones. Report text cannot start a command, as it never begins a line.

SARIF has one run, a rule per code, a result per finding. The fingerprint of a result does not depend on its line, so an
alert stays the same when lines above it move.

JUnit has a test case per model, which fails if the report has an error about the model. Any other finding has its own
test case. Totals are properties of the suite.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from fleetctl.documents.quantity import count_of
from fleetctl.render.report.code_texts import code_text, help_page
from fleetctl.render.report.model import LEVELS, Finding, Level, Report, by_level
from fleetctl.render.visible import cut_visible, visible
from fleetctl.version import __version__

PER_LEVEL = 10
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RESULT_LIMIT = 25_000
"""The most results that GitHub accepts in a run."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """The folder of the repository, and the current folder for relative paths; both absolute, "" if unknown.

    Forges require paths relative to the root of the repository, with forward slashes.
    """

    root: str = ""
    cwd: str = ""

    def path(self, file: str) -> str | None:
        """Return a file's path in the repository, unchanged for a file outside of it; None for standard input."""
        if file == "<stdin>":
            return None
        path = posixpath.normpath(file)
        if not self.root:
            return path
        absolute = posixpath.normpath(posixpath.join(self.cwd or self.root, path))
        root = self.root.rstrip("/") + "/"
        return absolute[len(root):] if absolute.startswith(root) else path


def render_github(report: Report, checkout: Checkout) -> str:
    """Return one line per annotation; the last is a notice with the conclusion and the number of omitted findings."""
    lines, omitted = [], []
    for level in LEVELS:
        of_level = [finding for finding in report.findings if finding.level == level]
        limit = PER_LEVEL - 1 if level == "notice" else PER_LEVEL
        for finding in of_level[:limit]:
            source = finding.source
            path = checkout.path(source.file) if source else None
            at = {"file": visible(path), "line": str(source.line), "col": str(source.column)} if source and path else {}
            title = cut_visible(f"{finding.code}: {finding.subject}")
            message = "\n- ".join(map(cut_visible, (finding.message, *finding.details)))
            lines.append(_command(level, {**at, "title": title}, message))
        omitted += [count_of(len(of_level) - limit, level)] if len(of_level) > limit else []
    note = (f"\nnot shown, because GitHub shows at most {PER_LEVEL} of each per step: {', '.join(omitted)}; "
            "the other formats have all of them") if omitted else ""
    summary = _command("notice", {"title": cut_visible(report.title)}, cut_visible(report.conclusion) + note)
    return "\n".join([*lines, summary]) + "\n"


def _command(level: Level, properties: Mapping[str, str], message: str) -> str:
    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    named = ",".join(f"{name}={data(value).replace(':', '%3A').replace(',', '%2C')}"
                     for name, value in properties.items())
    return f"::{level} {named}::{data(message)}"


def render_sarif(report: Report, checkout: Checkout) -> str:
    """Return the SARIF log. Of more than RESULT_LIMIT findings it has the most severe, and the number of the others."""
    ordered = by_level(report.findings)
    shown = ordered[:RESULT_LIMIT]
    codes = list(dict.fromkeys(finding.code for finding in shown))
    rules = [{"id": code, "shortDescription": {"text": code_text(code)},
              "help": {"text": f"{code_text(code)}. See {help_page(code)}."}} for code in codes]
    notes = [("note", cut_visible(report.conclusion))]
    if omitted := len(ordered) - len(shown):
        reason = f"GitHub accepts at most {RESULT_LIMIT} in a run; the other formats have all of them"
        notes.append(("warning", f"{count_of(omitted, 'finding')} of lower level omitted: {reason}"))
    run = {
        "tool": {"driver": {"name": "fleetctl", "version": __version__, "rules": rules}},
        "automationDetails": {"id": f"{visible(report.identity)}/"},
        "invocations": [{
            "executionSuccessful": True, "exitCode": report.exit_code,
            "toolExecutionNotifications": [{"level": level, "message": {"text": note}} for level, note in notes]}],
        "results": _results(shown, report.file, checkout),
        "columnKind": "unicodeCodePoints",
        "properties": {total.key: total.count for total in report.totals},
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _results(findings: Sequence[Finding], default_file: str, checkout: Checkout) -> list[dict[str, Any]]:
    seen: Counter[tuple[str, str]] = Counter()
    results = []
    for finding in findings:
        key, source = (finding.code, finding.subject), finding.source
        text = "\n".join(map(cut_visible, (f"{finding.subject}: {finding.message}", *finding.details)))
        if "](" in text:  # brackets that would form a link are escaped as the standard requires
            text = re.sub(r"[\\\[\]]", r"\\\g<0>", text)
        # code scanning requires a location: the line of a finding, else the whole default file
        file = source.file if source else default_file
        path = checkout.path(file) if file else None
        region = {"region": {"startLine": source.line, "startColumn": source.column}} if source else {}
        uri = {"uri": quote(visible(path or "")), "uriBaseId": "%SRCROOT%"}
        locations = [] if path is None else [{"physicalLocation": {"artifactLocation": uri, **region}}]
        identity = "\0".join((*key, str(seen[key]))).encode("utf-8", "surrogatepass")
        results.append({
            "ruleId": finding.code, "level": "note" if finding.level == "notice" else finding.level,
            "message": {"text": text}, "locations": locations,
            "partialFingerprints": {"primaryLocationLineHash": sha256(identity).hexdigest()[:32]},
        })
        seen[key] += 1
    return results


def render_junit(report: Report) -> str:
    """Return the document; `failures` counts failed test cases, as readers expect, and `errors` is always 0."""
    by_subject: dict[str, list[Finding]] = {subject: [] for subject in report.subjects}
    for finding in by_level(report.findings):
        by_subject.setdefault(finding.subject, []).append(finding)
    failed = sum(any(row.level == "error" for row in findings) for findings in by_subject.values())
    counts = f'tests="{len(by_subject)}" failures="{failed}" errors="0"'
    name, group = _attribute(report.title), _attribute(report.fleet or report.kind)
    properties = [*((total.key, str(total.count)) for total in report.totals), *report.facts,
                  ("exitCode", str(report.exit_code))]
    return "\n".join([
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites name={name} {counts}>",
        f'  <testsuite name={name} {counts} skipped="0">',
        "    <properties>",
        *(f"      <property name={_attribute(name)} value={_attribute(value)}/>" for name, value in properties),
        "    </properties>",
        *(_case(f"    <testcase name={_attribute(subject)} classname={group}", findings)
          for subject, findings in by_subject.items()),
        f"    <system-out>{_text(report.conclusion)}</system-out>",
        "  </testsuite>",
        "</testsuites>",
    ]) + "\n"


def _case(head: str, findings: Sequence[Finding]) -> str:
    if not findings:
        return f"{head}/>"
    errors = [finding for finding in findings if finding.level == "error"]
    inside = []
    if errors:
        inside.append(f"      <failure type={_attribute(errors[0].code)} message={_attribute(errors[0].message)}>"
                      f"{_text(*map(_text_of, errors))}</failure>")
    if rest := [finding for finding in findings if finding.level != "error"]:
        inside.append(f"      <system-out>{_text(*map(_text_of, rest))}</system-out>")
    return "\n".join([f"{head}>", *inside, "    </testcase>"])


def _text_of(finding: Finding) -> str:
    source = f"{finding.source}: " if finding.source else ""
    return "\n".join(map(cut_visible, (f"{source}{finding.level} {finding.code}: {finding.message}", *finding.details)))


def _text(*parts: str) -> str:
    return escape("\n".join("\n".join(visible(line) for line in part.split("\n")) for part in parts))


def _attribute(text: str) -> str:
    return quoteattr(cut_visible(text))
