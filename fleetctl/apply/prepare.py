"""Before an apply: check a saved plan, decide whether there is work, build the agent's request and the run's record.

The record is in the job's metadata, for lists of runs, and in its log. It holds no secret: every user of the cluster's
dashboard can read both. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetctl.documents.inventory import Inventory, ReplicaMember
from fleetctl.documents.mask import masked
from fleetctl.documents.plan import ModelRow, Plan
from fleetctl.documents.record import ApplyRecord, RecordedModel, RecordedReplica
from fleetctl.errors import PlanStale, PlanUsed
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import Live
from fleetctl.inventory.engine_log import log_name
from fleetctl.inventory.jobs import log_of
from fleetctl.inventory.records import read_records
from fleetctl.planner.options import has_expired, options_of, replan_command, require_complete
from fleetctl.version import __version__


@dataclass(frozen=True, slots=True)
class Starter:
    """Who starts a run. `name` = user@host or similar; `ci_run` = the URL of the CI run, if it is one.

    `step_of` = the command of which the run is one step, such as `replace-8dd5457ba23d`. `command` = the word on the
    command line: several of them submit an apply.
    """

    name: str
    ci_run: str | None = None
    step_of: str | None = None
    command: str | None = None

    def metadata(self) -> dict[str, str]:
        """Return the metadata that every job has. Ray accepts only strings."""
        optional = {"run": self.ci_run, "stepOf": self.step_of, "command": self.command}
        return {"who": self.name, "toolVersion": __version__, **{key: text for key, text in optional.items() if text}}


def apply_metadata(plan: Plan, starter: Starter) -> dict[str, str]:
    """Return the metadata of an apply's job: what a list of applies shows without reading logs."""
    metadata = {"fleet": plan.fleet.name, "namespace": plan.fleet.namespace, "planId": plan.plan_id,
                "create": str(len(plan.all_starts)), **starter.metadata()}
    if plan.summary.reload:
        metadata["reload"] = str(plan.summary.reload)
    if git := plan.fleet.git:
        metadata["commit"] = git.commit
        metadata["dirty"] = str(git.dirty).lower()
        if git.branch:
            metadata["branch"] = git.branch
    return metadata


def apply_record(plan: Plan) -> dict[str, Any]:
    """Return the `ApplyRecord` of a plan as JSON; the agent logs it once it holds the lock.

    A plan saved by an older release lacks the user's own settings (`asSet`); its shapes are not recorded.
    """
    wanted = {row.key: row.wanted for row in plan.models}
    models = {
        (action.model, action.spec_hash): RecordedModel(
            key=action.model, spec_hash=action.spec_hash, wanted=wanted[action.model], priority=action.priority,
            lifecycle=action.lifecycle)
        for action in plan.actions if action.op != "prefetch"}
    shapes = {key: spec["asSet"] for key, spec in plan.specs.items() if "asSet" in spec}
    replicas = [
        RecordedReplica(model=action.model, replica_id=action.replica_id, spec_hash=action.spec_hash,
                        variant=action.variant,
                        members=[ReplicaMember.model_validate(member.model_dump(exclude={"weights"}))
                                 for member in action.members])
        for action in plan.starts]
    record = ApplyRecord(files=plan.fleet.files, models=list(models.values()), shapes=shapes, replicas=replicas)
    document: dict[str, Any] = record.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {**document, "shapes": masked(document.get("shapes", {}))}


@dataclass(frozen=True, slots=True)
class ApplyTask:
    """A plan and the cluster to apply it to. `single_use` = the plan was saved, so it may have been applied before.

    `replanner` plans again for replicas that nodes refuse; None = the plan is applied exactly as it is.
    """

    client: DashboardClient
    plan: Plan
    single_use: bool = False
    replanner: Callable[[Any], Plan] | None = None

    @property
    def has_work(self) -> bool:
        """Whether there are replicas to create or to wait for."""
        return bool(self.creates or awaited(self.plan))

    @property
    def creates(self) -> bool:
        """Whether there are actions, or a request to the autoscaler: a fleet may need fewer nodes than before."""
        return bool(self.plan.actions or self.plan.growth)


