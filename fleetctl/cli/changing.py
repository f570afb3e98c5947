"""What a change of the fleet files causes alone, for `plan --base`: the base is planned on the same inventory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.cli.planning import Planned
    from fleetctl.documents.plan import Plan
    from fleetctl.fleetfile.load import LoadedFleet
    from fleetctl.fleetfile.resolved import ResolvedFleet
    from fleetctl.planner.options import PlanOptions
    from fleetctl.review.inputs import Side


def change_since(base: Side, files: Sequence[str], loaded: LoadedFleet, planned: Planned) -> Plan:
    """Return the plan with what the change of `files` since the base (see review/base.py) causes alone.

    Where the files had errors in it, as a change may be there to mend them, that is said and the plan is as without.
    """
    from fleetctl.cli.console import say
    from fleetctl.documents.difference import Revision
    from fleetctl.review.cause import change_caused, with_change
    from fleetctl.review.compare import differences, written
    from fleetctl.review.inputs import WORKING_TREE, Side

    if base.problems:
        say("warning", why_untold(base))
        return planned.plan
    head = Side(Revision(name=WORKING_TREE, files=list(files)), loaded.sound(), loaded.documents)
    found = list(differences(written(base), written(head)))
    # planning takes its time, and most pull requests change no fleet
    before = planned.plan if not found and _keys(base) == _keys(head) else _plan(base, planned)
    return with_change(planned.plan, change_caused(before, planned.plan, found, base.revision))


def why_untold(base: Side) -> str:
    """Say why a plan has nothing on what its change causes alone: the base has errors."""
    from fleetctl.documents.quantity import count_of
    from fleetctl.render.difference_text import revision_text

    return (f"the fleet at {revision_text(base.revision)} cannot be read ({count_of(len(base.problems), 'problem')}), "
            "so what the change causes alone is not told")


def _keys(side: Side) -> list[str]:
    return [model.key for model in side.fleet.models] if side.fleet else []


def _plan(base: Side, planned: Planned) -> Plan | None:
    """Return the plan of the base on the inventory of the head's; None where there was no fleet yet."""
    from fleetctl.planner.plan import make_plan

    if base.fleet is None:
        return None
    made = make_plan(base.fleet, planned.inventory, _options(base.fleet, planned.options), planned.facts)
    return _elsewhere(made) if _lives_elsewhere(base.fleet, planned) else made


def _options(fleet: ResolvedFleet, options: PlanOptions) -> PlanOptions:
    """Return the flags as far as they name models of the base; what --target does not name there stays unplanned."""
    from dataclasses import replace

    keys = {model.key for model in fleet.models}
    excludes = tuple(key for key in keys if options.left_out(key) is not None)
    return replace(options, targets=(), excludes=tuple(sorted(excludes)))


def _lives_elsewhere(fleet: ResolvedFleet, planned: Planned) -> bool:
    """Tell whether the base keeps its replicas in a namespace that this inventory does not count."""
    used = planned.facts.namespace
    return fleet.cluster.namespace != used == planned.fleet.cluster.namespace


def _elsewhere(plan: Plan) -> Plan:
    """Return the plan of a fleet that runs where it cannot be seen: it would create none of it anew."""
    rows = [row.model_copy(update={"create": 0, "blocked": 0}) for row in plan.models]
    return plan.model_copy(update={"models": rows})
