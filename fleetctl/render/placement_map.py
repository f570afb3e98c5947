"""The placement map in a terminal: a row per node, a cell per card; in a large fleet equal nodes share a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.placement_map import LegendEntry, MapNode, PlacementMap
from fleetctl.documents.quantity import count_of
from fleetctl.render.map_cells import Pen
from fleetctl.render.map_signs import DIRTY, FOREIGN, MEANINGS, NEW, UNKNOWN, letters, node_words, totals
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible
from fleetctl.render.words import asked_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WIDEST_NAME = 36


def render_placement_map(answer: PlacementMap, console: Console, *, rows: int | None) -> None:
    """Print the map; `rows` = the most rows to show, None = every node in a row of its own.

    Where there are more nodes than rows, those that look the same share one.
    """
    from rich.text import Text

    print_trimmed(Text(visible(f"Map: {asked_of(answer.fleet, answer.inventory)}")), console)
    console.print()
    pen = Pen(letters(answer.legend), blocks="utf" in console.encoding.lower())
    alike = _alike(answer.nodes, folded=rows is not None and len(answer.nodes) > rows)
    shown = alike if rows is None else alike[:rows]
    for line in _lines(shown, pen, console.width):
        print_trimmed(line, console)
    left = sum(len(nodes) for nodes in alike[len(shown):])
    if left:
        print_trimmed(Text(f"and {left} more nodes (--all shows every node)", "dim"), console)
    console.print()
    for line in _legend(answer, pen, answer.nodes if not left else [node for node, *_ in shown]):
        print_trimmed(line, console)
    print_trimmed(Text(totals(answer), "bold"), console)


def _alike(nodes: Sequence[MapNode], *, folded: bool) -> list[list[MapNode]]:
    """Return the nodes by row, in the order of the first of each row."""
    together: dict[tuple[object, ...], list[MapNode]] = {}
    for node in nodes:
        together.setdefault(_look(node) if folded else (node.id,), []).append(node)
    return list(together.values())


def _look(node: MapNode) -> tuple[object, ...]:
    cards = tuple((card.free_share, card.dirty, tuple((p.holder, p.model, p.share) for p in card.pieces))
                  for card in node.cards)
    return node.hardware, node.state, bool(node.cordoned_by), cards, tuple((b.holder, b.model) for b in node.beside)


def _lines(rows: Sequence[Sequence[MapNode]], pen: Pen, width: int) -> Iterator[Text]:
    """Yield the rows; cards that do not fit beside the names go on below, under the first."""
    from rich.text import Text

    heads = [(_names(nodes), _kind(nodes[0])) for nodes in rows]
    name_width = min(WIDEST_NAME, max(4, width // 3), max((len(name) for name, _ in heads), default=0))
    kind_width = min(max(4, width // 4), max((len(kind) for _, kind in heads), default=0))
    indent = name_width + kind_width + 4
    per_line = max(1, (width - indent) // (pen.width + 1))
    for (node, *_), (name, kind) in zip(rows, heads, strict=True):
        cells = [pen.cell(card, gone=node.state == "DEAD") for card in node.cards]
        chunks = [cells[at:at + per_line] for at in range(0, len(cells), per_line)] or [[]]
        for number, chunk in enumerate(chunks):
            head = Text(f"{_fit(name, name_width)}  {_fit(kind, kind_width)}  ") if number == 0 else Text(" " * indent)
            yield head + Text(" ").join(chunk)
        beside = pen.beside(node.beside)
        if beside:
            yield Text(" " * indent + f"no card: {beside}", overflow="fold")


def _names(nodes: Sequence[MapNode]) -> str:
    first = visible(nodes[0].name)
    return first if len(nodes) == 1 else f"{first} and {len(nodes) - 1} more"


def _kind(node: MapNode) -> str:
    """Say what a node is, what is unusual first: that must not be cut off where there is little room."""
    words = node_words(node)
    return (f"{words} " if words else "") + visible(node.hardware)


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else f"{text[:max(0, width - 2)]}.."


def _legend(answer: PlacementMap, pen: Pen, rows: Sequence[MapNode]) -> Iterator[Text]:
    """Yield a line for every model in the rows that are shown, and the number of the others."""
    from rich.text import Text

    drawn = {piece.model for node in rows for card in node.cards for piece in card.pieces}
    drawn |= {sitter.model for node in rows for sitter in node.beside}
    shown = [entry for entry in answer.legend if entry.model in drawn or len(rows) == len(answer.nodes)]
    for entry in shown:
        yield Text.assemble((pen.codes[entry.model].ljust(pen.code_width), pen.style_of(entry.model)),
                            f" {visible(entry.model)}: {counts_of(entry)}")
    left = len(answer.legend) - len(shown)
    if left:
        yield Text(f"and {count_of(left, 'model')} not in these rows (--all shows every node)", "dim")
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
