"""The history as a report: a row per run; and one run with its replicas and its log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.history import History, HistoryEntry, HistoryRun
from fleetctl.render.history_text import (
    PLAN_SHOWN,
    STATES,
    commit_text,
    count_states,
    history_sentence,
    result_text,
    run_facts,
    run_sentence,
    short_id,
    took_text,
)
from fleetctl.render.outcome_table import ORDER
from fleetctl.render.report.model import Column, Finding, Level, Report, Table, Total

LEVEL_OF_STATE: dict[str, Level] = {"unknown": "error", "partial": "error", "refused": "warning", "running": "notice"}
LEVEL_OF_OUTCOME: dict[str, Level] = {
    "failed": "error", "blocked": "error", "starting": "warning", "skipped": "warning",
}
EXIT_CODES = {"ok": 0, "running": 0, "unknown": 1, "refused": 1, "partial": 3, "LOCK_HELD": 5, "PLAN_USED": 6}
"""What a run of each state ended with, or of each code where that says more."""

RUN_ROW = (
    Column("startedAt", "started"), Column("id", "id", name=True), Column("verb", "verb"), Column("fleet", "fleet"),
    Column("state", "state"), Column("result", "result"), Column("took", "took", numeric=True), Column("who", "who"),
    Column("commit", "commit", name=True), Column("planId", "plan", name=True),
)
OUTCOME_ROW = (
    Column("replica", "replica", name=True), Column("outcome", "outcome"), Column("code", "code", name=True),
    Column("nodes", "nodes", name=True), Column("address", "address", name=True), Column("took", "took", numeric=True),
    Column("message", "why"),
)
EVENT_ROW = (Column("time", "time"), Column("level", "level"), Column("message", "event"))


def history_report(history: History) -> Report:
    """Return the list of runs as every generic format shows it."""
    counts = count_states(history.runs)
    of_fleet = f" of fleet {history.fleet}" if history.fleet else ""
    return Report(
        kind="history",
        identity=f"history:{history.fleet or 'all'}",
        fleet=history.fleet or "",
        title=f"History{of_fleet}",
        verdict=history_sentence(history),
        facts=(("cluster", history.source), ("runs remembered", str(history.total))),
        totals=tuple(Total(state, state, counts[state]) for state in STATES),
        tables=(Table("run", "Runs", RUN_ROW, tuple(_run(run) for run in history.runs), rank=0),),
        findings=tuple(_verdict(run) for run in history.runs if run.state in LEVEL_OF_STATE),
        subjects=tuple(run.id for run in history.runs),
        exit_code=0,
    )


def run_report(run: HistoryRun) -> Report:
    """Return one run as every generic format shows it; its exit code is the run's own."""
    counts: Counter[str] = Counter()
    for row in run.outcomes:
        counts[row.outcome] += row.replicas
    return Report(
        kind="apply",
        identity=f"run:{run.id}",
        fleet=run.fleet or "",
        title=f"{run.verb.capitalize()} {short_id(run.id)}",
        verdict=run_sentence(run),
        facts=run_facts(run, [source.path for source in run.files]),
        totals=tuple(Total(outcome, outcome, counts[outcome]) for outcome in ORDER),
        tables=tuple(table for table in (_outcomes(run), _events(run)) if table.rows),
        findings=tuple(_findings(run)),
        subjects=tuple(dict.fromkeys(row.model for row in run.outcomes)),
        exit_code=EXIT_CODES.get(run.code or "", EXIT_CODES[run.state]),
    )


def _run(run: HistoryEntry) -> tuple[str, ...]:
    return (run.started_at or "", short_id(run.id), run.verb, run.fleet or "", run.state, result_text(run),
            took_text(run.seconds), run.who or "", commit_text(run), (run.plan_id or "")[:PLAN_SHOWN])


def _verdict(run: HistoryEntry) -> Finding:
    return Finding(LEVEL_OF_STATE[run.state], run.code or run.state.upper(), run.id, run_sentence(run))


def _outcomes(run: HistoryRun) -> Table:
    rows = tuple((_replica(row), row.outcome, row.code or "", ", ".join(row.nodes), row.address or "",
                  took_text(row.seconds), row.message) for row in run.outcomes)
    return Table("replica", "Replicas", OUTCOME_ROW, rows, rank=1)


def _events(run: HistoryRun) -> Table:
    rows = tuple((event.time, event.level, event.message) for event in run.events)
    return Table("event", "Log", EVENT_ROW, rows, folded=True, rank=2)


def _findings(run: HistoryRun) -> Iterator[Finding]:
    """Yield what is wrong with the run as a whole, where its replicas do not tell, then with each of them."""
    if run.state in ("unknown", "refused", "running") or (run.state == "partial" and not run.outcomes):
        yield _verdict(run)
    for row in run.outcomes:
        if row.outcome in LEVEL_OF_OUTCOME:
            level = "notice" if row.code == "TARGET_REACHED" else LEVEL_OF_OUTCOME[row.outcome]
            message = f"{_replica(row)} {row.outcome}{': ' if row.message else ''}{row.message}"
            yield Finding(level, row.code or row.outcome.upper(), row.model, message)


def _replica(row: ReplicaOutcome) -> str:
    """Name the replica; several that have no ids yet are the model with their count."""
    name = row.model if row.replica_id is None else f"{row.model}/{row.replica_id}"
    return f"{name} (x{row.replicas})" if row.replicas > 1 else name
