"""The placement map in a terminal: a row per node, a cell per card; equal neighbours fold into one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from fleetctl.documents.placement_map import LegendEntry, MapNode, PlacementMap
from fleetctl.render.map_cells import Pen
from fleetctl.render.map_signs import DIRTY, FOREIGN, MEANINGS, NEW, UNKNOWN, letters, node_words, totals
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible
from fleetctl.render.words import asked_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

FOLDED_FROM = 3
"""So many neighbours that look the same are one row, unless every node is asked for."""

LEGEND_SHOWN = 40
WIDEST_NAME = 36


def render_placement_map(answer: PlacementMap, console: Console, *, rows: int | None) -> None:
    """Print the map; `rows` = the most rows to show, None = every node in a row of its own."""
    from rich.text import Text

    print_trimmed(Text(f"Map: {asked_of(answer.fleet, answer.inventory)}"), console)
    console.print()
    pen = Pen(letters(answer.legend), blocks="utf" in console.encoding.lower())
    runs = list(_runs(answer.nodes, folded=rows is not None))
    shown = runs if rows is None else runs[:rows]
    for line in _lines(shown, pen, console.width):
        print_trimmed(line, console)
    left = sum(len(run) for run in runs[len(shown):])
    if left:
        print_trimmed(Text(f"and {left} more nodes (--all shows every node)", "dim"), console)
    console.print()
    for line in _legend(answer, pen, every=rows is None):
        print_trimmed(line, console)
    print_trimmed(Text(totals(answer), "bold"), console)


def _runs(nodes: Sequence[MapNode], *, folded: bool) -> Iterator[list[MapNode]]:
    """Yield the nodes in runs of neighbours that look the same."""
    for _, group in groupby(nodes, key=_look):
        run = list(group)
        if folded and len(run) >= FOLDED_FROM:
            yield run
        else:
            yield from ([node] for node in run)


def _look(node: MapNode) -> tuple[object, ...]:
    cards = tuple((card.free_share, card.dirty, tuple((p.holder, p.model, p.share) for p in card.pieces))
                  for card in node.cards)
    return node.hardware, node.state, bool(node.cordoned_by), cards, tuple((b.holder, b.model) for b in node.beside)


def _lines(runs: Sequence[Sequence[MapNode]], pen: Pen, width: int) -> Iterator[Text]:
    """Yield the rows; cards that do not fit beside the names go on below, under the first."""
    from rich.text import Text

    heads = [(_names(run), _kind(run[0])) for run in runs]
    name_width = min(WIDEST_NAME, max(4, width // 3), max((len(name) for name, _ in heads), default=0))
    kind_width = min(max(4, width // 4), max((len(kind) for _, kind in heads), default=0))
    indent = name_width + kind_width + 4
    per_line = max(1, (width - indent) // (pen.width + 1))
    for run, (name, kind) in zip(runs, heads, strict=True):
        cells = [pen.cell(card, gone=run[0].state == "DEAD") for card in run[0].cards]
        chunks = [cells[at:at + per_line] for at in range(0, len(cells), per_line)] or [[]]
        for number, chunk in enumerate(chunks):
            head = Text(f"{_fit(name, name_width)}  {_fit(kind, kind_width)}  ") if number == 0 else Text(" " * indent)
            yield head + Text(" ").join(chunk)
        beside = pen.beside(run[0].beside)
        if beside:
            yield Text(" " * indent + f"no card: {beside}", overflow="fold")


def _names(run: Sequence[MapNode]) -> str:
    first, last = visible(run[0].name), visible(run[-1].name)
    return first if len(run) == 1 else f"{len(run)}: {first} .. {last}"


def _kind(node: MapNode) -> str:
    words = node_words(node)
    return visible(node.hardware) + (f" {words}" if words else "")


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else f"{text[:max(0, width - 2)]}.."


def _legend(answer: PlacementMap, pen: Pen, *, every: bool) -> Iterator[Text]:
    from rich.text import Text

    shown = answer.legend if every else answer.legend[:LEGEND_SHOWN]
    for entry in shown:
        yield Text.assemble((pen.codes[entry.model].ljust(pen.code_width), pen.style_of(entry.model)),
                            f" {visible(entry.model)}: {counts_of(entry)}")
    if len(answer.legend) > len(shown):
        yield Text(f"and {len(answer.legend) - len(shown)} more models (--all shows them)", "dim")
    signs = _signs_used(answer)
    if signs:
        yield Text("; ".join(f"{sign} {MEANINGS[sign]}" for sign in signs), "dim")


def counts_of(entry: LegendEntry) -> str:
    """Say how many replicas of a model there are, and whose."""
    parts = [(entry.live, "live"), (entry.new, "new"), (entry.foreign, "not this fleet's")]
    return ", ".join(f"{number} {word}" for number, word in parts if number)


def _signs_used(answer: PlacementMap) -> list[str]:
    cards = [card for node in answer.nodes for card in node.cards]
    holders = {piece.holder for card in cards for piece in card.pieces}
    holders |= {sitter.holder for node in answer.nodes for sitter in node.beside}
    used = [sign for sign, holder in ((NEW, "new"), (FOREIGN, "foreign"), (UNKNOWN, "unknown")) if holder in holders]
    return [*used, *([DIRTY] if any(card.dirty for card in cards) else [])]
