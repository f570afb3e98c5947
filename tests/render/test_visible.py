from __future__ import annotations

import pytest

from fleetctl.render.visible import visible, visible_lines


@pytest.mark.parametrize(("text", "escaped"), [
    ("plain/model-7:3#{x}", "plain/model-7:3#{x}"),
    ("größe 模型", "größe 模型"),
    ("\x1b[31mred", "\\x1b[31mred"),
    ("two\nlines\r", "two\\nlines\\r"),
    ("\u202egnp.exe", "\\u202egnp.exe"),
    ("a\u200bb", "a\\u200bb"),
    ("\ud800", "\\ud800"),
])
def test_cursor_movements_and_hidden_characters_are_escaped(text: str, escaped: str) -> None:
    assert visible(text) == escaped


def test_line_ends_may_be_kept() -> None:
    assert visible_lines("a\x07\nb") == "a\\x07\nb"
