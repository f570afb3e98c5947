"""One apply on the client's side: submit the agent with the plan, relay its events, return its summary.

When nodes refuse planned replicas, a variant of a model fails to start, or a pilot is ready, the agent asks for another
plan, made from its own view of the cluster, without the variants that have failed.

Closing the client does not stop the apply. The first interrupt stops the job, which starts nothing more and reports;
the second one detaches from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import Field, ValidationError

from fleetctl.apply import jobs
from fleetctl.apply.follow import APPLY, RunFollower
from fleetctl.apply.history import recent_runs, runs_of
from fleetctl.apply.jobs import document, put
from fleetctl.apply.prepare import ApplyOptions, ApplyTask, Starter, apply_metadata, apply_request, plan_request
from fleetctl.apply.standby import hand_over
from fleetctl.documents.base import Stored
from fleetctl.documents.events import Event, ReplicaOutcome, RunSummary
from fleetctl.documents.inventory import Amounts, NodeState
from fleetctl.documents.plan import Action, Plan
from fleetctl.errors import ApplyError, FleetctlError, InventoryError, WaitTimeout
from fleetctl.inventory.claims import AgentView, claim_of_amounts
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import Job
from fleetctl.planner.breaker import IMAGE_MISSING

WANTED = "replanWanted"


class SeenNode(Stored):
    """One node as the agent sees it; `free` in Ray's units."""

    node_id: str
    state: NodeState
    free: Amounts


class ReplanWanted(Stored):
    """The agent's request for a plan: refused replicas and all nodes. `answer` = the name of the expected document.

    `failed` = replicas of variants that have failed to start; `pilots` = those that are ready, which others follow.
    """

    answer: str
    refused: list[ReplicaOutcome] = Field(default_factory=list)
    failed: list[ReplicaOutcome] = Field(default_factory=list)
    pilots: list[ReplicaOutcome] = Field(default_factory=list)
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
        """Return how many replicas of each model were refused, or have failed."""
        return Counter(row.model for row in (*self.refused, *self.failed))

    def wanted_by_model(self, after_pilot: Mapping[str, int]) -> Counter[str]:
        """Return how many replicas of each model the plan may create; `after_pilot` = how many wait for a pilot."""
        refused = self.refused_by_model()
        models = refused.keys() | {row.model for row in self.pilots}
        return Counter({model: refused[model] + after_pilot.get(model, 0) for model in models})

    def failed_by_model(self) -> Counter[str]:
        """Return how many of these have failed."""
        return Counter(row.model for row in self.failed)

    @property
    def failed_variants(self) -> frozenset[tuple[str, str]]:
        """The variants that have failed, each with its model."""
        return frozenset((row.model, row.variant) for row in self.failed if row.variant)


Replanner = Callable[[ReplanWanted], Plan]
"""Makes a new plan for the refused replicas, and those that follow a pilot; raises FleetctlError if it cannot."""


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


def limited_to_refused(
    fresh: Plan, former: Plan, refused: Mapping[str, int], failed: Mapping[str, int] = MappingProxyType({})
) -> Plan:
    """Limit the `fresh` plan to as many new replicas of each model as were refused or wait for a pilot; the rest is
    blocked.

    Of the `failed` ones among them, for which there is no other variant, the agent says itself why.

    The user agreed to the `former` plan, so no more is created than it would have created. The blocked rows are those
    of the refused models: replicas blocked before, and replicas not placed now.
    """
    remaining = Counter(refused)

    def within(actions: Iterable[Action]) -> Iterator[Action]:
        for action in actions:
            if remaining[action.model] > 0:
                remaining[action.model] -= 1
                yield action

    actions, later = list(within(fresh.starts)), list(within(fresh.after_pilot))
    placed = Counter(action.model for action in (*actions, *later))
    rows = {row.model: row for row in (*former.blocked, *fresh.blocked)}
    before = Counter({row.model: row.replicas for row in former.blocked})
    order = {row.key: number for number, row in enumerate(former.models)}
    blocked = []
    for model in sorted(refused, key=lambda key: order.get(key, len(order))):
        unplaced = refused[model] - placed[model]
        short = unplaced + before[model] - min(unplaced, failed.get(model, 0))
        if short > 0 and model in rows:
            blocked.append(rows[model].model_copy(update={"replicas": short}))
    return fresh.model_copy(update={"actions": actions, "after_pilot": later, "blocked": blocked})


