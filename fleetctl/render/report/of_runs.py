"""Runs as reports: the outcomes of an apply or another verb, by replica, with the address if it is ready, otherwise the
reason; the history, a row per run; and one run with its log and its replicas.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.base import as_datetime
from fleetctl.documents.events import Outcome, ReplicaOutcome
from fleetctl.documents.inventory import LAST_OUTPUT
from fleetctl.documents.names import command_line
from fleetctl.documents.quantity import count_of, grouped
from fleetctl.render.report.model import VARIANT, Column, Finding, Level, Report, Table, Total
from fleetctl.render.report.of_weights import got_weights

if TYPE_CHECKING:
    from fleetctl.documents.events import History, HistoryEntry, HistoryRun, RunState

ORDER: tuple[Outcome, ...] = ("ready", "gone", "starting", "failed", "blocked", "skipped")
REPLICA = Column("replica", "replica", name=True)
OUTCOME_ROW = (
    REPLICA, Column("outcome", "outcome"), Column("code", "code", name=True, terminal="never"),
    Column("nodes", "nodes", name=True, terminal="beside"), Column("address", "address", name=True, terminal="beside"),
    Column("took", "time", numeric=True),
    Column("message", "why", terminal="never"))
REASON_ROW = (REPLICA, Column("outcome", "outcome"), Column("message", "why"))
STATES: tuple[RunState, ...] = ("ok", "partial", "unknown", "running", "refused")
UNKNOWN = {"DIED": "died without a summary", "LOG_GONE": "its log is gone",
           "INTERRUPTED": "stopped without a summary"}
PAST_TENSE = {"evict": "evicted", "restart": "restarted"}
OURS = {True: "as this fleetctl sends it", False: "not the one that this fleetctl sends", None: ""}
PLAN_SHOWN, COMMIT_SHOWN = 8, 7
LEVEL_OF_STATE: dict[str, Level] = {"unknown": "error", "partial": "error", "refused": "warning", "running": "notice"}
LEVEL_OF_OUTCOME: dict[str, Level] = {
    "failed": "error", "blocked": "error", "starting": "warning", "skipped": "warning",
}
EXIT_CODES = {"ok": 0, "running": 0, "unknown": 1, "refused": 1, "partial": 3, "LOCK_HELD": 5, "PLAN_USED": 6}
"""The exit code of a run by its state, or by its code if that is more specific."""
EVENT_ROW = (Column("time", "time"), Column("level", "level"), Column("message", "event"))
WORST_FIRST: tuple[RunState, ...] = ("running", "unknown", "refused", "partial", "ok")
_JOB = re.compile(r"(?:fleetctl-)?[a-z]+-([0-9a-f]{12})")


def outcomes_report(outcomes: Sequence[ReplicaOutcome], *, interrupted: bool = False, verb: str = "apply") -> Report:
    """Return the report that an apply, or another verb, prints at its end."""
    return Report(kind="apply", title=verb.capitalize(), tables=outcome_tables(outcomes),
                  conclusion=totals(outcomes, interrupted=interrupted, verb=verb))


def outcome_tables(outcomes: Sequence[ReplicaOutcome]) -> tuple[Table, ...]:
    """Return a row per replica, the weights, and for a terminal the reasons; empty tables are omitted."""
    in_variants = any(row.variant for row in outcomes)
    columns = (REPLICA, VARIANT, *OUTCOME_ROW[1:]) if in_variants else OUTCOME_ROW
    rows = [(replica_text(row), *([row.variant or ""] if in_variants else []), outcome_text(row), row.code or "",
             ", ".join(row.nodes), ", ".join(row.addresses) or row.address or "", took_text(row.seconds), row.message)
            for row in outcomes]
    reasons = [(replica_text(row), f"{outcome_text(row)}{f' ({row.code})' if row.code else ''}",
                (*_why(row), *(row.notes if row.level else ()))) for row in outcomes
               if row.message and (row.outcome != "ready" or row.code)]
    tables = (Table("replica", "Replicas", columns, tuple(rows), beside_from=0), got_weights(outcomes),
              Table("why", "Why", REASON_ROW, tuple(reasons), line="{replica} {outcome}",
                    readers=frozenset({"terminal"})))
    return tuple(table for table in tables if table.rows)


def _why(row: ReplicaOutcome) -> list[str]:
    """Return a row's message in lines: the reason first, then the engine's last output, and where the rest is.

    The output of a replica of another variant is in the log of that one, which the reason names.
    """
    reason, has_output, output = row.message.partition(LAST_OUTPUT)
    if not has_output:
        return row.message.split("\n")
    command = command_line("fleetctl logs", [replica_text(row)])
    rest = [] if row.code == "OTHER_VARIANT" else [f"all of it: {command}"]
    return [*reason.split("\n"), "last output:", *(f"  {line}" for line in output.split("\n")), *rest]


def totals(outcomes: Sequence[ReplicaOutcome], *, interrupted: bool = False, verb: str = "apply") -> str:
    """Return the counts in one line; an apply never removes anything, so its count of removals is fixed."""
    counts = count_outcomes(outcomes)
    parts = [f"{counts[kind]} {kind}" for kind in ORDER if counts[kind]]
    if nodes := sum(len(row.nodes) for row in outcomes if _is_fetched(row)):
        parts.append(f"weights on {count_of(nodes, 'node')}")
    if interrupted and not parts:
        return f"{verb.capitalize()}, interrupted"
    return (f"{verb.capitalize()}{', interrupted' if interrupted else ''}: "
            f"{', '.join(parts) if parts else 'nothing to do'}{', 0 removed' if verb == 'apply' else ''}")


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


def history_report(history: History) -> Report:
    """Return the report of all runs, the newest first; the steps of one command are one run."""
    runs = whole_commands(history.runs)
    counts = Counter(run.state for run in runs)
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) or "none"
    shown = len(history.runs)
    return Report(
        kind="history",
        identity=f"history:{history.fleet or 'all'}",
        fleet=history.fleet or "",
        title=f"History{f' of fleet {history.fleet}' if history.fleet else ''}",
        facts=(("cluster", history.source), ("runs remembered", str(history.total))),
        totals=tuple(Total(state, state, counts[state]) for state in STATES),
        tables=(_runs(runs),),
        conclusion=f"Runs: {states}" + (f"; the newest {shown} of {history.total}" if shown < history.total else ""),
        findings=tuple(_finding(run) for run in runs if run.state in LEVEL_OF_STATE),
        subjects=tuple(run.id for run in runs))


def run_report(run: HistoryRun) -> Report:
    """Return the report of one run, with the exit code of the run."""
    counts, facts = count_outcomes(run.outcomes), tuple(_facts(run))
    events = tuple((event.time, event.level, event.message) for event in run.events)
    log = (Table("event", "Log", EVENT_ROW, events, folded=True, rank=2),) if events else ()
    return Report(
        kind="apply",
        identity=f"run:{run.id}",
        fleet=run.fleet or "",
        title=f"{_verb(run).capitalize()} {short_id(run.id)}",
        heading=tuple(f"{name:7}  {text}" for name, text in facts),
        facts=facts,
        totals=tuple(Total(outcome, outcome, counts[outcome]) for outcome in ORDER),
        tables=(*log, *outcome_tables(run.outcomes)),
        conclusion=_run_sentence(run),
        findings=tuple(_findings(run)),
        subjects=tuple(dict.fromkeys(row.model for row in run.outcomes)),
        exit_code=EXIT_CODES.get(run.code or "", EXIT_CODES[run.state]))


def short_id(run_id: str) -> str:
    """Return the last part of an id in our scheme, any other id as it is."""
    match = _JOB.fullmatch(run_id)
    return match[1] if match else run_id


def whole_commands(runs: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Merge the steps of a replace or a drain into one run, at the place of the newest step, with the worst state."""
    steps = grouped((run.step_of or run.id, run) for run in runs)
    return [_merged(name, runs_of) if runs_of[0].step_of else runs_of[0] for name, runs_of in steps.items()]


