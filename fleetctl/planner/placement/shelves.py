"""Cards being filled with shares one by one: where packings are too many to list, best fit takes their place.

Largest share first, then most memory, each to the card with least share left that holds it, and of those to the one
with least memory left (best fit decreasing; Johnson 1974). Where sizes divide one another and memory does not matter
nothing is lost by that.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
TRIES = 8
"""Cards of one kind looked at before the next kind: those before were on nodes that would not take the member."""


@dataclass(eq=False, slots=True)
class Shelf(Generic[T]):
    """One card: `first` = its free share before anything was put on it; `share`, `vram` what is left; what it holds."""

    node: int
    first: int
    share: int
    vram: int
    holds: list[T] = field(default_factory=list)


@dataclass(slots=True)
class Shelves(Generic[T]):
    """The cards of one pool that are in use; `open_card` hands out another whole one while there are any."""

    open_card: Callable[[], Shelf[T] | None]
    _by_share: dict[int, list[tuple[int, int, Shelf[T]]]] = field(default_factory=dict)
    _all: list[Shelf[T]] = field(default_factory=list)

    def add(self, shelf: Shelf[T]) -> None:
        """Add a card that is partly free."""
        self._all.append(shelf)
        self._file(shelf, len(self._all))

    def put(self, thing: T, share: int, vram: int, allowed: Callable[[int], bool]) -> Shelf[T] | None:
        """Put one thing on the card it fits best, among those on allowed nodes; None where it fits on none."""
        for left in sorted(left for left in self._by_share if left >= share):
            cards = self._by_share[left]
            start = bisect_left(cards, vram, key=lambda entry: entry[0])
            for place in range(start, min(len(cards), start + TRIES)):
                _, number, shelf = cards[place]
                if allowed(shelf.node):
                    del cards[place]
                    return self._hold(shelf, number, thing, share, vram)
        fresh = self.open_card()
        if fresh is None:
            return None
        self._all.append(fresh)
        if fresh.vram < vram or not allowed(fresh.node):
            self._file(fresh, len(self._all))
            return None
        return self._hold(fresh, len(self._all), thing, share, vram)

    def filled(self) -> Iterator[Shelf[T]]:
        """Yield the cards that hold something; those with most share left last, since Ray would go on filling them."""
        yield from sorted((shelf for shelf in self._all if shelf.holds), key=lambda one: (one.first, one.share))

    def _hold(self, shelf: Shelf[T], number: int, thing: T, share: int, vram: int) -> Shelf[T]:
        shelf.holds.append(thing)
        shelf.share -= share
        shelf.vram -= vram
        self._file(shelf, number)
        return shelf

    def _file(self, shelf: Shelf[T], number: int) -> None:
        if shelf.share:
            insort(self._by_share.setdefault(shelf.share, []), (shelf.vram, number, shelf), key=lambda entry: entry[:2])
