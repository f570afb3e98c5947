"""`fleetctl release-nodes FLEET`: withdraw a fleet's node requests from Ray's autoscaler. Ends nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.apply.follow import CONTINUE_HINT, Wording
from fleetctl.apply.node_jobs import JobRunner
from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import confirm, say
from fleetctl.cli.identity import new_job_id, starter
from fleetctl.cli.process import invocation_on_one_cluster
from fleetctl.workflow.cluster import cluster_of
from fleetctl.workflow.dashboard import live_source

app = command_app(
    "fleetctl release-nodes old-fleet --address http://ray-head:8265 --dry-run",
    "fleetctl release-nodes old-fleet --address http://ray-head:8265",
    exit_codes="0 withdrawn, or no nodes were requested, 1 error, or not confirmed, 64 usage")
RELEASE = "release"
AFTERWARDS = "`fleetctl release-nodes FLEET --dry-run` shows what is requested"
WORDING = Wording("job", afterwards=AFTERWARDS, died=CONTINUE_HINT)


@app.command()
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
        asker = JobRunner(source.client, source.namespace, starter(), WORDING)
        with invocation.working("asking the cluster"):
            events = asker.run(RELEASE, new_job_id(RELEASE), {"fleet": fleet, "dryRun": dry_run})
    for event in events[1:]:  # the first is the agent's version
        say("note", event.message)
    return 0
