"""The command that makes a saved plan again."""

from __future__ import annotations

import shlex

import pytest
from small_plans import small_plan

from fleetctl.documents.difference import PlanChange, Revision
from fleetctl.documents.plan import Plan
from fleetctl.planner.options import PlanOptions, replan_command, valid_for_s


def command(plan: Plan, saved_as: str = "p.fleetplan") -> str:
    return replan_command(plan, saved_as)


def test_files_and_flags_are_those_the_plan_was_made_with() -> None:
    options = PlanOptions(("org/one:1",), ("org/gang",), "old", True, ("fleets/", "extra.yaml"))
    plan = small_plan("a", options=options, namespace="prod", address="http://192.0.2.1:8265")
    assert command(plan) == (
        "fleetctl plan -f fleets/ -f extra.yaml --target org/one:1 --exclude org/gang --adopt-from old "
        "--namespace prod --address http://192.0.2.1:8265 --force --out p.fleetplan")


def test_the_usual_expiry_is_left_out_but_the_namespace_is_always_given() -> None:
    plan = small_plan("a", options=PlanOptions(files=("f.yaml",)), expires_at="2026-03-05T12:00:00Z")
    assert command(plan) == "fleetctl plan -f f.yaml --namespace fleet --out p.fleetplan"


def test_base_and_expiry_are_kept() -> None:
    change = PlanChange(base=Revision(name="origin/main"), create=0, blocked=0, also_without=0)
    plan = small_plan("a", expires_at="2026-03-04T13:00:00Z").model_copy(update={"change": change})
    assert command(plan) == (
        "fleetctl plan -f FLEET --namespace fleet --base origin/main --expires 3600s --out p.fleetplan")


def test_names_are_quoted_for_a_shell() -> None:
    plan = small_plan("a", options=PlanOptions(files=("my fleet.yaml", "$(reboot)")))
    line = command(plan, "-rf; x")
    assert shlex.split(line) == ["fleetctl", "plan", "-f", "my fleet.yaml", "-f", "$(reboot)", "--namespace", "fleet",
                                 "--out=-rf; x"]


@pytest.mark.parametrize(("expires", "seconds"), [
    (None, None), ("2026-03-04T12:00:30Z", 30), ("2026-03-05T14:00:00+02:00", 86_400),
])
def test_the_validity_of_a_plan_is_shown_in_the_largest_unit(expires: str | None, seconds: int | None) -> None:
    assert valid_for_s(small_plan("a", expires_at=expires)) == seconds
