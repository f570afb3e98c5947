"""`fleetctl propose`: change the fleet file, for review: in place, on a branch, in a pull request. Starts nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import MadeBy, command_app, epilog
from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.console import say, write_file_diff
from fleetctl.cli.process import this_invocation
from fleetctl.documents.nearest import did_you_mean
from fleetctl.documents.quantity import count_of
from fleetctl.documents.update import MAX_REPLICAS
from fleetctl.errors import UsageError
from fleetctl.fleetfile.edit import edit_fleet
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.forge.change import ForgeName
from fleetctl.forge.detect import find_forge
from fleetctl.planner.complete import require_complete
from fleetctl.review.branch import Changes, commit_on_branch, push_to_branch
from fleetctl.workflow.cluster import read
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.load_metrics import ask_prometheus
from fleetctl.workflow.output_files import write_file

PASSWORD = re.compile(r"(?i)https?://[^/]*@|\w+://[^/]*:[^/]*@")
"""Begins an address with a password; over HTTP a name alone may be a token."""
CODES = "0 proposed, or nothing to change, 1 error, 64 usage"
app = command_app(
    "fleetctl propose scale org/model --replicas 5 -f fleets/ --dry-run",
    "fleetctl propose from-live -f fleets/ --open", exit_codes=CODES, help="Change the fleet file, for review.")


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is to be in the files: numbers of replicas, and further models as text, by key.

    `name` = the end of the name of its branch; `why` = the lines below the title.
    """

    files: Sequence[str]
    loaded: LoadedFleet
    name: str
    replicas: Mapping[str, int]
    why: Sequence[str] = ()
    added: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ways:
    """How it is proposed, as the flags say."""

    branch: Annotated[str | None, flags.option(
        "--branch", metavar="NAME", help="Commit to a new branch on top of HEAD; the files here stay as they are.",
    )] = None
    message: Annotated[str | None, flags.option(
        "--message", "-m", metavar="TEXT", help="The commit's first line. [default: what changes]")] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; print what would change.")] = False
    opens: Annotated[bool, typer.Option(
        "--open", help="Push the branch, and open a pull request; the same proposal again updates both.")] = False
    remote: Annotated[str, flags.option(
        "--remote", metavar="NAME", help="With --open: the remote to push to.")] = "origin"
    into: Annotated[str | None, flags.option(
        "--into", metavar="BRANCH",
        help="With --open: the branch to merge into. [default: the remote's main branch]")] = None
    forge: Annotated[ForgeName, typer.Option(
        "--forge", envvar="FLEETCTL_FORGE", help="With --open: the forge. [default: by its variables]",
        show_default=False)] = "auto"


Proposing = Annotated[Ways, MadeBy(Ways)]


@app.command(epilog=epilog(
    "fleetctl propose scale org/model --replicas 5 -f fleets/ --dry-run",
    "fleetctl propose scale org/model --replicas 5 -f fleets/ --branch more",
    "fleetctl propose scale org/model --replicas 5 -f fleets/ --open", exit_codes=CODES))
def scale(
    model: Annotated[str, typer.Argument(
        metavar="MODEL", show_default=False, autocompletion=complete_model_keys, help="A model of the fleet file.")],
    files: Annotated[list[str], flags.option("--file", "-f", metavar="PATH", help=flags.DISK_FILES_HELP)],
    replicas: Annotated[int, flags.option(
        "--replicas", metavar="N", min=0, max=MAX_REPLICAS, help="The number to be in the file.")],
    ways: Proposing,
) -> int:
    """Set the number of replicas of a model in the fleet file.

    Only the number changes: comments and layout stay byte for byte. A lower number removes nothing that runs.
    """
    loaded = _load(files)
    keys = [one.key for one in loaded.sound().models]
    if model not in keys:
        raise UsageError(f"the fleet file has no model {model}", hint=did_you_mean(model, keys))
    return _propose(Proposal(files, loaded, f"scale-{quote(model, safe='')}", {model: replicas}), ways)


@app.command("from-live", epilog=epilog(
    "fleetctl propose from-live -f fleets/ --dry-run", "fleetctl propose from-live -f fleets/ --open",
    exit_codes=CODES))
def from_live(files: flags.DiskFiles, where: flags.Cluster, ways: Proposing) -> int:
    """Add what runs to the fleet file.

    That is models of this fleet that it lacks, and higher numbers of replicas. The shape of a model is that which the
    apply recorded that started it; what the cluster does not know is a comment. No number is lowered, and nothing else
    in the file changes.
    """
    from fleetctl.importers.write import model_text  # ruamel.yaml, which --help does not need
    from fleetctl.workflow.live_fleet import running_beyond

    invocation, loaded = this_invocation(), _load(files)
    fleet = loaded.sound()
    with live_source(invocation, where, fleet.cluster) as source:
        seen = read(invocation, source)
        require_complete(seen)
        draft, more = running_beyond(source, seen, fleet)
    now = {one.key: one.replicas for one in fleet.models}
    added = {one.key: model_text(one, draft.losses) for one in draft.models}
    say("note", *(f"{loss.kind}: {loss.path}: {loss.message}" for loss in draft.losses))
    why = [*(f"{one.key}: {count_of(one.value['replicas'], 'replica')} live, not in the file" for one in draft.models),
           *(f"{key}: {now[key]} in the file, {live} live" for key, live in more.items())]
    return _propose(Proposal(files, loaded, "from-live", more, why, added), ways)


