"""The placement map in a terminal: a row per node, a cell per card; in a large fleet equal nodes share a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fleetctl.documents.placement_map import MapNode, PlacementMap
from fleetctl.documents.quantity import count_of
from fleetctl.render.map_cells import Cells
from fleetctl.render.map_legend import MEANINGS, Legend, counts_of, node_state, signs_used, totals
from fleetctl.render.place_text import asked_about
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible

WIDEST_NAME = 36


def render_placement_map(answer: PlacementMap, console: Console, *, rows: int | None) -> None:
    """Print the map; `rows` = the most rows to show, None = every node in a row of its own.

    Where there are more nodes than rows, those that look the same share one.
    """
    print_trimmed(Text(visible(f"Map: {asked_about(answer.fleet, answer.inventory)}")), console)
    console.print()
    cells = Cells(Legend.of(answer), blocks="utf" in console.encoding.lower())
    alike = _alike(answer.nodes, folded=rows is not None and len(answer.nodes) > rows)
    shown = alike if rows is None else alike[:rows]
    for line in _lines(shown, cells, console.width):
        print_trimmed(line, console)
    left = sum(len(nodes) for nodes in alike[len(shown):])
    if left:
        print_trimmed(Text(f"and {left} more nodes (--all shows every node)", "dim"), console)
    console.print()
    for line in _legend(answer, cells, answer.nodes if not left else [node for node, *_ in shown]):
        print_trimmed(line, console)
    print_trimmed(Text(totals(answer), "bold"), console)


def _alike(nodes: Sequence[MapNode], *, folded: bool) -> list[list[MapNode]]:
    """Return the nodes by row, in the order of the first of each row."""
    together: dict[tuple[object, ...], list[MapNode]] = {}
    for node in nodes:
        together.setdefault(_contents(node) if folded else (node.id,), []).append(node)
    return list(together.values())


def _contents(node: MapNode) -> tuple[object, ...]:
    cards = tuple((card.free_share, card.dirty, tuple((p.holder, p.model, p.share) for p in card.pieces))
                  for card in node.cards)
    beside = tuple((one.holder, one.model, one.warm) for one in node.beside)
    return node.hardware, node_state(node), cards, beside


def _lines(rows: Sequence[Sequence[MapNode]], cells: Cells, width: int) -> Iterator[Text]:
    """Yield the rows; cards that do not fit beside the names go on below, under the first."""
    heads = [(_names(nodes), _kind(nodes[0])) for nodes in rows]
    name_width = min(WIDEST_NAME, max(4, width // 3), max((len(name) for name, _ in heads), default=0))
    kind_width = min(max(4, width // 4), max((len(kind) for _, kind in heads), default=0))
    indent = name_width + kind_width + 4
    per_line = max(1, (width - indent) // (cells.width + 1))
    for (node, *_), (name, kind) in zip(rows, heads, strict=True):
        drawn = [cells.cell(card, gone=node.state == "DEAD") for card in node.cards]
        chunks = [drawn[at:at + per_line] for at in range(0, len(drawn), per_line)] or [[]]
        for number, chunk in enumerate(chunks):
            head = Text(f"{_fit(name, name_width)}  {_fit(kind, kind_width)}  ") if number == 0 else Text(" " * indent)
            yield head + Text(" ").join(chunk)
        beside = cells.beside(node.beside)
        if beside:
            yield Text(" " * indent + f"no card: {beside}", overflow="fold")


def _names(nodes: Sequence[MapNode]) -> str:
    first = visible(nodes[0].name)
    return first if len(nodes) == 1 else f"{first} and {len(nodes) - 1} more"


def _kind(node: MapNode) -> str:
    """Say what a node is, what is unusual first: that must not be cut off where there is little room."""
    words = node_state(node)
    return (f"{words} " if words else "") + visible(node.hardware)


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else f"{text[:max(0, width - 2)]}.."


def _legend(answer: PlacementMap, cells: Cells, rows: Sequence[MapNode]) -> Iterator[Text]:
    """Yield a line for every model in the rows that are shown, and the number of the others."""
    drawn = {piece.model for node in rows for card in node.cards for piece in card.pieces}
    drawn |= {one.model for node in rows for one in node.beside}
    shown = [entry for entry in answer.legend if entry.model in drawn or len(rows) == len(answer.nodes)]
    for entry in shown:
        code = cells.legend.codes[entry.model].ljust(cells.code_width)
        yield Text.assemble((code, cells.style_of(entry.model)), f" {visible(entry.model)}: {counts_of(entry)}")
    left = len(answer.legend) - len(shown)
    if left:
        yield Text(f"and {count_of(left, 'model')} not in these rows (--all shows every node)", "dim")
    meanings = "; ".join(f"{sign} {MEANINGS[sign]}" for sign, _ in signs_used(answer))
    if meanings:
        yield Text(meanings, "dim")
