"""Fleet files that are slightly invalid, odd or untidy: real files with random changes of lines.

Every added comment has a unique number, so that the loss of one is always detected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

REPOSITORY = Path(__file__).parents[3]
MOST_LINES = 40

_PAIR = re.compile(r"(?P<head>\s*(?:- )*[\w.-]+:)[ \t]+(?P<value>[^#]+?)(?P<note>\s+#.*)?")
_TEXTS = ["|", ">", "|-", ">-", "|+", ">+", "|2", "|1-", "| # {note}", ">-  # {note}"]


def corpus() -> list[str]:
    """Return the fleet files of this repository, including those of the test cases."""
    folders = (REPOSITORY / "fleets", REPOSITORY / "tests/fleetfile/cases")
    # the judge, PyYAML in Python, cannot read `?` inside brackets
    return [path.read_text().replace("o?e", "one") for folder in folders for path in sorted(folder.rglob("*.yaml"))
            if "bomb" not in path.name]


class Mutator:
    """A sequence of random files; equal seeds give equal files."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.corpus = corpus()
        self.numbers = count()

    def mutant(self) -> str:
        """Return the next file: a piece of a real file, changed in one to five places."""
        lines = self.piece(self.random.choice(self.corpus).splitlines())
        for _ in range(self.random.randint(1, 5)):
            lines = self.random.choice(_CHANGES)(self, lines) or ["a: 1"]
        return self.random.choice(_ENDS)("\n".join(lines))

    def piece(self, lines: list[str]) -> list[str]:
        """Return a whole short file, or some lines of a long one from the start of a list item or mapping."""
        if len(lines) <= MOST_LINES:
            return lines
        first = self.random.choice([0, *(at for at, line in enumerate(lines[:-5]) if line.lstrip().startswith("- "))])
        column = len(lines[first]) - len(lines[first].lstrip())
        return [line[column:] if not line[:column].strip() else line.lstrip()
                for line in lines[first : first + self.random.randint(5, MOST_LINES)]]

    def comment(self) -> str:
        """Return a unique comment."""
        return f"# c{next(self.numbers)}"

    def at(self, lines: list[str]) -> int:
        """Return a random line."""
        return self.random.randrange(len(lines))

    def split(self, lines: list[str]) -> tuple[int, str, str, str]:
        """Return the number, head, value and note of a line with a key and a value; the head of other lines is ''."""
        at = self.at(lines)
        match = _PAIR.fullmatch(lines[at])
        return (at, match["head"], match["value"], match["note"] or "") if match else (at, "", "", "")


def _note(one: Mutator, lines: list[str]) -> list[str]:
    at = one.at(lines)
    return [*lines[:at], lines[at] + " " * one.random.randint(1, 3) + one.comment(), *lines[at + 1 :]]


def _comment_line(one: Mutator, lines: list[str]) -> list[str]:
    at, column = one.random.randint(0, len(lines)), one.random.choice([0, 2, 4, 6, 8, one.random.randint(0, 12)])
    return [*lines[:at], " " * column + one.comment(), *lines[at:]]


def _blank_line(one: Mutator, lines: list[str]) -> list[str]:
    at = one.random.randint(0, len(lines))
    return [*lines[:at], *[" " * one.random.choice([0, 0, 3])] * one.random.randint(1, 3), *lines[at:]]


def _document_end(one: Mutator, lines: list[str]) -> list[str]:
    at = one.random.choice([len(lines), one.random.randint(0, len(lines))])
    mark = one.random.choice(["...", "---", f"... {one.comment()}", f"--- {one.comment()}", "...\n---"])
    return [*lines[:at], mark, *lines[at:], *[one.comment()] * one.random.randint(0, 1)]


def _value_below(one: Mutator, lines: list[str]) -> list[str]:
    at, head, value, note = one.split(lines)
    if not head:
        return lines
    column = len(head) - len(head.lstrip(" -")) + one.random.randint(1, 4)
    between = [" " * one.random.randint(0, column) + one.comment()] * one.random.randint(0, 1)
    behind = one.random.choice(["", f"  {one.comment()}"])
    below = " " * column + value + (note or f" {one.comment()}")
    return [*lines[:at], head + behind, *between, below, *lines[at + 1 :]]


