"""`fleetctl cordon NODE`: nothing new goes there from now on, by a note of the cluster. What runs there stays."""

from __future__ import annotations

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.node_note import EXIT_CODES, Lasting, NodeArgument, Reason, cordoning, found_node, write
from fleetctl.inventory.notes import CORDON

app = command_app(
    'fleetctl cordon node-a --for 2h --reason "new driver"',
    "fleetctl cordon node-a -f fleets/prod.yaml",
    exit_codes=EXIT_CODES)


@app.command()
def cordon(
    node: NodeArgument,
    lasting: Lasting = None,
    reason: Reason = "",
    files: flags.ClusterFiles = None,
    address: flags.Address = None,
) -> int:
    """Let nothing new start on a node; what runs there stays.

    It holds for every fleet: until --for is over or `fleetctl uncordon`, at most as long as the Ray session.
    """
    with found_node(node, files, address) as (client, _, found):
        write(client, CORDON, found, cordoning(reason, lasting))
    return 0
