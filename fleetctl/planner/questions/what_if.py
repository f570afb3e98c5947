"""What if: plans the fleet as it is and with hypothetical changes, and compares the two plans.

Both are ordinary plans by `make_plan`, so the answer is what `plan` would print after such changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fleetctl.documents.answers import Change, Counts, ModelChange, NewReplica, WhatIf
from fleetctl.documents.plan import Blocked, ModelRow
from fleetctl.errors import UsageError
from fleetctl.planner.questions.changes import CORDON_LABEL, Changes, changed
from fleetctl.planner.questions.each_node import lose_each
from fleetctl.planner.questions.scenario import Scenario


def what_if(scenario: Scenario, changes: Changes, *, each_node: bool = False) -> WhatIf:
    """Compare today's plan with the plan after `changes`; `each_node` adds the effect of losing each node.

    Raises UsageError if there are no changes or a name is unknown, InventoryError for an incomplete inventory.
    """
    if not changes and not each_node:
        raise UsageError("no change is given, so there is nothing to compare",
                         hint="use --lose-node, --cordon, --add-node, --scale or --each-node")
    before = scenario.plan()
    supposed, made = changed(scenario, changes)
    after = supposed.plan() if changes else before
    waiting = [{one.model: one.on_new_nodes for one in plan.blocked} for plan in (before, after)]
    rows = [_model(old, new, *(found.get(old.key, 0) for found in waiting))
            for old, new in zip(before.models, after.models, strict=True)]
    losses = lose_each(supposed, after) if each_node else None
    unplaced = losses is not None and any(model.missing for loss in losses for model in loss.models)
    return WhatIf(
        fleet=scenario.fleet.name, inventory=scenario.about(), changes=made, models=rows,
        before=_total(row.before for row in rows), after=_total(row.after for row in rows),
        unmanaged_lost=_unmanaged_on(scenario, made), created=[
            NewReplica(model=one.model, replica_id=one.replica_id, members=one.members) for one in after.actions],
        blocked=[_named(one, supposed) for one in after.blocked], growth=after.growth,
        certificate=after.certificate, each_node=losses, exit_code=3 if unplaced else after.exit_code,
    )


def _model(old: ModelRow, new: ModelRow, old_on_new: int, new_on_new: int) -> ModelChange:
    """Return the fate of one model's lost replicas; replicas that `--scale` adds do not count as missing.

    `old_on_new`, `new_on_new` = blocked replicas that would run on new nodes, before and after.
    """
    lost = max(0, old.live - new.live)
    needed = min(lost, max(0, new.wanted - new.live))
    more_blocked = new.blocked - old.blocked - max(0, new.wanted - old.wanted)
    missing = min(needed, max(0, more_blocked))
    return ModelChange(key=new.key, before=_counts(old, old_on_new), after=_counts(new, new_on_new), lost=lost,
                       replaced=needed - missing, surplus=lost - needed, missing=missing)


def _counts(row: ModelRow, on_new: int) -> Counts:
    return Counts(wanted=row.wanted, live=row.live, create=row.create, blocked=row.blocked, on_new_nodes=on_new)


def _total(counts: Iterable[Counts]) -> Counts:
    rows = list(counts)
    return Counts(**{name: sum(getattr(row, name) for row in rows) for name in Counts.model_fields})


def _unmanaged_on(scenario: Scenario, changes: Sequence[Change]) -> list[str]:
    """Return the replicas on lost nodes that this fleet does not manage; `scenario` is the one before the changes."""
    names = {name for change in changes if change.op == "loseNode" for name in change.nodes}
    found = scenario.occupants(scenario.opened())
    lost = {place for place, node in enumerate(found.nodes) if node.name in names}
    return [one.name for one in found.replicas if not one.counted and lost.intersection(one.places)]


def _named(blocked: Blocked, scenario: Scenario) -> Blocked:
    """Replace the name of the policy that --cordon adds by the flag, since no file has that policy."""
    ours = f"spec.nodes[{len(scenario.fleet.policies) - 1}].cordon"
    if not any(CORDON_LABEL in policy.selector for policy in scenario.fleet.policies):
        return blocked
    reasons = [one.model_copy(update={"need": one.need.replace(ours, "--cordon")}) for one in blocked.reasons]
    return blocked.model_copy(update={"message": blocked.message.replace(ours, "--cordon"), "reasons": reasons})
