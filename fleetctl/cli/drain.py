"""`fleetctl drain NODE`: cordon it, start replacements elsewhere, then list or end the replicas there."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from fleetctl.apply.outcome import PARTIAL, final_exit_code
from fleetctl.apply.prepare import ApplyOptions
from fleetctl.cli import explicit, flags
from fleetctl.cli.apply_run import CollectedOutput, agreed_to, carry_out
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import NOTHING_DONE, confirm, say
from fleetctl.cli.explicit import DrainTime
from fleetctl.cli.identity import one_command, starter
from fleetctl.cli.nodes import Lasting, NodeArgument, Reason, lasting_note, node_of, write
from fleetctl.cli.process import invocation_on_one_cluster
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.inventory import Cordon, Replica
from fleetctl.documents.names import command_line
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import count_of
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.inventory.dashboard import Live
from fleetctl.inventory.records import CORDON
from fleetctl.planner.options import PlanOptions, require_complete
from fleetctl.render.place_text import name_of
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.draining import Draining
from fleetctl.workflow.invocation import Invocation
from fleetctl.workflow.proposal import proposed_by_fleet

app = command_app(
    "fleetctl drain node-a -f fleets/prod.yaml   # lists what may be evicted",
    "fleetctl drain node-a --evict --drain 30s --for 2h -f fleets/prod.yaml",
    "fleetctl drain node-a --dry-run -f fleets/prod.yaml",
    exit_codes="0 all may go (with --evict: are gone), 1 error or no such node, 3 some must stay, 4 refused "
               "by policy, 5 another run holds the lock, 7 stopped waiting, 64 usage, 130 interrupted")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was requested."""

    files: Sequence[str]
    evict: bool
    drain_s: float
    cordon: dict[str, str] | None
    """The note to write; None = keep the cordon that is in force."""
    start: flags.StartFlags
    output_format: flags.OutputFormat


@app.command()
def drain(
    *,
    node: NodeArgument,
    files: flags.FlaggedFiles,
    evict: Annotated[bool, typer.Option(
        "--evict", help="End the replicas there once their replacements are ready.")] = False,
    drain_time: DrainTime = 0,
    lasting: Lasting = None,
    reason: Reason = "",
    start: flags.Starting,
    output_format: flags.Format = "table",
) -> int:
    """Replace the replicas of a node elsewhere, then list or end them.

    The node is cordoned first. Each model keeps as many ready replicas as before, or as the file wants. A replica
    without a ready replacement stays and is listed. If interrupted, run the same command again to continue.
    """
    invocation = invocation_on_one_cluster(start.where.address)
    loaded = inspect_fleet(files, stdin=invocation.stdin)
    with live_source(invocation, start.where, loaded.sound().cluster) as source:
        before = source.read()
        found = Draining(loaded, before, node_of(before, node))
        require_complete(before)
        held = found.node.cordon
        keeps = held is not None and not reason and lasting is None
        cordon = None if keeps else lasting_note(reason or (held.reason if held else ""), lasting, before.observed_at)
        wanted = Wanted(files, evict, drain_time, cordon, start, output_format)
        explicit.refuse_protected(found.fleet if evict else None, found.leaving())
        for one in found.staying():
            whose = f"of fleet {one.fleet}" if one.fleet != found.fleet.name else "of no model in the fleet file"
            say("stays", f"{name_of(one)}: {whose if one.fleet else 'not started by a fleet'}")
        for one in found.warm():
            say("stays", f"{name_of(one)}: it is WARM and ends with the node; `fleetctl evict` ends it earlier")
        with one_command("drain"):
            return _drain(invocation, source, found, wanted)


