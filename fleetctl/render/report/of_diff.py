"""A diff as a report: how many differences there are of each effect, and each of them at its line."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.documents.difference import Difference, FleetDiff
from fleetctl.documents.quantity import count_of
from fleetctl.render.difference_blocks import NAMES_SHOWN, Shared, names_text, shared_differences
from fleetctl.render.difference_text import (
    EFFECTS,
    TAGS,
    place_text,
    revision_text,
    totals_line,
    values_of,
    wanted_line,
)
from fleetctl.render.report.model import Cell, Column, Finding, Level, Report, Table, Total

COLUMNS = (
    Column("effect", "effect"), Column("model", "model", name=True), Column("path", "what", name=True),
    Column("old", "was", name=True), Column("new", "is", name=True), Column("place", "where", name=True),
    Column("message", "what it does to what runs"),
)
THE_FLEET, THE_MODEL = "the fleet", "the whole model"


def diff_report(diff: FleetDiff) -> Report:
    """Return the diff as every generic format shows it."""
    shared = shared_differences(diff.differences)
    return Report(
        kind="diff",
        identity=f"diff:{diff.fleet}",
        fleet=diff.fleet,
        title=f"Changes of fleet {diff.fleet}",
        verdict=totals_line(diff),
        facts=_facts(diff),
        totals=tuple(Total(effect, TAGS[effect], diff.summary.get(effect, 0)) for effect in EFFECTS),
        tables=_tables(diff.differences, shared),
        findings=tuple(map(_finding, shared)),
        subjects=tuple(dict.fromkeys(one.model for one in diff.differences if one.model is not None)),
        exit_code=diff.exit_code,
        file=next(iter(diff.head.files), ""),
    )


def _facts(diff: FleetDiff) -> tuple[tuple[str, str], ...]:
    files = ", ".join(dict.fromkeys((*diff.base.files, *diff.head.files)))
    return (("fleet", diff.fleet), ("from", revision_text(diff.base)), ("to", revision_text(diff.head)),
            ("files", files), ("wanted", wanted_line(diff)))


def _tables(differences: Sequence[Difference], shared: Sequence[Shared]) -> tuple[Table, ...]:
    """Return a row per difference; people read what many models share only once, programs get every row."""
    if not differences:
        return ()
    every = tuple(_row(one, one.model or THE_FLEET) for one in differences)
    title = "What changed in meaning"
    if len(shared) == len(differences):
        return (Table("difference", title, COLUMNS, every, rank=0),)
    once = tuple(_row(one.difference, _models(one.models)) for one in shared)
    return (Table("change", title, COLUMNS, once, rank=0),
            Table("difference", "differences, each model counted by itself", COLUMNS, every, counted=True))


def _models(models: Sequence[str]) -> Cell:
    if len(models) <= NAMES_SHOWN:
        return tuple(models) or THE_FLEET
    return (*models[:NAMES_SHOWN], f"and {len(models) - NAMES_SHOWN} more")


def _row(difference: Difference, models: Cell) -> tuple[Cell, ...]:
    old, new = values_of(difference)
    place = difference.new_source or difference.old_source
    return (TAGS[difference.effect], models, difference.path or THE_MODEL, old, new, place_text(place),
            difference.message)


def _finding(shared: Shared) -> Finding:
    difference, others = shared.difference, shared.models[1:]
    level: Level = "warning" if difference.effect in ("drift", "held") else "notice"
    old, new = values_of(difference)
    details = (f"the same in {count_of(len(others), 'more model')}: {names_text(others)}",) if others else ()
    # a line of the older file would point at another one in the newer
    return Finding(level, difference.effect.upper(), difference.model or THE_FLEET,
                   f"{difference.path or THE_MODEL}: {old} -> {new}; {difference.message}", difference.new_source,
                   details)
