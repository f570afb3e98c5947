"""The live half of `fleetctl import`: read the cluster, look up the shapes of what runs, and draft its fleet file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

from fleetctl.apply.past_shapes import Recorded, SpecOf, find_recorded
from fleetctl.cli.process import this_invocation
from fleetctl.errors import ApplyError, InventoryError
from fleetctl.importers.draft import Draft
from fleetctl.importers.live import choose_fleet, live_draft, wanted_specs
from fleetctl.inventory.read import InventorySource, Live, read_inventory
from fleetctl.workflow.cluster import cluster_of, fleet_of, inventory_source, resolve_namespace
from fleetctl.workflow.invocation import Where


def import_live(fleet: str | None, files: Sequence[str] | None, where: Where) -> Draft:
    """Return the draft of the fleet that runs on the cluster, or in a snapshot, which has no shapes.

    `fleet` = its name, needed where several run; `files` only name the cluster. Raises as `choose_fleet` does, and
    InventoryError when the cluster could not be read whole.
    """
    invocation = this_invocation()
    cluster = cluster_of(fleet_of(invocation, files))
    with closing(inventory_source(invocation, where, cluster)) as source:
        seen = read_inventory(source)
        name = choose_fleet(seen, fleet)
        recorded, problem = _recorded(source, name, wanted_specs(seen, name))
    draft = live_draft(seen, name, recorded, resolve_namespace(where.namespace, invocation.environ, cluster))
    if problem:
        draft.notes.append(problem)
    return draft


def _recorded(
    source: InventorySource, fleet: str, wanted: Mapping[SpecOf, None]
) -> tuple[dict[SpecOf, Recorded], str | None]:
    """Return the shapes that the cluster's applies recorded, or why there are none."""
    if not isinstance(source, Live):
        return {}, "An inventory document has no commands: import from the cluster itself to find them."
    try:
        return find_recorded(source.client, fleet, wanted), None
    except (ApplyError, InventoryError) as error:
        return {}, f"The cluster's list of applies, which has the commands, could not be read: {error.message}"
