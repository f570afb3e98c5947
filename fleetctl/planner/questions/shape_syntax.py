"""Parses the values of `--shape`, and the parts that it shares with `--add-node`.

`8`, `0.5` and `2x8` (a gang of 2 members with 8 GPUs each) mean GPUs alone; everything else is comma-separated
`key=value`, with `xN` at the end for several members: `gpus=8,vram=120Gi,cpus=16 x2`. A comma in parentheses, as in
`in(L4, A10G)`, does not separate. `selector=KEY=EXPRESSION` may be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from fleetctl.documents.inventory import Inventory, Node
from fleetctl.documents.names import did_you_mean, nearest
from fleetctl.documents.quantity import number_in, parse_bytes, parse_cpus, parse_gpus
from fleetctl.documents.selector import ACCELERATOR_LABEL, parse_requirement, split_commas
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.fleetfile.guess import bytes_meant
from fleetctl.planner.placement.claims import Claim, GroupShape, MemberShape, ReplicaShape, Selector, may_share_a_card

_TIMES = re.compile(r"(.*\S)\s+[x*]\s*([0-9]{1,6})", re.DOTALL)

Pairs = list[tuple[str, str]]
"""(key, value) pairs in the order typed."""

_Amount = TypeVar("_Amount")


def split_times(text: str) -> tuple[str, int]:
    """Split off the count: `gpus=8 x2` is (`gpus=8`, 2); without a count it is 1."""
    match = _TIMES.fullmatch(text.strip())
    return (match[1].strip(), int(match[2])) if match else (text.strip(), 1)


def key_values(parts: Sequence[str], known: Sequence[str], flag: str, example: str) -> Pairs:
    """Split each part at its first `=`; raises UsageError for a key that is not `known`, with the nearest one."""
    found: Pairs = []
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not value.strip():
            raise UsageError(f"{flag}: {part!r} is not a shape", hint=f"write {example}; keys are {', '.join(known)}")
        if key.strip() not in known:
            near = nearest(key.strip(), known)
            hint = f"did you mean {near}={value}?" if near else f"KEY is one of {', '.join(known)}"
            raise UsageError(f"{flag}: {key.strip()!r} is not a key of a shape", hint=hint)
        found.append((key.strip(), value.strip()))
    return found


def gpus_of(text: str, flag: str) -> int:
    """Return GPUs in 1/10000; raises UsageError for anything but a share below 1 or a whole number."""
    return _amount(lambda: parse_gpus(float(text)), text, flag, "a number of GPUs, such as 8 or 0.5")


def cpus_of(text: str, flag: str) -> int:
    """Return CPUs in 1/10000; raises UsageError."""
    return _amount(lambda: parse_cpus(text), text, flag, "a number of CPUs, such as 2 or 500m")


def bytes_of(text: str, flag: str) -> int:
    """Return bytes; raises UsageError with the quantity that was probably meant."""
    return _amount(lambda: parse_bytes(text), text, flag, "a byte quantity, such as 16Gi", bytes_meant(text))


def count_of(text: str, flag: str) -> int:
    """Return a whole number of at least 1; raises UsageError."""
    number = number_in(text)
    if number is not None and 0 < number <= 100_000:
        return number
    raise UsageError(f"{flag}: {text!r} is not a whole number from 1 to 100000")


def label_of(text: str, flag: str) -> tuple[str, str]:
    """Return key and value of a label `KEY=VALUE`; raises UsageError."""
    key, equals, value = text.partition("=")
    if not key.strip() or not equals or not value.strip():
        raise UsageError(f"{flag}: {text!r} is not a label", hint="write label=KEY=VALUE")
    return key.strip(), value.strip()


def selector_of(text: str, flag: str) -> tuple[str, str]:
    """Return key and expression of `KEY=EXPRESSION`; raises UsageError if the expression is not a label selector."""
    key, expression = label_of(text, flag)
    try:
        parse_requirement(expression)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from None
    return key, expression


def _amount(parse: Callable[[], _Amount], text: str, flag: str, allowed: str, meant: str | None = None) -> _Amount:
    try:
        return parse()
    except (ValueError, OverflowError):
        hint = f"did you mean {meant}?" if meant else None
        raise UsageError(f"{flag}: {text!r} is not {allowed}", hint=hint) from None


def find_node(name: str, inventory: Inventory, flag: str) -> Node:
    """Return the node with a name or id; raises FleetctlError with the nearest name if there is none."""
    found = [node for node in inventory.nodes if name in (node.name, node.id)]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(node.id for node in found)
        raise UsageError(f"{flag} {name}: {len(found)} nodes have this name", hint=f"name one by its id: {ids}")
    raise FleetctlError(f"{flag} {name}: the inventory has no such node",
                        hint=did_you_mean(name, (node.name for node in inventory.nodes)) or "see `fleetctl inventory`")


FLAG = "--shape"
KEYS = ("gpus", "vram", "cpus", "memory", "selector", "sameLabel", "ranksPerNode")
ONCE = frozenset(KEYS) - {"selector"}
MAX_MEMBERS = 1_024
_CARDS = re.compile(r"(?:([0-9]{1,6})x)?([A-Z][A-Za-z]*[0-9][A-Za-z0-9-]*)")
_SHORT = re.compile(r"(?:([0-9]{1,6})x)?([0-9]*\.?[0-9]+)")


def typed_shape(text: str) -> ReplicaShape:
    """Return the shape that `text` describes; raises UsageError if it is invalid.

    Its key contains a space, so that it cannot be a model's.
    """
    body, members = split_times(text)
    parts = split_commas(body)
    if typed := _CARDS.fullmatch(parts[0]):
        raise UsageError(f"{FLAG} {text}: the type of card belongs in a selector",
                         hint=f"write gpus={typed[1] or 1},selector={ACCELERATOR_LABEL}={typed[2]}")
    short = _SHORT.fullmatch(parts[0])
    if short:
        members *= count_of(short[1] or "1", FLAG)
        parts[0] = f"gpus={short[2]}"
    pairs = key_values(parts, KEYS, FLAG, "8, 2x8 or gpus=1,vram=16Gi")
    keys = [key for key, _ in pairs]
    if repeated := next((key for key in keys if key in ONCE and keys.count(key) > 1), None):
        raise UsageError(f"{FLAG}: {repeated} is given twice")
    if members > MAX_MEMBERS:
        raise UsageError(f"{FLAG}: a gang has at most {MAX_MEMBERS} members, and this one has {members}")
    return _shape(f"shape {text.strip()}", pairs, members)


def _shape(key: str, pairs: Pairs, members: int) -> ReplicaShape:
    given = dict(pairs)
    claim = Claim(
        gpus_of(given.get("gpus", "0"), FLAG), bytes_of(given.get("vram", "0"), FLAG),
        cpus_of(given.get("cpus", "0"), FLAG), bytes_of(given.get("memory", "0"), FLAG),
    )
    if claim == Claim():
        raise UsageError(f"{FLAG}: a shape must claim something", hint="try 8, or gpus=1,vram=16Gi")
    selector = Selector(tuple(sorted(selector_of(value, FLAG) for name, value in pairs if name == "selector")))
    group, ranks = _group(claim, selector, members), count_of(given.get("ranksPerNode", "1"), FLAG)
    group = replace(group, most_ranks=1 if may_share_a_card(group) else ranks)
    return ReplicaShape(key, (group,), given.get("sameLabel"), ranks)


def _group(claim: Claim, selector: Selector, members: int) -> GroupShape:
    if members == 1:
        return GroupShape("main", 1, (MemberShape("Standalone", 1, claim, selector),))
    leader, workers = MemberShape("Leader", 1, claim, selector), MemberShape("Worker", members - 1, claim, selector)
    return GroupShape("main", 1, (leader, workers))
