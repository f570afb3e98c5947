"""`fleetctl cordon NODE`: write a note that keeps new replicas off the node. Running replicas stay."""

from __future__ import annotations

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.node_note import EXIT_CODES, Lasting, NodeArgument, Reason, cordoning, found_node, write
from fleetctl.inventory.records import CORDON

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
    """Keep new replicas off a node; running replicas stay.

    The cordon applies to every fleet. It ends after --for, with `fleetctl uncordon`, or with the Ray session.
    """
    with found_node(node, files, address) as (source, _, found):
        write(source, CORDON, found, cordoning(reason, lasting))
    return 0
