"""The parts of a plan below its table, as lines: would create, blocked and why, drift, unmanaged, lost, notes.

Every section is cut at a limit and says what it left out; the JSON has everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.documents.plan import Blocked, Plan
from fleetctl.documents.quantity import count_of
from fleetctl.render.drift_text import alike, drift_details, models_with_surplus
from fleetctl.render.place_text import group_alike, ids_text
from fleetctl.render.reason_text import reason_text
from fleetctl.render.remedy_text import remedy_lines
from fleetctl.render.replica_text import replica_name
from fleetctl.render.visible import visible

CREATE_LINES, BLOCKED_MODELS, REPORT_LINES = 200, 50, 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line: text that is safe to show, a rich style, an indent in columns."""

    text: str
    style: str = ""
    indent: int = 2


@dataclass(frozen=True, slots=True)
class Section:
    """A titled run of lines; without lines it is not shown."""

    title: str
    lines: tuple[Line, ...]


def create_section(plan: Plan) -> Section:
    """Name node and amount for every new replica, model by model; replicas with the same place share a line."""
    rank = {row.key: number for number, row in enumerate(plan.models)}
    ordered = sorted(plan.actions, key=lambda action: (rank.get(action.model, len(rank)), action.replica_id))
    lines = [
        Line(f"+ {visible(model)}/{ids_text(ids)}: {place}{' (each)' if len(ids) > 1 else ''}", "green")
        for model, ids, place in group_alike(ordered)
    ]
    return Section("Would create", cut(lines, CREATE_LINES))


def blocked_section(plan: Plan) -> Section:
    """Say for every blocked model what is missing, node by node."""
    lines = [line for blocked in plan.blocked[:BLOCKED_MODELS] for line in _blocked_lines(blocked)]
    left_out = len(plan.blocked) - BLOCKED_MODELS
    return Section("Blocked", (*lines, *([_more(left_out)] if left_out > 0 else [])))


def drift_section(plan: Plan) -> Section:
    """List replicas that run but not as the file says; those that are alike share their lines."""
    lines: list[Line] = []
    surplus = models_with_surplus(plan)
    for replicas, drift in alike(plan.drift):
        lines.append(Line(f"{visible(replicas)}: {visible(drift.message)}"))
        lines += [Line(visible(text), indent=4) for text in drift_details(drift, surplus)]
    return Section(f"Drift: {len(plan.drift)} (reported, never acted on)", cut(lines, REPORT_LINES))


def unmanaged_section(plan: Plan) -> Section:
    """List what uses capacity but is not this fleet's to count."""
    lines = [Line(f"{replica_name(item.model, item.replica_id, item.foreign_id)}: {visible(item.message)}")
             for item in plan.unmanaged]
    return Section(f"Unmanaged: {len(plan.unmanaged)} (capacity in use, left alone)", cut(lines, REPORT_LINES))


def lost_section(plan: Plan) -> Section:
    """List replicas that are live for Ray and cannot serve."""
    lines = [Line(f"{replica_name(lost.model, lost.replica_id)}: {visible(lost.message)}", "yellow")
             for lost in plan.lost]
    return Section(f"Lost: {len(plan.lost)} (cannot serve; not counted)", cut(lines, REPORT_LINES))


def notes_section(plan: Plan) -> Section:
    """List what nodes say of themselves that does not count."""
    lines = [Line(visible(note.message), "yellow" if note.level == "warning" else "") for note in plan.notes]
    return Section("Notes on nodes", cut(lines, REPORT_LINES))


def _blocked_lines(blocked: Blocked) -> list[Line]:
    replicas = count_of(blocked.replicas, "replica")
    head = f"! {visible(blocked.model)}: {replicas}, {visible(blocked.code)}"
    return [Line(head, "red"), Line(visible(blocked.message), indent=4),
            *(Line(reason_text(reason, blocked.message), "dim", 6) for reason in blocked.reasons if reason.node_count),
            *(Line(text, indent=4) for text in remedy_lines(blocked))]


def cut(lines: Sequence[Line], limit: int) -> tuple[Line, ...]:
    """Return at most `limit` lines, and one that counts those left out."""
    return tuple(lines) if len(lines) <= limit else (*lines[:limit], _more(len(lines) - limit))


def _more(count: int) -> Line:
    return Line(f"and {count} more (--format json lists them)", "dim")
