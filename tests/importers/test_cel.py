"""CEL is parsed into the tree it stands for, and what is not CEL is refused with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.importers.cel import CelError, Expr, conjuncts, parse


def shown(expr: Expr) -> str:
    """The tree in brackets, to be compared by eye."""
    if expr.kind in ("literal", "name"):
        return repr(expr.value) if expr.kind == "literal" else str(expr.value)
    inner = " ".join(shown(part) for part in expr.parts)
    return f"({expr.kind if expr.value is None else expr.value} {inner})".replace(" )", ")")


@pytest.mark.parametrize(("text", "tree"), [
    ('device.driver == "gpu.nvidia.com"', "(== (driver device) 'gpu.nvidia.com')"),
    ("a || b && c", "(|| a (&& b c))"),
    ("(a || b) && !c", "(&& (|| a b) (! c))"),
    ("1 + 2 * 3 - 4", "(- (+ 1 (* 2 3)) 4)"),
    ("a.b(c)[0].d", "(d (index (b a c) 0))"),
    ("x in ['a', \"b\",]", "(in x (list 'a' 'b'))"),
    ("a ? b : c ? d : e", "(? a b (? c d e))"),
    ("size({'a': 1, 'b': -2.5})", "(size (map 'a' 1 'b' (- 2.5)))"),
    ("0x1F == 31u", "(== 31 31)"),
    (r"'it\'s\n\x41\u00e9\101' == r'\d'", "(== \"it's\\nAéA\" '\\\\d')"),
    ("'''two\nlines''' != null // a comment", "(!= 'two\\nlines' None)"),
    ("true && x.all(k, k.startsWith('a'))", "(&& True (all x k (startsWith k 'a')))"),
])
def test_an_expression_is_the_tree_it_stands_for(text: str, tree: str) -> None:
    assert shown(parse(text)) == tree


@pytest.mark.parametrize(("text", "offset"), [
    ("", 0), ("device.driver == ", 17), ("a b", 2), ("(a", 2), ("a.[0]", 2), ("a #", 2), ("'open", 0), ("[1 2]", 3),
    ("a ? b", 5), ("a &&& b", 4), ("f(a,,b)", 4), ("(" * 200, 60),
])
def test_what_is_not_cel_is_refused_where_it_stops_being_so(text: str, offset: int) -> None:
    with pytest.raises(CelError) as refused:
        parse(text)
    assert refused.value.offset == offset


@pytest.mark.parametrize(("text", "message"), [
    (" && ".join(["a"] * 1500), "a chain of more than 200 operators"),
    ("||".join(["a"] * 1500), "a chain of more than 200 operators"),
    ("a" + ".a" * 4000, "a chain of more than 200 operators"),
    ("a" + ".a()[0]" * 1000, "a chain of more than 200 operators"),
    ("!" * 5000 + "a", "a chain of more than 200 operators"),
    ("1" * 5000, "a number of 5000 characters"),
    ("0x" + "f" * 5000, "a number of 5002 characters"),
])
def test_what_no_one_writes_is_refused_before_it_is_too_much(text: str, message: str) -> None:
    with pytest.raises(CelError, match=message):
        parse(text)


def test_a_long_list_of_conditions_is_no_chain_too_long() -> None:
    assert len(list(conjuncts(parse(" && ".join(["a.b == 'c'"] * 150))))) == 150


def test_a_part_knows_its_own_words() -> None:
    text = 'a == 1 && (b || c) && f("&&")'
    assert [text[part.start:part.end] for part in conjuncts(parse(text))] == ["a == 1", "b || c", 'f("&&")']


@given(st.text(alphabet="ab.\"'()[]{}&|=!<>?:,+-*/ 019\\\n", max_size=60))
def test_any_text_is_either_a_tree_or_refused(text: str) -> None:
    try:
        tree = parse(text)
    except CelError as refusal:
        start, end = refusal.offset, len(text) + 1
    else:
        start, end = tree.start, tree.end
    assert 0 <= start < end <= len(text) + 1


def test_a_text_beyond_what_a_selector_may_be_is_refused() -> None:
    with pytest.raises(CelError, match="longer than"):
        parse("a" * 10_241)