def _indent(one: Mutator, lines: list[str]) -> list[str]:
    start = one.at(lines)
    end = one.random.randint(start, len(lines))
    if one.random.randint(0, 1):  # everything below a line
        column = len(lines[start]) - len(lines[start].lstrip())
        start, end = start + 1, next((at for at in range(start + 1, len(lines)) if lines[at].strip() and
                                      not lines[at].startswith(" " * (column + 1))), len(lines))
    by = one.random.choice([1, 2, 4, -1, -2])
    moved = [" " * by + line if by > 0 else line[-by:] if not line[:-by].strip() else line for line in lines[start:end]]
    return [*lines[:start], *moved, *lines[end:]]


def _broken_brackets(one: Mutator, lines: list[str]) -> list[str]:
    at = one.at(lines)
    if not re.search(r"[\[{].*,", lines[at]):
        return lines
    pad = " " * one.random.randint(4, 14)
    return [*lines[:at], re.sub(r", ", lambda _: f",  {one.comment()}\n{pad}", lines[at], count=1), *lines[at + 1 :]]


def _anchor(one: Mutator, lines: list[str]) -> list[str]:
    at, head, value, note = one.split(lines)
    if not head:
        return lines
    name, column = f"x{next(one.numbers)}", len(head) - len(head.lstrip(" -"))
    below = [" " * column + f"y{name}: *{name}"] * one.random.randint(0, 1)
    gap = one.random.choice([" ", f" {one.comment()}\n{' ' * (column + 2)}"])
    return [*lines[:at], f"{head} &{name}{gap}{value}{note}", *below, *lines[at + 1 :]]


def _long_text(one: Mutator, lines: list[str]) -> list[str]:
    at, head, _, _ = one.split(lines)
    if not head:
        return lines
    style = one.random.choice(_TEXTS).format(note=one.comment()[2:])
    pad = " " * (len(head) - len(head.lstrip(" -")) + one.random.randint(1, 4))
    body = one.random.sample([f"{pad}one", f"{pad}  two # text", "", f"{pad}# text", f"{pad}- x", " "],
                             one.random.randint(0, 4))
    return [*lines[:at], f"{head} {style}", *body, *lines[at + 1 :]]


def _quotes(one: Mutator, lines: list[str]) -> list[str]:
    at, head, _, note = one.split(lines)
    value = one.random.choice(
        ['"a # b"', "'it''s # it'", '"two\n\n    lines # "', "plain\n        more", "a#b", "''", "~", ""])
    return [*lines[:at], f"{head} {value}{note}", *lines[at + 1 :]] if head else lines


def _dash_alone(one: Mutator, lines: list[str]) -> list[str]:
    at = one.at(lines)
    match = re.match(r"( *)- (.*)", lines[at])
    if not match:
        return lines
    behind = one.random.choice(["", f" {one.comment()}", f"   {one.comment()}\n{one.comment()}"])
    return [*lines[:at], f"{match[1]}-{behind}", f"{match[1]}  {match[2]}", *lines[at + 1 :]]


def _lines_moved(one: Mutator, lines: list[str]) -> list[str]:
    at, to = one.at(lines), one.at(lines)
    rest = [*lines[:at], *lines[at + 1 :]]
    return one.random.choice([rest, [*rest[:to], lines[at], *rest[to:]], [*lines[:to], lines[at], *lines[to:]]])


def _noise(one: Mutator, lines: list[str]) -> list[str]:
    at = one.at(lines)
    place = one.random.randint(0, len(lines[at]))
    sign = one.random.choice([*"#:-?&*!|>%@`'\",[]{} \t~", " #", ": ", "- ", "? ", "<<: "])
    return [*lines[:at], lines[at][:place] + sign + lines[at][place:], *lines[at + 1 :]]


_CHANGES: list[Callable[[Mutator, list[str]], list[str]]] = [
    _note, _note, _comment_line, _comment_line, _blank_line, _document_end, _value_below, _value_below, _indent,
    _broken_brackets, _anchor, _long_text, _quotes, _dash_alone, _lines_moved, _noise,
]
_ENDS: list[Callable[[str], str]] = [
    *[lambda text: text + "\n"] * 6, lambda text: text, lambda text: text + "\n\n\n", lambda text: text + "\n  ",
    lambda text: text.replace("\n", "\r\n") + "\r\n",
]
