"""Runs every file in cases/: a small cluster and fleet, and the expected plan. A new case needs no code here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from checker import check_plan
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl import errors
from fleetctl.documents.plan import Plan

CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_plan_is_as_the_case_expects(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    assert set(case) <= {"why", "inventory", "fleet", "options", "expect"}
    assert case["why"]
    fleet, inventory = short_fleet(case["fleet"]), short_inventory(case["inventory"])
    expected: dict[str, Any] = case["expect"]
    if "error" in expected:
        kind = getattr(errors, expected["error"]["type"])
        with pytest.raises(kind, match=expected["error"]["message"]) as caught:
            plan_for(fleet, inventory, **case.get("options", {}))
        assert expected["error"].get("hint", "") in (caught.value.hint or "")
        return
    plan = plan_for(fleet, inventory, **case.get("options", {}))
    check_plan(plan, fleet, inventory)
    assert _shown(plan, expected) == expected


def _shown(plan: Plan, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of the plan for which the case has expectations, in the form of the case."""
    document = plan.model_dump(mode="json", by_alias=True)
    views = {
        "actions": lambda: [" ".join([action.id, "on", *(member.node for member in action.members)])
                            for action in plan.actions],
        "slots": lambda: {action.id: [member.slot for member in action.members] for action in plan.actions},
        "variants": lambda: {action.id: action.variant for action in plan.actions},
        "gpus": lambda: {action.id: [member.gpus for member in action.members] for action in plan.actions},
        "ranks": lambda: {action.id: [f"{m.role} {m.group}.{m.copy_index}.{m.rank}" for m in action.members]
                          for action in plan.actions},
        "rows": lambda: {row.key: row.reason for row in plan.models if row.key in expected["rows"]},
    }
    return {key: views[key]() if key in views else _like(document[key], wanted) for key, wanted in expected.items()}


def _like(found: Any, wanted: Any) -> Any:
    """Reduce `found` to the keys in `wanted`, so that a case needs only the relevant ones."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return {key: _like(found.get(key), value) for key, value in wanted.items()}
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [_like(one, other) for one, other in zip(found, wanted, strict=True)]
    return found


def test_there_are_cases() -> None:
    assert len(CASES) >= 40
