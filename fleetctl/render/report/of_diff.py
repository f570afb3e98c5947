"""A diff as a report: how many differences there are of each effect, and each of them at its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from fleetctl.documents.difference import Difference, FleetDiff
from fleetctl.documents.quantity import count_of, first_few, grouped, some
from fleetctl.render.difference_text import EFFECTS, TAGS, revision_text, totals_line, values_of, wanted_line
from fleetctl.render.report.change_tables import DIFFERENCE_COLUMNS, SIGNS, THE_FLEET, THE_MODEL, difference_row
from fleetctl.render.report.model import EVERYONE, Cell, Column, Finding, Level, Report, Table, Total

CHANGE = (Column("change", "change"), Column("message", "what it does"))
NOT_IN_A_TERMINAL = EVERYONE - {"terminal"}
BLOCKS_SHOWN, NAMES_SHOWN = 100, 3
_TAG_WIDTH = max(map(len, TAGS.values())) + 1
_Shared = tuple[Difference, tuple[str, ...]]
"""A difference, and all models it is in; none = it is about the fleet as a whole."""


def diff_report(diff: FleetDiff) -> Report:
    """Return the diff as every generic format shows it."""
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
    """Return a row per difference; people read what many models share only once, programs get every row."""
    if not differences:
        return ()
    every = tuple(difference_row(one) for one in differences)
    title = "What changed in meaning"
    if len(shared) == len(differences):
        return (Table("difference", title, DIFFERENCE_COLUMNS, every, rank=0, readers=NOT_IN_A_TERMINAL),)
    once = tuple(difference_row(one, tuple(first_few(models, NAMES_SHOWN))) for one, models in shared)
    return (Table("change", title, DIFFERENCE_COLUMNS, once, rank=0, readers=NOT_IN_A_TERMINAL),
            Table("difference", "differences, each model counted by itself", DIFFERENCE_COLUMNS, every, counted=True,
                  readers=NOT_IN_A_TERMINAL))


def _terminal_tables(differences: Sequence[Difference]) -> Iterator[Table]:
    """Yield a table for the fleet, for what several models share, and for each model: the columns are too many."""
    together = list(_blocks(differences))
    for number, (models, block) in enumerate(together[:BLOCKS_SHOWN]):
        tags = tuple(f"{TAGS[one.effect]:{_TAG_WIDTH}}" for one in block)
        yield Table(f"block{number}", _heading(models, block[0]), CHANGE, tuple(_lines(block)), line="{change}",
                    signs=tags, readers=frozenset({"terminal"}))


def _heading(models: Sequence[str], first: Difference) -> str:
    if len(models) > 1:
        return f"~ {len(models)} models: {some(models, NAMES_SHOWN)}"
    return f"{'~' if first.path else SIGNS[first.kind]} {models[0] if models else 'the fleet as a whole'}"


def _lines(block: Sequence[Difference]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row per difference; what several in a row do to what runs is said once, below the last of them."""
    for message, alike in groupby(block, key=lambda one: one.message):
        rows = list(alike)
        for one in rows:
            yield _change(one), (message,) if one is rows[-1] else ()


def _change(one: Difference) -> Cell:
    """Return a difference on one line; both sides of a list are below it."""
    old, new = values_of(one)
    place = one.new_source or (f"was {one.old_source}" if one.old_source else "")
    where = f"  ({place})" if place else ""
    if not one.path:
        return f"{new if one.kind == 'added' else old}{where}"
    if isinstance(one.old, list) and isinstance(one.new, list):
        return f"{one.path}{where}", f"- {old}", f"+ {new}"
    return f"{one.path}: {old} -> {new}{where}"


def _notes(diff: FleetDiff) -> Iterator[str]:
    """Yield what the effects in the diff mean, and how much of it a terminal does not show."""
    left_out = sum(1 for _ in _blocks(diff.differences)) - BLOCKS_SHOWN
    if left_out > 0:
        yield f"and {count_of(left_out, 'more model')} (--format json lists them)"
    yield from (f"{TAGS[effect]}: {words}" for effect, words in EFFECTS.items() if diff.summary.get(effect))


def _finding(shared: _Shared) -> Finding:
    difference, others = shared[0], shared[1][1:]
    level: Level = "warning" if difference.effect in ("drift", "held") else "notice"
    old, new = values_of(difference)
    details = (f"the same in {count_of(len(others), 'more model')}: {some(others, NAMES_SHOWN)}",) if others else ()
    # a line of the older file would point at another one in the newer
    return Finding(level, difference.effect.upper(), difference.model or THE_FLEET,
                   f"{difference.path or THE_MODEL}: {old} -> {new}; {difference.message}", difference.new_source,
                   details)


def _shared_differences(differences: Sequence[Difference]) -> list[_Shared]:
    """Return each difference once, with the models it is in, in the order of its first model."""
    found: dict[object, tuple[Difference, list[str]]] = {}
    for difference in differences:
        _, models = found.setdefault(_group_key(difference), (difference, []))
        models += [] if difference.model is None else [difference.model]
    return [(difference, tuple(models)) for difference, models in found.values()]


def _blocks(differences: Sequence[Difference]) -> Iterator[tuple[tuple[str, ...], list[Difference]]]:
    """Yield the groups: about the fleet, about several models at once, about one model."""
    together = grouped((models, one) for one, models in _shared_differences(differences))
    yield from sorted(together.items(), key=lambda item: len(item[0]) == 1)


def _group_key(difference: Difference) -> object:
    """Return a key that differences share when one line of a file makes them; one without a line has its own key."""
    place = difference.new_source
    if difference.model is None or not difference.path or place is None:
        return difference.model, difference.path, difference.kind
    return (difference.path, difference.effect, difference.message, *values_of(difference),
            place.file, place.line, place.column)