@app.command("from-metrics", epilog=epilog(
    "fleetctl propose from-metrics -f fleets/ --prometheus URL --query PROMQL", exit_codes=CODES))
def from_metrics(
    *,
    files: flags.DiskFiles,
    prometheus: Annotated[str, flags.option("--prometheus", metavar="URL", help="The address of Prometheus.")],
    query: Annotated[str, flags.option(
        "--query", metavar="PROMQL", help="An instant query: how many replicas, for each model.")],
    label: Annotated[str, flags.option("--label", metavar="NAME", help="The label with the model's key.")] = "model",
    most: Annotated[int, flags.option(
        "--max", metavar="N", min=1, max=MAX_REPLICAS, help="At most so many replicas of a model.")] = 16,
    ways: Proposing,
) -> int:
    """Raise replicas to what a query of Prometheus asks for.

    No number is lowered. The numbers that led to it are in the commit's message. Models for which the query asks for
    fewer are listed, and nothing is done about them.
    """
    loaded = _load(files)
    now = {one.key: one.replicas for one in loaded.sound().models}
    asked = ask_prometheus(prometheus, query, label)
    say("note", *(f"{key} is no model of the fleet file" for key in sorted(asked.keys() - now)))
    asked = {key: value for key, value in asked.items() if key in now}
    wanted = {key: min(most, math.ceil(value)) for key, value in asked.items()}
    for key, value in asked.items():
        if (needed := math.ceil(value)) < now[key]:
            say("note", f"{key}: the query asks for {needed}, the file has {now[key]}; `fleetctl evict` ends replicas")
    evidence = [f"{key}: {now[key]} in the file, the query says {asked[key]:g}"
                + (f", limited to {most}" if asked[key] > most else "")
                for key, number in wanted.items() if number > now[key]]
    more = {key: number for key, number in wanted.items() if number > now[key]}
    why = [f"Query: {query}", *evidence] if evidence else []
    return _propose(Proposal(files, loaded, "from-metrics", more, why), ways)


def _load(files: Sequence[str]) -> LoadedFleet:
    if "-" in files:
        raise UsageError("propose changes files, and - is none")
    return inspect_fleet(files)


def _propose(made: Proposal, ways: Ways) -> int:
    now = {one.key: one.replicas for one in made.loaded.sound().models}
    changes = {key: number for key, number in made.replicas.items() if number != now[key]}
    edits = edit_fleet(made.files, made.loaded, changes, made.added) if changes or made.added else []
    if not edits:
        say("note", "nothing to change")
        return 0
    for one in edits:
        write_file_diff(one.file, one.before, one.after)
    say("note", *made.why)
    title = ways.message or ", ".join([*(f"{key}: added" for key in made.added), *(
        f"{key}: {now[key]} to {number} replicas" for key, number in changes.items())])
    if ways.dry_run:
        return 0
    files: Changes = {Path(one.file): (one.before, one.after) for one in edits}
    message = "\n\n".join(filter(None, (title, "\n".join(made.why))))
    if ways.opens:
        _open(made, ways, files, title, message)
    elif ways.branch is not None:
        commit = commit_on_branch(ways.branch, files, message, this_invocation().environ)
        say("committed", f"{commit[:10]} on {ways.branch}; for review: git push origin {ways.branch}")
    else:
        for one in edits:
            write_file(Path(one.file), one.after, mode=None)
        say("written", ", ".join(one.file for one in edits))
    return 0


def _open(made: Proposal, ways: Ways, files: Changes, title: str, message: str) -> None:
    """Push the commit, and open or update the pull request; what the forge lacks is known before anything is pushed."""
    environ = this_invocation().environ
    if PASSWORD.match(ways.remote):
        raise UsageError("--remote: an address with a password or a token would be seen by others on this machine",
                         hint="give the name of a remote, or the address without it and let git have a credential "
                         "helper")
    forge = find_forge(environ, ways.forge)
    if forge is None:
        raise UsageError("--open: this is no job of a forge", hint="give --forge github or --forge gitlab, and set the "
                         "variables of docs/propose.md")
    forge.check_access()
    branch = f"fleetctl/{made.loaded.sound().name}/{made.name}" if ways.branch is None else ways.branch
    pushed = push_to_branch(ways.remote, branch, ways.into, files, message, environ)
    say("pushed", f"{pushed.commit[:10]} to {branch}" if pushed.changed else f"nothing: {branch} has it already")
    evidence = [f"    {line}" for line in made.why]  # as code: a name from a cluster may look like Markdown
    text = "\n".join([*evidence, "", "Made by `fleetctl propose`."]).lstrip("\n")
    posted = forge.propose(branch, pushed.into, title, text)
    say(forge.kind_of_change, f"{'opened' if posted.created else 'updated'}: {posted.url}")