def _drain(invocation: Invocation, source: Live, found: Draining, wanted: Wanted) -> int:
    """Show the steps, ask once, and carry them out; returns the exit code."""
    models = tuple(sorted({one.model for one in found.leaving()}))
    if not models:
        say("note", f"no replica of a model in the fleet file runs on {found.node.name}")
        if (refused := _agreed(found, wanted, None)) is not None:
            return refused
        write(source, CORDON, found.node, wanted.cordon)
        return 0 if wanted.output_format == "table" else explicit.show_steps((), 0, "drain", wanted.output_format)
    options = PlanOptions(models, force=wanted.start.force, files=tuple(wanted.files),
                          ignore_cooldown=wanted.start.ignore_cooldown)
    new = Cordon.model_validate({**(wanted.cordon or {}), "by": starter().name})
    cordon = new if wanted.cordon is not None else found.node.cordon or new
    say("note", f"the plan wants all running replicas, and a replacement for each that leaves {found.node.name}")
    with proposed_by_fleet(invocation, found.with_replacements(), options, wanted.start.where,
                           lambda seen: found.cordoned(seen, cordon)) as proposal:
        plan = proposal.task.plan
        agreed_to(invocation, proposal, wanted.output_format, force=wanted.start.force, yes=True)
        if (refused := _agreed(found, wanted, plan)) is not None:
            return refused
        write(source, CORDON, found.node, wanted.cordon)
        output = CollectedOutput(plan)
        code = carry_out(proposal.task, ApplyOptions(lock_timeout_s=wanted.start.lock_timeout), output,
                         wanted.start.wait_timeout)
    if code not in (0, PARTIAL):
        return explicit.show_steps(output.outcomes, code, "drain", wanted.output_format)
    let_go, code = _let_go(source, found, wanted)
    return explicit.show_steps([*output.outcomes, *let_go], code, "drain", wanted.output_format)


def _agreed(found: Draining, wanted: Wanted, plan: Plan | None) -> int | None:
    """List what leaves the node and what has to stay, and ask; returns None after a yes, else the exit code.

    `plan` = that of the replacements; None = none are needed.
    """
    go, stay = found.foreseen(plan.starts if plan else ())
    no_room = {one.model: f"there is no room for its replacement ({one.code}), and "
               for one in (plan.blocked if plan else ())}
    say("end" if wanted.evict else "leaves", *map(name_of, go))
    say("stays", *(f"{name_of(one)}: {no_room.get(one.model, '')}{_needed(one)}" for one in stay))
    if wanted.start.dry_run:
        say("note", NOTHING_DONE)
        return PARTIAL if stay else 0
    starts = count_of(plan.summary.create, "replica") if plan and plan.summary.create else "nothing"
    first = f"cordon it, start {starts} elsewhere" if plan else "cordon it"
    then = f", then end {count_of(len(go), 'replica')} there" if wanted.evict and go else ""
    asked = f"Drain {found.node.name}: {first}{then}?"
    return None if confirm(asked, yes=wanted.start.yes, otherwise="nothing was done") else 1


def _let_go(source: Live, found: Draining, wanted: Wanted) -> tuple[list[ReplicaOutcome], int]:
    """End or list the replicas that are no longer needed; returns their outcomes and the exit code."""
    now = source.read()
    require_complete(now)
    go, stay = found.may_end(now)
    rows = [_left_alone(one, "NEEDED", _needed(one)) for one in stay]
    code = PARTIAL if stay else 0
    if go and wanted.evict:
        ending = explicit.Wanted("evict", "End", True, False, wanted.output_format, wanted.start.lock_timeout,
                                 wanted.drain_s, found.least())
        ended = explicit.act_on(ending, source, now, go, found.fleet)
        rows = [*explicit.ended_by(ended), *rows]
        return rows, final_exit_code(rows, interrupted=any(summary.interrupted for summary in ended))
    if go:
        files = shlex.join(word for file in wanted.files for word in ("-f", file))
        say("next", "to end them: "
                    + command_line("fleetctl evict", [f"{one.model}/{one.replica_id}" for one in go], files))
    return [*(_left_alone(one, "MAY_GO", "it is no longer needed here") for one in go), *rows], code


def _needed(one: Replica) -> str:
    return f"without it fewer replicas of {one.model} would be ready than before"


def _left_alone(one: Replica, code: str, why: str) -> ReplicaOutcome:
    return ReplicaOutcome(model=one.model, replica_id=one.replica_id, outcome="skipped", code=code, message=why)
