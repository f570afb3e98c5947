"""What is free for one kind of member, counted: how many nodes it may use, and how its GPUs lie spread over them."""

from __future__ import annotations

import numpy as np

from fleetctl.documents.plan import Counted
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.reasons.shortfall import Shortfall
from fleetctl.planner.placement.reasons.words import gpus, nodes


def count(missing: Shortfall) -> Counted:
    """Count the nodes and, for claims of cards, what is free on those the member may use: whole cards, or shares."""
    table, usable = missing.table, missing.usable
    if missing.claim.whole_cards:
        free = table.offers.free_cards(usable) * SHARE
    elif missing.claim.wants_card:
        free = table.offers.free_share(usable)
    else:
        free = np.zeros(len(usable), dtype=np.int64)
    return Counted(
        nodes=int(table.alive.sum()), selected=len(table.candidates(missing.selector)),
        usable=len(usable), fitting=len(missing.fitting),
        free_gpus=int(free.sum()), on_nodes=int((free > 0).sum()), most_on_one=int(free.max(initial=0)),
    )


def spread_text(counted: Counted, wanted: int) -> str:
    """Say how what is free lies about, for a need of `wanted` 1/10000 GPU; empty where that says nothing new."""
    free, on = counted.free_gpus, counted.on_nodes
    if not wanted or on <= max(1, counted.fitting):
        return ""
    verb = "is" if free <= SHARE else "are"
    if free >= wanted:
        return f"; {gpus(free)} {verb} free but spread over {nodes(on)}"
    return f"; {gpus(free)} {verb} free in all, on {nodes(on)}"
