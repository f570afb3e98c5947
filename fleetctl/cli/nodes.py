"""Notes in the cluster: about a node (`fleetctl cordon`, `uncordon`, `slots`), and that nothing starts for a model or a
fleet (`pause`, `resume`); and `release-nodes` of the autoscaler. Nothing is ended.

`drain` cordons a node by the same note, and then replaces what runs there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import Annotated

import typer

from fleetctl.apply.follow import CONTINUE_HINT, Wording
from fleetctl.apply.jobs import Patience
from fleetctl.apply.node_jobs import NOTE_WORDING, JobRunner, write_note
from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.console import confirm, say, working
from fleetctl.cli.identity import new_job_id, starter
from fleetctl.cli.process import invocation_on_one_cluster, this_invocation
from fleetctl.cli.replica_argument import absent
from fleetctl.documents.canonical import canonical_json
from fleetctl.documents.inventory import MAX_SLOTS, Inventory, Node, Pause, dead_node_ids, is_live
from fleetctl.documents.names import did_you_mean, with_key
from fleetctl.documents.quantity import count_of, first_few
from fleetctl.errors import UsageError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.dashboard import Live
from fleetctl.inventory.records import (
    CORDON,
    PAUSE,
    RESUME,
    SLOTS,
    UNCORDON,
    cordon_note,
    note_text,
    read_records,
)
from fleetctl.planner.live import pause_of, paused_text, resume_command
from fleetctl.workflow.cluster import cluster_of, fleet_of, read
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.invocation import Where
from fleetctl.workflow.planning import expiry

app = command_app()
NodeArgument = Annotated[str, typer.Argument(
    metavar="NODE", show_default=False, help="Name of a node, as in `fleetctl inventory`, or its id.")]
Lasting = Annotated[float | None, flags.option(
    "--for", metavar="DURATION", parser=flags.expiry_duration,
    help="How long the cordon lasts; at most 30d. [default: until `fleetctl uncordon`]")]
Reason = Annotated[str, flags.option(
    "--reason", metavar="TEXT", help="Reason for the cordon, shown by plans that avoid the node.")]
MODELS_LISTED = 20
EXIT_CODES = "0 noted, or nothing to change, 1 error, or no such node, 7 not noted in time, 64 usage"


@app.command(epilog=epilog(
    'fleetctl cordon node-a --for 2h --reason "new driver"',
    "fleetctl cordon node-a -f fleets/prod.yaml",
    exit_codes=EXIT_CODES))
def cordon(
    node: NodeArgument,
    lasting: Lasting = None,
    reason: Reason = "",
    files: flags.ClusterFiles = None,
    address: flags.Address = None,
) -> int:
    """Keep new replicas off a node; running replicas stay.

    The cordon applies to every fleet. It ends after --for, with `fleetctl uncordon`, or with the Ray session.
    """
    with found_node(node, files, address) as (source, seen, found):
        write(source, CORDON, found, lasting_note(reason, lasting, seen.observed_at))
    return 0


@app.command(epilog=epilog("fleetctl uncordon node-a", exit_codes=EXIT_CODES))
def uncordon(node: NodeArgument, files: flags.ClusterFiles = None, address: flags.Address = None) -> int:
    """Allow new replicas on a node again.

    It also declares the node healthy: earlier failures there no longer count, so nothing on it cools down, and `doctor`
    no longer reports a cordon that has ended. A cordon in a fleet file (`nodes[].cordon`) is not affected.
    """
    with found_node(node, files, address) as (source, seen, found):
        failed = any(found.id in failure.node_ids for failure in seen.failures)
        sure = seen.complete and not failed and found.cordon is None
        if sure and cordon_note(found, read_records(source.client)) is None:
            say("note", f"no note cordons {found.name}")
        else:
            write(source, UNCORDON, found, {})
    return 0


@app.command(epilog=epilog(
    "fleetctl slots node-a 4",
    "fleetctl slots node-a --clear   # back to the fleet file or the node's label",
    exit_codes=EXIT_CODES.replace("1 error,", "1 error, not confirmed,")))
def slots(
    node: NodeArgument,
    number: Annotated[int | None, typer.Argument(
        metavar="N", show_default=False, min=0, max=MAX_SLOTS, help="Maximum number of replicas of one model.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the limit set by this command.")] = False,
    yes: flags.Yes = False,
    files: flags.ClusterFiles = None,
    address: flags.Address = None,
) -> int:
    """Set how many replicas of one model a node may hold.

    The limit overrides `maxReplicasPerModel` in fleet files and the label of the node. Replicas beyond it stay; if
    there are any, it asks first.
    """
    if (number is None) != clear:
        raise UsageError("give either N or --clear")
    with found_node(node, files, address) as (source, seen, found):
        if number is not None and (beyond := _beyond(seen, found, number)):
            say("beyond", *first_few(beyond, MODELS_LISTED))
            say("note", "replicas beyond the limit stay, and plans report them as drift")
            if not confirm(f"Limit {found.name} to {number} of each model?", yes=yes, otherwise="nothing was changed"):
                return 1
        write(source, SLOTS, found, {"slots": "" if number is None else str(number)})
    return 0


def _beyond(seen: Inventory, node: Node, number: int) -> list[str]:
    """Return the models of which more replicas than this number run on the node, in words."""
    dead = dead_node_ids(seen)
    held = Counter((one.model, one.fleet) for one in seen.replicas if one.fleet is not None and is_live(one, dead)
                   and any(member.node_id == node.id for member in one.members))
    return [f"{count_of(count, 'replica')} of {model} on {node.name}, {number} allowed"
            for (model, _), count in held.items() if count > number]


@app.command("release-nodes", epilog=epilog(
    "fleetctl release-nodes old-fleet --address http://ray-head:8265 --dry-run",
    "fleetctl release-nodes old-fleet --address http://ray-head:8265",
    exit_codes="0 withdrawn, or no nodes were requested, 1 error, or not confirmed, 64 usage"))
def release_nodes(
    fleet: Annotated[str, typer.Argument(
        metavar="FLEET", show_default=False, help="Name of a fleet that is no longer applied.")],
    where: flags.Cluster,
    dry_run: flags.DryRun = False,
    yes: flags.Yes = False,
) -> int:
    """Withdraw a fleet's node requests from Ray's autoscaler.

    An apply of a fleet with spec.cluster.grow requests nodes, and its requests stay until the next apply. This is for a
    fleet that will not be applied again. Nothing is ended: Ray removes idle nodes that no other fleet requests.
    """
    invocation = invocation_on_one_cluster(where.address)
    question = f"Withdraw the node requests of fleet {fleet}?"
    if not dry_run and not confirm(question, yes=yes, otherwise="nothing was changed"):
        return 1
    with live_source(invocation, where, cluster_of(None)) as source:
        shown = f"`fleetctl release-nodes {quote(fleet)} --dry-run` shows what is requested"
        wording = Wording("job", afterwards=shown, died=CONTINUE_HINT)
        asker = JobRunner(source.client, source.namespace, starter(), wording)
        with invocation.working("asking the cluster"):
            events = asker.run("release", new_job_id("release"), {"fleet": fleet, "dryRun": dry_run})
    for event in events[1:]:  # the first is the agent's version
        say("note", event.message)
    return 0


@contextmanager
def found_node(
    name: str, files: Sequence[str] | None, address: str | None
) -> Iterator[tuple[Live, Inventory, Node]]:
    """Look up a node of a running cluster by name or id; raises the errors of `node_of`."""
    invocation = this_invocation()
    with live_source(invocation, Where(None, address), cluster_of(fleet_of(invocation, files))) as source:
        seen = source.read()
        yield source, seen, node_of(seen, name)


def node_of(seen: Inventory, name: str) -> Node:
    """Return the node with this name or id. Raises FleetctlError, or InventoryError if it may not have been read."""
    found = next((node for node in seen.nodes if name in (node.name, node.id)), None)
    if found is None:
        raise absent(seen, f"there is no node {name}", hint=did_you_mean(name, [node.name for node in seen.nodes])
                     or "`fleetctl inventory` lists the nodes")
    return found


def lasting_note(reason: str, lasting_s: float | None, now: str) -> dict[str, str]:
    """Return the fields of a cordon or a pause that begins `now`, a `Moment` of the cluster."""
    until = expiry(now, lasting_s) if lasting_s is not None else None
    return {"reason": reason, **({"until": until} if until else {})}


def write(source: Live, verb: str, node: Node, fields: Mapping[str, str] | None) -> None:
    """Write a note about a node and report it; `fields` None = write nothing."""
    if fields is not None:
        note(source, verb, node.id, {"node": node.id, "nodeName": node.name, **fields})


def note(source: Live, verb: str, subject: str, fields: Mapping[str, str]) -> None:
    """Write a note about a subject and report it."""
    runner = JobRunner(source.client, source.namespace, starter(), NOTE_WORDING,
                       Patience(report=lambda line: say("note", line)))
    with working("writing the note"):
        write_note(runner, verb, subject, fields, new_job_id(verb))
    say("note", note_text({"verb": verb, **fields}))


ModelOfFleet = Annotated[str | None, typer.Argument(
    metavar="MODEL", show_default=False, autocompletion=complete_model_keys, help="A model key. [default: with --fleet "
                                                                                  "all models of the fleet]")]
FleetName = Annotated[str | None, flags.option(
    "--fleet", metavar="NAME", callback=flags.not_empty,
    help="The fleet: all its models, or the one that MODEL names. [default: the fleet of MODEL]")]
PAUSE_EXIT_CODES = "0 noted, or nothing to change, 1 error, or no such model or fleet, 7 not noted in time, 64 usage"


@app.command(epilog=epilog(
    'fleetctl pause openai-community/gpt2 --for 2h --reason "bad answers"',
    "fleetctl pause --fleet prod --reason migration",
    exit_codes=PAUSE_EXIT_CODES))
def pause(
    *,
    model: ModelOfFleet = None,
    fleet: FleetName = None,
    lasting: Annotated[float | None, flags.option(
        "--for", metavar="DURATION", parser=flags.expiry_duration,
        help="How long the pause lasts; at most 30d. [default: until `fleetctl resume`]")] = None,
    reason: Annotated[str, flags.option(
        "--reason", metavar="TEXT", help="Reason for the pause, shown wherever it blocks something.")] = "",
    files: flags.ClusterFiles = None,
    where: flags.Cluster,
) -> int:
    """Start nothing more for a model or a fleet; running replicas stay.

    It binds every apply and watch: new replicas are blocked with PAUSED, also those that a running apply has not yet
    created. `evict`, `restart` and `drain` work as before. The pause ends after --for, with `fleetctl resume`, or with
    the Ray session.
    """
    with _found(model, fleet, files, where) as (source, seen, name, key):
        fields = _named(source, name, key) | lasting_note(reason, lasting, seen.observed_at)
        note(source, PAUSE, _subject(source, name, key), fields)
        ends = resume_command(Pause(fleet=name, model=key, since=seen.observed_at))
        say("hint", f"`{ends}` ends it")
    return 0


@app.command(epilog=epilog(
    "fleetctl resume openai-community/gpt2", "fleetctl resume --fleet prod", exit_codes=PAUSE_EXIT_CODES))
def resume(
    *,
    model: ModelOfFleet = None,
    fleet: FleetName = None,
    files: flags.ClusterFiles = None,
    where: flags.Cluster,
) -> int:
    """Start replicas of a model or a fleet again.

    The pause of a fleet and that of one of its models end apart from each other. Nothing is started by this: the next
    apply, or a running watch, does it.
    """
    with _found(model, fleet, files, where) as (source, seen, name, key):
        if seen.complete and not any((one.fleet, one.model) == (name, key) for one in seen.pauses):
            say("note", f"no note pauses {f'{key} of ' if key else ''}fleet {name}")
        else:
            note(source, RESUME, _subject(source, name, key), _named(source, name, key))
        left = [one for one in seen.pauses if one.fleet == name and (one.model is None) != (key is None)]
        still = [pause_of(seen.model_copy(update={"pauses": left}), name, key)] if key else left
        for one in filter(None, still):
            say("note", f"{f'{one.model} stays ' if one.model else ''}{paused_text(one, seen.observed_at)}; "
                        f"`{resume_command(one)}` ends it")
    return 0


@contextmanager
def _found(
    model: str | None, name: str | None, files: Sequence[str] | None, where: Where
) -> Iterator[tuple[Live, Inventory, str, str | None]]:
    """Yield the cluster, its inventory, the name of the fleet that is meant, and the key of the model, if any.

    Raises UsageError if that is not clear, FleetctlError for a model or a fleet of which nothing is known.
    """
    if model is None and name is None:
        raise UsageError("name a model, or a whole fleet by --fleet NAME")
    invocation = this_invocation()
    in_files = fleet_of(invocation, files)
    if in_files and name not in (None, in_files.name):
        raise UsageError(f"--fleet {name}, but the files describe fleet {in_files.name}")
    with live_source(invocation, where, cluster_of(in_files)) as source:
        seen = read(invocation, source)
        if model is None:
            yield source, seen, _known_fleet(source, seen, in_files, name or ""), None
        else:
            model = with_key(model, {key for key, _ in _models(seen)} | set(in_files.labels if in_files else ()))
            yield source, seen, _fleet_with(seen, in_files, model, name), model


def _known_fleet(source: Live, seen: Inventory, in_files: ResolvedFleet | None, name: str) -> str:
    if in_files is None and name not in (known := {fleet for _, fleet in _models(seen)}):
        known |= {run.metadata.get("fleet", "") for run in read_records(source.client).runs}
        if name not in known:
            raise absent(seen, f"nothing is known of a fleet {name}", did_you_mean(name, known - {""})
                         or "give its file with -f, if it was never applied")
    return name


def _fleet_with(seen: Inventory, in_files: ResolvedFleet | None, model: str, name: str | None) -> str:
    """Return the fleet that has a model: by the file, by name, or the only one that runs it."""
    name = in_files.name if in_files else name
    if in_files and any(one.key == model for one in in_files.models):
        return in_files.name
    known = {one for one in _models(seen) if name in (None, one[1])}
    fleets = sorted({fleet for key, fleet in known if key == model})
    if not fleets:
        keys = {key for key, _ in known} | {one.key for one in (in_files.models if in_files else ())}
        raise absent(seen, f"nothing is known of a model {model}{f' of fleet {name}' if name else ''}",
                     did_you_mean(model, keys) or "give its file with -f, if it never ran")
    if len(fleets) > 1:
        raise UsageError(f"{model} runs in fleets {' and '.join(fleets)}", hint="add --fleet NAME")
    return fleets[0]


def _models(seen: Inventory) -> set[tuple[str, str]]:
    """Return the models of which the cluster knows something, each with its fleet."""
    known = [(one.model, one.fleet) for one in seen.replicas]
    known += [(one.model, one.fleet) for one in seen.failures]
    return {(model, fleet) for model, fleet in known if fleet} | {
        (one.model or "", one.fleet) for one in seen.pauses}


def _named(source: Live, fleet: str, model: str | None) -> dict[str, str]:
    """Return the fields of a note that name what it is about."""
    return {"fleet": fleet, "namespace": source.namespace, **({} if model is None else {"model": model})}


def _subject(source: Live, fleet: str, model: str | None) -> str:
    """Return the subject of the record: of several notes about the same, the newest counts."""
    return canonical_json([source.namespace, fleet, model]).decode()
