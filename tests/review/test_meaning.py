"""The differences found with deepdiff, checked against a walk over every entry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.review.meaning import Steps, find_changes

KEYED = st.recursive(
    st.sampled_from(["a", "b", 1, None]), lambda inner: st.dictionaries(st.sampled_from(["k", "l", "__m"]), inner),
    max_leaves=12)


def every_way(old: Any, new: Any, way: Steps = ()) -> Iterator[Steps]:
    for key in {**old, **new}:
        both = old.get(key, ...), new.get(key, ...)
        if all(isinstance(side, dict) for side in both):
            yield from every_way(*both, (*way, key))
        elif both[0] != both[1]:
            yield (*way, key)


@given(st.dictionaries(st.sampled_from(["x", "y"]), KEYED), st.dictionaries(st.sampled_from(["x", "y"]), KEYED))
def test_exactly_the_paths_that_differ_are_found(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert sorted(find_changes(old, new)) == sorted(every_way(old, new))
