"""Answer an agent that found nodes different from the plan: with a plan that uses what the agent saw."""

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

WANTED = "replanWanted"


class SeenNode(Stored):
    """One node as the agent sees it; `free` in Ray's units."""

    node_id: str
    state: NodeState
    free: Amounts


class ReplanWanted(Stored):
    """An agent's question: the replicas that nodes refused, and all nodes as they are. `answer` = where it looks."""

    answer: str
    refused: list[ReplicaOutcome] = Field(default_factory=list)
    nodes: list[SeenNode] = Field(default_factory=list)

    def view(self) -> AgentView:
        """Return what the agent has seen, for a new inventory."""
        return AgentView({node.node_id: claim_of_amounts(node.free) for node in self.nodes if node.state != "DEAD"},
                         frozenset(node.node_id for node in self.nodes if node.state == "DRAINING"))

    def refused_by_model(self) -> Counter[str]:
        """Return how many replicas of each model were refused."""
        return Counter(row.model for row in self.refused)


Replanner = Callable[[ReplanWanted], Plan]
"""Makes the plan again, for the refused replicas alone; raises FleetctlError where it cannot."""


def answer_agent(client: DashboardClient, event: Event, replanner: Replanner) -> None:
    """Answer the event `replanWanted`; where nothing can be planned, the plan stays as it is.

    An answer that does not arrive ends nothing: the agent goes on without it and says so.
    """
    try:
        wanted = ReplanWanted.model_validate(event.model_extra or {})
    except ValidationError:
        return  # an agent of another release; it waits until its limit, and reports that
    try:
        answer: Mapping[str, Any] = {"request": plan_request(replanner(wanted))}
    except FleetctlError as error:
        answer = {"why": error.message}
    with suppress(ApplyError, InventoryError):
        put(client, document(wanted.answer, answer))


def limited_to_refused(fresh: Plan, former: Plan, refused: Mapping[str, int]) -> Plan:
    """Return the `fresh` plan with at most as many new replicas of a model as were refused; the rest stays blocked.

    A person has agreed to the `former` plan, so no more is created than that plan would have. Blocked rows are those
    of the refused models: the replicas blocked before, and those not placed now.
    """
    left, actions = Counter(refused), []
    for action in fresh.actions:
        if left[action.model] > 0:
            left[action.model] -= 1
            actions.append(action)
    placed = Counter(action.model for action in actions)
    rows = {row.model: row for row in (*former.blocked, *fresh.blocked)}
    before = Counter({row.model: row.replicas for row in former.blocked})
    places = {row.key: place for place, row in enumerate(former.models)}
    blocked = [
        rows[model].model_copy(update={"replicas": short})
        for model, count in sorted(refused.items(), key=lambda one: places.get(one[0], len(places)))
        if (short := count + before[model] - placed[model]) > 0 and model in rows]
    return fresh.model_copy(update={"actions": actions, "reloads": [], "blocked": blocked})
