"""Annotations: at the right lines, most severe first, within GitHub's limits; text cannot become a command."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from random_cases import cases

from fleetctl.documents.position import Position
from fleetctl.render.report.annotations import Checkout, render_github
from fleetctl.render.report.model import LEVELS, Finding, Level
from fleetctl.render.visible import visible
from tests.render.report.samples import hostile_texts, report

CHECKOUT = Checkout("/repo", "/repo")


@dataclass(frozen=True)
class Command:
    level: str
    properties: dict[str, str]
    message: str


def parse(line: str) -> Command:
    """Read a line as GitHub's runner does (actions/runner, ActionCommand.TryParseV2)."""
    assert line.startswith("::")
    info, end, message = line[2:].partition("::")
    assert end
    level, _, attributes = info.partition(" ")
    pairs = [pair.partition("=") for pair in attributes.split(",") if pair]
    properties = {name.strip(): _unescape(value, {"%3A": ":", "%2C": ","}) for name, _, value in pairs}
    return Command(level, properties, _unescape(message))


def _unescape(text: str, more: dict[str, str] | None = None) -> str:
    for escaped, char in {"%0D": "\r", "%0A": "\n", **(more or {}), "%25": "%"}.items():
        text = text.replace(escaped, char)
    return text


def commands(text: str, checkout: Checkout = CHECKOUT) -> list[Command]:
    return [parse(line) for line in text.splitlines()]


def finding(level: Level, number: int) -> Finding:
    place = Position(file="fleets/a.yaml", line=number + 1, column=5)
    return Finding(level, "CODE", f"model-{number}", "said", place)


def test_annotations_are_at_their_lines_with_the_most_severe_first() -> None:
    found = commands(render_github(report("x"), CHECKOUT))
    assert [one.level for one in found] == ["error", "warning", "notice", "notice"]
    assert found[0].properties == {"file": "fleets/x.yaml", "line": "7", "col": "3", "title": "INSUFFICIENT_GPU: x"}
    assert found[0].message == "x\n- x\n- x"
    assert found[1].properties == {"title": "LOST: other"}


def test_the_last_line_is_the_conclusion() -> None:
    last = commands(render_github(report("x"), CHECKOUT))[-1]
    assert (last.properties, last.message) == ({"title": "Plan for fleet x"}, "All of x is well")


def test_annotations_beyond_the_limit_are_counted_in_the_last_of_the_ten() -> None:
    findings = tuple(finding(level, number) for number in range(25) for level in reversed(LEVELS))
    found = commands(render_github(report("x", findings=findings), CHECKOUT))
    assert Counter(one.level for one in found) == {"error": 10, "warning": 10, "notice": 10}
    assert found[-1].message.splitlines()[1] == (
        "not shown, because GitHub shows at most 10 of each per step: 15 errors, 15 warnings, 16 notices; "
        "the other formats have all of them")
    assert [one.properties["line"] for one in found[:10]] == [str(number) for number in range(1, 11)]


def test_nine_notices_and_the_conclusion_fit() -> None:
    nine = tuple(finding("notice", number) for number in range(9))
    assert "not shown" not in render_github(report("x", findings=nine), CHECKOUT)
    assert ": 1 notice;" in render_github(report("x", findings=(*nine, finding("notice", 9))), CHECKOUT)


@pytest.mark.parametrize(("file", "root", "cwd", "path"), [
    ("fleets/a.yaml", "/repo", "/repo", "fleets/a.yaml"),
    ("../fleets/./a.yaml", "/repo", "/repo/deploy", "fleets/a.yaml"),
    ("/repo/fleets/a.yaml", "/repo/", "/elsewhere", "fleets/a.yaml"),
    ("a.yaml", "/repo", "/repo/deploy", "deploy/a.yaml"),
    ("/elsewhere/a.yaml", "/repo", "/repo", "/elsewhere/a.yaml"),
    ("../a.yaml", "/repo", "/repo", "../a.yaml"),
    ("./a.yaml", "", "", "a.yaml"),
])
def test_paths_are_relative_to_the_root_of_the_repository(file: str, root: str, cwd: str, path: str) -> None:
    assert Checkout(root, cwd).path(file) == path


def test_standard_input_has_no_path() -> None:
    one = Finding("error", "CODE", "m", "said", Position(file="<stdin>", line=1, column=1))
    assert "file" not in commands(render_github(report("x", findings=(one,)), CHECKOUT))[0].properties


@settings(max_examples=cases(300))
@given(hostile_texts)
def test_hostile_text_adds_no_command_and_is_shown_as_text(text: str) -> None:
    written = render_github(report(text), CHECKOUT)
    lines = re.split("[\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", written.removesuffix("\n"))
    found = [parse(line) for line in lines]
    assert [(one.level, sorted(one.properties)) for one in found] == [
        ("error", ["col", "file", "line", "title"]), ("warning", ["title"]), *[("notice", ["title"])] * 2]
    escaped = visible(text)
    assert found[0].message == f"{escaped}\n- {escaped}\n- {escaped}"
    assert found[0].properties["title"] == f"INSUFFICIENT_GPU: {escaped}"
    for one in found:
        assert not any(line.startswith(("::", "##[")) for line in one.message.split("\n")[1:])


def test_a_long_message_is_cut() -> None:
    long = Finding("error", "CODE", "m", "x" * 100_000)
    message = commands(render_github(report("x", findings=(long,)), CHECKOUT))[0].message
    assert message == "x" * 2_000 + "... (98000 more characters)"
