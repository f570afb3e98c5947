"""What a plan says of the fleet's policy, as lines: what is refused or lifted, and what a change alters of the policy.

The latter because a change is judged by the policy it brings along: who raises a limit and uses it in one change would
otherwise go unseen.
"""

from __future__ import annotations

from fleetctl.documents.difference import Difference
from fleetctl.documents.plan import Plan
from fleetctl.planner.policy import refusing
from fleetctl.render.difference_text import place_text, values_of
from fleetctl.render.plan_sections import Line, Section, cut
from fleetctl.render.visible import visible

POLICY_LINES = 20
ALTERED = "This change alters the policy it is judged by"


def policy_section(plan: Plan) -> Section:
    """Say which policies of the fleet file the plan would break, and which of them --force lifted."""
    lines = [Line(f"{'~' if finding.lifted else '!'} {visible(finding.message)}", "yellow" if finding.lifted else "red")
             for finding in plan.policy]
    title = "Refused by policy" if refusing(plan.policy) else "Policy: lifted by --force"
    return Section(title, cut(lines, POLICY_LINES))


def altered_policy(plan: Plan) -> list[Difference]:
    """Return what a change alters of the policy that the plan is judged by; nothing for a plan without a base."""
    return [one for one in (plan.change.differences if plan.change else ())
            if one.model is None and one.path.partition(".")[0] == "policy"]


def altered_policy_section(plan: Plan) -> Section:
    """Say what a change alters of the policy, with the line of each."""
    lines = [Line(visible(f"~ {altered_text(one)} at {place_text(one.new_source or one.old_source)}"), "yellow")
             for one in altered_policy(plan)]
    return Section(ALTERED, cut(lines, POLICY_LINES))


def altered_text(difference: Difference) -> str:
    """Return one change of the policy in words: `spec.policy.maxNewReplicas: 4 -> 400`; as it came, not yet safe."""
    old, new = values_of(difference)
    return f"spec.{difference.path}: {old} -> {new}"
