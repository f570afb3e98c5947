"""The effect of a change of the fleet files alone: the plan of their base is compared with theirs.

Both plans are made on the same inventory, so every difference between them comes from the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from fleetctl.documents.canonical import plan_id
from fleetctl.documents.difference import CountsThen, Difference, ModelEffect, PlanChange, Revision
from fleetctl.documents.plan import FileWarning, ModelRow, Plan
from fleetctl.documents.quantity import count_of, grouped, in_a_row
from fleetctl.problem import Problem


def change_caused(base: Plan | None, head: Plan, differences: Sequence[Difference], revision: Revision) -> PlanChange:
    """Return the effect of the change since `revision`; `base` None = there was no fleet before."""
    before, after = _counts(base), _counts(head)
    in_both = sum(min(now.create, before[key].create) for key, now in after.items() if key in before)
    moves = _moves(base, head) if base else {}
    return PlanChange(
        base=revision,
        create=sum(counts.create for counts in after.values()) - in_both,
        blocked=sum(counts.blocked for counts in after.values()) - sum(counts.blocked for counts in before.values()),
        also_without=in_both,
        other_variant=sum(min(gained.total(), lost.total()) for gained, lost in moves.values()),
        no_longer=sum(counts.create for counts in before.values()) - in_both,
        drift=len(_drifting(head) - _drifting(base)),
        differences=list(differences),
        models=[*_effects(before, after, head, {difference.model for difference in differences}, _outdated(base, head),
                          moves),
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
    return {row.key: CountsThen(wanted=row.wanted, create=row.create + row.after_pilot, blocked=row.blocked,
                                hold=row.surplus, drift=drift[row.key], fetch=row.fetch, variants={
                                    one.name: count for one in row.variants if (count := one.create + one.after_pilot)})
            for row in plan.models}


def _drifting(plan: Plan | None) -> set[tuple[str, int]]:
    return {(row.model, row.replica_id) for row in plan.drift} if plan else set()


def _outdated(base: Plan | None, head: Plan) -> dict[str, list[str]]:
    """Return, by model key, the variant of each replica that only the head finds outdated."""
    before = _drifting(base)
    return grouped((row.model, row.variant) for row in head.drift
                   if row.is_outdated and row.variant and (row.model, row.replica_id) not in before)


def _moves(base: Plan, head: Plan) -> dict[str, tuple[Counter[str], Counter[str]]]:
    """Return, by model key, the new replicas by variant that only the head creates, and those that only the base does.

    Only of models with variants in both plans or in one, where the variant is "". The spec decides what is the same
    variant, since it may have another name now.
    """
    concerned = {row.key for plan in (base, head) for row in plan.models if row.variants}
    names = {(one.model, one.spec_hash): one.variant or "" for one in head.all_starts}
    after = grouped((one.model, one.variant or "") for one in head.all_starts if one.model in concerned)
    before = grouped((one.model, names.get((one.model, one.spec_hash), one.variant or "")) for one in base.all_starts
                     if one.model in concerned)
    counts = {key: (Counter(after.get(key, ())), Counter(before.get(key, ()))) for key in concerned}
    return {key: (now - was, was - now) for key, (now, was) in counts.items()}


def _effects(
    before: Mapping[str, CountsThen], after: Mapping[str, CountsThen], head: Plan, changed: Set[str | None],
    outdated: Mapping[str, Sequence[str]], moves: Mapping[str, tuple[Counter[str], Counter[str]]],
) -> Iterator[ModelEffect]:
    """Yield the models of the head that changed or have other counts, in the head's order."""
    for row in head.models:
        key, now = row.key, after[row.key]
        was, is_changed = before.get(key), key in changed
        if was is None:
            yield ModelEffect(key=key, kind="added", after=now, message=_added(row, now))
        elif message := _changed(was, now, outdated.get(key, ()), *moves.get(key, (Counter(), Counter()))):
            yield ModelEffect(key=key, kind="changed" if is_changed else "sideEffect", before=was, after=now,
                              message=message if is_changed else f"affected by another change: {message}")
        elif is_changed:
            counts = ((now.create, "to create"), (now.blocked, "blocked"))
            still = [f"{count} {word}" for count, word in counts if count]
            yield ModelEffect(key=key, kind="changed", before=was, after=now, message="changed; " + (
                f"still {', '.join(still)}" if still else "no replica is affected now"))


def _added(row: ModelRow, now: CountsThen) -> str:
    each = f" ({_of_each(now.variants)})" if now.variants else ""
    parts = [f"{now.create} to create{each}" if now.create else "", f"{row.blocked} blocked" if row.blocked else "",
             f"{row.live} live already" if row.live else "",
             f"{count_of(now.fetch, 'node')} to fetch weights" if now.fetch else ""]
    counts = ", ".join(part for part in parts if part) or (row.reason if row.wanted else "no target")
    return f"new in the file: {counts}"


def _removed(row: ModelRow) -> str:
    missing = f"; {count_of(row.create, 'replica')} would have been created" if row.create else ""
    if not row.live:
        return f"removed from the file; no replica of it runs{missing}"
    fate = ("replica becomes unmanaged and keeps running" if row.live == 1 else
            "replicas become unmanaged and keep running")
    return f"removed from the file: {row.live} live {fate}{missing}"


def _changed(old: CountsThen, new: CountsThen, outdated: Sequence[str], gained: Counter[str], lost: Counter[str]
             ) -> str:
    """Return what is different in words; "" if nothing is. `gained`, `lost` = its new replicas, as in `_moves`."""
    fetch = new.fetch - old.fetch
    drift = new.drift - old.drift
    create = _more(new.create - old.create, "to create")
    if create and new.variants:
        before = f" instead of {_of_each(old.variants)}" if lost and old.variants else ""
        create += f" (now {_of_each(new.variants)}{before})"
    parts = [create or _moved(gained, lost, new.create), _more(new.blocked - old.blocked, "blocked"),
             _more(new.hold - old.hold, "held"),
             *(_become_outdated(count, name) for name, count in Counter(outdated).items()),
             _more(drift, "reported as drift") if drift != len(outdated) else "",
             _more(fetch, f"node{'' if abs(fetch) == 1 else 's'} to fetch weights")]
    other = f"{new.wanted} wanted instead of {old.wanted}" if new.wanted != old.wanted else ""
    return ", ".join(part for part in parts if part) or other


def _moved(gained: Counter[str], lost: Counter[str], new: int) -> str:
    """Return which of as many `new` replicas as before are of another variant: what runs never changes its own."""
    if not gained:
        return ""
    of_all = "the new replica" if new == 1 else f"all {new} new replicas" if gained.total() == new else (
        f"{gained.total()} of {new} new replicas")
    each = of_all + _as_variant(next(iter(gained))) if len(gained) == 1 else f"{of_all}: {_of_each(gained)}"
    return f"{each}, instead of {in_a_row([name or 'the former workers' for name in lost])}"


def _of_each(counts: Mapping[str, int]) -> str:
    return in_a_row([f"{count}{_as_variant(name)}" for name, count in counts.items()])


def _as_variant(name: str) -> str:
    return f" as {name}" if name else " without a variant"


def _become_outdated(count: int, variant: str) -> str:
    return f"{count_of(count, 'running replica')} of variant {variant} become{'s' if count == 1 else ''} outdated"


def _more(difference: int, label: str) -> str:
    return f"{abs(difference)} {'more' if difference > 0 else 'fewer'} {label}" if difference else ""
