"""The register of kinds: each is a function that makes an honest change hostile in one way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.hostile.case import Case

Slot = Literal["place", "repository", "objects", "fleet", "rules"]
"""What a kind alters: where the checkout lies, repositories around it, its objects and names, the fleet file, or what
the fleet file names. A case has at most one kind of each slot, but up to three repositories.
"""

MakesHostile = Callable[[Case], None]


@dataclass(frozen=True)
class Kind:
    """A kind. `slow` = commands need seconds for it even when all is well."""

    name: str
    slot: Slot
    alter: MakesHostile
    slow: bool = False


KINDS: dict[str, Kind] = {}


def kind(slot: Slot, *, slow: bool = False) -> Callable[[MakesHostile], MakesHostile]:
    """Register a function as a kind; its name, in words, is the kind's."""

    def registered(alter: MakesHostile) -> MakesHostile:
        name = alter.__name__.replace("_", " ").strip()
        KINDS[name] = Kind(name, slot, alter, slow)
        return alter

    return registered
