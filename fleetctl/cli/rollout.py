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
from fleetctl.apply.prepare import ApplyOptions
from fleetctl.cli import flags
from fleetctl.cli.apply_run import ApplyOutput, CollectedOutput, FormatOption, carry_out
from fleetctl.cli.commands import command_app
from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.console import NOTHING_DONE, say
from fleetctl.cli.explicit import DrainTime, Wanted, act_on, agreed_to, ended_by
from fleetctl.cli.identity import one_command
from fleetctl.cli.process import invocation_on_one_cluster
from fleetctl.cli.replace import paused_outcome, settled, wants_none
from fleetctl.cli.reporting import OUTCOME_FORMATS, RunReportOption, parse_reports
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.quantity import count_of, some
from fleetctl.errors import ApplyError, FleetctlError, UsageError, WaitTimeout
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.planner.options import PlanFacts, PlanOptions, with_keys
from fleetctl.planner.policy import CHANGES, protection_of
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.proposal import proposed_by_fleet, refuse_by_policy, require_allowed
from fleetctl.workflow.replace import Round, rounds_of
from fleetctl.workflow.scaling import model_of

app = command_app(
    "fleetctl rollout -f fleets/prod.yaml --dry-run",
    "fleetctl rollout -f fleets/prod.yaml --at-once 8 --drain 30s",
    "fleetctl rollout openai-community/gpt2 -f fleets/prod.yaml",
    exit_codes="0 all are current, 1 error before any action, 2 something is outdated (--dry-run "
               "--detailed-exitcode), 3 something stays outdated, 4 refused by policy, 5 another run holds the lock, "
               "7 --wait-timeout passed, 64 usage, 130 interrupted")

AT_ONCE, MOST_AT_ONCE, LOCK_TIMEOUT_S = 4, 100, 600.0
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
        "--at-once", metavar="N", min=1, max=MOST_AT_ONCE, help="At most N models at a time.")] = AT_ONCE,
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
    wanted = Wanted("evict", "Replace", yes, dry_run, "table", lock_timeout, drain)
    output, reports = ApplyOutput(output_format), parse_reports(report, formats=OUTCOME_FORMATS, reading=files)
    with reports.of_error("rollout", "rollout of", files):
        with output.ends_with_summary():
            loaded = inspect_fleet(files, stdin=invocation.stdin)
            code = roll_out(invocation, where, loaded, options, wanted, output, at_once, wait_timeout)
        output.report_to(reports, code, loaded.sound().name)
    return CHANGES if detailed_exitcode and code == 0 and output.outcomes else code


def roll_out(
    invocation: Invocation, where: Where, loaded: LoadedFleet, options: PlanOptions, wanted: Wanted,
    output: ApplyOutput, at_once: int, wait_timeout_s: float | None = None,
) -> int:
    """Plan, ask and replace, with the models that `options` choose; returns the exit code. Shows all on `output`."""
    fleet = loaded.sound()
    for model in (model_of(fleet, name) for name in options.targets):
        if not model.replicas:
            raise wants_none(model.key)
    options = with_keys(options, fleet.labels)
    chosen = tuple(model.key for model in fleet.models
                   if model.replicas and options.left_out(model.key, model.labels) is None)
    # a current replica is ready before an outdated one ends: every model has at least one beyond its target
    changed = {model.key: replace(model, surge=model.surge or 1) for model in fleet.models if model.key in chosen}
    output.verb = "rollout"
    with one_command("rollout"):
        return _Rollout(invocation, where, replace(loaded, fleet=fleet.only_creating(changed)), chosen,
                        replace(options, targets=(), selector=None), wanted, output, at_once, wait_timeout_s).run()


