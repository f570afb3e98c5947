"""Where two nested mappings differ, by deepdiff: a mapping that only one side has is one difference."""

from __future__ import annotations

from typing import Any

from fleetctl.review.meaning import Keyed, Steps


def changed_ways(old: Keyed, new: Keyed) -> list[Steps]:
    """Return the ways down to what is not equal, in no order that means anything."""
    from deepdiff import DeepDiff  # half a second to import, and a diff without differences never needs it

    # deepdiff walks and compares; by default it would take two mappings with few keys in common for one difference,
    # and leave out names such as __TOKEN
    found = DeepDiff(*_unequal(old, new), view="tree", threshold_to_diff_deeper=0, ignore_private_variables=False)
    return [tuple(level.path(output_format="list")) for levels in found.values() for level in levels]


def _unequal(old: Any, new: Any) -> tuple[Any, Any]:  # noqa: ANN401  any value
    """Return both without the entries that are equal: deepdiff copies its way down once for each entry it is given."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old, new
    pairs = {key: _unequal(old[key], new[key]) for key in old if key in new and old[key] != new[key]}
    return ({**{key: old[key] for key in old if key not in new}, **{key: pair[0] for key, pair in pairs.items()}},
            {**{key: new[key] for key in new if key not in old}, **{key: pair[1] for key, pair in pairs.items()}})
