"""`fleetctl rollout`: the explicit verb that updates all outdated models of a fleet, each as `replace` does."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import typer

from fleetctl.apply.outcome import INTERRUPTED, PARTIAL, final_exit_code
from fleetctl.apply.prepare import ApplyOptions
from fleetctl.cli import flags
from fleetctl.cli.apply_run import CollectedOutput, carry_out
from fleetctl.cli.commands import command_app
from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.console import say
from fleetctl.cli.explicit import DrainTime, Wanted, act_on, agreed_to, show_steps
from fleetctl.cli.identity import one_command
from fleetctl.cli.process import invocation_on_one_cluster
from fleetctl.cli.replace import settled
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.fleet import MAX_REPLICAS
from fleetctl.documents.inventory import Replica
from fleetctl.documents.quantity import count_of
from fleetctl.errors import FleetctlError, PolicyRefused, WaitTimeout
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.planner.live import PAUSED, resume_command
from fleetctl.planner.options import PlanOptions
from fleetctl.planner.policy import policy_at, protecting
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.proposal import proposed_by_fleet, refuse_by_policy
from fleetctl.workflow.replace import Round, blocked_alone, round_of
from fleetctl.workflow.scaling import model_of

app = command_app(
    "fleetctl rollout -f fleets/prod.yaml --dry-run",
    "fleetctl rollout -f fleets/prod.yaml --drain 30s --at-once 4",
    "fleetctl rollout -f fleets/prod.yaml --selector team=nlp",
    exit_codes="0 all are current, 1 error before any action, 3 some models keep outdated replicas, 5 another run "
               "holds the lock, 7 --wait-timeout passed, 64 usage, 130 interrupted")

AT_ONCE, LOCK_TIMEOUT_S = 2, 1800.0
PROTECTED = "PROTECTED"
"""The code of a model that a policy protects, so no rollout ends its replicas."""
AtOnce = Annotated[int, typer.Option(
    "--at-once", metavar="N", min=1, max=1000, help="Update at most N models at a time.")]


@app.command()
def rollout(
    *,
    models: Annotated[list[str] | None, typer.Argument(
        metavar="[MODEL]...", show_default=False, autocompletion=complete_model_keys,
        help="Only these models. [default: all of the fleet file]")] = None,
    files: flags.FlaggedFiles,
    selector: flags.Selector = None,
    at_once: AtOnce = AT_ONCE,
    surge: Annotated[int | None, flags.option(
        "--surge", metavar="N", min=1, max=MAX_REPLICAS,
        help="At most N replicas beyond each target at a time. [default: the model's update.surge, else 1]")] = None,
    drain: DrainTime = 0,
    dry_run: flags.DryRun = False,
    where: flags.Cluster,
    yes: flags.Yes = False,
    force: flags.Force = False,
    ignore_cooldown: flags.IgnoreCooldown = False,
    lock_timeout: Annotated[float, flags.option(
        "--lock-timeout", metavar="DURATION", parser=flags.duration,
        help=f"{flags.LOCK_TIMEOUT_HELP} [default: 30m]")] = LOCK_TIMEOUT_S,
    wait_timeout: flags.WaitTimeout = None,
    output_format: flags.Format = "table",
) -> int:
    """Update all outdated models to the file's specs, a few models at a time.

    Each model is updated as by `fleetctl replace`: a current replica is ready before an outdated one is ended. A model
    whose new replica fails or has no room keeps its outdated ones, and the others go on. Protected and paused models
    are skipped. Run the same command again to continue.
    """
    invocation = invocation_on_one_cluster(where.address)
    loaded = inspect_fleet(files, stdin=invocation.stdin)
    wanted = Wanted("evict", "Replace", yes, dry_run, output_format, lock_timeout, drain)
    options = PlanOptions(tuple(models or ()), selector=selector, force=force, ignore_cooldown=ignore_cooldown)
    made = Rollout(invocation, where, loaded, options, wanted, at_once, wait_timeout, surge)
    code = made.run()
    if code is None:
        return 1
    return show_steps(made.outcomes, code, "rollout", output_format) if made.outcomes else code


@dataclass
class Rollout:
    """One rollout of the models that `options` choose. `at_once` = models, `surge` = replicas of each, None = its own.

    `outcomes` grow step by step, `ended` holds actor ids; all else follows from what runs.
    """

    invocation: Invocation
    where: Where
    loaded: LoadedFleet
    options: PlanOptions
    wanted: Wanted
    at_once: int
    wait_timeout_s: float | None = None
    surge: int | None = None
    outcomes: list[ReplicaOutcome] = field(default_factory=list)
    ended: set[str | None] = field(default_factory=set)
    _code: int | None = None
    """The exit code of an interrupted run: nothing more begins."""

    def run(self) -> int | None:
        """Ask once, then update model after model; returns the exit code. None = the answer was no."""
        fleet = self.loaded.sound()
        self.options = dataclasses.replace(
            self.options, targets=tuple(model_of(fleet, name).key for name in self.options.targets))
        keys = [one.key for one in fleet.models if one.replicas and self.options.left_out(one.key, one.labels) is None]
        self.loaded = self._with_surge(keys)
        with one_command("rollout"):
            rounds = {key: now for key, now in self._settled(keys).items() if now.outdated}
            if not rounds:
                say("note", f"nothing to roll out: {count_of(len(keys), 'model')}, none has outdated replicas")
                return 0
            seen = next(iter(rounds.values())).seen
            rounds = {key: now for key, now in rounds.items() if not self._is_left_alone(now)}
            if self.wanted.dry_run:
                self.outcomes += [row for now in rounds.values() for row in blocked_alone(now, self.options)]
            outdated = [one for now in rounds.values() for one in now.outdated]
            refused = agreed_to(self.wanted, seen, outdated, self._notes(rounds)) if outdated else None
            if refused is None and outdated:
                return self._carried_out(rounds, {one.actor_id for one in outdated})
            return None if refused else final_exit_code(self.outcomes, interrupted=False)

    def _carried_out(self, rounds: Mapping[str, Round], agreed: set[str | None]) -> int:
        """Update the models. Once something was done, an error is told and the result is still shown."""
        try:
            self._update(rounds, agreed)
        except FleetctlError as error:
            acted = any(row.outcome in ("ready", "gone") for row in self.outcomes)
            if not acted and not isinstance(error, WaitTimeout):
                raise
            say("stopped", error.message)
            self._code = PARTIAL if error.exit_code == FleetctlError.exit_code else error.exit_code
        code = final_exit_code(self.outcomes, interrupted=False) if self._code is None else self._code
        if code:
            say("note", "live replicas stay, and the same command continues from here")
        return code

    def _with_surge(self, keys: Iterable[str]) -> LoadedFleet:
        """Return the fleet in which these models may have replicas beyond their targets, and nothing is reloaded."""
        fleet, chosen = self.loaded.sound(), set(keys)
        models = tuple(dataclasses.replace(one, cold=None, reload=(), surge=self.surge or one.surge or 1)
                       if one.key in chosen else dataclasses.replace(one, cold=None) for one in fleet.models)
        return dataclasses.replace(self.loaded, fleet=dataclasses.replace(fleet, models=models))

    def _is_left_alone(self, now: Round) -> bool:
        """Return whether a policy protects the model or a user has paused it; its outcome says so."""
        key, fleet = now.model.key, now.fleet
        if (pattern := protecting(fleet.policy.protected_models, key)) is not None:
            code, why = PROTECTED, f"{policy_at(fleet, 'protectedModels', pattern)} protects it"
        elif now.state.pause is not None:
            code, why = PAUSED, f"{now.state.paused}; `{resume_command(now.state.pause)}` ends that"
        else:
            return False
        say("note", f"{key} keeps its outdated replicas: {why}")
        self.outcomes.append(ReplicaOutcome(
            model=key, outcome="blocked", code=code, message=why, replicas=max(1, len(now.outdated))))
        return True

    def _notes(self, rounds: Mapping[str, Round]) -> list[str]:
        each = [f"{key}: {now.progress}; at most {now.model.surge} beyond the target at a time"
                for key, now in rounds.items()]
        no_room = [f"{row.model}: {row.message}" for row in self.outcomes if row.model in rounds]
        limits = f"{count_of(len(rounds), 'model')}, at most {self.at_once} at a time"
        return [*each, *no_room, f"{limits}; a new replica is ready before an outdated one ends"]

    def _settled(self, keys: Sequence[str]) -> dict[str, Round]:
        def read() -> dict[str, Round]:
            fleet = self.loaded.sound()
            with live_source(self.invocation, self.where, fleet.cluster) as source:
                seen = source.read()
            return {key: round_of(fleet, key, seen, self.ended) for key in keys}

        return settled(read, dry_run=self.wanted.dry_run)

    def _update(self, first: Mapping[str, Round], agreed: set[str | None]) -> None:
        """Update the models in their order; one that is done or cannot go on leaves its turn to the next."""
        before = {key: now.serving for key, now in first.items()}
        most = {key: 4 * (len(now.outdated) + now.model.replicas) + 4 for key, now in first.items()}
        waiting, active, tries = deque(first), list[str](), Counter[str]()
        while (waiting or active) and self._code is None:
            while waiting and len(active) < self.at_once:
                active.append(waiting.popleft())
            rounds = self._settled(active)
            tries.update(active)
            left, ending = set[str](), dict[str, Replica]()
            for key, now in rounds.items():
                if self._is_left_alone(now):
                    left.add(key)
                elif not now.creates or tries[key] > most[key]:
                    try:
                        one = self._next_to_end(now, agreed, before[key], gives_up=tries[key] > most[key])
                    except FleetctlError as error:
                        self._leave(now, "NOT_DONE", error)
                        left.add(key)
                        continue
                    if one is not None:
                        ending[key] = one
                    else:
                        left.add(key)
                        say("note", f"{key}: done, {now.progress}; {count_of(len(waiting), 'model')} to come")
            left |= self._end(ending, rounds, before)
            left |= self._create([rounds[key] for key in active if key not in left and key not in ending])
            active = [key for key in active if key not in left]

    def _next_to_end(self, now: Round, agreed: set[str | None], before: int, *, gives_up: bool) -> Replica | None:
        if gives_up:
            raise FleetctlError("it changes faster than it can be replaced", hint="`fleetctl status` shows it")
        return now.next_to_end(agreed, now.least(before, allow_outage=False), self.options)

    def _leave(self, now: Round, code: str, error: FleetctlError) -> None:
        """Keep the outdated replicas of a model, for this reason."""
        say("note", f"{now.model.key} keeps its outdated replicas: {error.message}")
        self.outcomes.append(ReplicaOutcome(model=now.model.key, outcome="blocked", code=code, message=error.message,
                                            replicas=max(1, len(now.outdated))))

    def _end(self, ending: Mapping[str, Replica], rounds: Mapping[str, Round], before: Mapping[str, int]) -> set[str]:
        """End one outdated replica of each of these models in one run; returns the models of which none ended."""
        if not ending:
            return set()
        for key, one in ending.items():
            say("note", f"{key}: {rounds[key].progress}; ending {key}/{one.replica_id}, "
                        f"{rounds[key].serving_without(one)} keep serving")
        keep = {key: rounds[key].least(before[key], allow_outage=False) for key in ending}
        fleet, seen = self.loaded.sound(), next(iter(rounds.values())).seen
        with live_source(self.invocation, self.where, fleet.cluster) as source:
            summaries = act_on(dataclasses.replace(self.wanted, keep=keep), source, seen, [*ending.values()], fleet)
        rows = [row for summary in summaries for row in summary.outcomes]
        self.outcomes += rows
        if any(summary.interrupted for summary in summaries):
            self._code = INTERRUPTED
        gone = {row.model for row in rows if row.outcome == "gone"}
        self.ended |= {one.actor_id for key, one in ending.items() if key in gone}
        return set(ending) - gone

    def _create(self, rounds: Sequence[Round]) -> set[str]:
        """Create the missing current replicas and await them in one apply; returns the models that cannot go on.

        If the policy refuses the apply, each model is tried in one of its own.
        """
        if not rounds or self._code is not None:
            return set()
        keys = tuple(now.model.key for now in rounds)
        options = dataclasses.replace(self.options, targets=keys, selector=None)
        outdated = {now.model.key: tuple(one.replica_id for one in now.outdated if one.replica_id is not None)
                    for now in rounds}
        try:
            with proposed_by_fleet(self.invocation, self.loaded, options, self.where) as proposal:
                refuse_by_policy(self.invocation, proposal.task.plan, force=options.force)
                output = CollectedOutput(proposal.task.plan)
                code = carry_out(proposal.task, ApplyOptions(lock_timeout_s=self.wanted.lock_timeout_s,
                                                             not_awaited=outdated), output, self.wait_timeout_s)
        except PolicyRefused as refused:
            if len(rounds) > 1:
                return {key for now in rounds for key in self._create([now])}
            self._leave(rounds[0], "POLICY", refused)
            return set(keys)
        self.outcomes += output.outcomes
        if code == INTERRUPTED:
            self._code = code
        failed = {row.model for row in output.outcomes if final_exit_code([row], interrupted=False)}
        for key in sorted(failed):
            say("note", f"{key} keeps its outdated replicas: a new one is not ready")
        return failed