def _merged(name: str, steps: Sequence[HistoryEntry]) -> HistoryEntry:
    worst = min(steps, key=lambda run: WORST_FIRST.index(run.state))
    started, ended, counts = steps[-1].started_at, steps[0].ended_at, Counter[Outcome]()
    for run in steps:
        counts.update(run.counts)
    took = (as_datetime(ended) - as_datetime(started)).total_seconds() if started and ended else None
    return worst.model_copy(update={
        "id": name, "verb": name.partition("-")[0], "counts": dict(counts),
        "forgotten": sum(run.forgotten for run in steps), "started_at": started, "ended_at": ended,
        "seconds": took, "fleet": next((run.fleet for run in steps if run.fleet), None)})


def _runs(runs: Sequence[HistoryEntry]) -> Table:
    several = len({run.fleet for run in runs if run.fleet}) > 1
    columns = (
        Column("startedAt", "started"), Column("id", "id", name=True),
        Column("fleet", "fleet", terminal="always" if several else "never"), Column("state", "state"),
        Column("result", "result"), Column("verb", "verb", terminal="beside"),
        Column("took", "took", numeric=True, terminal="beside"), Column("who", "who", terminal="beside"),
        Column("commit", "commit", name=True, terminal="beside"),
        Column("planId", "plan", name=True, terminal="beside"), Column("agent", "agent", name=True, terminal="never"))
    rows = tuple((run.started_at or "", short_id(run.id), run.fleet or "", run.state, _result(run), _verb(run),
                  took_text(run.seconds), run.who or "", _commit(run, COMMIT_SHOWN), (run.plan_id or "")[:PLAN_SHOWN],
                  (run.agent or "")[:PLAN_SHOWN])
                 for run in runs)
    return Table("run", "Runs", columns, rows, rank=0)


