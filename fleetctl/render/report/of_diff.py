"""A diff as a report: the number of differences by effect, and each difference at its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from fleetctl.documents.difference import Difference, FleetDiff
from fleetctl.documents.quantity import count_of, first_few, grouped, some
from fleetctl.render.difference_text import (
    DIFFERENCE_COLUMNS,
    EFFECTS,
    SIGNS,
    TAGS,
    THE_FLEET,
    THE_MODEL,
    difference_row,
    revision_text,
    totals_line,
    values_of,
    wanted_line,
)
from fleetctl.render.report.model import EVERYONE, Cell, Column, Finding, Level, Report, Table, Total

CHANGE = (Column("change", "change"), Column("message", "what it does"))
NOT_IN_A_TERMINAL = EVERYONE - {"terminal"}
BLOCKS_SHOWN, NAMES_SHOWN = 100, 3
_TAG_WIDTH = max(map(len, TAGS.values())) + 1
_Shared = tuple[Difference, tuple[str, ...]]
"""A difference and the models that share it; none for the fleet as a whole."""
_Block = tuple[tuple[str, ...], list[Difference]]
"""Models, and the differences that they share."""


def diff_report(diff: FleetDiff) -> Report:
    """Return the report of a diff."""
    shared = _shared_differences(diff.differences)
    blocks = _blocks(shared)
    base, head, wanted = revision_text(diff.base), revision_text(diff.head), wanted_line(diff)
    files = ", ".join(dict.fromkeys((*diff.base.files, *diff.head.files)))
    notes = [f"{TAGS[effect]}: {meaning}" for effect, meaning in EFFECTS.items() if diff.summary.get(effect)]
    if (omitted := len(blocks) - BLOCKS_SHOWN) > 0:
        notes.insert(0, f"and {count_of(omitted, 'more model')} (--format json lists them)")
    return Report(
        kind="diff",
        identity=f"diff:{diff.fleet}",
        fleet=diff.fleet,
        title=f"Changes of fleet {diff.fleet}",
        conclusion=totals_line(diff),
        heading=(f"Fleet {diff.fleet}, from {base} to {head}", f"Wanted: {wanted}"),
        facts=(("fleet", diff.fleet), ("from", base), ("to", head), ("files", files), ("wanted", wanted)),
        totals=tuple(Total(effect, TAGS[effect], diff.summary.get(effect, 0)) for effect in EFFECTS),
        tables=(*_tables(diff.differences, shared), *_terminal_tables(blocks)),
        notes=tuple(notes),
        findings=tuple(map(_finding, shared)),
        subjects=tuple(dict.fromkeys(one.model for one in diff.differences if one.model is not None)),
        exit_code=diff.exit_code,
        file=next(iter(diff.head.files), ""))


def _tables(differences: Sequence[Difference], shared: Sequence[_Shared]) -> tuple[Table, ...]:
    """Return a row per difference; formats for people show a shared difference once, programs get every row."""
    if not differences:
        return ()
    every = tuple(difference_row(one) for one in differences)
    title = "What changed in meaning"
    if len(shared) == len(differences):
        return (Table("difference", title, DIFFERENCE_COLUMNS, every, rank=0, readers=NOT_IN_A_TERMINAL),)
    once = tuple(difference_row(one, tuple(first_few(models, NAMES_SHOWN))) for one, models in shared)
    return (Table("change", title, DIFFERENCE_COLUMNS, once, rank=0, readers=NOT_IN_A_TERMINAL),
            Table("difference", "differences, counted per model", DIFFERENCE_COLUMNS, every, counted=True,
                  readers=NOT_IN_A_TERMINAL))


def _terminal_tables(blocks: Sequence[_Block]) -> Iterator[Table]:
    """Yield a table each for the fleet, for shared differences, and for each model: one grid would be too wide.

    Consecutive rows with the same message show it once, below the last of them.
    """
    for number, (models, block) in enumerate(blocks[:BLOCKS_SHOWN]):
        tags = tuple(f"{TAGS[one.effect]:{_TAG_WIDTH}}" for one in block)
        title = f"{'~' if block[0].path else SIGNS[block[0].kind]} {models[0] if models else 'the fleet as a whole'}"
        if len(models) > 1:
            title = f"~ {len(models)} models: {some(models, NAMES_SHOWN)}"
        rows: list[tuple[Cell, ...]] = []
        for message, group in groupby(block, key=lambda one: one.message):
            alike = list(group)
            rows += [(_change(one), (message,) if one is alike[-1] else ()) for one in alike]
        yield Table(f"block{number}", title, CHANGE, tuple(rows), line="{change}", signs=tags,
                    readers=frozenset({"terminal"}))


def _change(one: Difference) -> Cell:
    """Return a difference on one line; the two sides of a list are below it."""
    old, new = values_of(one)
    place = one.new_source or (f"was {one.old_source}" if one.old_source else "")
    where = f"  ({place})" if place else ""
    if not one.path:
        return f"{new if one.kind == 'added' else old}{where}"
    if isinstance(one.old, list) and isinstance(one.new, list):
        return f"{one.path}{where}", f"- {old}", f"+ {new}"
    return f"{one.path}: {old} -> {new}{where}"


def _finding(shared: _Shared) -> Finding:
    difference, others = shared[0], shared[1][1:]
    level: Level = "warning" if difference.effect in ("drift", "held") else "notice"
    old, new = values_of(difference)
    details = (f"the same in {count_of(len(others), 'more model')}: {some(others, NAMES_SHOWN)}",) if others else ()
    # only `new_source`: a line number of the old file would point at the wrong line of the new one
    return Finding(level, difference.effect.upper(), difference.model or THE_FLEET,
                   f"{difference.path or THE_MODEL}: {old} -> {new}; {difference.message}", difference.new_source,
                   details)


def _shared_differences(differences: Sequence[Difference]) -> list[_Shared]:
    """Return each difference once, with the models that share it, in the order of the first model.

    Differences are shared if the same line of a file causes them.
    """
    found: dict[object, tuple[Difference, list[str]]] = {}
    for difference in differences:
        place, key = difference.new_source, (difference.model, difference.path, difference.kind)
        shared_key: object = key if difference.model is None or not difference.path or place is None else (
            difference.path, difference.effect, difference.message, *values_of(difference),
            place.file, place.line, place.column)
        _, models = found.setdefault(shared_key, (difference, []))
        models += [] if difference.model is None else [difference.model]
    return [(difference, tuple(models)) for difference, models in found.values()]


def _blocks(shared: Sequence[_Shared]) -> list[_Block]:
    """Return the differences by the models that share them: the fleet and several models first, then single models."""
    by_models = grouped((models, one) for one, models in shared)
    return sorted(by_models.items(), key=lambda item: len(item[0]) == 1)
