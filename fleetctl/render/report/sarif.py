"""A report as SARIF 2.1.0, for code scanning: one run, a rule per code, a result per finding.

The fingerprint of a result does not depend on its line, so an alert stays the same when lines above it move.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from fleetctl.documents.quantity import count_of
from fleetctl.render.report.code_texts import code_text, help_page
from fleetctl.render.report.markdown_text import cut_visible
from fleetctl.render.report.model import Finding, Report, by_level
from fleetctl.render.report.places import Checkout
from fleetctl.render.visible import visible
from fleetctl.version import __version__

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RESULT_LIMIT = 25_000
"""The most results that GitHub accepts in a run."""

LEVELS = {"error": "error", "warning": "warning", "notice": "note"}


def render_sarif(report: Report, checkout: Checkout) -> str:
    """Return the SARIF log. Of more than RESULT_LIMIT findings it has the most severe, and the number of the others."""
    ordered = by_level(report.findings)
    shown = ordered[:RESULT_LIMIT]
    codes = list(dict.fromkeys(finding.code for finding in shown))
    run = {
        "tool": {"driver": {"name": "fleetctl", "version": __version__, "rules": [_rule(code) for code in codes]}},
        "automationDetails": {"id": f"{visible(report.identity)}/"},
        "invocations": [_invocation(report, len(ordered) - len(shown))],
        "results": _results(shown, report.file, checkout),
        "columnKind": "unicodeCodePoints",
        "properties": {total.key: total.count for total in report.totals},
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(code: str) -> dict[str, Any]:
    text = code_text(code)
    return {"id": code, "shortDescription": {"text": text}, "help": {"text": f"{text}. See {help_page(code)}."}}


def _invocation(report: Report, omitted: int) -> dict[str, Any]:
    notes = [("note", cut_visible(report.conclusion))]
    if omitted:
        reason = f"GitHub accepts at most {RESULT_LIMIT} in a run; the other formats have all of them"
        notes.append(("warning", f"{count_of(omitted, 'finding')} of lower level omitted: {reason}"))
    return {"executionSuccessful": True, "exitCode": report.exit_code,
            "toolExecutionNotifications": [{"level": level, "message": {"text": note}} for level, note in notes]}


def _results(findings: Sequence[Finding], default_file: str, checkout: Checkout) -> list[dict[str, Any]]:
    seen: Counter[tuple[str, str]] = Counter()
    results = []
    for finding in findings:
        key = (finding.code, finding.subject)
        identity = "\0".join((*key, str(seen[key]))).encode("utf-8", "surrogatepass")
        results.append({
            "ruleId": finding.code, "level": LEVELS[finding.level],
            "message": {"text": _message(finding)}, "locations": _locations(finding, default_file, checkout),
            "partialFingerprints": {"primaryLocationLineHash": sha256(identity).hexdigest()[:32]},
        })
        seen[key] += 1
    return results


def _message(finding: Finding) -> str:
    """Return the message; brackets that would form a link are escaped as the standard requires."""
    text = "\n".join(map(cut_visible, (f"{finding.subject}: {finding.message}", *finding.details)))
    return re.sub(r"[\\\[\]]", r"\\\g<0>", text) if "](" in text else text


def _locations(finding: Finding, default_file: str, checkout: Checkout) -> list[dict[str, Any]]:
    """Return the place of a finding, else the whole default file: code scanning requires a location."""
    place, file = finding.place, finding.place.file if finding.place else default_file
    path = checkout.path(file) if file else None
    if path is None:
        return []
    region = {"region": {"startLine": place.line, "startColumn": place.column}} if place else {}
    uri = {"uri": quote(visible(path)), "uriBaseId": "%SRCROOT%"}
    return [{"physicalLocation": {"artifactLocation": uri, **region}}]
