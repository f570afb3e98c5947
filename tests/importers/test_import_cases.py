"""Every case folder gives exactly the fleet file and the losses beside it, and that fleet file is valid.

`import_cases.py` explains how to add a case.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from import_cases import CASES, FOLDER, account, imported, runtime_of, sources

from fleetctl.fleetfile.format import format_source
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.draft import PLACEHOLDER
from fleetctl.importers.write import problems_of, write_draft
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.planner.plan import make_plan

HARDWARE = [case for case in CASES if (case / "hardware.yaml").exists()]
SECRETS = ("hf_literal", "hush")
"""Literal environment values in the cases: they are in the fleet file, and nowhere else."""


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_a_case_gives_the_fleet_file_beside_it(case: Path) -> None:
    draft = imported(sources(case), runtime=runtime_of(case)).draft
    assert write_draft(draft) == case.with_suffix(".fleet.yaml").read_text()


def test_a_case_reports_exactly_these_losses(case: Path) -> None:
    assert account(imported(sources(case), runtime=runtime_of(case))) == case.with_suffix(".losses.txt").read_text()


def test_the_fleet_file_loads_and_is_already_formatted(case: Path) -> None:
    text = case.with_suffix(".fleet.yaml").read_text()
    assert problems_of(text, "fleet.yaml") == ()
    assert not format_source(SourceBytes("fleet.yaml", text.encode())).changed


def test_no_loss_shows_a_value_of_an_environment(case: Path) -> None:
    losses = case.with_suffix(".losses.txt").read_text()
    assert [secret for secret in SECRETS if secret in losses] == []


def test_every_expected_output_belongs_to_a_case_folder() -> None:
    names = {case.name for case in CASES}
    assert {path.name.split(".")[0] for path in FOLDER.iterdir()} == names


@pytest.mark.parametrize("case", HARDWARE, ids=lambda case: case.name)
def test_a_fleet_fits_on_its_declared_hardware(case: Path) -> None:
    result = imported(sources(case))
    fleet = inspect_bytes([SourceBytes("fleet.yaml", write_draft(result.draft).encode())]).fleet
    plan = make_plan(fleet, result.inventory, PlanOptions(), PlanFacts(tool_version="0"))
    assert plan.summary.blocked == 0
    assert plan.summary.create == plan.summary.wanted > 0


def test_an_engine_without_a_command_has_the_placeholder_and_a_task(case: Path) -> None:
    draft = imported(sources(case), runtime=runtime_of(case)).draft
    waiting = {model.key for model in draft.models if PLACEHOLDER in str(model.value)}
    assert waiting <= {loss.model for loss in draft.losses if loss.kind == "todo"}
