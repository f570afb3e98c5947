"""Shared by `cordon`, `uncordon`, `slots` and `drain`: finding the node, the note about it, and their flags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from fleetctl.apply.jobs import Patience
from fleetctl.apply.node_jobs import NOTE_WORDING, JobRunner, write_note
from fleetctl.cli import flags
from fleetctl.cli.console import say
from fleetctl.cli.identity import new_job_id, starter
from fleetctl.cli.process import this_invocation
from fleetctl.cli.replica_argument import absent
from fleetctl.cli.working import working
from fleetctl.documents.inventory import Inventory, Node
from fleetctl.documents.nearest import did_you_mean
from fleetctl.inventory.dashboard import Live
from fleetctl.inventory.notes import note_text
from fleetctl.workflow.cluster import cluster_of, fleet_of
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.invocation import Where
from fleetctl.workflow.planning import expiry

NodeArgument = Annotated[str, typer.Argument(
    metavar="NODE", show_default=False, help="Name of a node, as in `fleetctl inventory`, or its id.")]
Lasting = Annotated[float | None, flags.option(
    "--for", metavar="DURATION", parser=flags.expiry_duration,
    help="How long the cordon lasts; at most 30d. [default: until `fleetctl uncordon`]")]
Reason = Annotated[str, flags.option(
    "--reason", metavar="TEXT", help="Reason for the cordon, shown by plans that avoid the node.")]
EXIT_CODES = "0 noted, or nothing to change, 1 error, or no such node, 7 not noted in time, 64 usage"


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


def cordoning(reason: str, lasting_s: float | None) -> dict[str, str]:
    """Return the fields of the note for a cordon that begins now."""
    until = expiry(this_invocation().now(), lasting_s) if lasting_s is not None else None
    return {"reason": reason, **({"until": until} if until else {})}


def write(source: Live, verb: str, node: Node, fields: Mapping[str, str] | None) -> None:
    """Write a note and report it; `fields` None = write nothing."""
    if fields is None:
        return
    runner = JobRunner(source.client, source.namespace, starter(), NOTE_WORDING,
                       Patience(report=lambda line: say("note", line)))
    with working("writing the note"):
        write_note(runner, verb, node, fields, new_job_id(verb))
    say("note", note_text({"verb": verb, "nodeName": node.name, **fields}))
