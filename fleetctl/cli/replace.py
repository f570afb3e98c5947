"""`fleetctl replace`: the explicit verb that updates a model: it creates current replicas and ends outdated ones."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

import typer

from fleetctl.apply.outcome import PARTIAL, blocked_outcomes, final_exit_code
from fleetctl.apply.prepare import ApplyOptions
from fleetctl.cli import flags
from fleetctl.cli.apply_run import CollectedOutput, carry_out
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import confirm, say
from fleetctl.cli.explicit import DrainTime, Wanted, act_on, agreed_to, ended_by, refuse_protected, show_steps
from fleetctl.cli.identity import one_command
from fleetctl.cli.process import invocation_on_one_cluster
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.fleet import MAX_REPLICAS
from fleetctl.documents.names import command_line
from fleetctl.documents.quantity import some
from fleetctl.errors import ApplyError, FleetctlError, UsageError, WaitTimeout
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.planner.live import PAUSED, resume_command
from fleetctl.planner.options import PlanOptions
from fleetctl.render.replica_text import replica_name
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.proposal import proposed_by_fleet, refuse_by_policy
from fleetctl.workflow.replace import Round, round_of
from fleetctl.workflow.scaling import look_up

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
    found = look_up(invocation, files, model, where)
    model = found.model
    if not found.wanted:
        raise wants_none(model)
    in_file = next(one for one in found.loaded.sound().models if one.key == model)
    beyond = 0 if in_place else surge or in_file.surge or 1
    wanted = Wanted("evict", "Replace", yes, dry_run, output_format, lock_timeout, drain)
    with one_command("replace"):
        return _Update(invocation, where, found.to(found.wanted, beyond), model, wanted,
                       PlanOptions((model,), force=force, ignore_cooldown=ignore_cooldown), wait_timeout,
                       allow_outage).run()


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
class _Update:
    """One update; `outcomes` grow step by step, `ended` holds actor ids. No other state is kept."""

    invocation: Invocation
    where: Where
    loaded: LoadedFleet
    model: str
    wanted: Wanted
    options: PlanOptions
    wait_timeout_s: float | None
    allow_outage: bool
    outcomes: list[ReplicaOutcome] = field(default_factory=list)
    ended: set[str | None] = field(default_factory=set)

    def run(self) -> int:
        """Ask once, then update round by round; returns the exit code."""
        now = self._settled_round()
        outdated = now.outdated
        if not outdated and not now.creates:
            say("note", f"{self.model}: nothing to replace, {now.progress}")
            return 0
        refuse_protected(now.fleet, outdated)
        if paused := paused_outcome(now):
            return show_steps([paused], PARTIAL, "replace", self.wanted.output_format)
        agreed, before = {one.actor_id for one in outdated}, now.serving
        if not now.creates:
            now.next_to_end(agreed, now.least(before, allow_outage=self.allow_outage), self.options)
        elif (code := self._create(now, only_check=True)) != 0:
            return show_steps(self.outcomes, code, "replace", self.wanted.output_format)
        refused = self._agreed(now)
        if refused is not None:
            return refused
        try:
            code = self._rounds(agreed, before, most=4 * (len(outdated) + now.model.replicas) + 4)
        except FleetctlError as error:
            if not self.outcomes and not isinstance(error, WaitTimeout):  # nothing has happened yet
                raise
            say("stopped", error.message)
            code = PARTIAL if error.exit_code == FleetctlError.exit_code else error.exit_code
        say("note", f"{self.model}: {'done' if code == 0 else 'stopped'}, {self._progress()}"
                    + ("" if code == 0 else "; live replicas stay, and the same command continues from here"))
        return show_steps(self.outcomes, code, "replace", self.wanted.output_format)

    def _agreed(self, now: Round) -> int | None:
        """Ask once; returns None after a yes. After an interrupted update in place there may be nothing left to end."""
        if now.outdated or self.wanted.dry_run:
            return agreed_to(self.wanted, now.seen, now.outdated, self._notes(now))
        agreed = confirm(f"{self.model}: {now.progress}. Create the missing replicas?", yes=self.wanted.yes)
        return None if agreed else 1

    def _progress(self) -> str:
        try:
            return self._read_round().progress
        except FleetctlError as error:
            return f"progress unknown: {error.message}"

    def _rounds(self, agreed: set[str | None], before: int, most: int) -> int:
        for _ in range(most):
            now = self._settled_round()
            if paused := paused_outcome(now):
                self.outcomes.append(paused)
                return PARTIAL
            if now.creates:
                if (code := self._create(now)) != 0:
                    return code
                continue
            least = now.least(before, allow_outage=self.allow_outage)
            one = now.next_to_end(agreed, least, self.options)
            if one is None:
                return 0
            say("note", f"{self.model}: {now.progress}; ending {self.model}/{one.replica_id}, "
                        f"{now.serving_without(one)} keep serving")
            wanted = dataclasses.replace(self.wanted, keep={self.model: least})
            with live_source(self.invocation, self.where, now.fleet.cluster) as source:
                summaries = act_on(wanted, source, now.seen, [one], now.fleet)
            self.outcomes += (rows := ended_by(summaries))
            if (code := final_exit_code(rows, interrupted=any(one.interrupted for one in summaries))) != 0:
                return code
            self.ended.add(one.actor_id)
        raise ApplyError(f"{self.model} changes faster than it can be replaced", hint="`fleetctl status` shows it")

    def _settled_round(self) -> Round:
        return settled(lambda: {self.model: self._read_round()}, dry_run=self.wanted.dry_run)[self.model]

    def _read_round(self) -> Round:
        fleet = self.loaded.sound()
        with live_source(self.invocation, self.where, fleet.cluster) as source:
            return round_of(fleet, self.model, source.read(), self.ended)

    def _create(self, now: Round, *, only_check: bool = False) -> int:
        """Apply the model as a separate plan; returns the exit code. If anything is blocked, nothing is created."""
        with proposed_by_fleet(self.invocation, self.loaded, self.options, self.where) as proposal:
            plan = proposal.task.plan
            refuse_by_policy(self.invocation, plan, force=self.options.force)
            output = CollectedOutput(plan)
            if plan.blocked:
                self.outcomes += blocked_outcomes(plan)
                return final_exit_code(self.outcomes, interrupted=False)
            if only_check:
                return 0
            outdated = tuple(one.replica_id for one in now.outdated if one.replica_id is not None)
            options = ApplyOptions(lock_timeout_s=self.wanted.lock_timeout_s, not_awaited={self.model: outdated})
            code = carry_out(proposal.task, options, output, self.wait_timeout_s)
        self.outcomes += output.outcomes
        return code

    def _notes(self, now: Round) -> Iterator[str]:
        if now.shrinks:
            yield now.shrinks
        if now.model.surge:
            yield (f"{self.model}: {now.progress}; at most {now.model.surge} beyond the target at a time, and each is "
                   "ready before an outdated one ends")
        else:
            least = now.model.replicas - 1 if now.creates else min(map(now.serving_without, now.outdated))
            yield (f"{self.model}: {now.progress}; each replica ends before the next is created, so {least} of "
                   f"{now.model.replicas} serve until the new one is ready")


def settled(read: Callable[[], dict[str, Round]], *, dry_run: bool) -> dict[str, Round]:
    """Return the rounds by model, once no eviction is about to end a replica, such as one that a killed run has begun.

    The eviction's own longest time bounds the wait; one of unknown length is not awaited.
    """
    rounds, waited_s = read(), 0.0
    leaving = [one for now in rounds.values() for one in now.leaving]
    longest_s = 0.0 if dry_run else max((one.gone_within_s or 0.0 for one in leaving), default=0.0)
    if longest_s:
        names = some([replica_name(one.model, one.replica_id) for one in leaving])
        say("note", f"{names}: a running eviction is about to end it; waiting up to {longest_s:g} s")
    while waited_s < longest_s and any(now.leaving for now in rounds.values()):
        time.sleep(PAUSE_S)
        rounds, waited_s = read(), waited_s + PAUSE_S
    return rounds
