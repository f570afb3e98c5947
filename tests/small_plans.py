"""A real plan from the planner over a small world, for tests of what comes after planning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.load import load_fleet
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.planner.plan import make_plan

FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: org/one:1
    replicas: 3
    startupTimeout: 90s
    workers:
    - name: main
      members:
      - resources: {gpus: 8}
        engine: {command: [serve, one], env: {TOKEN: "hush-hush"}}
  - key: org/gang
    replicas: 1
    priority: 10
    workers:
    - name: main
      members:
      - {role: Leader, resources: {cpus: 1}, engine: {command: [lead]}}
      - {role: Worker, resources: {cpus: 1}, engine: {command: [work]}}
"""


def node(name: str, gpus: int = 8) -> dict[str, Any]:
    return {"id": f"id-{name}", "name": name, "resources": {"total": {"GPU": gpus, "CPU": 16, "memory": 1 << 40}}}


def small_plan(*nodes: str, fleet: str = FLEET, replicas: list[dict[str, Any]] | None = None,
               dead: Sequence[str] = (), options: PlanOptions | None = None, **facts: Any) -> Plan:
    """Plan `fleet` on empty nodes of 8 GPUs with running `replicas`; `dead` nodes are listed as dead."""
    inventory = Inventory.model_validate({
        "observedAt": "2026-03-04T12:00:00Z", "source": "a test", "replicas": replicas or [],
        "nodes": [*(node(name) for name in nodes), *({**node(name), "state": "DEAD"} for name in dead)]})
    resolved = load_fleet(["-"], stdin=fleet.encode)
    return make_plan(resolved, inventory, options or PlanOptions(), PlanFacts(**{"tool_version": "0.1.0", **facts}))
