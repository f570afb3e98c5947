"""`fleetctl propose`: change the fleet file for review, in place, on a branch or in a pull request. Starts nothing."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import MadeBy, command_app, epilog
from fleetctl.cli.console import say, write_file_diff
from fleetctl.cli.process import this_invocation
from fleetctl.documents.canonical import short_commit
from fleetctl.documents.fleet import MAX_REPLICAS
from fleetctl.documents.quantity import count_of
from fleetctl.errors import UsageError
from fleetctl.fleetfile.edit import edit_fleet
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.forge.forges import ForgeName, find_forge
from fleetctl.planner.options import require_complete
from fleetctl.review.branch import Changes, commit_on_branch, push_to_branch
from fleetctl.workflow.cluster import read
from fleetctl.workflow.dashboard import live_source, warn_if_readable
from fleetctl.workflow.output_files import write_file
from fleetctl.workflow.scaling import model_of

PASSWORD = re.compile(r"(?i)https?://[^/]*@|\w+://[^/]*:[^/]*@")
"""The beginning of an address with a password; over HTTP even a user name alone may be a token."""
MAX_BRANCH = 200
CODES = "0 proposed, or nothing to change, 1 error, 64 usage"
app = command_app(
    "fleetctl propose scale org/model --replicas 5 -f fleets/ --dry-run",
    "fleetctl propose from-live -f fleets/ --open",
    exit_codes=CODES, help="Propose a change to the fleet file, for review.")


@dataclass(frozen=True, slots=True)
class ProposedEdit:
    """The proposed content of the files: replica counts and added models (as text), both by key.

    `name` = the end of the branch name; `evidence` = the lines below the title.
    """

    files: Sequence[str]
    loaded: LoadedFleet
    name: str
    replicas: Mapping[str, int]
    evidence: Sequence[str] = ()
    added: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProposeOptions:
    """The flags shared by the commands of `propose`."""

    branch: Annotated[str | None, flags.option(
        "--branch", metavar="NAME", help="Commit to this new branch on top of HEAD; the working tree stays as it is.",
    )] = None
    message: Annotated[str | None, flags.option(
        "--message", "-m", metavar="TEXT", help="First line of the commit message. [default: the change]")] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; only print the changes as a diff.")] = False
    opens: Annotated[bool, typer.Option(
        "--open", help="Push the branch and open a pull request, or update both if they exist.")] = False
    remote: Annotated[str, flags.option(
        "--remote", metavar="NAME", help="With --open: the remote to push to. [default: origin]")] = "origin"
    into: Annotated[str | None, flags.option(
        "--into", metavar="BRANCH",
        help="With --open: the branch to merge into. [default: the remote's main branch]")] = None
    forge: Annotated[ForgeName, typer.Option(
        "--forge", envvar="FLEETCTL_FORGE", help="With --open: the forge. [default: detected from the environment]",
        show_default=False)] = "auto"


Proposing = Annotated[ProposeOptions, MadeBy(ProposeOptions)]


@app.command(epilog=epilog(
    "fleetctl propose scale org/model --replicas 5 -f fleets/ --dry-run",
    "fleetctl propose scale org/model --replicas 5 -f fleets/ --branch more",
    "fleetctl propose scale org/model --replicas 5 -f fleets/ --open", exit_codes=CODES))
def scale(
    model: flags.Model,
    files: Annotated[list[str], flags.option("--file", "-f", metavar="PATH", help=flags.DISK_FILES_HELP)],
    replicas: Annotated[int, flags.option(
        "--replicas", metavar="N", min=0, max=MAX_REPLICAS, help="Number of replicas to write into the file.")],
    options: Proposing,
) -> int:
    """Set the number of replicas of a model in the fleet file.

    Only the number changes: comments and layout stay byte for byte. A lower number removes no running replica.
    """
    loaded = _load(files)
    model = model_of(loaded.sound(), model).key
    return _propose(ProposedEdit(files, loaded, f"scale-{in_branch(model)}", {model: replicas}), options)


def in_branch(key: str) -> str:
    """Return a part of a branch's name for a model key; git allows no `~`, no `..`, no `.lock` and no dot at the end,
    and a file system at most 255 bytes.
    """
    name = quote(key, safe="").replace("~", "%7E")
    if ".." in name or name.endswith((".", ".lock")):
        name = name.replace(".", "%2E")
    return name if len(name) <= MAX_BRANCH else f"{name[:MAX_BRANCH]}-{sha256(key.encode()).hexdigest()[:8]}"


@app.command("from-live", epilog=epilog(
    "fleetctl propose from-live -f fleets/ --dry-run", "fleetctl propose from-live -f fleets/ --open",
    exit_codes=CODES))
def from_live(files: flags.DiskFiles, where: flags.Cluster, options: Proposing) -> int:
    """Add running models and replicas to the fleet file.

    Adds the models of this fleet that the file lacks, and raises numbers of replicas to those that are live. The shape
    of a model comes from the record of the apply that started it; a value that the cluster does not know becomes a
    comment. No number is lowered, and nothing else in the file changes.
    """
    from fleetctl.importers.write import model_text  # the importers, which --help does not need
    from fleetctl.workflow.live_fleet import running_beyond

    invocation, loaded = this_invocation(), _load(files)
    fleet = loaded.sound()
    with live_source(invocation, where, fleet.cluster) as source:
        seen = read(invocation, source)
        require_complete(seen)
        draft, more = running_beyond(source, seen, fleet)
    now = {model.key: model.replicas for model in fleet.models}
    added = {model.key: model_text(model, draft.losses) for model in draft.models}
    say("note", *(f"{loss.kind}: {loss.path}: {loss.message}" for loss in draft.losses))
    evidence = [f"{model.key}: {count_of(model.value['replicas'], 'replica')} live, not in the file"
                for model in draft.models]
    evidence += [f"{key}: {now[key]} in the file, {live} live" for key, live in more.items()]
    return _propose(ProposedEdit(files, loaded, "from-live", more, evidence, added), options)


@app.command("from-metrics", epilog=epilog(
    "fleetctl propose from-metrics -f fleets/ --prometheus URL --query PROMQL", exit_codes=CODES))
def from_metrics(
    *,
    files: flags.DiskFiles,
    prometheus: Annotated[str, flags.option("--prometheus", metavar="URL", help="Address of Prometheus.")],
    query: Annotated[str, flags.option(
        "--query", metavar="PROMQL", help="Instant query whose result is the number of replicas per model.")],
    label: Annotated[str, flags.option(
        "--label", metavar="NAME", help="Label that holds the model key. [default: model]")] = "model",
    limit: Annotated[int, flags.option(
        "--max", metavar="N", min=1, max=MAX_REPLICAS,
        help="Propose at most N replicas of a model. [default: 16]")] = 16,
    options: Proposing,
) -> int:
    """Raise numbers of replicas from a Prometheus query.

    No number is lowered. The query and its results go into the commit message. Models for which the query returns a
    lower number are only listed.
    """
    from fleetctl.workflow.live_fleet import ask_prometheus  # the importers, which --help does not need

    loaded = _load(files)
    now = {model.key: model.replicas for model in loaded.sound().models}
    asked = ask_prometheus(prometheus, query, label)
    say("note", *(f"{key} is not a model in the fleet file" for key in sorted(asked.keys() - now)))
    asked = {key: value for key, value in asked.items() if key in now}
    for key, value in asked.items():
        if (needed := math.ceil(value)) < now[key]:
            say("note", f"{key}: the query asks for {needed}, the file has {now[key]}; `fleetctl evict` ends replicas")
    raised = {key: number for key, value in asked.items() if (number := min(limit, math.ceil(value))) > now[key]}
    evidence = [f"{key}: {now[key]} in the file, the query returned {asked[key]:g}"
                + (f", limited to {limit}" if asked[key] > limit else "") for key in raised]
    if evidence:
        evidence.insert(0, f"Query: {query}")
    return _propose(ProposedEdit(files, loaded, "from-metrics", raised, evidence), options)


def _load(files: Sequence[str]) -> LoadedFleet:
    if "-" in files:
        raise UsageError("propose changes files, and standard input is not a file", hint="name the fleet files")
    return inspect_fleet(files)


def _propose(proposal: ProposedEdit, options: ProposeOptions) -> int:
    now = {model.key: model.replicas for model in proposal.loaded.sound().models}
    changes = {key: number for key, number in proposal.replicas.items() if number != now[key]}
    edits = edit_fleet(proposal.files, proposal.loaded, changes, proposal.added) if changes or proposal.added else []
    if not edits:
        say("note", "nothing to change")
        return 0
    for edit in edits:
        write_file_diff(edit.file, edit.before, edit.after)
    say("note", *proposal.evidence)
    title = options.message or ", ".join([*(f"{key}: added" for key in proposal.added), *(
        f"{key}: {now[key]} to {number} replicas" for key, number in changes.items())])
    if options.dry_run:
        return 0
    files: Changes = {Path(edit.file): (edit.before, edit.after) for edit in edits}
    message = "\n\n".join(filter(None, (title, "\n".join(proposal.evidence))))
    if options.opens:
        _open(proposal, options, files, title, message)
    elif options.branch is not None:
        commit = commit_on_branch(options.branch, files, message, this_invocation().environ)
        say("committed", f"{short_commit(commit)} on {options.branch}; "
                         f"to push it for review: git push origin {shlex.quote(options.branch)}")
    else:
        for edit in edits:
            write_file(Path(edit.file), edit.after, mode=None)
        say("written", ", ".join(edit.file for edit in edits))
    return 0


def _open(proposal: ProposedEdit, options: ProposeOptions, files: Changes, title: str, message: str) -> None:
    """Push the commit, and open or update the pull request. Access to the forge is checked before the push."""
    invocation = this_invocation()
    environ = invocation.environ
    if PASSWORD.match(options.remote):
        raise UsageError("--remote: others on this machine would see a password or token in an address",
                         hint="give the name of a remote, or the address without them and a git credential helper")
    forge = find_forge(environ, options.forge)
    if forge is None:
        raise UsageError("--open: not in a CI job of a forge", hint="give --forge github or --forge gitlab, and set "
                         "the variables listed in docs/propose.md")
    warn_if_readable(invocation, forge.check_access(), "the token for the forge")
    branch = f"fleetctl/{proposal.loaded.sound().name}/{proposal.name}" if options.branch is None else options.branch
    pushed = push_to_branch(options.remote, branch, options.into, files, message, environ)
    say("pushed",
        f"{short_commit(pushed.commit)} to {branch}" if pushed.changed else f"nothing: {branch} is up to date")
    evidence = [f"    {line}" for line in proposal.evidence]  # as code: a name from a cluster may contain Markdown
    text = "\n".join([*evidence, "", "Made by `fleetctl propose`."]).lstrip("\n")
    posted = forge.propose(branch, pushed.into, title, text)
    say(forge.kind_of_change, f"{'opened' if posted.created else 'updated'}: {posted.url}")
