"""Writes a layout back: two spaces a level, lists in the column of their key, known keys in their usual order."""

from __future__ import annotations

from fleetctl.documents.position import Path
from fleetctl.fleetfile.layout import Block, Entry, Leaf, Page
from fleetctl.fleetfile.shape import keys_of, model_at

STEP = 2
MERGE_KEY = "<<"
# the shape of a replica is the longest part of a model, so it comes last
_LAST = ("workers",)


def write_layout(pages: list[Page], *, sort: bool) -> str:
    """Return the text of all documents; without `sort` the keys stay in the order they have."""
    lines: list[str] = []
    for number, page in enumerate(pages):
        lines += page.above
        if page.explicit or number:
            lines.append("---" + page.note)
        lines += page.header if lines else _without_first_blanks(page.header)
        if isinstance(page.root, Block):
            lines += [page.root.properties] if page.root.properties else []
            lines += _block(page.root, 0, (), sort=sort)
        elif page.root.text:
            lines += page.root.text.split("\n")
        lines += _without_last_blanks(page.tail)
    return "\n".join(lines) + "\n"


def _block(block: Block, indent: int, path: Path, *, sort: bool) -> list[str]:
    margin = " " * indent
    lines: list[str] = []
    for number, entry in enumerate(_ordered(block, path) if sort else block.entries):
        below = (*path, number if entry.key is None else entry.name)
        body = _item(block, entry, indent, below, sort=sort) if entry.key is None else _pair(
            block, entry, indent, below, sort=sort)
        lead = entry.lead if number else _without_first_blanks(entry.lead)
        lines += [margin + line if line else "" for line in lead] + body
    return lines + [margin + line if line else "" for line in block.tail]


def _pair(block: Block, entry: Entry, indent: int, path: Path, *, sort: bool) -> list[str]:
    colon = " :" if str(entry.key).startswith("*") else ":"
    head = f"{' ' * indent}{entry.key}{colon}"
    value = entry.value
    if isinstance(value, Leaf):
        first, *rest = _shifted(value, block.column, indent)
        return _noted(f"{head} {first}" if first else head, rest, entry.note)
    head += f" {value.properties}" if value.properties else ""
    deeper = indent if value.kind == "sequence" else indent + STEP
    return [head + entry.note, *_block(value, deeper, path, sort=sort)]


def _item(block: Block, entry: Entry, indent: int, path: Path, *, sort: bool) -> list[str]:
    """Lay out an item; what it holds begins on the line of the dash."""
    dash = f"{' ' * indent}-"
    value = entry.value
    if isinstance(value, Leaf):
        first, *rest = _shifted(value, block.column, indent)
        return _noted(f"{dash} {first}" if first else dash, rest, entry.note)
    if value.properties:
        return [f"{dash} {value.properties}{entry.note}", *_block(value, indent + STEP, path, sort=sort)]
    if entry.note:
        entry.lead.append(entry.note.strip())
        entry.note = ""
    entry.lead += _hoisted(value, path, sort=sort)
    lines = _block(value, indent + STEP, path, sort=sort)
    return [f"{dash} {lines[0].lstrip(' ')}", *lines[1:]]


def _hoisted(block: Block, path: Path, *, sort: bool) -> list[str]:
    """Take away the comments above a block's first entry: it moves up beside a dash, they stay above the dash."""
    first = (_ordered(block, path) if sort else block.entries)[0]
    lead, first.lead = [line for line in first.lead if line], []
    if first.key is None and isinstance(first.value, Block) and not first.value.properties:
        lead += _hoisted(first.value, (*path, 0), sort=sort)
    return lead


def _noted(first: str, rest: list[str], note: str) -> list[str]:
    *before, last = first, *rest
    return [*before, last + note]


def _shifted(leaf: Leaf, old: int, new: int) -> list[str]:
    """Return the lines of a leaf, all but the first moved along with its block."""
    first, *rest = leaf.text.split("\n")
    least = 0 if leaf.literal else new + STEP
    return [first, *(_moved(line, new - old, least) for line in rest)]


def _moved(line: str, by: int, least: int) -> str:
    text = line.lstrip(" ")
    return " " * max(least, len(line) - len(text) + by) + text if text else " " * max(0, len(line) + by) if line else ""


def _ordered(block: Block, path: Path) -> list[Entry]:
    ranks = key_ranks(path) if block.kind == "mapping" else {}
    return sorted(block.entries, key=lambda entry: ranks.get(entry.name, len(ranks)))


def key_ranks(path: Path) -> dict[str, int]:
    """Return the place of each known key in the mapping at a path, where `fmt` has an order for it."""
    model = model_at(path)
    if model is None:
        return {}
    known = [key for key in keys_of(model) if key not in _LAST] + list(_LAST)
    return {MERGE_KEY: -1, **{key: number for number, key in enumerate(known)}}


def _without_first_blanks(lines: list[str]) -> list[str]:
    return lines if not lines or lines[0] else _without_first_blanks(lines[1:])


def _without_last_blanks(lines: list[str]) -> list[str]:
    return lines if not lines or lines[-1] else _without_last_blanks(lines[:-1])
