"""Drift: equal replicas share a line in a terminal; differences and the command to replace are shown."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from fleetctl.documents.plan import Drift, PlanFlags
from fleetctl.render.report.of_plan import plan_report
from fleetctl.render.report.terminal import print_report
from tests.render.render_plans import plan, row

NEXT_STEP = "to replace an outdated one: `fleetctl replace m -f FLEET`, which starts each new replica first"
ABOVE = Drift(model="m", replica_id=0, code="ABOVE_SLOT_CAP", message="above")


def outdated(model: str, replica_id: int, **more: Any) -> Drift:
    return Drift(**{"model": model, "replica_id": replica_id, "code": "SPEC_CHANGED", "message": "outdated", **more})


def printed(*drift: Drift, **parts: Any) -> str:
    out = io.StringIO()
    print_report(plan_report(plan(drift=list(drift), **parts)), Console(file=out, width=120))
    return out.getvalue()


def details(drift: Drift, **parts: Any) -> tuple[str, ...]:
    [finding] = plan_report(plan(drift=[drift], **parts)).findings
    return finding.details


def test_replicas_with_the_same_drift_share_a_line() -> None:
    text = printed(outdated("m", 0), outdated("m", 1), outdated("m", 2, changes=["x"]), outdated("n", 0),
                 outdated("m", 4), ABOVE)
    assert text.index("Drift: 6 (reported, never acted on)\n  to replace all outdated ones") > 0
    assert "\n  m/0-1,4, n/0: outdated\n  m/2: outdated\n    x\n  m/0: above\n" in text


def test_an_outdated_replica_shows_its_differences_and_the_command_to_replace_it() -> None:
    assert details(outdated("a b", 3, changes=["args: x -> y"])) == (
        "args: x -> y", "to replace it: `fleetctl replace 'a b' -f FLEET`, which starts each new replica first")


def test_the_command_names_the_files_given_and_for_several_models_it_is_a_rollout() -> None:
    files = PlanFlags(files=["fleets/prod.yaml", "more models.yaml"])
    named = "`fleetctl replace m -f fleets/prod.yaml -f 'more models.yaml'`, which starts each new replica first"
    assert f"to replace an outdated one: {named} m/0" in " ".join(printed(outdated("m", 0), options=files).split())
    assert details(outdated("m", 0), options=files) == (f"to replace it: {named}",)
    many = printed(*(outdated(f"m{number}", 0) for number in range(9)), options=files)
    assert ("to replace all outdated ones of 9 models: `fleetctl rollout -f fleets/prod.yaml -f 'more models.yaml'`, "
            "which starts each new replica first") in " ".join(many.split())


def test_a_surplus_replica_has_no_command_to_replace_it() -> None:
    surplus = [row("m", 1, 2, surplus=1)]
    assert plan_report(plan(drift=[outdated("m", 3)], models=surplus)).findings[0].details == ()
    assert NEXT_STEP not in printed(outdated("m", 3), models=surplus)


def test_other_drift_is_not_fixed_by_replace() -> None:
    assert details(ABOVE) == ()
    assert NEXT_STEP not in printed(ABOVE)