def _result(run: HistoryEntry) -> str:
    if run.state == "ok" and run.verb in PAST_TENSE:
        named = run.replicas[0] if len(run.replicas) == 1 else count_of(len(run.replicas), "replica")
        return f"{PAST_TENSE[run.verb]} {named}{f' to {run.level}' if run.level else ''}"
    counts = _counts(run)
    if run.state in ("ok", "partial") or run.code == "NO_LONGER_KNOWN":
        return (counts or run.message) + (", interrupted" if run.code == "INTERRUPTED" else "")
    if run.state == "unknown":
        return UNKNOWN.get(run.code or "", run.message) + (f"; {counts}" if counts else "")
    return run.message


def _run_sentence(run: HistoryEntry) -> str:
    counts = _counts(run)
    of_run = run.state == "unknown" and run.code != "NO_LONGER_KNOWN"
    result = f"{run.message}{'; ' if counts else ''}{counts}" if of_run else _result(run)
    return f"{_verb(run).capitalize()} {run.state}: {result}"


def _verb(run: HistoryEntry) -> str:
    """Return the user's word for the run: several commands submit an apply."""
    return run.command if run.verb == "apply" and run.command else run.verb


def _counts(run: HistoryEntry) -> str:
    forgotten = [f"{run.forgotten} no longer known"] if run.forgotten else []
    return ", ".join([*(f"{run.counts[kind]} {kind}" for kind in ORDER if run.counts.get(kind)), *forgotten])


def _commit(run: HistoryEntry, digits: int | None = None) -> str:
    """Return the first `most` digits of the commit, with git's suffix `-dirty`; "" if there is none."""
    return f"{run.commit[:digits]}{'-dirty' if run.dirty else ''}" if run.commit else ""


def _facts(run: HistoryRun) -> Iterator[tuple[str, str]]:
    branch = f" on {run.branch}" if run.branch else ""
    facts = {
        "run": run.id,
        "fleet": f"{run.fleet}{f' in namespace {run.namespace}' if run.namespace else ''}" if run.fleet else "",
        "namespace": "" if run.fleet else run.namespace or "",
        "started": (run.started_at or "") + (f", took {took_text(run.seconds)}" if run.seconds is not None else ""),
        "by": run.who or "",
        "CI run": run.run or "",
        "replica": ", ".join(run.replicas),
        "commit": f"{_commit(run)}{branch}" if run.commit else "",
        "files": ", ".join(source.path for source in run.files),
        "plan id": run.plan_id or "",
        "made by": f"fleetctl {run.tool_version}" if run.tool_version else "",
        "agent": f"{run.agent}, {OURS[run.agent_of_this_version]}" if run.agent else "",
    }
    yield from ((name, text) for name, text in facts.items() if text)


def _finding(run: HistoryEntry) -> Finding:
    return Finding(LEVEL_OF_STATE[run.state], run.code or run.state.upper(), run.id, _run_sentence(run))


def _findings(run: HistoryRun) -> Iterator[Finding]:
    """Yield a finding for the run as a whole unless its replicas have it, then one for each failed replica."""
    if run.state in ("unknown", "refused", "running") or (run.state == "partial" and not run.outcomes):
        yield _finding(run)
    for row in run.outcomes:
        if row.outcome in LEVEL_OF_OUTCOME:
            level = "notice" if row.code == "TARGET_REACHED" else LEVEL_OF_OUTCOME[row.outcome]
            message = f"{replica_text(row)} {row.outcome}{': ' if row.message else ''}{row.message}"
            yield Finding(level, row.code or row.outcome.upper(), row.model, message)
