from __future__ import annotations

import pytest

from fleetctl.documents.selector import matches, parse_requirement


@pytest.mark.parametrize(("expression", "value", "allowed"), [
    ("L4", "L4", True), ("L4", "A10G", False), ("L4", None, False),
    ("!L4", "L4", False), ("!L4", "A10G", True), ("!L4", None, True),
    ("in(L4, A10G)", "A10G", True), ("in(L4,A10G)", "H100", False), ("in(L4, A10G)", None, False),
    ("!in(L4, A10G)", "L4", False), ("!in(L4, A10G)", "H100", True), ("!in(L4, A10G)", None, True),
])
def test_an_expression_allows_the_expected_values(expression: str, value: str | None, allowed: bool) -> None:
    assert parse_requirement(expression).allows(value) is allowed


@pytest.mark.parametrize("expression", ["", "!", "in()", "in(a", "a b", "a,b", "in(a b)", "!!a", "-a", "a-", "=a"])
def test_invalid_expressions_are_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="not a label selector"):
        parse_requirement(expression)


def test_all_keys_of_a_selector_must_match_and_an_empty_one_matches_every_node() -> None:
    assert matches({}, {})
    assert matches({"pool": "l4", "zone": "!a"}, {"pool": "l4", "zone": "b"})
    assert not matches({"pool": "l4", "zone": "!a"}, {"pool": "l4", "zone": "a"})