@dataclass
class _Rollout:
    """One run. By model: `agreed` = actor ids to end, `before` = number of serving replicas at the start. `ended` =
    actor ids that are gone; `stopped` = models that are left as they are from now on.
    """

    invocation: Invocation
    where: Where
    loaded: LoadedFleet
    chosen: Sequence[str]
    options: PlanOptions
    wanted: Wanted
    output: ApplyOutput
    at_once: int
    wait_timeout_s: float | None
    outcomes: list[ReplicaOutcome] = field(default_factory=list)
    agreed: dict[str, set[str | None]] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)
    ended: set[str | None] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)

    def run(self) -> int:
        """Show the plan and ask once, then take turn after turn; returns the exit code."""
        found = {key: now for key, now in self._settled(self.chosen).items() if now.outdated}
        # what an earlier run has begun comes first
        order = sorted(found, key=lambda key: len(found[key].outdated) == len(found[key].state.live))
        for key in order:
            if refused := self._left_alone(found[key]):
                self.outcomes.append(refused)
        skipped = {row.model for row in self.outcomes}
        order = [key for key in order if key not in skipped]
        notes = list(self._notes(order, found))
        if not order:
            say("note", *notes, *([] if skipped else ["nothing is outdated"]))
            return self.output.end(self.outcomes, PARTIAL if skipped else 0)
        self.agreed = {key: {one.actor_id for one in found[key].outdated} for key in order}
        self.before = {key: found[key].serving for key in order}
        full = self._without_room(order, found)
        replicas = [one for key in order for one in found[key].outdated]
        refused_code = agreed_to(self.wanted, found[order[0]].seen, replicas, [*notes, *(
            f"{row.model}: {row.code}: {row.message}" for row in full)])
        if self.wanted.dry_run:
            names = {row.model for row in full}
            self.outcomes += [ReplicaOutcome(
                model=one.model, replica_id=one.replica_id, outcome="skipped", code="DRY_RUN",
                message="it would be replaced") for one in replicas if one.model not in names]
            return self.output.end([*self.outcomes, *full], PARTIAL if full or skipped else 0, NOTHING_DONE)
        if refused_code is not None:
            raise typer.Exit(refused_code)
        try:
            code = self._turns(order, 4 * sum(len(found[key].outdated) + found[key].model.replicas for key in order))
        except FleetctlError as error:
            if len(self.outcomes) == len(skipped) and not isinstance(error, WaitTimeout):  # nothing has happened yet
                raise
            say("stopped", error.message)
            code = PARTIAL if error.exit_code == FleetctlError.exit_code else error.exit_code
        if code != 0:
            say("note", "live replicas stay, and the same command continues from here")
        return self.output.end(self.outcomes, code)

    def _left_alone(self, now: Round) -> ReplicaOutcome | None:
        """Return the outcome of a model that is not replaced: the policy protects it, or it is paused."""
        key = now.model.key
        if (protection := protection_of(now.fleet, key)) is None:
            return paused_outcome(now)
        return ReplicaOutcome(model=key, outcome="blocked", code="PROTECTED_MODEL", replicas=len(now.outdated),
                              message=f"{protection} protects it")

    def _notes(self, order: Sequence[str], found: Mapping[str, Round]) -> Iterator[str]:
        for row in self.outcomes:
            yield f"{row.model} is skipped: {row.message}"
        yield from filter(None, (found[key].shrinks for key in order))
        if order:
            outdated = sum(len(found[key].outdated) for key in order)
            yield (f"{count_of(outdated, 'outdated replica')} of {count_of(len(order), 'model')} "
                   f"({some(list(order), NAMED)}), {count_of(self.at_once, 'model')} at a time; each new replica is "
                   "ready before an outdated one ends")

    def _without_room(self, order: Sequence[str], found: Mapping[str, Round]) -> list[ReplicaOutcome]:
        """Return the models that would not fit beside what runs. Raises PolicyRefused for the first turn."""
        from fleetctl.planner.plan import make_plan  # NumPy

        now, facts = found[order[0]], PlanFacts(tool_version="")
        todo = [key for key in order if found[key].creates]
        if todo:
            first = make_plan(now.fleet, now.seen, replace(self.options, targets=tuple(todo[:self.at_once])), facts)
            require_allowed(first, force=self.options.force)
        while todo:
            plan = make_plan(now.fleet, now.seen, replace(self.options, targets=tuple(todo)), facts)
            blocked = [key for key in todo if key in {row.model for row in plan.blocked}]
            if len(blocked) == len(todo):
                return blocked_outcomes(plan)
            todo = blocked  # the others have freed what they took by then
        return []

    def _turns(self, order: Sequence[str], most: int) -> int:
        full: dict[str, list[ReplicaOutcome]] = {}
        progress = False
        for _ in range(2 * most + 4):
            rounds = self._settled([key for key in order if key not in self.stopped])
            todo = [key for key, now in rounds.items() if now.outdated or now.creates]
            for key in todo:
                if refused := self._left_alone(rounds[key]):
                    self._stop(key, [refused])
            todo = [key for key in todo if key not in self.stopped]
            turn = [key for key in todo if key not in full][:self.at_once]
            if not todo:
                return final_exit_code(self.outcomes, interrupted=False)
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
        full: dict[str, list[ReplicaOutcome]] = {}
        while todo:
            with proposed_by_fleet(self.invocation, self.loaded, replace(self.options, targets=tuple(todo)),
                                   self.where) as proposal:
                plan = proposal.task.plan
                for row in blocked_outcomes(plan):
                    full.setdefault(row.model, []).append(row)
                if plan.blocked:
                    todo = [key for key in todo if key not in full]
                    continue
                refuse_by_policy(self.invocation, plan, force=self.options.force)
                outdated = {key: tuple(one.replica_id for one in rounds[key].outdated if one.replica_id is not None)
                            for key in todo}
                options, output = ApplyOptions(lock_timeout_s=self.wanted.lock_timeout_s,
                                               not_awaited=outdated), CollectedOutput(plan, self.output)
                code = carry_out(proposal.task, options, output, self.wait_timeout_s)
            self._record(output.outcomes)
            return code == INTERRUPTED, full
        return False, full

    def _end(self, todo: Sequence[str], rounds: Mapping[str, Round]) -> bool:
        """End one outdated replica of each of these models, in one eviction; returns whether it was interrupted."""
        ones, keep = [], {}
        for key in todo:
            now, least = rounds[key], rounds[key].least(self.before[key], allow_outage=False)
            try:
                one = now.next_to_end(self.agreed[key], least, self.options)
            except FleetctlError as error:
                self._stop(key, [ReplicaOutcome(model=key, outcome="failed", code="NOT_DONE", message=error.message)])
                continue
            if one is not None:
                ones.append(one)
                keep[key] = least
        if not ones:
            return False
        now = rounds[todo[0]]
        with live_source(self.invocation, self.where, now.fleet.cluster) as source:
            summaries = act_on(replace(self.wanted, keep=keep), source, now.seen, ones, now.fleet, self.output.relay)
        rows = ended_by(summaries)
        stay = {(row.model, row.replica_id) for row in rows if row.outcome != "gone"}
        if not any(summary.interrupted for summary in summaries):
            self.ended |= {one.actor_id for one in ones if (one.model, one.replica_id) not in stay}
        self._record(rows)
        return any(summary.interrupted for summary in summaries)

    def _record(self, rows: Sequence[ReplicaOutcome]) -> None:
        """Keep the outcomes of a step; a model that failed in it is stopped."""
        self.outcomes += rows
        self.stopped |= {row.model for row in rows if final_exit_code([row], interrupted=False) != 0}

    def _stop(self, key: str, why: Sequence[ReplicaOutcome]) -> None:
        self.stopped.add(key)
        self.outcomes += why

    def _settled(self, keys: Sequence[str]) -> dict[str, Round]:
        return settled(lambda: self._read(keys), dry_run=self.wanted.dry_run)

    def _read(self, keys: Sequence[str]) -> dict[str, Round]:
        fleet = self.loaded.sound()
        with live_source(self.invocation, self.where, fleet.cluster) as source:
            seen = source.read()
        return rounds_of(fleet, keys, seen, self.ended)
