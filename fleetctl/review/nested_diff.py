"""Where two nested mappings differ, by deepdiff: a mapping that only one side has is one difference."""

from __future__ import annotations

from fleetctl.review.meaning import Keyed, Steps


def changed_ways(old: Keyed, new: Keyed) -> list[Steps]:
    """Return the ways down to what is not equal, in no order that means anything."""
    from deepdiff import DeepDiff  # half a second to import, and a diff without differences never needs it

    # deepdiff walks and compares; by default it would take two mappings with few keys in common for one difference,
    # and leave out names such as __TOKEN
    found = DeepDiff(old, new, view="tree", threshold_to_diff_deeper=0, ignore_private_variables=False)
    return [tuple(level.path(output_format="list")) for levels in found.values() for level in levels]
