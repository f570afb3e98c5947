"""What the change since a base revision causes alone, as tables: what it does to the models, and what changed."""

from __future__ import annotations

from fleetctl.documents.difference import CountsThen, Difference, PlanChange
from fleetctl.render.change_section import change_sentence
from fleetctl.render.difference_text import TAGS, place_text, values_of
from fleetctl.render.report.model import Cell, Column, Table

EFFECT_COLUMNS = (
    Column("model", "model", name=True), Column("kind", "change"), Column("before", "before"),
    Column("after", "after"), Column("message", "what it does"),
)
DIFFERENCE_COLUMNS = (
    Column("model", "model", name=True), Column("path", "what", name=True), Column("old", "was", name=True),
    Column("new", "is", name=True), Column("effect", "effect"), Column("place", "where", name=True),
    Column("message", "what it does"),
)
KINDS = {"added": "added", "removed": "taken out", "changed": "changed", "sideEffect": "side effect"}


def change_tables(change: PlanChange | None) -> tuple[Table, ...]:
    """Return both tables; without a base there is none."""
    if change is None:
        return ()
    effects = [(one.key, KINDS[one.kind], _then(one.before), _then(one.after), one.message) for one in change.models]
    return (
        Table("effect", "What this change alone causes", EFFECT_COLUMNS, tuple(effects),
              note=f"This change alone: {change_sentence(change)}."),
        Table("difference", "What changed in the files", DIFFERENCE_COLUMNS,
              tuple(map(_difference, change.differences)), folded=True, rank=2),
    )


def _then(counts: CountsThen | None) -> str:
    if counts is None:
        return "not in the file"
    told = ((counts.create, "to create"), (counts.blocked, "blocked"), (counts.hold, "held"),
            (counts.drift, "drifting"))
    return ", ".join([f"{counts.wanted} wanted", *(f"{count} {word}" for count, word in told if count)])


def _difference(one: Difference) -> tuple[Cell, ...]:
    place = place_text(one.new_source or one.old_source)
    return one.model or "the fleet", one.path or "all of it", *values_of(one), TAGS[one.effect], place, one.message
