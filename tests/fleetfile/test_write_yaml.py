"""Written text is the same for every YAML reader, in any position, and contains no control characters."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.fleetfile.compose import compose
from fleetctl.fleetfile.layout import Piece, block_style, write_yaml
from fleetctl.fleetfile.sources import SourceText

AROUND = {
    "the value of a key": lambda text: {"a": Piece(text)},
    "a key": lambda text: {text: Piece("x")},
    "an item": lambda text: {"a": Piece([Piece(text)])},
    "an item in brackets": lambda text: {"a": Piece([Piece("x"), Piece(text)], one_line=True)},
    "a value in braces": lambda text: {"a": Piece({"b": Piece(text)}, one_line=True)},
    "a key in brackets": lambda text: {"a": Piece([Piece({text: Piece("x")})], one_line=True)},
}


def plain(piece: Piece) -> object:
    """The value of a written piece."""
    if isinstance(piece.content, dict):
        return {key: plain(value) for key, value in piece.content.items()}
    return [plain(item) for item in piece.content] if isinstance(piece.content, list) else piece.content


@given(st.text(max_size=12) | st.sampled_from(["on", "y", "12:30", "1_000", "0o7", "2026-01-01", "<<", "=", "a: b",
                                               "?a", "a?b", ":a", "-", "- a", "#", "a #b", "\u202eb", "\ufeff", "\x85",
                                               "\xa0"]),
       st.sampled_from(sorted(AROUND)))
def test_text_is_the_same_for_every_reader(text: str, where: str) -> None:
    root = Piece(AROUND[where](text))
    written = write_yaml(root)
    assert all(line.isprintable() for line in written.split("\n"))
    composed = compose(SourceText("", written, (0,)))
    assert composed.problems == []
    assert composed.documents[0].value == plain(root)
    assert yaml.safe_load(written) == plain(root)


@pytest.mark.parametrize(("text", "is_block"), [
    ("a\nb", True), ("a\nb\n", True), ("a\n\n  b\n", True), ("a", False), ("a\n", False), (" a\nb", False),
    ("\na", False), ("a\nb\n\n", False), ("a \nb", False), ("a\n\x1b[2J", False),
])
def test_multi_line_text_is_a_block_if_a_block_keeps_it_unchanged(text: str, is_block: bool) -> None:
    written = write_yaml(Piece({"a": Piece(text, style=block_style(text))}))
    assert written.startswith("a: |") == is_block
    assert yaml.safe_load(written) == {"a": text}


def test_comments_are_above_a_value_and_after_its_first_line() -> None:
    several = Piece("one\ntwo\n", style="|", note="# b")
    key = Piece("c", above=["# of the key"], note="# c")
    item = Piece({"key": key, "args": Piece([several])}, above=["# of the item"])
    short = Piece([Piece("1", is_text=False, note="# lost"), Piece("null", is_text=False)], one_line=True, above=[""],
                  note="# d")
    assert write_yaml(Piece({"list": Piece([item, short], note="# a")})) == """\
list: # a
# of the item
# of the key
- key: c # c
  args:
  - | # b
    one
    two

- [1, null] # d
"""
