"""Rules over the weights of one member: names that can be known before its engine runs, and as many parts as ranks."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.documents.nearest import nearest
from fleetctl.documents.position import Path
from fleetctl.documents.quantity import count_of
from fleetctl.fleetfile.nodes import Value
from fleetctl.fleetfile.raw import Raw
from fleetctl.fleetfile.rules_group import members_per_copy
from fleetctl.fleetfile.rules_reference import all_references, references
from fleetctl.problem import Problem

KNOWN = ("FLEETCTL_MODEL", "FLEETCTL_REPLICA_ID", "FLEETCTL_GROUP", "FLEETCTL_COPY", "FLEETCTL_RANK",
         "FLEETCTL_GROUP_SIZE")
"""The names that a plan knows; the others are known when the engine starts, after its weights."""


def check_weights(group: Raw, member: Raw) -> Iterator[Problem]:
    """Yield the problems of one member's weights beyond the types of its values."""
    weights = member.child("weights")
    for path, text in texts_below((*weights.path, "from"), weights.get("from")):
        yield from _unknown(weights, path, list(references(text)))
    for path, text in texts_below((*weights.path, "view"), weights.get("view")):
        yield from _unknown(weights, path, list(all_references(text)))
    parts, size = weights.child("view").child("shard").get("of"), members_per_copy(group)
    if isinstance(parts, int) and not isinstance(parts, bool) and 0 < parts != size:
        yield weights.child("view").child("shard").problem(
            "FL082", f"{count_of(parts, 'part')} for a group of {count_of(size, 'member')}", key="of",
            allowed=f"{size}, or no key: then it is the members of the group")


def _unknown(weights: Raw, path: Path, names: list[str]) -> Iterator[Problem]:
    for name in names:
        if name not in KNOWN:
            meant = nearest(name, KNOWN)
            yield weights.document.problem("FL048", path, f"$({name}) is not known before the weights are there",
                                           allowed=", ".join(KNOWN), suggestion=f"$({meant})" if meant else None)


def texts_below(path: Path, value: Value) -> Iterator[tuple[Path, str]]:
    """Yield the texts in a value, whatever it is, each with its path."""
    if isinstance(value, str):
        yield path, value
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in entries:
        yield from texts_below((*path, key), below)
