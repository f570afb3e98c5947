"""`fleetctl propose`: change numbers of replicas in the fleet file, for review. Asks no cluster and starts nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.console import say
from fleetctl.cli.file_diff import write_file_diff
from fleetctl.cli.process import this_invocation
from fleetctl.documents.nearest import did_you_mean
from fleetctl.documents.update import MAX_REPLICAS
from fleetctl.errors import UsageError
from fleetctl.fleetfile.edit import Edit, edit_replicas
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.review.branch import commit_on_branch
from fleetctl.workflow.load_metrics import ask_prometheus
from fleetctl.workflow.output_files import write_file

CODES = "0 proposed, or nothing to change, 1 error, 64 usage"
app = command_app(help="Change numbers of replicas in the fleet file, for review.", epilog=epilog(
    "fleetctl propose scale org/model --replicas 5 -f fleets/ --dry-run", exit_codes=CODES))

BranchOption = Annotated[str | None, flags.option(
    "--branch", metavar="NAME", help="Commit to a new branch on top of HEAD; the files here stay as they are.")]
MessageOption = Annotated[str | None, flags.option(
    "--message", "-m", metavar="TEXT", help="The commit's first line. [default: what changes]")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing; print what would change.")]


@app.command(epilog=epilog(
    "fleetctl propose scale org/model --replicas 5 -f fleets/ --dry-run",
    "fleetctl propose scale org/model --replicas 5 -f fleets/ --branch more", exit_codes=CODES))
def scale(
    model: Annotated[str, typer.Argument(metavar="MODEL", show_default=False, help="A model of the fleet file.")],
    files: flags.Files,
    replicas: Annotated[int, flags.option(
        "--replicas", metavar="N", min=0, max=MAX_REPLICAS, help="The number to be in the file.")],
    branch: BranchOption = None,
    message: MessageOption = None,
    dry_run: DryRun = False,
) -> int:
    """Set the number of replicas of a model in the fleet file.

    Only the number changes: comments and layout stay byte for byte. A lower number removes nothing that runs.
    """
    loaded = _load(files)
    keys = [one.key for one in loaded.sound().models]
    if model not in keys:
        raise UsageError(f"the fleet file has no model {model}", hint=did_you_mean(model, keys))
    return _propose(files, loaded, {model: replicas}, (), branch, message, dry_run=dry_run)


@app.command("from-metrics", epilog=epilog(
    "fleetctl propose from-metrics -f fleets/ --prometheus URL --query PROMQL", exit_codes=CODES))
def from_metrics(
    files: flags.Files,
    prometheus: Annotated[str, flags.option("--prometheus", metavar="URL", help="The address of Prometheus.")],
    query: Annotated[str, flags.option(
        "--query", metavar="PROMQL", help="An instant query: how many replicas, for each model.")],
    label: Annotated[str, flags.option("--label", metavar="NAME", help="The label with the model's key.")] = "model",
    most: Annotated[int, flags.option(
        "--max", metavar="N", min=1, max=MAX_REPLICAS, help="At most so many replicas of a model.")] = 16,
    branch: BranchOption = None,
    message: MessageOption = None,
    dry_run: DryRun = False,
) -> int:
    """Raise numbers of replicas to what a query of Prometheus asks for; never lower one.

    The numbers that led to it are in the commit's message. Models for which the query asks for fewer are listed, and
    nothing is done about them.
    """
    loaded = _load(files)
    now = {one.key: one.replicas for one in loaded.sound().models}
    asked = ask_prometheus(prometheus, query, label, frozenset(now), {})
    for key in asked.unknown:
        say("note", f"{key} is no model of the fleet file")
    wanted = {key: min(most, math.ceil(value)) for key, value in asked.replicas.items()}
    for key, value in asked.replicas.items():
        if (needed := math.ceil(value)) < now[key]:
            say("note", f"{key}: the query asks for {needed}, the file has {now[key]}; `fleetctl evict` ends replicas")
    evidence = [f"{key}: {now[key]} in the file, the query says {asked.replicas[key]:g}"
                + (f", limited to {most}" if asked.replicas[key] > most else "")
                for key, number in wanted.items() if number > now[key]]
    more = {key: number for key, number in wanted.items() if number > now[key]}
    why = [f"Query: {query}", *evidence] if evidence else []
    return _propose(files, loaded, more, why, branch, message, dry_run=dry_run)


def _load(files: Sequence[str]) -> LoadedFleet:
    if "-" in files:
        raise UsageError("propose changes files, and - is none")
    return inspect_fleet(files)


def _propose(files: Sequence[str], loaded: LoadedFleet, wanted: Mapping[str, int], why: Sequence[str],
             branch: str | None, message: str | None, *, dry_run: bool) -> int:
    now = {one.key: one.replicas for one in loaded.sound().models}
    changes = {key: number for key, number in wanted.items() if number != now[key]}
    edits = edit_replicas(files, loaded, changes) if changes else []
    if not edits:
        say("note", "nothing to change")
        return 0
    for one in edits:
        write_file_diff(one.file, one.before, one.after)
    for line in why:
        say("note", line)
    title = message or ", ".join(f"{key}: {now[key]} to {number} replicas" for key, number in changes.items())
    if dry_run:
        return 0
    if branch:
        _commit(edits, branch, "\n\n".join([title, "\n".join(why)] if why else [title]))
    else:
        for one in edits:
            write_file(Path(one.file), one.after, mode=None)
        say("written", ", ".join(one.file for one in edits))
    return 0


def _commit(edits: Sequence[Edit], branch: str, message: str) -> None:
    files = {Path(one.file): (one.before, one.after) for one in edits}
    commit = commit_on_branch(branch, files, message, this_invocation().environ)
    say("committed", f"{commit[:10]} on {branch}; for review: git push origin {branch}")
