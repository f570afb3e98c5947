"""The history for a terminal: a row per run; and one run with its replicas and its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.documents.events import Event
from fleetctl.documents.history import History, HistoryEntry, HistoryRun
from fleetctl.render.history_text import (
    PLAN_SHOWN,
    commit_text,
    history_sentence,
    result_text,
    run_facts,
    short_id,
    state_text,
    took_text,
)
from fleetctl.render.outcome_table import render_outcomes
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible
from fleetctl.render.words import with_note

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

STYLES = {"ok": "green", "partial": "yellow", "unknown": "bold red", "running": "cyan", "refused": "dim"}
BESIDE = ("VERB", "TOOK", "WHO", "COMMIT", "PLAN")
WIDE_FROM = 110
"""From this many columns on there is room for what stands beside the result."""
_LEVELS = {"error": "red", "warning": "yellow"}


def render_history(history: History, console: Console) -> None:
    """Print a row per run, the newest first, and a line of totals; who and from where goes below where it is narrow."""
    from rich.text import Text

    fleet = ["FLEET"] if len({run.fleet for run in history.runs}) > 1 else []
    heads = ["STARTED", "ID", *fleet, "STATE", "RESULT"]
    wide = console.width >= WIDE_FROM
    table = _table(*heads, *(BESIDE if wide else ()))
    for run in history.runs:
        cells = _cells(run)
        if wide:
            table.add_row(*(cells[head] for head in (*heads, *BESIDE)))
        else:
            told = ", ".join(str(cells[head]) for head in BESIDE if str(cells[head]) != "-")
            table.add_row(*(cells[head] for head in heads[:-1]), with_note(cells["RESULT"], told))
    if history.runs:
        print_trimmed(table, console)
        console.print()
    print_trimmed(Text(history_sentence(history), "bold"), console)


def _cells(run: HistoryEntry) -> dict[str, Text]:
    """Return the cells of a run by the heads of the table."""
    from rich.text import Text

    texts = {
        "STARTED": run.started_at, "ID": short_id(run.id), "VERB": run.verb, "FLEET": run.fleet, "STATE": run.state,
        "RESULT": result_text(run), "TOOK": took_text(run.seconds), "WHO": run.who, "COMMIT": commit_text(run),
        "PLAN": (run.plan_id or "")[:PLAN_SHOWN],
    }
    styles = {"ID": "bold", "STATE": STYLES[run.state]}
    return {head: Text(visible(text or "-"), styles.get(head, "")) for head, text in texts.items()}


def render_run(run: HistoryRun, console: Console) -> None:
    """Print what is known of one run: whose it is, what happened when, how it ended for each replica."""
    from rich.text import Text

    facts = _table(None, None)
    for name, text in run_facts(run, [source.path for source in run.files]):
        facts.add_row(Text(name, "dim"), Text(visible(text)))
    facts.add_row(Text("state", "dim"), Text(visible(state_text(run)), STYLES[run.state]))
    print_trimmed(facts, console)
    if run.events:
        console.print()
        print_trimmed(_timeline(run.events), console)
    if run.outcomes:
        console.print()
        render_outcomes(run.outcomes, console)


def _timeline(events: list[Event]) -> Table:
    from rich.text import Text

    table = _table("TIME", "EVENT")
    for event in events:
        table.add_row(Text(visible(event.time[11:23]), "dim"),
                      Text(visible(event.message), _LEVELS.get(event.level, "")))
    return table


def _table(*heads: str | None) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", expand=False,
                  show_header=heads[0] is not None)
    for head in heads:
        table.add_column(head or "", overflow="fold", justify="right" if head == "TOOK" else "left",
                         no_wrap=head in ("STARTED", "STATE", "VERB", "TOOK", "COMMIT", "PLAN"))
    return table
