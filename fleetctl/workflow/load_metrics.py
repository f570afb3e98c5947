"""The number of replicas by model that a Prometheus query returns."""

from __future__ import annotations

import math

from fleetctl.errors import FleetctlError, ForgeError
from fleetctl.forge.http import ForgeClient, json_object


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
    found: dict[str, float] = {}
    for row in data["result"]:
        _, value = map(float, row.get("value", (0, math.nan)))  # a native histogram has none
        if label in row["metric"] and math.isfinite(value):
            found[row["metric"][label]] = max(value, found.get(row["metric"][label], value))
    if not found:
        raise FleetctlError(f"no series of the query has a number and the label {label}",
                            hint="the query must return replicas by model: ceil(sum by (model) (queue) / 20)")
    return found
