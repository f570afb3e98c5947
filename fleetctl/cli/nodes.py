"""Notes in the cluster: about a node (`fleetctl cordon`, `uncordon`, `slots`), and that nothing starts for a model or a
fleet (`pause`, `resume`); and `release-nodes` of the autoscaler. Nothing is ended.

`drain` cordons a node by the same note, and then replaces what runs there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import Annotated, Any

import typer

from fleetctl.apply.follow import CONTINUE_HINT, Wording
from fleetctl.apply.node_jobs import NOTE_WORDING, JobRunner, write_note
from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.console import say, working
from fleetctl.cli.process import invocation_on_one_cluster, this_invocation
from fleetctl.cli.verb import OnCluster, new_job_id, on_cluster, patient, perform, starter
from fleetctl.documents.canonical import canonical_json
from fleetctl.documents.inventory import MAX_SLOTS, Inventory, Node, Pause, dead_node_ids, is_live
from fleetctl.documents.names import did_you_mean, with_key
from fleetctl.documents.quantity import count_of, first_few
from fleetctl.errors import UsageError
from fleetctl.fleetfile.resolved import ResolvedFleet
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
from fleetctl.workflow.cluster import absent, fleet_of
from fleetctl.workflow.invocation import Where
from fleetctl.workflow.planning import expiry

app = command_app()
NodeArgument = Annotated[str, typer.Argument(
    metavar="NODE", show_default=False, help="Name of a node, as in `fleetctl inventory`, or its id.")]


def _for(noun: str, end: str) -> Any:  # noqa: ANN401  typer's own
    """Return the flag with the length of a cordon or a pause, which the command `end` ends earlier."""
    return flags.option("--for", metavar="DURATION", parser=flags.expiry_duration,
                        help=f"How long the {noun} lasts; at most 30d. [default: until `fleetctl {end}`]")


def _reason(noun: str, shown: str) -> Any:  # noqa: ANN401  typer's own
    return flags.option("--reason", metavar="TEXT", help=f"Reason for the {noun}, shown {shown}.")


CordonFor = Annotated[float | None, _for("cordon", "uncordon")]
CordonReason = Annotated[str, _reason("cordon", "by plans that avoid the node")]
MODELS_LISTED = 20
EXIT_CODES = "0 noted, or nothing to change, 1 error, or no such node, 7 not noted in time, 64 usage"


@app.command(epilog=epilog(
    'fleetctl cordon node-a --for 2h --reason "new driver"',
    "fleetctl cordon node-a -f fleets/prod.yaml",
    exit_codes=EXIT_CODES))
def cordon(
    node: NodeArgument,
    lasting: CordonFor = None,
    reason: CordonReason = "",
    files: flags.ClusterFiles = None,
    address: flags.Address = None,
) -> int:
    """Keep new replicas off a node; running replicas stay.

    The cordon applies to every fleet. It ends after --for, with `fleetctl uncordon`, or with the Ray session.
    """
    with _on_node(node, files, address) as (here, seen, chosen):
        write(here, CORDON, chosen, lasting_note(reason, lasting, seen.observed_at))
    return 0


@app.command(epilog=epilog("fleetctl uncordon node-a", exit_codes=EXIT_CODES))
def uncordon(node: NodeArgument, files: flags.ClusterFiles = None, address: flags.Address = None) -> int:
    """Allow new replicas on a node again.

    It also declares the node healthy: earlier failures there no longer count, so nothing on it cools down, and `doctor`
    no longer reports a cordon that has ended. A cordon in a fleet file (`nodes[].cordon`) is not affected.
    """
    with _on_node(node, files, address) as (here, seen, chosen):
        failed = any(chosen.id in failure.node_ids for failure in seen.failures)
        sure = seen.complete and not failed and chosen.cordon is None
        if sure and cordon_note(chosen, read_records(here.source.client)) is None:
            say("note", f"no note cordons {chosen.name}")
        else:
            write(here, UNCORDON, chosen, {})
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
    with _on_node(node, files, address) as (here, seen, chosen):
        beyond = [] if number is None else _beyond(seen, chosen, number)
        shown = [*(("beyond", line) for line in first_few(beyond, MODELS_LISTED)),
                 ("note", "replicas beyond the limit stay, and plans report them as drift")]
        return perform(lambda: write(here, SLOTS, chosen, {"slots": "" if number is None else str(number)}),
                       f"Limit {chosen.name} to {number} of each model?" if beyond else "",
                       yes=yes, shown=shown if beyond else (), otherwise="nothing was changed")


def _beyond(seen: Inventory, node: Node, number: int) -> list[str]:
    """Return the models of which more replicas than this number run on the node, in words."""
    dead = dead_node_ids(seen)
    held = Counter((replica.model, replica.fleet) for replica in seen.replicas
                   if replica.fleet is not None and is_live(replica, dead)
                   and any(member.node_id == node.id for member in replica.members))
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

    def ask() -> int:
        left = f"`fleetctl release-nodes {quote(fleet)} --dry-run` shows what is requested"
        with on_cluster(invocation, where) as here, invocation.working("asking the cluster"):
            events = job_runner(here, Wording("job", afterwards=left, died=CONTINUE_HINT)).run(
                "release", new_job_id("release"), {"fleet": fleet, "dryRun": dry_run})
        for event in events[1:]:  # the first is the agent's version
            say("note", event.message)
        return 0

    question = "" if dry_run else f"Withdraw the node requests of fleet {fleet}?"  # the agent only looks
    return perform(ask, question, yes=yes, otherwise="nothing was changed")


@contextmanager
def _on_node(
    name: str, files: Sequence[str] | None, address: str | None
) -> Iterator[tuple[OnCluster, Inventory, Node]]:
    """Connect, read, and look up a node by name or id; raises the errors of `node_of`."""
    invocation = this_invocation()
    with on_cluster(invocation, Where(None, address), fleet_of(invocation, files)) as here:
        seen = here.read()
        yield here, seen, node_of(seen, name)


def node_of(seen: Inventory, name: str) -> Node:
    """Return the node with this name or id. Raises FleetctlError, or InventoryError if it may not have been read."""
    for node in seen.nodes:
        if name in (node.name, node.id):
            return node
    raise absent(seen, f"there is no node {name}", hint=did_you_mean(name, [node.name for node in seen.nodes])
                 or "`fleetctl inventory` lists the nodes")


def job_runner(here: OnCluster, wording: Wording) -> JobRunner:
    """Return the runner of agent jobs on this cluster; `wording` is for messages about them."""
    return JobRunner(here.source.client, here.source.namespace, starter(), wording, patient())


def lasting_note(reason: str, lasting_s: float | None, now: str) -> dict[str, str]:
    """Return the fields of a cordon or a pause that begins `now`, a `Moment` of the cluster."""
    until = expiry(now, lasting_s) if lasting_s is not None else None
    return {"reason": reason, **({"until": until} if until else {})}


def write(here: OnCluster, verb: str, node: Node, fields: Mapping[str, str] | None) -> int:
    """Write a note about a node and report it; `fields` None = write nothing. Returns the exit code."""
    if fields is not None:
        _note(here, verb, node.id, {"node": node.id, "nodeName": node.name, **fields})
    return 0


def _note(here: OnCluster, verb: str, subject: str, fields: Mapping[str, str]) -> None:
    with working("writing the note"):
        write_note(job_runner(here, NOTE_WORDING), verb, subject, fields, new_job_id(verb))
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
    lasting: Annotated[float | None, _for("pause", "resume")] = None,
    reason: Annotated[str, _reason("pause", "wherever it blocks something")] = "",
    files: flags.ClusterFiles = None,
    where: flags.Cluster,
) -> int:
    """Start nothing more for a model or a fleet; running replicas stay.

    It binds every apply and watch: new replicas are blocked with PAUSED, also those that a running apply has not yet
    created. `evict`, `restart` and `drain` work as before. The pause ends after --for, with `fleetctl resume`, or with
    the Ray session.
    """
    with _on_models(model, fleet, files, where) as (here, seen, name, key):
        fields = _named(here, name, key) | lasting_note(reason, lasting, seen.observed_at)
        _note(here, PAUSE, _subject(here, name, key), fields)
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
    with _on_models(model, fleet, files, where) as (here, seen, name, key):
        if seen.complete and not any((pause.fleet, pause.model) == (name, key) for pause in seen.pauses):
            say("note", f"no note pauses {f'{key} of ' if key else ''}fleet {name}")
        else:
            _note(here, RESUME, _subject(here, name, key), _named(here, name, key))
        others = [pause for pause in seen.pauses if pause.fleet == name and (pause.model is None) != (key is None)]
        left = [pause_of(seen.model_copy(update={"pauses": others}), name, key)] if key else others
        for pause in filter(None, left):
            say("note", f"{f'{pause.model} stays ' if pause.model else ''}{paused_text(pause, seen.observed_at)}; "
                        f"`{resume_command(pause)}` ends it")
    return 0


@contextmanager
def _on_models(
    model: str | None, name: str | None, files: Sequence[str] | None, where: Where
) -> Iterator[tuple[OnCluster, Inventory, str, str | None]]:
    """Yield the cluster, its inventory, the name of the fleet that is meant, and the key of the model, if any.

    Raises UsageError if that is not clear, FleetctlError for a model or a fleet of which nothing is known.
    """
    if model is None and name is None:
        raise UsageError("name a model, or a whole fleet by --fleet NAME")
    invocation = this_invocation()
    in_files = fleet_of(invocation, files)
    if in_files and name not in (None, in_files.name):
        raise UsageError(f"--fleet {name}, but the files describe fleet {in_files.name}")
    with on_cluster(invocation, where, in_files) as here:
        seen = here.read()
        if model is None:
            yield here, seen, _known_fleet(here, seen, name or ""), None
        else:
            model = with_key(model, {key for key, _ in _models(seen)} | set(in_files.labels if in_files else ()))
            yield here, seen, _fleet_with(seen, in_files, model, name), model


def _known_fleet(here: OnCluster, seen: Inventory, name: str) -> str:
    """Return the name of a fleet of which something runs, or is in the files or in the list of runs."""
    if here.fleet is None and name not in (fleets := {fleet for _, fleet in _models(seen)}):
        fleets |= {run.metadata.get("fleet", "") for run in read_records(here.source.client).runs}
        if name not in fleets:
            raise absent(seen, f"nothing is known of a fleet {name}", did_you_mean(name, fleets - {""})
                         or "give its file with -f, if it was never applied")
    return name


def _fleet_with(seen: Inventory, in_files: ResolvedFleet | None, model: str, name: str | None) -> str:
    """Return the fleet that has a model: by the file, by name, or the only one that runs it."""
    name = in_files.name if in_files else name
    if in_files and model in in_files.labels:
        return in_files.name
    running = {(key, fleet) for key, fleet in _models(seen) if name in (None, fleet)}
    fleets = sorted({fleet for key, fleet in running if key == model})
    if not fleets:
        keys = {key for key, _ in running} | set(in_files.labels if in_files else ())
        raise absent(seen, f"nothing is known of a model {model}{f' of fleet {name}' if name else ''}",
                     did_you_mean(model, keys) or "give its file with -f, if it never ran")
    if len(fleets) > 1:
        raise UsageError(f"{model} runs in fleets {' and '.join(fleets)}", hint="add --fleet NAME")
    return fleets[0]


def _models(seen: Inventory) -> set[tuple[str, str]]:
    """Return the models of which the cluster knows something, each with its fleet."""
    models = [(replica.model, replica.fleet) for replica in seen.replicas]
    models += [(failure.model, failure.fleet) for failure in seen.failures]
    return {(model, fleet) for model, fleet in models if fleet} | {
        (pause.model or "", pause.fleet) for pause in seen.pauses}


def _named(here: OnCluster, fleet: str, model: str | None) -> dict[str, str]:
    """Return the fields of a note that name what it is about."""
    return {"fleet": fleet, "namespace": here.source.namespace, **({} if model is None else {"model": model})}


def _subject(here: OnCluster, fleet: str, model: str | None) -> str:
    """Return the subject of the record: of several notes about the same, the newest counts."""
    return canonical_json([here.source.namespace, fleet, model]).decode()
