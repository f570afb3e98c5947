"""The change since a base revision as tables: its own effect on the models, and the differences in the files."""

from __future__ import annotations

from fleetctl.documents.difference import CountsThen, Difference, PlanChange
from fleetctl.documents.quantity import count_of
from fleetctl.render.difference_text import TAGS, revision_text, values_of
from fleetctl.render.report.model import Cell, Column, Table

EFFECT_COLUMNS = (
    Column("model", "model", name=True), Column("kind", "change"), Column("before", "before"),
    Column("after", "after"), Column("message", "what it does"))
DIFFERENCE_COLUMNS = (
    Column("effect", "effect"), Column("model", "model", name=True), Column("path", "what", name=True),
    Column("old", "was", name=True), Column("new", "is", name=True), Column("place", "where", name=True),
    Column("message", "effect on running replicas"))
THE_FLEET, THE_MODEL = "the fleet", "the whole model"
KINDS = {"added": "added", "removed": "removed", "changed": "changed", "sideEffect": "side effect"}
SIGNS = {"added": "+", "removed": "-", "changed": "~", "sideEffect": "*"}
MODELS_SHOWN = 50


def change_tables(change: PlanChange | None) -> tuple[Table, ...]:
    """Return both tables, or none without a base. A terminal shows only the first, and names `fleetctl diff`."""
    if change is None:
        return ()
    effects = [(one.key, KINDS[one.kind], _counts(one.before), _counts(one.after), one.message)
               for one in change.models]
    return (
        Table("effect", f"This change alone, since {revision_text(change.base)}", EFFECT_COLUMNS, tuple(effects),
              note=f"{change_sentence(change)}.", line="{model}: {message}", most=MODELS_SHOWN,
              signs=tuple(SIGNS[one.kind] for one in change.models)),
        Table("difference", "What changed in the files", DIFFERENCE_COLUMNS,
              tuple(map(difference_row, change.differences)), folded=True, rank=2,
              readers=frozenset({"page", "program"})),
    )


def change_sentence(change: PlanChange) -> str:
    """Return the effect of the change alone, and how many replicas are due without it."""
    parts = [f"{change.create} more to create" if change.also_without else f"{change.create} to create"]
    if change.no_longer:
        parts.append(f"{change.no_longer} no longer to create")
    if change.blocked:
        parts.append(f"{abs(change.blocked)} {'more' if change.blocked > 0 else 'fewer'} blocked")
    if change.drift:
        parts.append(f"{count_of(change.drift, 'running replica')} to drift")
    return f"{', '.join(parts)}{_due_anyway(change)}"


def _due_anyway(change: PlanChange) -> str:
    count = change.also_without
    if not count:
        return ""
    which = f"the other {count} of {count + change.create}" if change.create else f"the {count}"
    return f"; {which} to create {'is' if count == 1 else 'are'} due anyway"


def _counts(counts: CountsThen | None) -> str:
    if counts is None:
        return "not in the file"
    others = ((counts.create, "to create"), (counts.blocked, "blocked"), (counts.hold, "held"),
              (counts.drift, "drifting"), (counts.fetch, "to fetch weights"))
    return ", ".join([f"{counts.wanted} wanted", *(f"{count} {word}" for count, word in others if count)])


def difference_row(one: Difference, models: Cell | None = None) -> tuple[Cell, ...]:
    """Return the row of a difference; `models` names the models that share it, if there are several."""
    place = str(one.new_source or one.old_source or "")
    return (TAGS[one.effect], models or one.model or THE_FLEET, one.path or THE_MODEL, *values_of(one), place,
            one.message)
