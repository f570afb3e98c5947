"""The fleet's policy in the tables of a plan."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from fleetctl.documents.difference import Difference, PlanChange, Revision
from fleetctl.documents.plan import Plan, PolicyFinding
from fleetctl.documents.position import Position
from fleetctl.render.report.of_plan import plan_report
from fleetctl.render.report.terminal import print_report
from tests.render.render_plans import plan, row


def printed(document: Plan, width: int = 120) -> str:
    out = io.StringIO()
    print_report(plan_report(document), Console(file=out, width=width))
    return out.getvalue()


def finding(lifted: bool) -> PolicyFinding:
    return PolicyFinding(code="MAX_NEW_GPUS", key="spec.policy.maxNewGpus", message="the plan takes 9 GPUs", limit="8",
                         found="takes 9 GPUs", liftable=True, lifted=lifted)


def test_policy_violations_come_first() -> None:
    text = printed(plan(models=[row("org/a", 1, 0, create=1)], policy=[finding(lifted=False)]), width=120)
    assert text.index("Refused by policy\n  ! the plan takes 9 GPUs") < text.index("MODEL")
    assert text.splitlines()[-1].endswith("(fleetctl never removes); refused by policy")


def test_a_lifted_violation_is_shown_and_does_not_refuse_the_plan() -> None:
    text = printed(plan(policy=[finding(lifted=True)]))
    assert "Policy: lifted by --force\n  ~ the plan takes 9 GPUs" in text
    assert text.splitlines()[-1].endswith("(fleetctl never removes)")


def test_many_findings_are_cut_and_the_rest_counted() -> None:
    assert "and 980 more (--format json lists them)" in printed(plan(policy=[finding(lifted=False)] * 1000))


def changed(*differences: dict[str, Any]) -> Plan:
    place = Position(file="fleets/prod.yaml", line=6, column=21)
    listed = [Difference(**{"kind": "changed", "effect": "none", "new_source": place, "message": "", **one})
              for one in differences]
    return plan(change=PlanChange(base=Revision(name="main"), create=0, blocked=0, also_without=0, differences=listed))


ALTERED = "This change alters the policy it is judged by"


def test_a_change_of_the_policy_itself_is_shown_with_its_line() -> None:
    text = printed(changed({"path": "policy.maxNewReplicas", "old": 4, "new": 400},
                         {"path": "policy.protectedModels", "kind": "removed", "old": ["org/*"]}))
    assert (f"{ALTERED}\n  ~ spec.policy.maxNewReplicas: 4 -> 400 at fleets/prod.yaml:6:21\n"
            "  ~ spec.policy.protectedModels: org/* -> not set at fleets/prod.yaml:6:21\n") in text


def test_other_changes_do_not_alter_the_policy() -> None:
    assert ALTERED not in printed(plan())
    assert ALTERED not in printed(changed({"path": "cluster.namespace", "old": "a", "new": "b"},
                                        {"path": "policy.maxNewReplicas", "model": "m", "old": 1, "new": 2}))


def test_hostile_values_stay_on_their_line() -> None:
    text = printed(changed({"path": "policy.protectedModels", "new": ["\x1b[31m\nPlan: fine"]}))
    assert "\x1b" not in text
    assert "\nPlan: fine" not in text


def test_reports_have_a_table_and_a_warning_for_a_changed_policy() -> None:
    report = plan_report(changed({"path": "policy.maxNewReplicas", "old": 4, "new": 400}))
    [table] = [table for table in report.tables if table.title == ALTERED]
    assert table.rows == (("spec.policy.maxNewReplicas", "4", "400", "fleets/prod.yaml:6:21"),)
    [finding] = [one for one in report.findings if one.code == "POLICY_CHANGED"]
    assert (finding.level, finding.message) == ("warning", f"{ALTERED}: spec.policy.maxNewReplicas: 4 -> 400")
    assert finding.source == Position(file="fleets/prod.yaml", line=6, column=21)
    quiet = plan_report(plan())
    assert [one for one in (*quiet.tables, *quiet.findings) if "alter" in repr(one)] == []
