"""`fleetctl release-nodes FLEET`: ask Ray's autoscaler for no more nodes for a fleet. Ends nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.apply.follow import Wording
from fleetctl.apply.node_jobs import JobRunner
from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import confirm, say
from fleetctl.cli.identity import new_job_id, starter
from fleetctl.cli.process import this_invocation
from fleetctl.workflow.cluster import cluster_of
from fleetctl.workflow.dashboard import live_source

app = command_app(
    "fleetctl release-nodes old-fleet --address http://ray-head:8265 --dry-run",
    "fleetctl release-nodes old-fleet --address http://ray-head:8265",
    exit_codes="0 released, or nothing was asked for, 1 error, or no to the question, 64 usage")
RELEASE = "release"
WORDING = Wording("job", *["`fleetctl release-nodes FLEET --dry-run` shows what is asked for"] * 2)


@app.command()
def release_nodes(
    fleet: Annotated[str, typer.Argument(
        metavar="FLEET", show_default=False, help="The name of a fleet that is not applied any more.")],
    where: flags.Cluster,
    dry_run: flags.DryRun = False,
    yes: flags.Yes = False,
) -> int:
    """Ask Ray's autoscaler for no more nodes for a fleet.

    An apply of a fleet with spec.cluster.grow asks for nodes, and they stay asked for until the next one. This is for a
    fleet that has no next one. Nothing is ended: Ray takes away nodes that no other fleet asks for once they are idle.
    An apply of the fleet asks again.
    """
    invocation = this_invocation()
    question = f"Ask for no more nodes for fleet {fleet}?"
    if not dry_run and not confirm(question, yes=yes, otherwise="nothing was changed"):
        return 1
    with live_source(invocation, where, cluster_of(None)) as source:
        asker = JobRunner(source.client, source.namespace, starter(), WORDING)
        with invocation.working("asking the cluster"):
            events = asker.run(RELEASE, new_job_id(RELEASE), {"fleet": fleet, "dryRun": dry_run})
    for event in events[1:]:  # the first is the agent's version
        say("note", event.message)
    return 0
