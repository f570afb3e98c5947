"""What a change of the fleet files causes by itself: the plan of the base beside the plan of the head. Pure.

Both plans are made on the same inventory, so every difference between them comes from the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from typing import Literal

from fleetctl.documents.canonical import plan_id
from fleetctl.documents.difference import CountsThen, Difference, ModelEffect, PlanChange, Revision
from fleetctl.documents.plan import ModelRow, Plan
from fleetctl.documents.quantity import count_of


def change_caused(
    base: Plan | None, head: Plan, differences: Sequence[Difference], revision: Revision
) -> PlanChange:
    """Return what the change since `revision` causes; `base` None = there was no fleet yet."""
    before, after = _Counts(base), _Counts(head)
    both = sum(min(row.create, before.rows[key].create) for key, row in after.rows.items() if key in before.rows)
    return PlanChange(
        base=revision,
        create=after.total("create") - both,
        blocked=after.total("blocked") - before.total("blocked"),
        also_without=both,
        no_longer=before.total("create") - both,
        drift=len(after.drifting - before.drifting),
        differences=list(differences),
        models=list(_effects(before, after, {difference.model for difference in differences})),
    )


def with_change(plan: Plan, change: PlanChange) -> Plan:
    """Return the plan with its change, and the id it has with it."""
    whole = plan.model_copy(update={"change": change})
    return whole.model_copy(update={"plan_id": plan_id(whole.model_dump(mode="json", by_alias=True))})


class _Counts:
    """The counts of one of the two plans by model; empty where there is no plan."""

    def __init__(self, plan: Plan | None) -> None:
        self.rows = {row.key: row for row in plan.models} if plan else {}
        self.drifting = {(one.model, one.replica_id) for one in plan.drift} if plan else set()
        self._drift = Counter(model for model, _ in self.drifting)
        self._fetch = {one.model: len(one.nodes) for one in plan.prefetches} if plan else {}

    def total(self, name: Literal["create", "blocked"]) -> int:
        return sum(getattr(row, name) for row in self.rows.values())

    def counts(self, key: str) -> CountsThen | None:
        row = self.rows.get(key)
        return CountsThen(wanted=row.wanted, create=row.create, blocked=row.blocked, hold=row.surplus,
                          drift=self._drift[key], fetch=self._fetch.get(key, 0)) if row else None


def _effects(before: _Counts, after: _Counts, changed: Set[str | None]) -> Iterator[ModelEffect]:
    """Yield the models that changed or get something else, in the order of the head, those taken out last."""
    for key, row in after.rows.items():
        was, now = before.counts(key), after.counts(key)
        if was is None or now is None:
            yield ModelEffect(key=key, kind="added", after=now, message=_added(row, now.fetch if now else 0))
        elif was != now:
            own = key in changed
            yield ModelEffect(key=key, kind="changed" if own else "sideEffect", before=was, after=now,
                              message=_moved(was, now, own=own))
        elif key in changed:
            yield ModelEffect(key=key, kind="changed", before=was, after=now, message=_as_before(now))
    for key, row in before.rows.items():
        if key not in after.rows:
            yield ModelEffect(key=key, kind="removed", before=before.counts(key), message=_removed(row))


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
