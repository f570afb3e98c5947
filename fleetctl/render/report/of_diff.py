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


def diff_report(diff: FleetDiff) -> Report:
    """Return the report of a diff."""
    shared = _shared_differences(diff.differences)
    return Report(
        kind="diff",
        identity=f"diff:{diff.fleet}",
        fleet=diff.fleet,
        title=f"Changes of fleet {diff.fleet}",
        conclusion=totals_line(diff),
        heading=(f"Fleet {diff.fleet}, from {revision_text(diff.base)} to {revision_text(diff.head)}",
                 f"Wanted: {wanted_line(diff)}"),
        facts=_facts(diff),
        totals=tuple(Total(effect, TAGS[effect], diff.summary.get(effect, 0)) for effect in EFFECTS),
        tables=(*_tables(diff.differences, shared), *_terminal_tables(diff.differences)),
        notes=tuple(_notes(diff)),
        findings=tuple(map(_finding, shared)),
        subjects=tuple(dict.fromkeys(one.model for one in diff.differences if one.model is not None)),
        exit_code=diff.exit_code,
        file=next(iter(diff.head.files), ""))


def _facts(diff: FleetDiff) -> tuple[tuple[str, str], ...]:
    files = ", ".join(dict.fromkeys((*diff.base.files, *diff.head.files)))
    return (("fleet", diff.fleet), ("from", revision_text(diff.base)), ("to", revision_text(diff.head)),
            ("files", files), ("wanted", wanted_line(diff)))


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


def _terminal_tables(differences: Sequence[Difference]) -> Iterator[Table]:
    """Yield a table each for the fleet, for shared differences, and for each model: one grid would be too wide."""
    for number, (models, block) in enumerate(list(_blocks(differences))[:BLOCKS_SHOWN]):
        tags = tuple(f"{TAGS[one.effect]:{_TAG_WIDTH}}" for one in block)
        yield Table(f"block{number}", _heading(models, block[0]), CHANGE, tuple(_lines(block)), line="{change}",
                    signs=tags, readers=frozenset({"terminal"}))


def _heading(models: Sequence[str], first: Difference) -> str:
    if len(models) > 1:
        return f"~ {len(models)} models: {some(models, NAMES_SHOWN)}"
    return f"{'~' if first.path else SIGNS[first.kind]} {models[0] if models else 'the fleet as a whole'}"


def _lines(block: Sequence[Difference]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row per difference; consecutive rows with the same message show it once, below the last of them."""
    for message, group in groupby(block, key=lambda one: one.message):
        rows = list(group)
        for one in rows:
            yield _change(one), (message,) if one is rows[-1] else ()


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


def _notes(diff: FleetDiff) -> Iterator[str]:
    omitted = sum(1 for _ in _blocks(diff.differences)) - BLOCKS_SHOWN
    if omitted > 0:
        yield f"and {count_of(omitted, 'more model')} (--format json lists them)"
    yield from (f"{TAGS[effect]}: {meaning}" for effect, meaning in EFFECTS.items() if diff.summary.get(effect))


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
    """Return each difference once, with the models that share it, in the order of the first model."""
    found: dict[object, tuple[Difference, list[str]]] = {}
    for difference in differences:
        _, models = found.setdefault(_group_key(difference), (difference, []))
        models += [] if difference.model is None else [difference.model]
    return [(difference, tuple(models)) for difference, models in found.values()]


def _blocks(differences: Sequence[Difference]) -> Iterator[tuple[tuple[str, ...], list[Difference]]]:
    """Yield the differences by the models that share them: the fleet and several models first, then single models."""
    by_models = grouped((models, one) for one, models in _shared_differences(differences))
    yield from sorted(by_models.items(), key=lambda item: len(item[0]) == 1)


def _group_key(difference: Difference) -> object:
    """Return a key that is equal for differences caused by the same line of a file, and unique without a line."""
    place = difference.new_source
    if difference.model is None or not difference.path or place is None:
        return difference.model, difference.path, difference.kind
    return (difference.path, difference.effect, difference.message, *values_of(difference),
            place.file, place.line, place.column)
