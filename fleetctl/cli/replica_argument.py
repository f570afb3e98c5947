"""The arguments MODEL/ID (one replica) and MODEL (all its replicas). A model key may itself contain slashes."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.completion import complete_replicas
from fleetctl.cli.console import say
from fleetctl.documents.inventory import Inventory, Replica
from fleetctl.documents.names import did_you_mean, with_key
from fleetctl.documents.quantity import first_few
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.workflow.cluster import absent

IDS_LISTED = 20

ReplicaArguments = Annotated[list[str] | None, typer.Argument(
    metavar="MODEL/ID", show_default=False, autocompletion=complete_replicas,
    help="A replica, as `fleetctl status` names it; or a model, for all its replicas.")]
ReplicaId = Annotated[int | None, flags.option(
    "--replica-id", metavar="N", min=0, help="Id of the replica; the argument is then only the model key.")]


def parse_replica(text: str) -> tuple[str, int]:
    """Split at the last slash; raises UsageError if the part after it is not an id."""
    model, slash, number = text.rpartition("/")
    if not slash or not model or not number.isascii() or not number.isdigit():
        raise UsageError(f"{text!r} does not name a replica", hint="write MODEL/ID, such as openai-community/gpt2/0")
    return model, int(number)


def named_replicas(
    seen: Inventory, names: Sequence[str], replica_id: int | None = None, fleet: str | None = None
) -> list[Replica]:
    """Return the replicas that `names` refer to, each once, in inventory order.

    A key may look like MODEL/ID: `m/3` is replica 3 of `m`, or else all replicas of the model `m/3`. With `fleet`, a
    model means its replicas in that fleet, and others are reported. A checkpoint means the model whose key holds it.
    Raises UsageError if a name is both, FleetctlError if it is neither or no fleet started it, InventoryError if the
    inventory is too incomplete to tell.
    """
    if replica_id is not None and len(names) != 1:
        raise UsageError("--replica-id needs exactly one MODEL")
    names = with_keys(seen, names, fleet)
    meant = {name: running_replicas(seen, name, replica_id) for name in names}
    number = "" if replica_id is None else f"/{replica_id}"
    unknown = [name + number for name, replicas in meant.items() if not replicas]
    if unknown:
        hints = dict.fromkeys(nearest_hint(seen, name) for name in unknown)
        raise absent(seen, f"there is no {' and no '.join(unknown)}", "; ".join(hints))
    named = [replica for name, replicas in meant.items()
             for replica in (replicas if replica_id is not None else _in_fleet(name, replicas, fleet))]
    unmarked = [f"{replica.model}/{replica.replica_id}" for replica in named if replica.fleet is None]
    if unmarked:
        raise FleetctlError(f"{', '.join(unmarked)}: no fleet mark; fleetctl did not start it and does not end it")
    chosen = {(replica.model, replica.replica_id) for replica in named}
    return [replica for replica in seen.replicas if (replica.model, replica.replica_id) in chosen]


def _in_fleet(name: str, replicas: Sequence[Replica], fleet: str | None) -> Sequence[Replica]:
    """Return the replicas that a name refers to; of those of a whole model, only the ones in `fleet`."""
    if fleet is None or replicas[0].model != name:
        return replicas
    others = [f"{name}/{replica.replica_id} is in fleet {replica.fleet}" for replica in replicas
              if replica.fleet not in (fleet, None)]
    if len(others) == len(replicas):
        raise FleetctlError(f"{name} does not run in fleet {fleet}: {', '.join(first_few(others, IDS_LISTED))}",
                            hint="name the replica as MODEL/ID, or leave out -f")
    say("note", *(f"{sentence} and is left out; to include it, name it as MODEL/ID" for sentence in others))
    return [replica for replica in replicas if replica.fleet in (fleet, None)]


def with_keys(seen: Inventory, names: Sequence[str], fleet: str | None = None) -> list[str]:
    """Return the names with keys in place of checkpoints, as `with_key` does, of the models that run or have failed;
    those of `fleet` come first.
    """
    started = [(replica.model, replica.fleet) for replica in seen.replicas if replica.replica_id is not None]
    started += [(failure.model, failure.fleet) for failure in seen.failures]
    own = {model for model, started_by in started if fleet is not None and started_by == fleet}
    return [with_key(name, {model for model, _ in started}, own) for name in names]


def running_replicas(seen: Inventory, name: str, replica_id: int | None) -> list[Replica]:
    """Return the replicas that one name refers to, by the rules of `named_replicas`; none if it is neither."""
    numbered = [replica for replica in seen.replicas if replica.replica_id is not None]
    of_model = [replica for replica in numbered if replica.model == name]
    if replica_id is not None:
        return [replica for replica in of_model if replica.replica_id == replica_id]
    exact = [replica for replica in numbered if f"{replica.model}/{replica.replica_id}" == name]
    if exact and of_model:
        raise UsageError(f"{name} is replica {exact[0].replica_id} of {exact[0].model}, and a model of its own",
                         hint=f"write `{quote(exact[0].model)} --replica-id {exact[0].replica_id}`, or "
                              f"`{quote(name)}/ID`")
    return exact or of_model


def nearest_hint(seen: Inventory, name: str) -> str:
    """Return the hint for an unknown name: the ids of its model, the nearest model, or how to list all."""
    model = name.rpartition("/")[0]
    ids = sorted(replica.replica_id for replica in seen.replicas
                 if replica.model == model and replica.replica_id is not None)
    if ids:  # never the nearest id: the command may end it, and it is healthy
        return f"{model} has {', '.join(map(str, ids[:IDS_LISTED]))}{', ...' if len(ids) > IDS_LISTED else ''}"
    return did_you_mean(name, {replica.model for replica in seen.replicas}) or "`fleetctl status` lists what runs"
