"""What an apply records about itself: in its job's metadata, for lists of runs, and in its log.

Neither holds a secret: every user of the cluster's dashboard can read both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleetctl.documents.inventory import ReplicaMember
from fleetctl.documents.mask import masked
from fleetctl.documents.plan import Action, Plan, Reloaded
from fleetctl.documents.record import ApplyRecord, RecordedModel, RecordedReplica
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
                "create": str(len(plan.actions)), **starter.metadata()}
    if plan.reloads:
        metadata["reload"] = str(len(plan.reloads))
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
    acted_on: list[Action | Reloaded] = [*plan.actions, *plan.reloads]
    models = {
        row.model: RecordedModel(key=row.model, spec_hash=row.spec_hash, wanted=wanted[row.model],
                                 priority=row.priority, lifecycle=row.lifecycle)
        for row in acted_on}
    shapes = {key: spec["asSet"] for key, spec in plan.specs.items() if "asSet" in spec}
    replicas = [
        RecordedReplica(model=action.model, replica_id=action.replica_id, spec_hash=action.spec_hash,
                        members=[ReplicaMember.model_validate(member.model_dump(exclude={"weights"}))
                                 for member in action.members])
        for action in plan.actions]
    record = ApplyRecord(files=plan.fleet.files, models=list(models.values()), shapes=shapes, replicas=replicas)
    document: dict[str, Any] = record.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {**document, "shapes": masked(document.get("shapes", {}))}
