"""Many requests of one kind, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

READERS = 8
About = TypeVar("About")
Answer = TypeVar("Answer")


def ask_all(ask: Callable[[About], Answer], about: Iterable[About], at_once: int = READERS) -> list[Answer]:
    """Return the result of `ask` for each item, in order; raises the first item's exception."""
    with ThreadPoolExecutor(at_once, thread_name_prefix="ask") as pool:
        return list(pool.map(ask, about))
