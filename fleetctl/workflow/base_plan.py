"""The effect of a change of the fleet files alone, for `plan --base`: its base is planned, too, and compared.

Both plans are made on the same inventory, so every difference between them comes from the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from fleetctl.documents.canonical import plan_id
from fleetctl.documents.difference import CountsThen, Difference, ModelEffect, PlanChange, Revision
from fleetctl.documents.plan import FileWarning, ModelRow, Plan
from fleetctl.documents.quantity import count_of
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.problem import Problem
from fleetctl.render.report.of_diff import revision_text
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
    changes = list(differences(written(base), written(head)))
    # planning takes time, and most pull requests change no fleet
    keys, former = ([model.key for model in side.fleet.models] if side.fleet else [] for side in (head, base))
    before = planned.plan if not changes and keys == former else _plan(invocation, base, planned)
    plan = planned.plan
    if plan.file_warnings:
        former_warnings = base.fleet.warnings if base.fleet else ()
        plan = plan.model_copy(update={"file_warnings": marked_new(plan.file_warnings, former_warnings)})
    return with_change(plan, change_caused(before, plan, changes, base.revision))


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


def change_caused(base: Plan | None, head: Plan, differences: Sequence[Difference], revision: Revision) -> PlanChange:
    """Return the effect of the change since `revision`; `base` None = there was no fleet before."""
    before, after = _counts(base), _counts(head)
    in_both = sum(min(now.create, before[key].create) for key, now in after.items() if key in before)
    return PlanChange(
        base=revision,
        create=sum(counts.create for counts in after.values()) - in_both,
        blocked=sum(counts.blocked for counts in after.values()) - sum(counts.blocked for counts in before.values()),
        also_without=in_both,
        no_longer=sum(counts.create for counts in before.values()) - in_both,
        drift=len(_drifting(head) - _drifting(base)),
        differences=list(differences),
        models=[*_effects(before, after, head, {difference.model for difference in differences}),
                *(ModelEffect(key=row.key, kind="removed", before=before[row.key], message=_removed(row))
                  for row in (base.models if base else ()) if row.key not in after)],
    )


def with_change(plan: Plan, change: PlanChange) -> Plan:
    """Return the plan with its change, and with the plan id of the result."""
    changed = plan.model_copy(update={"change": change})
    return changed.model_copy(update={"plan_id": plan_id(changed.model_dump(mode="json", by_alias=True))})


def marked_new(warnings: Iterable[FileWarning], former: Iterable[Problem]) -> list[FileWarning]:
    """Return the warnings, with a mark on those that the base lacks; `former` = those of its files.

    Lines move, so code, message and model decide. Of several equal ones the last are new.
    """
    left = Counter((warning.code, warning.message, warning.model or None) for warning in former)
    marked = []
    for warning in warnings:
        key = (warning.code, warning.message, warning.model)
        marked.append(warning if left[key] > 0 else warning.model_copy(update={"new": True}))
        left[key] -= 1
    return marked


def _counts(plan: Plan | None) -> dict[str, CountsThen]:
    if plan is None:
        return {}
    drift = Counter(drifting.model for drifting in plan.drift)
    return {row.key: CountsThen(wanted=row.wanted, create=row.create, blocked=row.blocked, hold=row.surplus,
                                drift=drift[row.key], fetch=row.fetch) for row in plan.models}


def _drifting(plan: Plan | None) -> set[tuple[str, int]]:
    return {(row.model, row.replica_id) for row in plan.drift} if plan else set()


def _effects(
    before: Mapping[str, CountsThen], after: Mapping[str, CountsThen], head: Plan, changed: Set[str | None]
) -> Iterator[ModelEffect]:
    """Yield the models of the head that changed or have other counts, in the head's order."""
    for row in head.models:
        key, now = row.key, after[row.key]
        was, is_changed = before.get(key), key in changed
        if was is None:
            yield ModelEffect(key=key, kind="added", after=now, message=_added(row, now.fetch))
        elif was != now:
            yield ModelEffect(key=key, kind="changed" if is_changed else "sideEffect", before=was, after=now,
                              message=_changed(was, now, is_changed=is_changed))
        elif is_changed:
            counts = ((now.create, "to create"), (now.blocked, "blocked"))
            still = [f"{count} {word}" for count, word in counts if count]
            yield ModelEffect(key=key, kind="changed", before=was, after=now, message="changed; " + (
                f"still {', '.join(still)}" if still else "no replica is affected now"))


def _added(row: ModelRow, fetch: int) -> str:
    parts = [f"{row.create} to create" if row.create else "", f"{row.blocked} blocked" if row.blocked else "",
             f"{row.live} live already" if row.live else "",
             f"{count_of(fetch, 'node')} to fetch weights" if fetch else ""]
    counts = ", ".join(part for part in parts if part) or (row.reason if row.wanted else "no target")
    return f"new in the file: {counts}"


def _removed(row: ModelRow) -> str:
    missing = f"; {count_of(row.create, 'replica')} would have been created" if row.create else ""
    if not row.live:
        return f"removed from the file; no replica of it runs{missing}"
    fate = ("replica becomes unmanaged and keeps running" if row.live == 1 else
            "replicas become unmanaged and keep running")
    return f"removed from the file: {row.live} live {fate}{missing}"


def _changed(old: CountsThen, new: CountsThen, *, is_changed: bool) -> str:
    fetch = new.fetch - old.fetch
    parts = [_more(new.create - old.create, "to create"), _more(new.blocked - old.blocked, "blocked"),
             _more(new.hold - old.hold, "held"), _more(new.drift - old.drift, "reported as drift"),
             _more(fetch, f"node{'' if abs(fetch) == 1 else 's'} to fetch weights")]
    counts = ", ".join(part for part in parts if part) or f"{new.wanted} wanted instead of {old.wanted}"
    return counts if is_changed else f"affected by another change: {counts}"


def _more(difference: int, label: str) -> str:
    return f"{abs(difference)} {'more' if difference > 0 else 'fewer'} {label}" if difference else ""
