"""What a plan has to say about lines of the fleet file: refusals, blocked models, drift, and the rest as notices."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.documents.difference import Difference
from fleetctl.documents.plan import Blocked, Plan, PolicyFinding
from fleetctl.documents.position import Position
from fleetctl.documents.quantity import count_of
from fleetctl.render.difference_text import values_of
from fleetctl.render.remedy_text import blocked_details
from fleetctl.render.report.model import Finding, Level
from fleetctl.render.report.plan_tables import ALTERED, altered_policy, is_replaceable, way_to_replace


def plan_findings(plan: Plan) -> tuple[Finding, ...]:
    """Return every finding: policies first, then what is blocked, lost, drifting, held, created, unmanaged, noted."""
    places = {row.key: row.source for row in plan.models}
    return (
        *(_policy(finding) for finding in plan.policy),
        *(_altered(difference) for difference in altered_policy(plan)),
        *(_blocked(blocked, places.get(blocked.model)) for blocked in plan.blocked),
        *_warnings(plan, places),
        *_notices(plan, places),
    )


def _policy(finding: PolicyFinding) -> Finding:
    level: Level = "warning" if finding.lifted else "error"
    return Finding(level, finding.code, finding.model or finding.key, finding.message, finding.source)


def _altered(difference: Difference) -> Finding:
    key, (old, new) = f"spec.{difference.path}", values_of(difference)
    return Finding("warning", "POLICY_CHANGED", key, f"{ALTERED}: {key}: {old} -> {new}", difference.new_source)


def _blocked(blocked: Blocked, place: Position | None) -> Finding:
    message = f"{count_of(blocked.replicas, 'replica')} blocked: {blocked.message}"
    return Finding("error", blocked.code, blocked.model, message, place, blocked_details(blocked))


def _warnings(plan: Plan, places: dict[str, Position | None]) -> Iterator[Finding]:
    surplus = {row.key for row in plan.models if row.surplus}
    for lost in plan.lost:
        yield Finding("warning", "LOST", lost.model, f"replica {lost.replica_id}: {lost.message}",
                      places.get(lost.model))
    for row in plan.models:
        if row.restarting:
            verb = "is" if row.restarting == 1 else "are"
            yield Finding("warning", "RESTARTING", row.key,
                          f"{count_of(row.restarting, 'live replica')} {verb} restarting", row.source)
    for drift in plan.drift:
        way_on = (f"to replace it: {way_to_replace(drift)}",) if is_replaceable(drift, surplus) else ()
        yield Finding("warning", drift.code, drift.model, f"replica {drift.replica_id}: {drift.message}",
                      places.get(drift.model), (*(drift.changes or ()), *way_on))



def _notices(plan: Plan, places: dict[str, Position | None]) -> Iterator[Finding]:
    for hold in plan.holds:
        yield Finding("notice", "HELD", hold.model, f"{hold.surplus} beyond the target of {hold.wanted}, kept",
                      places.get(hold.model))
    for row in plan.models:
        if row.create:
            yield Finding("notice", "CREATE", row.key, f"{count_of(row.create, 'replica')} to create", row.source)
    for wanted in plan.prefetches:
        yield Finding("notice", "PREFETCH", wanted.model,
                      f"{count_of(len(wanted.nodes), 'node')} to fetch its weights", places.get(wanted.model))
    for item in plan.unmanaged:
        yield Finding("notice", "UNMANAGED", item.model, item.message)
    for note in plan.notes:
        yield Finding(note.level, note.code, ", ".join(note.nodes), note.message)