def awaited(plan: Plan) -> Sequence[ModelRow]:
    """Return the models with starting replicas to wait for: those that are wanted and not excluded by flags."""
    options = options_of(plan)
    return [row for row in plan.models if row.wanted and row.starting and options.left_out(row.key, row.labels) is None]


def prepare_saved(client: DashboardClient, plan: Plan, clock: Callable[[], str], saved_as: str) -> ApplyTask:
    """Check that a plan saved as `saved_as` can still be applied; `clock` as in `Live`.

    Raises PlanUsed, PlanStale (it has expired, or what it relies on has changed), and InventoryError if the cluster
    could not be read completely.
    """
    source = Live(client, clock, plan.fleet.namespace)
    refuse_used(client, plan, saved_as)
    refuse_expired(plan, source.now(), saved_as)
    seen = source.read()
    require_complete(seen)
    refuse_moved(plan, seen, saved_as)
    return ApplyTask(client, plan, single_use=True)


def refuse_expired(plan: Plan, now: str, saved_as: str) -> None:
    """Raise PlanStale if the plan, saved as `saved_as`, has expired at `now` (RFC 3339)."""
    if has_expired(plan, now):
        raise PlanStale(f"this plan expired at {plan.expires_at}", hint=_replan_hint(plan, saved_as))


def refuse_moved(plan: Plan, seen: Inventory, saved_as: str) -> None:
    """Raise PlanStale, listing every change, if `seen` differs from what the plan relies on."""
    from fleetctl.planner.stale import moved_since  # loads NumPy, which most users of this module do not need

    if moved := moved_since(plan, seen):
        raise PlanStale("this plan is stale: what it relies on has changed", listed=moved,
                        hint=_replan_hint(plan, saved_as))


def _replan_hint(plan: Plan, saved_as: str) -> str:
    return f"make a new one: {replan_command(plan, saved_as)}"


def refuse_used(client: DashboardClient, plan: Plan, saved_as: str) -> None:
    """Raise PlanUsed if a known run has applied this plan before. The agent knows better, and refuses it later."""
    for job in read_records(client, with_list=False).runs:
        if job.metadata.get("planId") != plan.plan_id:
            continue
        if '"type":"lockAcquired"' in (log_of(client, job.submission_id) or ""):
            raise used_by(job.submission_id, replan_command(plan, saved_as))


def used_by(submission_id: str, command: str = "fleetctl plan -f FLEET --out FILE") -> PlanUsed:
    """Return the error for a plan that job `submission_id` has applied; `command` = the command for a new plan."""
    return PlanUsed(f"this plan was already applied by job {submission_id}", hint=f"make a new one: {command}")


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """Flags of apply that the agent needs. `wait` = wait until replicas are ready, not only created.

    `not_awaited` = ids of replicas that are never waited for, by model key.
    """

    parallelism: int = 1000
    lock_timeout_s: float = 0.0
    single_use: bool = False
    wait: bool = True
    not_awaited: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def apply_request(plan: Plan, job: str, starter: str, options: ApplyOptions, *, may_replan: bool) -> dict[str, Any]:
    """Return the request for `apply`; `may_replan` = a client is ready to plan again for refused replicas."""
    return {
        **plan_request(plan),
        "namespace": plan.fleet.namespace,
        "job": job,
        "holder": {"job": job, "who": starter, "planId": plan.plan_id},
        "toolVersion": __version__,
        "parallelism": options.parallelism,
        "lockTimeout": options.lock_timeout_s,
        "singleUse": options.single_use,
        "wait": options.wait,
        "mayReplan": may_replan,
        "await": [
            {"key": row.key, "lifecycle": {"startupTimeout": row.startup_timeout},
             **({"but": list(but)} if (but := options.not_awaited.get(row.key)) else {})} for row in awaited(plan)
        ],
    }


def plan_request(plan: Plan) -> dict[str, Any]:
    """Return the part of a request that comes from the plan; a later plan of the same run replaces it."""
    return {
        "plan": plan.model_dump(mode="json", by_alias=True),
        "record": apply_record(plan),
        "logs": {
            f"{action.id}|{member.group}|{member.copy_index}|{member.rank}": log_name(
                plan.fleet.namespace, action.model, action.replica_id, member.group, member.copy_index, member.rank)
            for action in plan.starts for member in action.members
        },
    }
