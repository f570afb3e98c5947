"""Plan again during an apply, from the agent's view of the cluster, when nodes refuse planned replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pydantic import Field, ValidationError

from fleetctl.apply.jobs import document, put
from fleetctl.apply.prepare import plan_request
from fleetctl.documents.base import Stored
from fleetctl.documents.events import Event, ReplicaOutcome
from fleetctl.documents.inventory import Amounts, NodeState
from fleetctl.documents.plan import Plan
from fleetctl.errors import ApplyError, FleetctlError, InventoryError
from fleetctl.inventory.claims import AgentView, claim_of_amounts
from fleetctl.inventory.client import DashboardClient
from fleetctl.planner.breaker import IMAGE_MISSING

WANTED = "replanWanted"


class SeenNode(Stored):
    """One node as the agent sees it; `free` in Ray's units."""

    node_id: str
    state: NodeState
    free: Amounts


class ReplanWanted(Stored):
    """The agent's request for a plan: refused replicas and all nodes. `answer` = the name of the expected document."""

    answer: str
    refused: list[ReplicaOutcome] = Field(default_factory=list)
    nodes: list[SeenNode] = Field(default_factory=list)

    def view(self) -> AgentView:
        """Return the agent's view of the nodes, for a new inventory."""
        return AgentView({node.node_id: claim_of_amounts(node.free) for node in self.nodes if node.state != "DEAD"},
                         frozenset(node.node_id for node in self.nodes if node.state == "DRAINING"))

    @property
    def lacks_image(self) -> bool:
        """Whether a node refused a replica because it lacks its image."""
        return any(row.code == IMAGE_MISSING for row in self.refused)

    def refused_by_model(self) -> Counter[str]:
        """Return how many replicas of each model were refused."""
        return Counter(row.model for row in self.refused)


Replanner = Callable[[ReplanWanted], Plan]
"""Makes a new plan for the refused replicas only; raises FleetctlError if it cannot."""


def answer_agent(client: DashboardClient, event: Event, replanner: Replanner) -> None:
    """Reply to the event `replanWanted` with a new plan, or with the reason why there is none.

    A lost reply does no harm: the agent continues without it and reports that.
    """
    try:
        wanted = ReplanWanted.model_validate(event.model_extra or {})
    except ValidationError:
        return  # an agent of another release; it waits until its time limit, and reports that
    try:
        answer: Mapping[str, Any] = {"request": plan_request(replanner(wanted))}
    except FleetctlError as error:
        answer = {"why": error.message}
    with suppress(ApplyError, InventoryError):
        put(client, document(wanted.answer, answer))


def limited_to_refused(fresh: Plan, former: Plan, refused: Mapping[str, int]) -> Plan:
    """Limit the `fresh` plan to as many new replicas of each model as were refused; the rest is blocked.

    The user agreed to the `former` plan, so no more is created than it would have created. The blocked rows are those
    of the refused models: replicas blocked before, and replicas not placed now.
    """
    remaining, actions = Counter(refused), []
    for action in fresh.actions:
        if remaining[action.model] > 0:
            remaining[action.model] -= 1
            actions.append(action)
    placed = Counter(action.model for action in actions)
    rows = {row.model: row for row in (*former.blocked, *fresh.blocked)}
    before = Counter({row.model: row.replicas for row in former.blocked})
    order = {row.key: number for number, row in enumerate(former.models)}
    blocked = []
    for model in sorted(refused, key=lambda key: order.get(key, len(order))):
        short = refused[model] + before[model] - placed[model]
        if short > 0 and model in rows:
            blocked.append(rows[model].model_copy(update={"replicas": short}))
    return fresh.model_copy(update={"actions": actions, "reloads": [], "blocked": blocked})
