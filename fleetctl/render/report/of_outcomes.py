"""The outcomes of an apply as a report, by replica: its address if it is ready, otherwise the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fleetctl.documents.events import Outcome, ReplicaOutcome
from fleetctl.documents.quantity import count_of
from fleetctl.render.report.model import Column, Report, Table
from fleetctl.render.report.weights_tables import got_weights

ORDER: tuple[Outcome, ...] = ("ready", "gone", "starting", "failed", "blocked", "skipped")
REPLICA = Column("replica", "replica", name=True)
OUTCOME_ROW = (
    REPLICA, Column("outcome", "outcome"), Column("code", "code", name=True, terminal="never"),
    Column("nodes", "nodes", name=True, terminal="beside"), Column("address", "address", name=True, terminal="beside"),
    Column("took", "time", numeric=True),
    Column("message", "why", terminal="never"))
REASON_ROW = (REPLICA, Column("outcome", "outcome"), Column("message", "why"))


def outcomes_report(outcomes: Sequence[ReplicaOutcome], *, interrupted: bool = False, verb: str = "apply") -> Report:
    """Return the report that an apply, or another verb, prints at its end."""
    return Report(kind="apply", title=verb.capitalize(), tables=outcome_tables(outcomes),
                  conclusion=totals(outcomes, interrupted=interrupted, verb=verb))


def outcome_tables(outcomes: Sequence[ReplicaOutcome]) -> tuple[Table, ...]:
    """Return a row per replica, the weights, and for a terminal the reasons; empty tables are omitted."""
    rows = [(replica_text(row), outcome_text(row), row.code or "", ", ".join(row.nodes),
             ", ".join(row.addresses) or row.address or "", took_text(row.seconds), row.message) for row in outcomes]
    reasons = [(replica_text(row), f"{outcome_text(row)}{f' ({row.code})' if row.code else ''}",
                (*row.message.split("\n"), *(row.notes if row.level else ()))) for row in outcomes
               if row.message and (row.outcome != "ready" or row.code)]
    tables = (Table("replica", "Replicas", OUTCOME_ROW, tuple(rows), beside_from=0), got_weights(outcomes),
              Table("why", "Why", REASON_ROW, tuple(reasons), line="{replica} {outcome}",
                    readers=frozenset({"terminal"})))
    return tuple(table for table in tables if table.rows)


def totals(outcomes: Sequence[ReplicaOutcome], *, interrupted: bool = False, verb: str = "apply") -> str:
    """Return the counts in one line; an apply never removes anything, so its count of removals is fixed."""
    counts = count_outcomes(outcomes)
    parts = [f"{counts[kind]} {kind}" for kind in ORDER if counts[kind]]
    if nodes := sum(len(row.nodes) for row in outcomes if _is_fetched(row)):
        parts.append(f"weights on {count_of(nodes, 'node')}")
    head = f"{verb.capitalize()}{', interrupted' if interrupted else ''}"
    if interrupted and not parts:
        return head
    return f"{head}: {', '.join(parts) if parts else 'nothing to do'}{', 0 removed' if verb == 'apply' else ''}"


def count_outcomes(outcomes: Sequence[ReplicaOutcome]) -> Counter[str]:
    """Return the number of replicas by outcome."""
    counts: Counter[str] = Counter()
    for row in outcomes:
        if not _is_fetched(row):
            counts[row.outcome] += row.replicas
    return counts


def _is_weights(row: ReplicaOutcome) -> bool:
    return row.level == "COLD" and row.replica_id is None  # weights on the disk of a node, not a replica


def _is_fetched(row: ReplicaOutcome) -> bool:
    return _is_weights(row) and row.outcome == "ready"


def replica_text(row: ReplicaOutcome) -> str:
    """Name the replica; replicas without ids yet are named by their model and number."""
    if _is_weights(row):
        return f"weights of {row.model}"
    name = row.model if row.replica_id is None else f"{row.model}/{row.replica_id}"
    return f"{name} (x{row.replicas})" if row.replicas > 1 else name


def outcome_text(row: ReplicaOutcome) -> str:
    """Return the outcome of a replica, such as `ready`, `promoted`, `gone to WARM`, or of weights: `fetched`."""
    if row.outcome == "ready" and row.level:
        return "fetched" if row.level == "COLD" else "promoted"
    return f"{row.outcome} to {row.level}" if row.level and row.outcome == "gone" else row.outcome


def took_text(seconds: float | None) -> str:
    """Return a duration such as 9.1s, 2m05s, 1h02m; "" for None."""
    if seconds is None:
        return ""
    if seconds < 100:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes < 100 else f"{minutes // 60}h{minutes % 60:02}m"
