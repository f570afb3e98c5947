"""Rendering a report in any format."""

from __future__ import annotations

from typing import get_args

import pytest

from fleetctl.render.report.formats import OWN_FORMATS, ReportFormat, render_report
from tests.render.report.samples import report

BEGINS = {
    "jsonl": '{"type": "version"', "markdown": "<!-- fleetctl:plan:x -->",
    "html": "<!", "github": "::error file=fleets/x.yaml,line=7",
    "sarif": '{\n "$schema"', "junit": "<?xml",
}


@pytest.mark.parametrize("chosen", sorted({*get_args(ReportFormat)} - OWN_FORMATS))
def test_every_format_without_an_own_document_is_made_from_the_report(chosen: ReportFormat) -> None:
    text = render_report(report(), chosen, root="/repo", cwd="/repo")
    assert text.startswith(BEGINS[chosen])
    assert text.endswith("\n")


@pytest.mark.parametrize("chosen", BEGINS)
def test_the_same_report_gives_the_same_bytes(chosen: ReportFormat) -> None:
    assert render_report(report(), chosen) == render_report(report(), chosen)
