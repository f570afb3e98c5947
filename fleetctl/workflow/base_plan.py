"""The effect of a change of the fleet files alone, for `plan --base`: the base is planned on the same inventory."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.documents.difference import Revision
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import count_of
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.render.report.of_diff import revision_text
from fleetctl.review.cause import change_caused, marked_new, with_change
from fleetctl.review.compare import differences, written
from fleetctl.review.inputs import WORKING_TREE, Side
from fleetctl.workflow.invocation import Invocation
from fleetctl.workflow.planned import Planned


def add_change(invocation: Invocation, base: Side, loaded: LoadedFleet, planned: Planned) -> Plan:
    """Return the plan with the effect of the change since the base (see review/inputs.py:load_base) alone.

    A base with errors, which the change may be meant to fix, gives a warning and the plan as it is.
    """
    if base.problems:
        invocation.say("warning", why_unknown(base))
        return planned.plan
    head = Side(Revision(name=WORKING_TREE, files=list(planned.options.files)), planned.fleet, loaded.documents)
    found = list(differences(written(base), written(head)))
    # planning takes time, and most pull requests change no fleet
    keys, former = ([model.key for model in side.fleet.models] if side.fleet else [] for side in (head, base))
    before = planned.plan if not found and keys == former else _plan(invocation, base, planned)
    plan = planned.plan
    if plan.file_warnings:
        known = base.fleet.warnings if base.fleet else ()
        plan = plan.model_copy(update={"file_warnings": marked_new(plan.file_warnings, known)})
    return with_change(plan, change_caused(before, plan, found, base.revision))


def why_unknown(base: Side) -> str:
    """Return why the effect of the change alone is unknown: the base has errors."""
    return (f"the fleet at {revision_text(base.revision)} cannot be read ({count_of(len(base.problems), 'problem')}), "
            "so the effect of the change alone is unknown")


def _plan(invocation: Invocation, base: Side, planned: Planned) -> Plan | None:
    """Return the plan of the base on the same inventory; None if there was no fleet yet."""
    from fleetctl.planner.plan import make_plan  # NumPy

    if base.fleet is None:
        return None
    # the flags, applied to the models of the base: a model that --target does not name stays unplanned
    left_out = planned.options.left_out
    excludes = sorted(model.key for model in base.fleet.models if left_out(model.key, model.labels) is not None)
    options = replace(planned.options, targets=(), selector=None, excludes=tuple(excludes))
    with invocation.working(f"planning the fleet at {revision_text(base.revision)}"):
        made = make_plan(base.fleet, planned.inventory, options, planned.facts)
    if base.fleet.cluster.namespace != planned.facts.namespace == planned.fleet.cluster.namespace:
        # this inventory does not count the base's replicas, which run in another namespace, so the base creates none
        rows = [row.model_copy(update={"create": 0, "blocked": 0}) for row in made.models]
        return made.model_copy(update={"models": rows})
    return made
