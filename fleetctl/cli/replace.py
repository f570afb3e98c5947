"""`fleetctl replace`: the explicit verb that updates a model: it creates current replicas and ends outdated ones."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Annotated

import typer

from fleetctl.apply.outcome import PARTIAL, blocked_outcomes, final_exit_code
from fleetctl.apply.prepare import ApplyOptions, ApplyTask
from fleetctl.cli import flags
from fleetctl.cli.apply_run import ApplyOutput, CollectedOutput, carry_out
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say
from fleetctl.cli.explicit import DrainTime, VerbRequest, act_on, ended_by, perform_on, refuse_protected, show_steps
from fleetctl.cli.process import invocation_on_one_cluster
from fleetctl.cli.verb import on_cluster, one_command, perform
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.fleet import MAX_REPLICAS
from fleetctl.documents.inventory import Replica
from fleetctl.documents.names import command_line
from fleetctl.documents.quantity import some
from fleetctl.errors import ApplyError, FleetctlError, UsageError, WaitTimeout
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.inventory.records import read_records
from fleetctl.planner.live import PAUSED, resume_command
from fleetctl.planner.options import PlanOptions
from fleetctl.render.replica_text import replica_name
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.proposal import Proposal, proposed_by_fleet, refuse_by_policy
from fleetctl.workflow.replace import Round, Serving, ended_before, rounds_of, with_models
from fleetctl.workflow.scaling import look_up, model_of

app = command_app(
    "fleetctl replace openai-community/gpt2 -f fleets/demo.yaml --drain 30s",
    "fleetctl replace openai-community/gpt2 -f fleets/demo.yaml --in-place",
    exit_codes="0 all are current, 1 error before any action, 3 stopped at the first failure, 4 refused by policy, 5 "
               "another run holds the lock, 7 --wait-timeout passed, 64 usage, 130 interrupted")


PAUSE_S = 2.0


@app.command()
def replace(
    *,
    model: flags.Model,
    files: flags.FlaggedFiles,
    surge: Annotated[int | None, flags.option(
        "--surge", metavar="N", min=1, max=MAX_REPLICAS,
        help="At most N replicas beyond the target at a time. [default: the model's update.surge, else 1]")] = None,
    in_place: Annotated[bool, typer.Option(
        "--in-place", help="End each replica before creating the next, if the cluster has no spare room.")] = False,
    allow_outage: Annotated[bool, typer.Option(
        "--allow-outage", help="With --in-place: proceed even if no replica serves in the meantime.")] = False,
    drain: DrainTime = 0,
    dry_run: flags.DryRun = False,
    where: flags.Cluster,
    yes: flags.Yes = False,
    force: flags.Force = False,
    ignore_cooldown: flags.IgnoreCooldown = False,
    lock_timeout: flags.LockTimeout = 0,
    wait_timeout: flags.WaitTimeout = None,
    output_format: flags.Format = "table",
) -> int:
    """Update a model to the file's spec, one replica after another.

    A current replica is created and ready before an outdated one is ended. The first failure stops the update, and the
    remaining outdated replicas stay alive. Run the same command again to continue.
    """
    if in_place and surge is not None:
        raise UsageError("give either --surge N or --in-place")
    invocation = invocation_on_one_cluster(where.address)
    scaling = look_up(invocation, files, model, where)
    model = scaling.model
    in_file = model_of(scaling.loaded.sound(), model)
    if not in_file.is_wanted:
        raise wants_none(model)
    beyond = 0 if in_place else surge or in_file.surge or 1
    wanted = VerbRequest("evict", "Replace", yes, dry_run, output_format, lock_timeout, drain)
    options = PlanOptions((model,), force=force, ignore_cooldown=ignore_cooldown)
    update = ModelUpdate(invocation, where, scaling.in_update(beyond), options, wanted, wait_timeout)
    with one_command("replace"):
        return _Replacement(update, model, allow_outage).run()


def wants_none(model: str) -> UsageError:
    """Return the error for a model whose target is 0: an update would end its replicas and create none."""
    return UsageError(f"the fleet file wants no replica of {model}",
                      hint=f"`{command_line('fleetctl evict', [model])}` ends them")


def paused_outcome(now: Round) -> ReplicaOutcome | None:
    """Return the outcome for a paused model: what it ends could not be created again. None = it is not paused."""
    if now.state.pause is None:
        return None
    message = f"{now.state.paused}; it can be replaced after `{resume_command(now.state.pause)}`"
    return ReplicaOutcome(model=now.model.key, outcome="blocked", code=PAUSED, message=message,
                          replicas=max(1, len(now.outdated)))


@dataclass
class ModelUpdate:
    """What an update by `replace` or `rollout` has done so far: reads its rounds, and creates and ends by agent runs.

    `outcomes` grow step by step, `ended` holds the actor ids that are gone, `before` what served when the update of a
    model began. No other state is kept. The `whole` output gets each event; None = events are not shown.
    """

    invocation: Invocation
    where: Where
    loaded: LoadedFleet
    options: PlanOptions
    wanted: VerbRequest
    wait_timeout_s: float | None
    whole: ApplyOutput | None = None
    outcomes: list[ReplicaOutcome] = field(default_factory=list)
    ended: set[str | None] = field(default_factory=set)
    before: dict[str, Serving] = field(default_factory=dict)

    def read(self, keys: Sequence[str]) -> dict[str, Round]:
        """Return the round of each of these models as the cluster is now."""
        fleet = self.loaded.sound()
        with on_cluster(self.invocation, self.where, fleet) as here:
            return rounds_of(fleet, keys, here.source.read(), self.ended, self.before)

    def settled(self, keys: Sequence[str]) -> dict[str, Round]:
        """As `read`, once no eviction is about to end a replica, such as one that a killed run has begun.

        The eviction's own longest time bounds the wait; one of unknown length is not awaited.
        """
        rounds, waited_s = self.read(keys), 0.0
        leaving = [replica for now in rounds.values() for replica in now.leaving]
        longest_s = 0.0 if self.wanted.dry_run else max(
            (replica.gone_within_s or 0.0 for replica in leaving), default=0.0)
        if longest_s:
            names = some([replica_name(replica.model, replica.replica_id) for replica in leaving])
            say("note", f"{names}: a running eviction is about to end it; waiting up to {longest_s:g} s")
        while waited_s < longest_s and any(now.leaving for now in rounds.values()):
            time.sleep(PAUSE_S)
            rounds, waited_s = self.read(keys), waited_s + PAUSE_S
        return rounds

    def ended_before(self, now: Round) -> list[Replica]:
        """Return what an earlier update in place has ended without having created a new one for it."""
        if not now.missing or not now.model.variants or now.model.surge:
            return []
        with on_cluster(self.invocation, self.where, now.fleet) as here:
            return ended_before(now, read_records(here.source.client).runs, here.source.namespace)

    def planned(self, models: Sequence[ResolvedModel]) -> AbstractContextManager[Proposal]:
        """Plan what these models lack."""
        options = dataclasses.replace(self.options, targets=tuple(model.key for model in models))
        loaded = dataclasses.replace(self.loaded, fleet=with_models(self.loaded.sound(), models))
        return proposed_by_fleet(self.invocation, loaded, options, self.where)

    def create(self, task: ApplyTask, rounds: Mapping[str, Round]) -> tuple[int, list[ReplicaOutcome]]:
        """Apply the plan of what the models of these rounds lack; returns the exit code and the outcomes."""
        outdated = {key: tuple(replica.replica_id for replica in now.outdated if replica.replica_id is not None)
                    for key, now in rounds.items()}
        options = ApplyOptions(lock_timeout_s=self.wanted.lock_timeout_s, not_awaited=outdated)
        output = CollectedOutput(task.plan, self.whole)
        return carry_out(task, options, output, self.wait_timeout_s), output.outcomes

    def end_replicas(
        self, replicas: Sequence[Replica], keep: Mapping[str, Serving], rounds: Mapping[str, Round]
    ) -> tuple[list[ReplicaOutcome], bool]:
        """End these replicas in one eviction; returns their outcomes, and whether it was interrupted.

        `keep` = how many must serve then, by model.
        """
        now, of_each = next(iter(rounds.values())), [rounds[key].kept_of_each(least) for key, least in keep.items()]
        wanted = dataclasses.replace(self.wanted, keep={key: least.total for key, least in keep.items()},
                                     keep_of_each=[kept for each in of_each for kept in each])
        with on_cluster(self.invocation, self.where, now.fleet) as here:
            summaries = act_on(wanted, here, now.seen, replicas, self.whole.relay if self.whole else lambda _: None)
        rows = ended_by(summaries)
        interrupted = any(summary.interrupted for summary in summaries)
        stay = {(row.model, row.replica_id) for row in rows if row.outcome != "gone"}
        if not interrupted:
            self.ended |= {replica.actor_id for replica in replicas
                           if (replica.model, replica.replica_id) not in stay}
        return rows, interrupted

    def run(self, rounds: Callable[[], int]) -> int:
        """Return the exit code of the rounds. An error stops them; it is raised only if nothing was done before it."""
        before = len(self.outcomes)
        try:
            return rounds()
        except FleetctlError as error:
            if len(self.outcomes) == before and not isinstance(error, WaitTimeout):
                raise
            say("stopped", error.message)
            return PARTIAL if error.exit_code == FleetctlError.exit_code else error.exit_code


@dataclass
class _Replacement:
    """The update of one model. `allow_outage` = in place, no replica has to serve in the meantime."""

    update: ModelUpdate
    model: str
    allow_outage: bool

    def run(self) -> int:
        """Ask once, then update round by round; returns the exit code."""
        update, now = self.update, self._settled()
        update.before[self.model] = now.before
        if not now.outdated and not now.creates:
            say("note", f"{self.model}: nothing to replace, {now.progress}")
            return 0
        refuse_protected(now.fleet, now.outdated)
        if paused := paused_outcome(now):
            return self._show([paused], PARTIAL)
        agreed, ended = {replica.actor_id for replica in now.outdated}, update.ended_before(now)
        if not now.creates:
            now.next_to_end(agreed, now.least(allow_outage=self.allow_outage), update.options)
        elif (code := self._create(now, ended, only_check=True)) != 0:
            return self._show(update.outcomes, code)

        def act() -> int:
            limit = 4 * (len(now.outdated) + now.model.asked_for) + 4
            code = update.run(lambda: self._rounds(agreed, ended, limit))
            say("note", f"{self.model}: {'done' if code == 0 else 'stopped'}, {self._progress()}"
                        + ("" if code == 0 else "; live replicas stay, and the same command continues from here"))
            return self._show(update.outcomes, code)

        if now.outdated or update.wanted.dry_run:
            return perform_on(now.outdated, update.wanted, now.seen, act, self._notes(now))
        # an update in place was interrupted: there is nothing left to end
        return perform(act, f"{self.model}: {now.progress}. Create the missing replicas?", yes=update.wanted.yes,
                       otherwise="")

    def _show(self, outcomes: Sequence[ReplicaOutcome], code: int) -> int:
        return show_steps(outcomes, code, "replace", self.update.wanted.output_format)

    def _progress(self) -> str:
        try:
            return self.update.read([self.model])[self.model].progress
        except FleetctlError as error:
            return f"progress unknown: {error.message}"

    def _settled(self) -> Round:
        return self.update.settled([self.model])[self.model]

    def _rounds(self, agreed: set[str | None], ended: list[Replica], limit: int) -> int:
        update = self.update
        for _ in range(limit):
            now = self._settled()
            if paused := paused_outcome(now):
                update.outcomes.append(paused)
                return PARTIAL
            if now.creates:
                if (code := self._create(now, ended)) != 0:
                    return code
                ended = []
                continue
            least = now.least(allow_outage=self.allow_outage)
            replica = now.next_to_end(agreed, least, update.options)
            if replica is None:
                return 0
            variant = f" ({name})" if (name := now.name_of(replica)) else ""
            say("note", f"{self.model}: {now.progress}; ending {self.model}/{replica.replica_id}{variant}, "
                        f"{now.serving_without(replica)} keep serving")
            rows, interrupted = update.end_replicas([replica], {self.model: least}, {self.model: now})
            update.outcomes += rows
            ended.append(replica)
            if (code := final_exit_code(rows, interrupted=interrupted)) != 0:
                return code
        raise ApplyError(f"{self.model} changes faster than it can be replaced", hint="`fleetctl status` shows it")

    def _create(self, now: Round, ended: Sequence[Replica] = (), *, only_check: bool = False) -> int:
        """Apply the model as a separate plan; returns the exit code. If anything is blocked, nothing is created."""
        update, ways, code = self.update, now.to_plan(ended), ""
        while True:
            with update.planned([ways.pop(0)]) as proposal:
                plan = proposal.task.plan
                if plan.blocked and ways:
                    code = plan.blocked[0].code
                    continue
                refuse_by_policy(update.invocation, plan, force=update.options.force)
                if plan.blocked:
                    update.outcomes += blocked_outcomes(plan)
                    return final_exit_code(update.outcomes, interrupted=False)
                say("note", *now.other_variants(plan.all_starts, ended, code=code))
                if only_check:
                    return 0
                exit_code, rows = update.create(proposal.task, {self.model: now})
            update.outcomes += rows
            return exit_code

    def _notes(self, now: Round) -> Iterator[str]:
        if now.shrinks:
            yield now.shrinks
        if now.model.surge:
            yield (f"{self.model}: {now.progress}; at most {now.model.surge} beyond the target at a time, and each is "
                   "ready before an outdated one ends")
        else:
            least = now.model.asked_for - 1 if now.creates else min(map(now.serving_without, now.outdated))
            yield (f"{self.model}: {now.progress}; each replica ends before the next is created, so {least} of "
                   f"{now.model.asked_for} serve until the new one is ready")
