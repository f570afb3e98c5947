"""A diff for a person: model by model what was and what is, where it stands, and what it does to what runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING

from fleetctl.documents.difference import Difference, Effect, FleetDiff
from fleetctl.documents.quantity import count_of
from fleetctl.render.difference_blocks import blocks, names_text
from fleetctl.render.difference_text import (
    EFFECTS,
    TAGS,
    place_text,
    revision_text,
    sign_of,
    totals_line,
    values_of,
    wanted_line,
)
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

BLOCKS_SHOWN = 100
STYLES: dict[Effect, str] = {"additive": "green", "none": "", "drift": "yellow", "held": "cyan"}
_TAG_WIDTH = max(map(len, TAGS.values()))


@dataclass(frozen=True, slots=True)
class _Row:
    """One line below a model: an effect, or nothing, and words; safe to show."""

    tag: str
    text: str
    style: str = ""


def render_diff(diff: FleetDiff, console: Console) -> None:
    """Print the diff."""
    from rich.text import Text

    sides = f"from {visible(revision_text(diff.base))} to {visible(revision_text(diff.head))}"
    print_trimmed(Text.assemble("Fleet ", (visible(diff.fleet), "bold"), f", {sides}"), console)
    print_trimmed(Text(f"Wanted: {wanted_line(diff)}"), console)
    print_differences(diff.differences, console)
    console.print()
    for effect, words in EFFECTS.items():
        if diff.summary.get(effect):
            print_trimmed(Text(f"{TAGS[effect]}: {words}", "dim"), console)
    print_trimmed(Text(totals_line(diff), "bold"), console)


def print_differences(differences: Sequence[Difference], console: Console) -> None:
    """Print a block for the fleet, for what several models share, and for each model, with a blank line above each."""
    from rich.text import Text

    together = list(blocks(differences))
    for models, block in islice(together, BLOCKS_SHOWN):
        console.print()
        print_trimmed(Text(_heading(models, block[0]), "bold"), console)
        _print_rows(_rows(block), console)
    left_out = len(together) - BLOCKS_SHOWN
    if left_out > 0:
        console.print()
        print_trimmed(Text(f"and {count_of(left_out, 'more model')} (--format json lists them)", "dim"), console)


def _heading(models: Sequence[str], first: Difference) -> str:
    if len(models) > 1:
        return f"~ {len(models)} models: {visible(names_text(models))}"
    return f"{'~' if first.path else sign_of(first)} {visible(models[0]) if models else 'the fleet as a whole'}"


def _rows(block: Sequence[Difference]) -> Iterator[_Row]:
    """Yield the rows of a block; what several in a row do to what runs is said once below them."""
    for message, group in groupby(block, key=lambda one: one.message):
        for difference in group:
            yield from _difference_rows(difference)
        yield _Row("", visible(message), "dim")


def _difference_rows(difference: Difference) -> Iterator[_Row]:
    """Yield the row of one difference; lists, which are long, stand below it."""
    old, new = map(visible, values_of(difference))
    tag, style, place = TAGS[difference.effect], STYLES[difference.effect], _place(difference)
    if not difference.path:
        yield _Row(tag, f"{new if difference.kind == 'added' else old}{place}", style)
    elif isinstance(difference.old, list) and isinstance(difference.new, list):
        yield _Row(tag, f"{visible(difference.path)}{place}", style)
        yield from (_Row("", f"- {old}", "red"), _Row("", f"+ {new}", "green"))
    else:
        yield _Row(tag, f"{visible(difference.path)}: {old} -> {new}{place}", style)


def _place(difference: Difference) -> str:
    if difference.new_source is not None:
        return f"  ({visible(place_text(difference.new_source))})"
    return f"  (was {visible(place_text(difference.old_source))})" if difference.old_source else ""


def _print_rows(rows: Iterator[_Row], console: Console) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=_TAG_WIDTH)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(Text(row.tag, row.style), Text(row.text, row.style))
    print_trimmed(Padding(table, (0, 0, 0, 4)), console)
