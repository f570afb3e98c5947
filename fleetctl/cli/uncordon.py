"""`fleetctl uncordon NODE`: remove the cordon note of a node."""

from __future__ import annotations

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say
from fleetctl.cli.node_note import EXIT_CODES, NodeArgument, found_node, write
from fleetctl.inventory.notes import cordon_note
from fleetctl.inventory.records import UNCORDON, read_records

app = command_app("fleetctl uncordon node-a", exit_codes=EXIT_CODES)


@app.command()
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
