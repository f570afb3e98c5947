"""Where two nested mappings differ, by deepdiff: a mapping that only one side has is one difference."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.review.meaning import Keyed, Steps


def changed_ways(old: Keyed, new: Keyed) -> Iterator[Steps]:
    """Yield the ways down to what is not equal, in no order that means anything."""
    from deepdiff import DeepDiff  # a second to import, and a diff without differences never needs it

    # with its threshold, mappings that share few keys would be one difference from top to bottom; with its idea of
    # private names, a variable called __TOKEN would never be different
    found = DeepDiff(*_unequal(old, new), view="tree", threshold_to_diff_deeper=0, ignore_private_variables=False,
                     verbose_level=0)
    for levels in found.values():
        for level in levels:
            yield tuple(str(step) for step in level.path(output_format="list"))


def _unequal(old: Keyed, new: Keyed) -> tuple[Keyed, Keyed]:
    """Return both without what they have in common: deepdiff walks through that, too, and takes its time."""
    left, right = dict(old), dict(new)
    for key in old.keys() & new.keys():
        one, other = old[key], new[key]
        if one == other:
            del left[key], right[key]
        elif isinstance(one, dict) and isinstance(other, dict):
            left[key], right[key] = _unequal(one, other)
    return left, right
