"""A report as GitHub's workflow commands: annotations at the lines of the fleet file, errors first.

GitHub shows at most 10 annotations of each level per step and 50 per job, and drops the rest silently. The last line,
one of the ten notices, counts the dropped ones. Report text cannot start a command, as it never begins a line.
"""

from __future__ import annotations

from fleetctl.documents.quantity import count_of
from fleetctl.render.report.markdown_text import cut_visible
from fleetctl.render.report.model import LEVELS, Finding, Level, Report
from fleetctl.render.report.places import Checkout
from fleetctl.render.visible import visible

PER_LEVEL = 10


def render_github(report: Report, checkout: Checkout) -> str:
    """Return one line per annotation; the last is a notice with the conclusion and the number of omitted findings."""
    lines, omitted = [], dict[Level, int]()
    for level in LEVELS:
        found = [finding for finding in report.findings if finding.level == level]
        most = PER_LEVEL - 1 if level == "notice" else PER_LEVEL
        lines += [_annotation(finding, checkout) for finding in found[:most]]
        omitted[level] = len(found[most:])
    return "\n".join([*lines, _summary(report, omitted)]) + "\n"


def _annotation(finding: Finding, checkout: Checkout) -> str:
    message = "\n- ".join(map(cut_visible, (finding.message, *finding.details)))
    properties = [*_place(finding, checkout), ("title", cut_visible(f"{finding.code}: {finding.subject}"))]
    return _command(finding.level, properties, message)


def _place(finding: Finding, checkout: Checkout) -> list[tuple[str, str]]:
    path = checkout.path(finding.place.file) if finding.place else None
    if finding.place is None or path is None:
        return []
    return [("file", visible(path)), ("line", str(finding.place.line)), ("col", str(finding.place.column))]


def _summary(report: Report, omitted: dict[Level, int]) -> str:
    counts = [count_of(omitted[level], level) for level in LEVELS if omitted[level]]
    note = (f"\nnot shown, because GitHub shows at most {PER_LEVEL} of each per step: {', '.join(counts)}; "
            "the other formats have all of them") if counts else ""
    return _command("notice", [("title", cut_visible(report.title))], cut_visible(report.conclusion) + note)


def _command(level: Level, properties: list[tuple[str, str]], message: str) -> str:
    named = ",".join(f"{name}={_property(value)}" for name, value in properties)
    return f"::{level} {named}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
