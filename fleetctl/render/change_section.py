"""The part of a plan that says what the change since a base revision causes alone."""

from __future__ import annotations

from shlex import quote

from fleetctl.documents.difference import ModelEffect, PlanChange
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import count_of
from fleetctl.render.difference_text import revision_text
from fleetctl.render.plan_sections import Line, Section
from fleetctl.render.visible import visible

MODELS_SHOWN = 50
SIGNS = {"added": "+", "removed": "-", "changed": "~", "sideEffect": "!"}
STYLES = {"added": "green", "removed": "cyan", "changed": "", "sideEffect": "yellow"}


def change_section(plan: Plan) -> Section:
    """Say what the change causes, model by model; empty for a plan without a base."""
    if plan.change is None:
        return Section("This change alone", ())
    change = plan.change
    shown = [_line(effect) for effect in change.models[:MODELS_SHOWN]]
    left_out = len(change.models) - MODELS_SHOWN
    more = [Line(f"and {count_of(left_out, 'more model')} (--format json lists them)", "dim")] if left_out > 0 else []
    title = f"This change alone, since {visible(revision_text(change.base))}"
    return Section(title, (Line(change_sentence(change), "bold"), *shown, *more, Line(_files(change), "dim")))


def change_sentence(change: PlanChange) -> str:
    """Say in one sentence what the change causes, and what would be done without it, too."""
    parts = [f"{change.create} to create"]
    if change.no_longer:
        parts.append(f"{change.no_longer} no longer to create")
    if change.blocked:
        parts.append(f"{abs(change.blocked)} {'more' if change.blocked > 0 else 'fewer'} blocked")
    if change.drift:
        parts.append(f"{count_of(change.drift, 'running replica')} to drift")
    without = f"; {change.also_without} more would be created without it as well" if change.also_without else ""
    return f"{', '.join(parts)}{without}"


def _line(effect: ModelEffect) -> Line:
    return Line(f"{SIGNS[effect.kind]} {visible(effect.key)}: {visible(effect.message)}", STYLES[effect.kind])


def _files(change: PlanChange) -> str:
    if not change.differences:
        return "the files mean the same as they did"
    files = " ".join(f"-f {quote(file)}" for file in change.base.files)
    command = visible(f"fleetctl diff {quote(change.base.name)} {files}")
    return f"{count_of(len(change.differences), 'difference')} in the files: {command}"
