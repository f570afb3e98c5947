"""The shape of a replica that is not in a fleet file yet: what `capacity --shape` takes.

`0.5`, `8` and `2x8` (a gang of 2 members with 8 GPUs each) mean GPUs alone; `gpus=8,vram=120Gi,cpus=16 x2` says
more. `selector=KEY=EXPRESSION` may be given several times.
"""

from __future__ import annotations

import re

from fleetctl.errors import UsageError
from fleetctl.planner.placement.claims import Claim, GroupShape, MemberShape, ReplicaShape, Selector
from fleetctl.planner.questions.shape_syntax import (
    Words,
    bytes_of,
    count_of,
    cpus_of,
    gpus_of,
    selector_of,
    split_commas,
    split_times,
    words,
)

FLAG = "--shape"
KEYS = ("gpus", "vram", "cpus", "memory", "selector", "sameLabel", "ranksPerNode")
ONCE = frozenset(KEYS) - {"selector"}
MAX_MEMBERS = 1_024
_SHORT = re.compile(r"(?:([0-9]{1,6})x)?([0-9]*\.?[0-9]+)")


def typed_shape(text: str) -> ReplicaShape:
    """Return the shape that `text` says; raises UsageError when it says none.

    Its key holds a blank, so it is no model's.
    """
    body, members = split_times(text)
    parts = split_commas(body)
    short = _SHORT.fullmatch(parts[0])
    if short:
        members *= count_of(short[1] or "1", FLAG)
        parts[0] = f"gpus={short[2]}"
    found = words(parts, KEYS, FLAG, "8, 2x8 or gpus=1,vram=16Gi")
    _refuse_repeated(found)
    if members > MAX_MEMBERS:
        raise UsageError(f"{FLAG}: a gang has at most {MAX_MEMBERS} members, and this one has {members}")
    return _shape(f"shape {text.strip()}", found, members)


def _refuse_repeated(found: Words) -> None:
    keys = [key for key, _ in found]
    repeated = next((key for key in keys if key in ONCE and keys.count(key) > 1), None)
    if repeated:
        raise UsageError(f"{FLAG}: {repeated} is given twice")


def _shape(key: str, found: Words, members: int) -> ReplicaShape:
    said = dict(found)
    claim = Claim(
        gpus_of(said.get("gpus", "0"), FLAG), bytes_of(said.get("vram", "0"), FLAG),
        cpus_of(said.get("cpus", "0"), FLAG), bytes_of(said.get("memory", "0"), FLAG),
    )
    if claim == Claim():
        raise UsageError(f"{FLAG}: a shape that takes nothing fits without end", hint="try 8, or gpus=1,vram=16Gi")
    selector: Selector = tuple(sorted(selector_of(value, FLAG) for name, value in found if name == "selector"))
    return ReplicaShape(key, (_group(claim, selector, members),), said.get("sameLabel"),
                        count_of(said.get("ranksPerNode", "1"), FLAG))


def _group(claim: Claim, selector: Selector, members: int) -> GroupShape:
    if members == 1:
        return GroupShape("main", 1, (MemberShape("Standalone", 1, claim, selector),))
    leader, workers = MemberShape("Leader", 1, claim, selector), MemberShape("Worker", members - 1, claim, selector)
    return GroupShape("main", 1, (leader, workers))
