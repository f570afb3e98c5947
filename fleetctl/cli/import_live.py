"""The live half of `fleetctl import`: read the cluster, look up the shapes of what runs, and draft its fleet file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.apply.recorded import Recorded, SpecOf
    from fleetctl.importers.draft import Draft
    from fleetctl.inventory.read import InventorySource


def import_live(
    fleet: str | None, *, files: Sequence[str] | None, address: str | None, namespace: str | None,
    inventory: str | None,
) -> Draft:
    """Return the draft of what runs on the cluster, or in a snapshot, which knows no shapes.

    `fleet` = its name, needed where several run; `files` only name the cluster. Raises as `choose_fleet` does, and
    InventoryError when the cluster could not be read whole.
    """
    from fleetctl.cli.connect import cluster_of, inventory_source, resolve_namespace
    from fleetctl.importers.live import choose_fleet, live_draft, wanted_specs
    from fleetctl.inventory.read import read_inventory

    cluster = cluster_of(files)
    with closing(inventory_source(inventory, address, namespace, cluster)) as source:
        seen = read_inventory(source)
        name = choose_fleet(seen, fleet)
        recorded, problem = _recorded(source, name, wanted_specs(seen, name))
    draft = live_draft(seen, name, recorded, resolve_namespace(namespace, os.environ, cluster))
    if problem:
        draft.notes.append(problem)
    return draft


def _recorded(
    source: InventorySource, fleet: str, wanted: Mapping[SpecOf, None]
) -> tuple[dict[SpecOf, Recorded], str | None]:
    """Return the shapes the cluster's applies tell, and why there are none where that is so."""
    from fleetctl.apply.recorded import find_recorded
    from fleetctl.errors import ApplyError, InventoryError
    from fleetctl.inventory.read import Live

    if not isinstance(source, Live):
        return {}, "An inventory document knows no commands: import from the cluster itself to find them."
    try:
        return find_recorded(source.client, fleet, wanted), None
    except (ApplyError, InventoryError) as error:
        return {}, f"The cluster's list of applies, which knows the commands, could not be read: {error.message}"
