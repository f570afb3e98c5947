"""`fleetctl rollout`: the explicit verb that replaces the outdated replicas of many models, a few models at a time.

A turn reads the cluster, creates what the models in turn lack in one apply, or ends one replica of each in one
eviction. What to do next follows from what runs, so a run that was killed is continued by the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import typer

from fleetctl.apply.outcome import INTERRUPTED, PARTIAL, blocked_outcomes, final_exit_code
from fleetctl.cli import flags
from fleetctl.cli.apply_run import ApplyOutput, FormatOption
from fleetctl.cli.commands import command_app
from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.console import NOTHING_DONE, say
from fleetctl.cli.explicit import DrainTime, VerbRequest, perform_on
from fleetctl.cli.process import invocation_on_one_cluster
from fleetctl.cli.replace import ModelUpdate, paused_outcome, wants_none
from fleetctl.cli.reporting import OUTCOME_FORMATS, RunReportOption, parse_reports
from fleetctl.cli.verb import DECLINED, one_command
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import count_of, some
from fleetctl.errors import ApplyError, FleetctlError, UsageError
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.planner.options import PlanFacts, PlanOptions, with_keys
from fleetctl.planner.policy import CHANGES, protection_of
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.proposal import refuse_by_policy, require_allowed
from fleetctl.workflow.replace import Round, Serving, with_models
from fleetctl.workflow.scaling import model_of

app = command_app(
    "fleetctl rollout -f fleets/prod.yaml --dry-run",
    "fleetctl rollout -f fleets/prod.yaml --at-once 8 --drain 30s",
    "fleetctl rollout openai-community/gpt2 -f fleets/prod.yaml",
    exit_codes="0 all are current, 1 error before any action, 2 something is outdated (--dry-run "
               "--detailed-exitcode), 3 something stays outdated, 4 refused by policy, 5 another run holds the lock, "
               "7 --wait-timeout passed, 64 usage, 130 interrupted")

AT_ONCE, MAX_AT_ONCE, LOCK_TIMEOUT_S = 4, 100, 600.0
NAMED = 5


@app.command()
def rollout(
    *,
    models: Annotated[list[str] | None, typer.Argument(
        metavar="MODEL", show_default=False, autocompletion=complete_model_keys,
        help="Only these models. [default: all that have outdated replicas]")] = None,
    files: flags.FlaggedFiles,
    selector: flags.Selector = None,
    at_once: Annotated[int, flags.option(
        "--at-once", metavar="N", min=1, max=MAX_AT_ONCE, help="At most N models at a time.")] = AT_ONCE,
    drain: DrainTime = 0,
    dry_run: flags.DryRun = False,
    detailed_exitcode: Annotated[bool, typer.Option(
        "--detailed-exitcode", help="With --dry-run: exit with 2 if something would be replaced.")] = False,
    where: flags.Cluster,
    yes: flags.Yes = False,
    force: flags.Force = False,
    ignore_cooldown: flags.IgnoreCooldown = False,
    lock_timeout: Annotated[float, flags.option(
        "--lock-timeout", metavar="DURATION", parser=flags.duration,
        help=f"{flags.LOCK_TIMEOUT_HELP} [default: 10m]")] = LOCK_TIMEOUT_S,
    wait_timeout: flags.WaitTimeout = None,
    output_format: FormatOption = "table",
    report: RunReportOption = None,
) -> int:
    """Replace all that is outdated, a few models at a time.

    Each model is updated as by `replace`: a current replica is created and ready before an outdated one is ended. A
    model that fails keeps its remaining outdated replicas, and the others go on. Run the same command again to
    continue. No apply and no watch does this.
    """
    if detailed_exitcode and not dry_run:
        raise UsageError("--detailed-exitcode needs --dry-run")
    invocation = invocation_on_one_cluster(where.address)
    options = PlanOptions(tuple(models or ()), force=force, selector=selector, ignore_cooldown=ignore_cooldown)
    wanted = VerbRequest("evict", "Replace", yes, dry_run, "table", lock_timeout, drain)
    output, reports = ApplyOutput(output_format), parse_reports(report, formats=OUTCOME_FORMATS, reading=files)
    with reports.of_error("rollout", "rollout of", files):
        with output.ends_with_summary():
            loaded = inspect_fleet(files, stdin=invocation.stdin)
            code = roll_out(invocation, where, loaded, options, wanted, output, at_once, wait_timeout)
        if code != DECLINED:
            output.report_to(reports, code, loaded.sound().name)
    return CHANGES if detailed_exitcode and code == 0 and output.outcomes else code


def roll_out(
    invocation: Invocation, where: Where, loaded: LoadedFleet, options: PlanOptions, wanted: VerbRequest,
    output: ApplyOutput, at_once: int, wait_timeout_s: float | None = None,
) -> int:
    """Plan, ask and replace, with the models that `options` choose; returns the exit code. Shows all on `output`."""
    fleet = loaded.sound()
    for model in (model_of(fleet, name) for name in options.targets):
        if not model.is_wanted:
            raise wants_none(model.key)
    options = with_keys(options, fleet.labels)
    chosen = tuple(model.key for model in fleet.models
                   if model.is_wanted and options.left_out(model.key, model.labels) is None)
    # a current replica is ready before an outdated one ends: every model has at least one beyond its target
    changed = {model.key: model.with_changes(surge=model.surge or 1) for model in fleet.models if model.key in chosen}
    output.verb = "rollout"
    with one_command("rollout"):
        loaded = replace(loaded, fleet=fleet.only_creating(changed))
        options = replace(options, targets=(), selector=None)
        update = ModelUpdate(invocation, where, loaded, options, wanted, wait_timeout_s, output)
        return _Rollout(update, output, at_once).run(chosen)


@dataclass
class _Rollout:
    """The update of many models. `agreed` = actor ids to end, by model. `stopped` = models that are left as they are
    from now on; `changing` = what the first new replicas of a model replace as another variant, and `first` = what they
    replace, by replica, in words.
    """

    update: ModelUpdate
    output: ApplyOutput
    at_once: int
    agreed: dict[str, set[str | None]] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    changing: dict[str, list[str]] = field(default_factory=dict)
    first: dict[tuple[str, int | None], str] = field(default_factory=dict)

    def run(self, chosen: Sequence[str]) -> int:
        """Show the plan and ask once, then take turn after turn; returns the exit code."""
        update = self.update
        rounds = {key: now for key, now in update.settled(chosen).items() if now.outdated}
        # what an earlier run has begun comes first
        order = sorted(rounds, key=lambda key: len(rounds[key].outdated) == len(rounds[key].state.live))
        update.outcomes += filter(None, (self._left_alone(rounds[key]) for key in order))
        skipped = {row.model for row in update.outcomes}
        order = [key for key in order if key not in skipped]
        notes = list(self._notes(order, rounds))
        if not order:
            say("note", *notes, *([] if skipped else ["nothing is outdated"]))
            return self.output.end(update.outcomes, PARTIAL if skipped else 0)
        self.agreed = {key: {replica.actor_id for replica in rounds[key].outdated} for key in order}
        update.before |= {key: rounds[key].before for key in order}
        full = self._without_room(order, rounds)
        replicas = [replica for key in order for replica in rounds[key].outdated]

        def foreseen() -> int:
            names = {row.model for row in full}
            would = [ReplicaOutcome(model=replica.model, replica_id=replica.replica_id, outcome="skipped",
                                    variant=rounds[replica.model].name_of(replica) or None, code="DRY_RUN",
                                    message=self.first.get((replica.model, replica.replica_id), "it would be replaced"))
                     for replica in replicas if replica.model not in names]
            return self.output.end([*update.outcomes, *would, *full], PARTIAL if full or skipped else 0, NOTHING_DONE)

        def act() -> int:
            code = update.run(lambda: self._turns(
                order, limit=4 * sum(len(rounds[key].outdated) + rounds[key].model.asked_for for key in order)))
            if code != 0:
                say("note", "live replicas stay, and the same command continues from here")
            return self.output.end(update.outcomes, code)

        return perform_on(replicas, update.wanted, rounds[order[0]].seen, act,
                          [*notes, *(line for key in order for line in self.changing.get(key, ())),
                           *(f"{row.model}: {row.code}: {row.message}" for row in full)], foreseen)

    def _left_alone(self, now: Round) -> ReplicaOutcome | None:
        """Return the outcome of a model that is not replaced: the policy protects it, or it is paused."""
        key = now.model.key
        if (protection := protection_of(now.fleet, key)) is None:
            return paused_outcome(now)
        return ReplicaOutcome(model=key, outcome="blocked", code="PROTECTED_MODEL", replicas=len(now.outdated),
                              message=f"{protection} protects it")

    def _notes(self, order: Sequence[str], rounds: Mapping[str, Round]) -> Iterator[str]:
        for row in self.update.outcomes:
            yield f"{row.model} is skipped: {row.message}"
        yield from filter(None, (rounds[key].shrinks for key in order))
        if order:
            outdated = sum(len(rounds[key].outdated) for key in order)
            yield (f"{count_of(outdated, 'outdated replica')} of {count_of(len(order), 'model')} "
                   f"({some(list(order), NAMED)}), {count_of(self.at_once, 'model')} at a time; each new replica is "
                   "ready before an outdated one ends")

    def _without_room(self, order: Sequence[str], rounds: Mapping[str, Round]) -> list[ReplicaOutcome]:
        """Return the models that would not fit beside what runs. Raises PolicyRefused for the first turn."""
        todo = [key for key in order if rounds[key].creates]
        if todo:
            first = self._foreseen(todo[:self.at_once], rounds)
            require_allowed(first, force=self.update.options.force)
        while todo:
            plan = self._foreseen(todo, rounds)
            blocked = [key for key in todo if key in {row.model for row in plan.blocked}]
            if len(blocked) == len(todo):
                return blocked_outcomes(plan)
            todo = blocked  # the others have freed what they took by then
        return []

    def _foreseen(self, todo: Sequence[str], rounds: Mapping[str, Round]) -> Plan:
        """Plan what these models lack, and keep which replicas would be replaced by those of other variants."""
        from fleetctl.planner.plan import make_plan  # NumPy

        now, codes, ways = rounds[todo[0]], dict[str, str](), {key: rounds[key].to_plan() for key in todo}
        while True:
            fleet = with_models(now.fleet, [found[0] for found in ways.values()])
            plan = make_plan(fleet, now.seen, replace(self.update.options, targets=tuple(todo)),
                             PlanFacts(tool_version=""))
            other = {row.model: row.code for row in plan.blocked if len(ways[row.model]) > 1}
            if not other:
                break
            codes |= other
            ways |= {key: ways[key][1:] for key in other}
        blocked = {row.model for row in plan.blocked}
        for key in todo:
            if key not in blocked and key not in self.changing:
                self.changing[key] = rounds[key].other_variants(plan.all_starts, code=codes.get(key, ""))
                self.first |= {(key, old.replica_id): f"it would be replaced by {key}/{new.replica_id}"
                               + (f" as {new.variant}" if new.variant else "")
                               for old, new in rounds[key].replaced_by(plan.all_starts)}
        return plan

    def _turns(self, order: Sequence[str], limit: int) -> int:
        full: dict[str, list[ReplicaOutcome]] = {}
        progress = False
        for _ in range(2 * limit + 4):
            rounds = self.update.settled([key for key in order if key not in self.stopped])
            todo = [key for key, now in rounds.items() if now.outdated or now.creates]
            for key in todo:
                if refused := self._left_alone(rounds[key]):
                    self._stop(key, [refused])
            todo = [key for key in todo if key not in self.stopped]
            turn = [key for key in todo if key not in full][:self.at_once]
            if not todo:
                return final_exit_code(self.update.outcomes, interrupted=False)
            if not turn:
                if not progress:  # none of them fits, even now that the others hold only what they keep
                    for key, rows in full.items():
                        self._stop(key, rows)
                full, progress = {}, False
                continue
            lacking = [key for key in turn if rounds[key].creates]
            ending = [key for key in turn if key not in lacking]
            parts = [f"{does} of {some(keys, NAMED)}" for does, keys in (
                ("start new replicas", lacking), ("end an outdated replica", ending)) if keys]
            say("note", f"{len(order) - len(todo) - len(self.stopped)} of {count_of(len(order), 'model')} done; next: "
                        f"{', '.join(parts)}")
            interrupted, blocked = self._create(lacking, rounds)
            full |= blocked
            if not interrupted:
                interrupted = self._end(ending, rounds)
            if interrupted:
                return INTERRUPTED
            progress = progress or len(blocked) < len(turn)
        raise ApplyError("the models change faster than they can be replaced", hint="`fleetctl status` shows them")

    def _create(
        self, todo: list[str], rounds: Mapping[str, Round]
    ) -> tuple[bool, dict[str, list[ReplicaOutcome]]]:
        """Create what these models lack, in one apply; returns whether it was interrupted, and which do not fit now.

        Of a model that does not fit whole nothing is created.
        """
        full, codes = dict[str, list[ReplicaOutcome]](), dict[str, str]()
        ways = {key: rounds[key].to_plan() for key in todo}
        while todo:
            with self.update.planned([ways[key][0] for key in todo]) as proposal:
                plan = proposal.task.plan
                for row in blocked_outcomes(plan):
                    if len(ways[row.model]) == 1:
                        full.setdefault(row.model, []).append(row)
                if plan.blocked:
                    other = {row.model: row.code for row in plan.blocked if len(ways[row.model]) > 1}
                    codes |= other
                    ways |= {key: ways[key][1:] for key in other}
                    todo = [key for key in todo if key not in full]
                    continue
                refuse_by_policy(self.update.invocation, plan, force=self.update.options.force)
                say("note", *(line for key in todo
                              for line in rounds[key].other_variants(plan.all_starts, code=codes.get(key, ""))))
                code, rows = self.update.create(proposal.task, {key: rounds[key] for key in todo})
            self._record(rows)
            return code == INTERRUPTED, full
        return False, full

    def _end(self, todo: Sequence[str], rounds: Mapping[str, Round]) -> bool:
        """End one outdated replica of each of these models, in one eviction; returns whether it was interrupted."""
        replicas, keep = [], dict[str, Serving]()
        for key in todo:
            now, least = rounds[key], rounds[key].least()
            try:
                replica = now.next_to_end(self.agreed[key], least, self.update.options)
            except FleetctlError as error:
                self._stop(key, [ReplicaOutcome(model=key, outcome="failed", code="NOT_DONE", message=error.message)])
                continue
            if replica is not None:
                replicas.append(replica)
                keep[key] = least
        if not replicas:
            return False
        rows, interrupted = self.update.end_replicas(replicas, keep, rounds)
        self._record(rows)
        return interrupted

    def _record(self, rows: Sequence[ReplicaOutcome]) -> None:
        """Keep the outcomes of a step; a model that failed in it is stopped."""
        self.update.outcomes += rows
        self.stopped |= {row.model for row in rows if final_exit_code([row], interrupted=False) != 0}

    def _stop(self, key: str, why: Sequence[ReplicaOutcome]) -> None:
        self.stopped.add(key)
        self.update.outcomes += why
