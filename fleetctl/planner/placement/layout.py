"""A layout: what the exact tier and the patterns answer with, before single replicas are made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

ANY = -1
"""A member that may belong to any replica of its class."""


class Piece(NamedTuple):
    """One member to stand on a node: of which class of demand, which of its gangs, and which kind (numbers)."""

    demand: int
    gang: int
    kind: int
    replica: int = ANY
    """Which replica of the class it belongs to; ANY where they need not be told apart."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How many replicas each class of demand gets, and which members stand on which node."""

    replicas: tuple[int, ...]
    """By number of the demand class."""
    stands: Mapping[int, tuple[Piece, ...]]
    """By number of the node in the ledger; each in an order in which Ray's choice of cards takes all of them."""
