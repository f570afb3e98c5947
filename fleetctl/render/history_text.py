"""A run of the history in words: its result, who started it, from which commit. One wording for table and report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from fleetctl.documents.history import History, HistoryEntry, RunState
from fleetctl.render.outcome_table import ORDER

STATES: tuple[RunState, ...] = ("ok", "partial", "unknown", "running", "refused")
UNKNOWN = {"DIED": "died without a summary", "LOG_GONE": "its log is gone"}
PLAN_SHOWN, COMMIT_SHOWN = 8, 7
_JOB = re.compile(r"fleetctl-[a-z]+-([0-9a-f]{12})")


def short_id(run_id: str) -> str:
    """Return what tells one run from another: the last part of an id of ours, any other id as it is."""
    match = _JOB.fullmatch(run_id)
    return match[1] if match else run_id


def result_text(run: HistoryEntry) -> str:
    """Return how the run ended, in the few words a row has room for."""
    if run.verb == "evict" and run.state == "ok":
        return f"evicted {run.replica}"
    counts = _counts(run)
    if run.state in ("ok", "partial"):
        return (counts or run.message) + (", interrupted" if run.code == "INTERRUPTED" else "")
    if run.state == "unknown":
        return UNKNOWN.get(run.code or "", run.message) + (f"; {counts}" if counts else "")
    return run.message


def state_text(run: HistoryEntry) -> str:
    """Return the state and why: for a run nobody knows the end of, all that Ray says of it."""
    counts = _counts(run)
    told = f"{run.message}{'; ' if counts else ''}{counts}" if run.state == "unknown" else result_text(run)
    return f"{run.state}: {told}"


def _counts(run: HistoryEntry) -> str:
    return ", ".join(f"{run.counts[kind]} {kind}" for kind in ORDER if run.counts.get(kind))


def commit_text(run: HistoryEntry, most: int | None = COMMIT_SHOWN) -> str:
    """Return the commit as git itself would describe it, `most` digits of it; empty where there is none."""
    return f"{run.commit[:most]}{'-dirty' if run.dirty else ''}" if run.commit else ""


def took_text(seconds: float | None) -> str:
    """Return a duration a person can compare: 9.1s, 2m05s, 1h02m."""
    if seconds is None:
        return ""
    if seconds < 100:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes < 100 else f"{minutes // 60}h{minutes % 60:02}m"


def history_sentence(history: History) -> str:
    """Return the last line of a history: how many runs of each state, and how many more the cluster remembers."""
    counts = count_states(history.runs)
    told = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) or "none"
    shown = len(history.runs)
    return f"Runs: {told}" + (f"; the newest {shown} of {history.total}" if shown < history.total else "")


def count_states(runs: Sequence[HistoryEntry]) -> Counter[str]:
    """Return how many of the runs are in each state."""
    return Counter(run.state for run in runs)


def run_sentence(run: HistoryEntry) -> str:
    """Return how one run ended, as a line of its own."""
    return f"{run.verb.capitalize()} {state_text(run)}"


def run_facts(run: HistoryEntry, files: Sequence[str] = ()) -> tuple[tuple[str, str], ...]:
    """Return what is known about a run beside its result, each fact with its name."""
    branch = f" on {run.branch}" if run.branch else ""
    facts = {
        "run": run.id,
        "fleet": f"{run.fleet or ''}{f' in namespace {run.namespace}' if run.namespace else ''}",
        "started": (run.started_at or "") + (f", took {took_text(run.seconds)}" if run.seconds is not None else ""),
        "by": run.who or "",
        "CI run": run.run or "",
        "replica": run.replica or "",
        "commit": f"{commit_text(run, None)}{branch}" if run.commit else "",
        "files": ", ".join(files),
        "plan id": run.plan_id or "",
        "made by": f"fleetctl {run.tool_version}" if run.tool_version else "",
    }
    return tuple((name, text) for name, text in facts.items() if text)
