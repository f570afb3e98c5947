"""Writes a layout: two spaces per level, lists in the column of their key, known keys in the order of the schema."""

from __future__ import annotations

from functools import lru_cache

from pydantic import BaseModel

from fleetctl.documents.position import Path
from fleetctl.fleetfile.keys import keys_of, model_at
from fleetctl.fleetfile.layout import Block, Entry, Leaf, Page

STEP = 2
MERGE_KEY = "<<"
# `workers` is the longest part of a model, so it comes last
_LAST = ("workers",)


def write_layout(pages: list[Page], *, sort: bool) -> str:
    """Return the text of all documents; without `sort`, keys keep their order."""
    lines: list[str] = []
    for number, page in enumerate(pages):
        lines += _without_last_blanks(page.above) if number else page.above
        if page.explicit or number:
            lines.append("---" + page.note)
        lines += page.header
        if isinstance(page.root, Block):
            if sort:
                _sort(page.root, ())
            lines += [page.root.properties] if page.root.properties else []
            lines += _block(page.root, 0)
        elif page.root.text:
            lines += page.root.text.split("\n")
        lines += _without_last_blanks(page.tail)
    return "\n".join(_without_first_blanks(lines)) + "\n"


def _sort(block: Block, path: Path) -> None:
    """Put known keys in the order of the schema; keys of free maps keep theirs."""
    ranks = key_ranks(path) if block.kind == "mapping" else {}
    block.entries.sort(key=lambda entry: ranks.get(entry.name, len(ranks)))
    for number, entry in enumerate(block.entries):
        if isinstance(entry.value, Block):
            _sort(entry.value, (*path, number if entry.key is None else entry.name))


def key_ranks(path: Path) -> dict[str, int]:
    """Return the rank of each known key of the mapping at a path; empty if `fmt` does not order its keys."""
    model = model_at(path)
    return _ranks(model) if model else {}


@lru_cache(maxsize=64)
def _ranks(model: type[BaseModel]) -> dict[str, int]:
    known = [key for key in keys_of(model) if key not in _LAST] + list(_LAST)
    return {MERGE_KEY: -1, **{key: number for number, key in enumerate(known)}}


def _block(block: Block, indent: int) -> list[str]:
    margin = " " * indent
    lines: list[str] = []
    for number, entry in enumerate(block.entries):
        body = _item(block, entry, indent) if entry.key is None else _pair(block, entry, indent)
        lead = entry.lead if number else _without_first_blanks(entry.lead)
        lines += [margin + line if line else "" for line in lead] + body
    return lines + [margin + line if line else "" for line in block.tail]


def _pair(block: Block, entry: Entry, indent: int) -> list[str]:
    colon = " :" if str(entry.key).startswith("*") else ":"
    head = f"{' ' * indent}{entry.key}{colon}"
    value = entry.value
    if isinstance(value, Leaf):
        return _leaf(head, value, entry.note, block.column, indent)
    head += f" {value.properties}" if value.properties else ""
    return [head + entry.note, *_block(value, indent if value.kind == "sequence" else indent + STEP)]


def _item(block: Block, entry: Entry, indent: int) -> list[str]:
    """Return the lines of an item; a block value begins on the line of the dash."""
    dash = f"{' ' * indent}-"
    value = entry.value
    if isinstance(value, Leaf):
        return _leaf(dash, value, entry.note, block.column, indent)
    if value.properties:
        return [f"{dash} {value.properties}{entry.note}", *_block(value, indent + STEP)]
    if entry.note:
        entry.lead.append(entry.note.strip())
        entry.note = ""
    entry.lead += _hoisted(value)
    lines = _block(value, indent + STEP)
    return [f"{dash} {lines[0].lstrip(' ')}", *lines[1:]]


def _hoisted(block: Block) -> list[str]:
    """Remove and return the comments above a block's first entry, which moves to the line of the dash."""
    first = block.entries[0]
    lead, first.lead = [line for line in first.lead if line], []
    if first.key is None and isinstance(first.value, Block) and not first.value.properties:
        lead += _hoisted(first.value)
    return lead


def _leaf(head: str, leaf: Leaf, note: str, old: int, new: int) -> list[str]:
    """Return the lines of a leaf; all but the first shift from the old column of the block to the new one."""
    first, *rest = leaf.text.split("\n")
    least = 0 if leaf.literal else new + STEP
    *before, last = f"{head} {first}" if first else head, *(_moved(line, new - old, least) for line in rest)
    return [*before, last + note]


def _moved(line: str, by: int, least: int) -> str:
    text = line.lstrip(" ")
    return " " * max(least, len(line) - len(text) + by) + text if text else " " * max(0, len(line) + by) if line else ""


def _without_first_blanks(lines: list[str]) -> list[str]:
    return lines if not lines or lines[0] else _without_first_blanks(lines[1:])


def _without_last_blanks(lines: list[str]) -> list[str]:
    return lines if not lines or lines[-1] else _without_last_blanks(lines[:-1])
