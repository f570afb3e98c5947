"""What a change of the fleet files causes by itself: the plan of the base beside the plan of the head. Pure.

Both plans are made on the same inventory, so every difference between them comes from the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

from fleetctl.documents.canonical import plan_id
from fleetctl.documents.difference import CountsThen, Difference, ModelEffect, PlanChange, Revision
from fleetctl.documents.plan import ModelRow, Plan
from fleetctl.documents.quantity import count_of


def change_caused(base: Plan | None, head: Plan, differences: Sequence[Difference], revision: Revision) -> PlanChange:
    """Return what the change since `revision` causes; `base` None = there was no fleet yet."""
    before, after = _counts(base), _counts(head)
    both = sum(min(now.create, before[key].create) for key, now in after.items() if key in before)
    return PlanChange(
        base=revision,
        create=sum(one.create for one in after.values()) - both,
        blocked=sum(one.blocked for one in after.values()) - sum(one.blocked for one in before.values()),
        also_without=both,
        no_longer=sum(one.create for one in before.values()) - both,
        drift=len(_drifting(head) - _drifting(base)),
        differences=list(differences),
        models=[*_effects(before, after, head, {difference.model for difference in differences}),
                *(ModelEffect(key=row.key, kind="removed", before=before[row.key], message=_removed(row))
                  for row in (base.models if base else ()) if row.key not in after)],
    )


def with_change(plan: Plan, change: PlanChange) -> Plan:
    """Return the plan with its change, and the id it has with it."""
    whole = plan.model_copy(update={"change": change})
    return whole.model_copy(update={"plan_id": plan_id(whole.model_dump(mode="json", by_alias=True))})


def _counts(plan: Plan | None) -> dict[str, CountsThen]:
    """Return the counts of a plan by model; none where there is no plan."""
    if plan is None:
        return {}
    drift, fetch = Counter(one.model for one in plan.drift), {one.model: len(one.nodes) for one in plan.prefetches}
    return {row.key: CountsThen(wanted=row.wanted, create=row.create, blocked=row.blocked, hold=row.surplus,
                                drift=drift[row.key], fetch=fetch.get(row.key, 0)) for row in plan.models}


def _drifting(plan: Plan | None) -> set[tuple[str, int]]:
    return {(one.model, one.replica_id) for one in plan.drift} if plan else set()


def _effects(
    before: Mapping[str, CountsThen], after: Mapping[str, CountsThen], head: Plan, changed: Set[str | None]
) -> Iterator[ModelEffect]:
    """Yield the models of the head that changed or get something else, in its order."""
    for row in head.models:
        key, now = row.key, after[row.key]
        was, own = before.get(key), key in changed
        if was is None:
            yield ModelEffect(key=key, kind="added", after=now, message=_added(row, now.fetch))
        elif was != now:
            yield ModelEffect(key=key, kind="changed" if own else "sideEffect", before=was, after=now,
                              message=_moved(was, now, own=own))
        elif own:
            yield ModelEffect(key=key, kind="changed", before=was, after=now, message=_as_before(now))


def _added(row: ModelRow, fetch: int) -> str:
    parts = [f"{row.create} to create" if row.create else "", f"{row.blocked} blocked" if row.blocked else "",
             f"{row.live} live already" if row.live else "",
             f"{count_of(fetch, 'node')} to fetch weights" if fetch else ""]
    said = ", ".join(part for part in parts if part) or (row.reason if row.wanted else "no target")
    return f"new in the file: {said}"


def _removed(row: ModelRow) -> str:
    missing = f"; {count_of(row.create, 'replica')} would have been created" if row.create else ""
    if not row.live:
        return f"taken out of the file; nothing of it runs{missing}"
    runs = "replica becomes unmanaged and runs on" if row.live == 1 else "replicas become unmanaged and run on"
    return f"taken out of the file: {row.live} live {runs}{missing}"


def _moved(old: CountsThen, new: CountsThen, *, own: bool) -> str:
    fetch = new.fetch - old.fetch
    parts = [_more(new.create - old.create, "to create"), _more(new.blocked - old.blocked, "blocked"),
             _more(new.hold - old.hold, "kept beyond the target"), _more(new.drift - old.drift, "reported as drift"),
             _more(fetch, f"node{'' if abs(fetch) == 1 else 's'} to fetch weights")]
    said = ", ".join(part for part in parts if part) or f"{new.wanted} wanted instead of {old.wanted}"
    return said if own else f"not changed itself, but by another change: {said}"


def _as_before(now: CountsThen) -> str:
    still = [f"{count} {word}" for count, word in ((now.create, "to create"), (now.blocked, "blocked")) if count]
    return f"changed; still {', '.join(still)}" if still else "changed; no replica is affected now"


def _more(difference: int, what: str) -> str:
    return f"{abs(difference)} {'more' if difference > 0 else 'fewer'} {what}" if difference else ""
