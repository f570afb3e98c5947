"""Pauses the cycle collector while something large is built: none of it is garbage yet."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_THRESHOLD = 50_000
"""New objects that trigger a collection: a few MiB at most; a small plan creates fewer."""


@contextmanager
def collector_paused(*, lasting: bool = False) -> Iterator[None]:
    """Keep the cycle collector from repeatedly walking a growing tree: that takes a third of the time for 1,000 models.

    `lasting` = the tree lives long and has no cycles, so later collections skip it, too: that saves half a second for
    an inventory of 50,000 replicas. It is still freed when its last reference goes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        if lasting and was_enabled:
            gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


def resume_after_loading() -> None:
    """Turn on a collector that was off while modules were loaded; it skips the objects that they created.

    A command makes little garbage, so collections are rarer. Nothing changes if the collector was never off.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(YOUNG_THRESHOLD, *gc.get_threshold()[1:])
        gc.enable()


def free_frozen() -> None:
    """Free frozen garbage. A process that reads inventories repeatedly would otherwise keep all of them."""
    gc.unfreeze()
    gc.collect()
