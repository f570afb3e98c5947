"""The input of a question: the fleet files, where there are any, and the inventory the flags point to."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.planner.questions.world import NO_FLEET, World
from fleetctl.workflow.cluster import fleet_of, read_from
from fleetctl.workflow.invocation import Invocation, Where


def read_world(
    invocation: Invocation, files: Sequence[str] | None, where: Where, adopt_from: str | None = None
) -> World:
    """Return what a question is asked about; warnings of the inventory go to standard error.

    Raises FleetFileError for files with problems, InventoryError for an inventory that cannot be read at all.
    """
    fleet = fleet_of(invocation, files)
    seen = read_from(invocation, where, fleet)
    for warning in seen.warnings:
        invocation.say("warning", warning)
    return World(fleet or NO_FLEET, seen, adopt_from)
