"""A running fleet as a draft of its file, with the shapes that its applies recorded; and the models its file lacks.

Also the number of replicas by model that a Prometheus query asks for.
"""

from __future__ import annotations

import math
from collections import Counter

from fleetctl.apply.history import find_recorded
from fleetctl.documents.inventory import Inventory
from fleetctl.errors import ApplyError, FleetctlError, ForgeError, InventoryError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.forge.http import ForgeClient, json_object
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
            recorded = find_recorded(source.client, fleet, wanted, all_runs=True)
        except (ApplyError, InventoryError) as error:
            problem = f"The cluster's list of applies, which has the commands, could not be read: {error.message}"
    draft = live_draft(seen, fleet, recorded, namespace)
    draft.notes += [problem] if problem else []
    return draft


def running_beyond(source: Live, seen: Inventory, fleet: ResolvedFleet) -> tuple[Draft, dict[str, int]]:
    """Return the running models that the file lacks, and the live counts above the file's; `seen` is complete."""
    own = (replica for replica in live_replicas(seen) if replica.fleet == fleet.name and not replica.draining)
    live = Counter(replica.model for replica in own)
    written = {model.key: model.asked_for for model in fleet.models}
    absent = [replica for replica in seen.replicas if replica.fleet == fleet.name and replica.model not in written]
    draft = draft_of(source, seen.model_copy(update={"replicas": absent}), fleet.name, source.namespace)
    return draft, {key: live[key] for key, wanted in written.items() if live[key] > wanted}


def ask_prometheus(url: str, query: str, label: str) -> dict[str, float]:
    """Return replicas by model, from an instant query whose series have the model's key in `label`.

    Raises FleetctlError when Prometheus does not answer, refuses the query, or returns no such series.
    """
    try:
        with ForgeClient(url, {}) as client:
            answer = json_object(client.send("GET", "/api/v1/query", params={"query": query}))
    except ForgeError as error:
        raise FleetctlError(f"Prometheus: {error.message}", hint="is --prometheus its address, and the query right?"
                            ) from None
    data = answer.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "vector":
        raise FleetctlError("the query is not an instant vector", hint="such as: ceil(sum by (model) (queue) / 20)")
    by_model: dict[str, float] = {}
    for row in data["result"]:
        _, value = map(float, row.get("value", (0, math.nan)))  # a native histogram has none
        if label in row["metric"] and math.isfinite(value):
            model = row["metric"][label]
            by_model[model] = max(value, by_model.get(model, value))
    if not by_model:
        raise FleetctlError(f"no series of the query has a number and the label {label}",
                            hint="the query must return replicas by model: ceil(sum by (model) (queue) / 20)")
    return by_model
