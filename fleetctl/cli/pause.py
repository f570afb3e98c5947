"""`fleetctl pause` and `fleetctl resume`: a note that keeps applies from starting anything for a model or a fleet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.console import say
from fleetctl.cli.nodes import lasting_note, note
from fleetctl.cli.process import this_invocation
from fleetctl.cli.replica_argument import absent
from fleetctl.documents.canonical import canonical_json
from fleetctl.documents.inventory import Inventory, Pause
from fleetctl.documents.names import did_you_mean, with_key
from fleetctl.errors import UsageError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.dashboard import Live
from fleetctl.inventory.records import PAUSE, RESUME, read_records
from fleetctl.planner.live import pause_of, paused_text, resume_command
from fleetctl.workflow.cluster import cluster_of, fleet_of, read
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.invocation import Where

app = command_app()
ModelOfFleet = Annotated[str | None, typer.Argument(
    metavar="MODEL", show_default=False, autocompletion=complete_model_keys, help="A model key. [default: with --fleet "
                                                                                  "all models of the fleet]")]
FleetName = Annotated[str | None, flags.option(
    "--fleet", metavar="NAME", callback=flags.not_empty,
    help="The fleet: all its models, or the one that MODEL names. [default: the fleet of MODEL]")]
EXIT_CODES = "0 noted, or nothing to change, 1 error, or no such model or fleet, 7 not noted in time, 64 usage"


@app.command(epilog=epilog(
    'fleetctl pause openai-community/gpt2 --for 2h --reason "bad answers"',
    "fleetctl pause --fleet prod --reason migration",
    exit_codes=EXIT_CODES))
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
    "fleetctl resume openai-community/gpt2", "fleetctl resume --fleet prod", exit_codes=EXIT_CODES))
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
    """Yield the cluster, its inventory, and the name of the fleet that is meant, and the key of the model, if any.

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
