"""The plan at a glance: what policy refuses, a row per model, what a change causes alone, where each new replica would
stand, what is blocked and why, and the totals.

Symbols: `+` creates, `!` blocked (something may be created too), `~` held, `*` all are live, but some are not ready or
outdated, `=` nothing to do. Everything that came from a file or a cluster is shown as plain text, never as markup or
terminal commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.plan import Certificate, ModelRow, Plan
from fleetctl.planner.policy import refusing
from fleetctl.render.change_section import change_section
from fleetctl.render.plan_sections import (
    Section,
    blocked_section,
    create_section,
    drift_section,
    lost_section,
    notes_section,
    unmanaged_section,
)
from fleetctl.render.policy_sections import altered_policy_section, policy_section
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

UNCHANGED_SHOWN = 20
"""More models with nothing to do than this are folded into one line."""

REASON_BESIDE_FROM = 110
"""From this many columns on the reason stands beside the numbers; below, under the model key."""

STYLES = {"+": "green", "!": "red", "~": "yellow", "*": "cyan", "=": "dim"}
ROW_HEAD = ("", "MODEL", "WANTED", "LIVE", "CREATE", "BLOCKED")


def render_plan_table(plan: Plan, console: Console) -> None:
    """Print the plan for a person."""
    from rich.text import Text

    _print_header(plan, console)
    _print_section(policy_section(plan), console)
    _print_section(altered_policy_section(plan), console)
    console.print()
    unchanged = [row for row in plan.models if symbol(row) == "="]
    folded = len(unchanged) > UNCHANGED_SHOWN
    rows = [row for row in plan.models if not (folded and symbol(row) == "=")]
    if rows:
        print_trimmed(_model_table(rows, short_reasons(plan), console.width), console)
    if folded:
        print_trimmed(Text(f"= {len(unchanged)} models with nothing to do (--format json lists them)", "dim"), console)
    for section in (change_section(plan), create_section(plan), blocked_section(plan), drift_section(plan),
                    unmanaged_section(plan), lost_section(plan), notes_section(plan)):
        _print_section(section, console)
    console.print()
    if plan.certificate.wanted:
        print_trimmed(Text(certificate_sentence(plan.certificate)), console)
    print_trimmed(Text(totals_line(plan), "bold"), console)


def symbol(row: ModelRow) -> str:
    """Return the one sign that says what the plan does about a model."""
    if row.blocked:
        return "!"
    if row.create:
        return "+"
    if row.surplus:
        return "~"
    return "*" if row.starting or row.outdated else "="


def certificate_sentence(certificate: Certificate) -> str:
    """Say how much of what is missing was placed, and how much could have been."""
    count, one = certificate.wanted, certificate.wanted == 1
    if certificate.placed == count:
        return "Places the missing replica." if one else f"Places all {count} missing replicas."
    proven, method = certificate.status == "optimal", visible(certificate.method)
    if one:
        start = f"The missing replica {'fits nowhere' if proven else 'was not placed'} ({method})"
        return f"{start}." if certificate.repacked_bound is None else f"{start}; it might if what runs could be moved."
    start = f"Places {certificate.placed or 'none'} of the {count} missing replicas"
    most = "proven maximal" if proven else f"at most {certificate.upper_bound} possible"
    moved = certificate.repacked_bound
    return f"{start}, {most} ({method})" + (f"; at most {moved} if what runs could be moved." if moved else ".")


def totals_line(plan: Plan) -> str:
    """Return the last line: the counts that decide the exit code, what is live but not as wanted, and the promise."""
    summary = plan.summary
    counts = [f"{summary.create} to create", f"{summary.blocked} blocked", f"{summary.hold} held"]
    counts += [f"{count} {word}" for word in ("starting", "restarting", "outdated")
               if (count := getattr(summary, word))]
    refused = "; refused by policy" if refusing(plan.policy) else ""
    return f"Plan: {', '.join(counts)}, 0 to remove (fleetctl never removes){refused}"


def _print_header(plan: Plan, console: Console) -> None:
    from rich.text import Text

    files = ", ".join(visible(source.path) for source in plan.fleet.files)
    git = plan.fleet.git
    revision = f" at {git.commit[:10]}{' with uncommitted changes' if git.dirty else ''}" if git else ""
    fleet = Text.assemble("Fleet ", (visible(plan.fleet.name), "bold"), f" from {files or 'no file'}{revision}")
    source, when, namespace = plan.inventory.source, plan.inventory.observed_at, plan.fleet.namespace
    inventory = Text(f"Inventory of {visible(when)} from {visible(source)}, namespace {visible(namespace)}")
    print_trimmed(fleet, console)
    print_trimmed(inventory, console)


def short_reasons(plan: Plan) -> dict[str, str]:
    """Return the reasons for the table: the arithmetic of what is blocked stands once, in its own section."""
    reasons = {row.key: row.reason for row in plan.models}
    for blocked in plan.blocked:
        if blocked.message and blocked.model in reasons:
            reasons[blocked.model] = reasons[blocked.model].replace(blocked.message, f"{blocked.code}, see below")
    return reasons


def _model_table(rows: Sequence[ModelRow], reasons: Mapping[str, str], width: int) -> Table:
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    beside = width >= REASON_BESIDE_FROM
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", expand=False)
    for head in ROW_HEAD:
        numeric = head not in {"", "MODEL"}
        table.add_column(head, justify="right" if numeric else "left", no_wrap=numeric, overflow="fold",
                         max_width=max(20, width // 2 - 10) if beside and head == "MODEL" else None)
    if beside:
        table.add_column("REASON", overflow="fold")
    for row in rows:
        sign = symbol(row)
        key, reason = Text(visible(row.key), style=STYLES[sign]), Text(visible(reasons[row.key]), style="dim")
        numbers = (str(row.wanted), str(row.live), str(row.create or "-"), str(row.blocked or "-"))
        model = key if beside else Group(key, Padding(reason, (0, 0, 0, 2)))
        table.add_row(Text(sign, style=STYLES[sign]), model, *numbers, *([reason] if beside else []))
    return table


def _print_section(section: Section, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    if not section.lines:
        return
    console.print()
    print_trimmed(Text(section.title, style="bold"), console)
    for line in section.lines:
        print_trimmed(Padding(Text(line.text, style=line.style), (0, 0, 0, line.indent)), console)
