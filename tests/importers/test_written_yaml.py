"""The written text has exactly the given values, for fleetctl's reader and any other."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.fleetfile.compose import compose_bytes
from fleetctl.fleetfile.format import format_source
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.write import WIDTH, block

TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.text("ab \n#:-'\"\\", max_size=60),
    st.lists(st.sampled_from(["--flag=$(X)", "exec", "a:", "#no", "- x", "'q'", "&a", "*b", "{c"]),
             max_size=40).map(" ".join),
    st.sampled_from(["on", "y", "No", "null", "~", "1.5", "0x1f", "12:30", "1e3", "2026-03-04", "-", "- a", "a: b",
                     "a #b", "<<", "=", "!x", "%x", "@x", "`x", "?", "...", "---"]),
)
VALUES = st.recursive(
    st.one_of(TEXTS, st.integers(), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)), max_leaves=12)


def read(text: str) -> Any:
    composed = compose_bytes(SourceBytes("out.yaml", text.encode()))
    assert composed.problems == []
    return composed.documents[0].value if composed.documents else None


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
def test_the_text_has_exactly_the_values(value: dict[str, Any]) -> None:
    assert read(block(value, {})) == value


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_a_scalar_is_the_same_text_to_pyyaml(text: str) -> None:
    assert yaml.safe_load(block({"key": text}, {})) == {"key": text}


@given(st.dictionaries(st.text("ab", min_size=1), VALUES, min_size=1, max_size=4), st.data())
def test_comments_never_change_the_meaning(value: dict[str, Any], data: st.DataObject) -> None:
    paths = data.draw(st.lists(st.sampled_from(list(places(value))), min_size=1, max_size=3))
    text = data.draw(st.text(st.characters(codec="utf-8"), max_size=200))
    commented = block(value, {path: [text] for path in paths})
    assert read(commented) == value
    assert commented.count("#") >= 1


@given(st.lists(st.dictionaries(st.sampled_from(["key", "replicas", "workers", "placement", "a b"]), VALUES,
                                min_size=1), min_size=1, max_size=3), st.data())
def test_the_text_is_already_formatted(models: list[dict[str, Any]], data: st.DataObject) -> None:
    value = {"spec": {"models": models}}
    paths = data.draw(st.lists(st.sampled_from(list(places(value))), max_size=3))
    text = block(value, {path: ["a comment " * 20] for path in paths})
    if "? " not in text:  # a multi-line key, which `fmt` does not format
        assert not format_source(SourceBytes("out.yaml", text.encode())).changed


def places(value: Any, path: tuple[str | int, ...] = ()) -> Any:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, item in parts:
        yield (*path, part)
        yield from places(item, (*path, part))


def test_a_long_command_line_is_folded_and_a_script_stays_a_script() -> None:
    long = " ".join(["exec vllm serve"] + [f"--flag-{number}=value" for number in range(20)])
    text = block({"engine": {"command": ["sh", "-c", long], "args": ["one\n  two\nthree\n"]}}, {})
    assert "  - >-\n" in text
    assert "  - |\n    one\n      two\n    three\n" in text
    assert max(map(len, text.split("\n"))) <= WIDTH
    assert read(text) == {"engine": {"command": ["sh", "-c", long], "args": ["one\n  two\nthree\n"]}}


@pytest.mark.parametrize("text", ["a\u2028b", "\x1b[31m", "a\nb", "\u202eabc", "\ufeff"])
def test_no_text_can_escape_its_comment(text: str) -> None:
    commented = block({"a": 1}, {("a",): [f"lost: {text}\nb: 2"]})
    assert read(commented) == {"a": 1}
    assert all(line.isprintable() for line in commented.split("\n"))
