"""JSON lines: one object per line, `version` first, `summary` last, every row and finding between them."""

from __future__ import annotations

import json

from hypothesis import given

from fleetctl.render.report.formats import render_jsonl
from tests.render.report.samples import hostile_texts, report


def test_every_line_is_an_object_with_a_type() -> None:
    lines = [json.loads(line) for line in render_jsonl(report()).splitlines()]
    assert [line["type"] for line in lines] == [
        "version", "fact", "totals", "row", "row", "more", "more", "finding", "finding", "finding", "summary"]
    assert lines[0]["formatVersion"] == "1.0"
    assert lines[-1] == {"type": "summary", "message": "All of x is well", "totals": {"wanted": 2, "blocked": 1},
                         "exitCode": 3}


def test_rows_have_the_keys_of_their_columns_and_numbers_stay_numbers() -> None:
    rows = [json.loads(line) for line in render_jsonl(report()).splitlines()][3:5]
    assert rows == [{"type": "row", "name": "x", "count": 1, "why": "x"},
                    {"type": "row", "name": "x", "count": 2, "why": ["x", "x"]}]


def test_a_finding_has_its_position() -> None:
    found = [json.loads(line) for line in render_jsonl(report()).splitlines()][8]
    assert found["source"] == {"file": "fleets/x.yaml", "line": 7, "column": 3}


@given(hostile_texts)
def test_hostile_text_stays_on_its_line_and_is_read_back_unchanged(text: str) -> None:
    written = render_jsonl(report(text))
    assert written.isascii()
    lines = [json.loads(line) for line in written.splitlines()]
    assert len(lines) == 11
    assert lines[3]["name"] == text
