"""The node labels by which an imported fleet says what Modelplane says by clusters and pools.

Modelplane keeps a gang in one node pool, and a deployment on clusters it selects. Ray knows neither, but it knows
labels: these must be on the Ray nodes, and they are on the nodes of an inventory made from InferenceClusters.
"""

from __future__ import annotations

CLUSTER_LABEL = "modelplane.ai/cluster"
POOL_LABEL = "modelplane.ai/pool"


def pool_value(cluster: str, pool: str) -> str:
    """Return the value of POOL_LABEL: pools of two clusters often have one name, and are two domains all the same."""
    return f"{cluster}.{pool}"
