"""A running fleet as a draft of its file, with the shapes that its applies recorded; and the models its file lacks."""

from __future__ import annotations

from collections import Counter

from fleetctl.apply.history import find_recorded
from fleetctl.documents.inventory import Inventory
from fleetctl.errors import ApplyError, InventoryError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.importers.draft import Draft
from fleetctl.importers.live import live_draft, live_replicas, wanted_specs
from fleetctl.inventory.dashboard import InventorySource, Live


def draft_of(source: InventorySource, seen: Inventory, fleet: str, namespace: str) -> Draft:
    """Return a running fleet as a draft of its file; a note reports shapes that could not be read."""
    problem, recorded, wanted = "", {}, wanted_specs(seen, fleet)
    if not isinstance(source, Live):
        problem = "An inventory document has no commands: import from the cluster itself to find them."
    else:
        try:
            recorded = find_recorded(source.client, fleet, wanted)
        except (ApplyError, InventoryError) as error:
            problem = f"The cluster's list of applies, which has the commands, could not be read: {error.message}"
    draft = live_draft(seen, fleet, recorded, namespace)
    draft.notes += [problem] if problem else []
    return draft


def running_beyond(source: Live, seen: Inventory, fleet: ResolvedFleet) -> tuple[Draft, dict[str, int]]:
    """Return the running models that the file lacks, and the live counts above the file's; `seen` is complete."""
    own = (replica for replica in live_replicas(seen) if replica.fleet == fleet.name and not replica.draining)
    live = Counter(replica.model for replica in own)
    written = {model.key: model.replicas for model in fleet.models}
    absent = [replica for replica in seen.replicas if replica.fleet == fleet.name and replica.model not in written]
    draft = draft_of(source, seen.model_copy(update={"replicas": absent}), fleet.name, source.namespace)
    return draft, {key: live[key] for key, wanted in written.items() if live[key] > wanted}