Relay = Callable[[Event], None]
STATUS_HINT = "`fleetctl status` shows what runs"


class Detached(Exception):  # not an error: the user has detached from a running apply
    """The client detaches; `stopped` = the job was asked to stop before, otherwise it continues."""

    def __init__(self, submission_id: str, *, stopped: bool) -> None:
        super().__init__(submission_id)
        self.submission_id = submission_id
        self.stopped = stopped


@dataclass(frozen=True, slots=True)
class Started:
    """An agent run that can be followed. `replanner` plans again for refused replicas; None = no planning again."""

    client: DashboardClient
    submission_id: str
    replanner: Replanner | None = None


def start_apply(
    task: ApplyTask, submission_id: str, starter: Starter, options: ApplyOptions, patience: jobs.Patience | None = None,
    *, standby: str | None = None,
) -> Started:
    """Give the plan to an agent; raises ApplyError if the cluster refuses it.

    `standby` = the job whose agent waits for a plan; if there is none, or it does not take this one, the plan comes
    with a job of its own, `submission_id`.
    """
    plan, metadata = task.plan, apply_metadata(task.plan, starter)

    def request_of(job: str) -> dict[str, Any]:
        return apply_request(plan, job, starter.name, options, may_replan=task.replanner is not None)

    if standby and hand_over(task.client, standby, plan.fleet, submission_id, metadata, request_of(standby),
                             patience or jobs.Patience()):
        return Started(task.client, standby, task.replanner)
    jobs.submit(task.client, submission_id, "apply", request_of(submission_id), namespace=plan.fleet.namespace,
                patience=patience, metadata=metadata,
                follow_up=f"`fleetctl apply --attach {submission_id}` follows it if it runs; otherwise apply again")
    return Started(task.client, submission_id, task.replanner)


def follow(started: Started, relay: Relay, *, wait_timeout_s: float | None = None,
           announce: Callable[[], None] = lambda: None, pause: Callable[[], None] = lambda: None) -> RunSummary:
    """Relay each event once, up to the summary, and return it. An interrupt stops the job, and relaying continues.

    The first interrupt calls `announce`, then `pause`; during the pause a second one detaches without stopping the job.
    Raises ApplyError if the agent died or could not be stopped, WaitTimeout, and Detached at the second interrupt or if
    the job does not react to the first.
    """
    def receive(event: Event) -> None:
        relay(event)
        if event.type == WANTED and started.replanner is not None:
            answer_agent(started.client, event, started.replanner)

    follower = RunFollower(started.client, started.submission_id, APPLY, wait_timeout_s=wait_timeout_s)
    with suppress(KeyboardInterrupt):
        return follower.summary(receive)
    stopped = False
    try:
        announce()
        pause()
        stopped = True
        return follower.stop(receive, STATUS_HINT)
    except (KeyboardInterrupt, WaitTimeout):
        raise Detached(started.submission_id, stopped=stopped) from None


def running(client: DashboardClient, fleet: str | None) -> list[Job]:
    """Return the running applies of one fleet or of all, oldest first.

    An apply that Ray is about to start, or one of an earlier release, has no record: only the list of jobs has it.
    """
    return _running(recent_runs(client, fleet)) or _running(runs_of(client, fleet))


def _running(runs: Sequence[Job]) -> list[Job]:
    return [job for job in reversed(runs) if not job.ended and job.metadata.get("verb") == "apply"]
