"""`fleetctl stop [JOB]`: stop a running apply. It ends a job of the agent, never a replica."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.apply.follow import APPLY, RunFollower
from fleetctl.apply.history import find_run, read_logs
from fleetctl.apply.run import STATUS_HINT, running
from fleetctl.cli import flags
from fleetctl.cli.apply_run import only
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say, show_report
from fleetctl.cli.process import invocation_on_one_cluster
from fleetctl.cli.verb import perform
from fleetctl.documents.events import Event
from fleetctl.documents.quantity import count_of
from fleetctl.errors import WaitTimeout
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import Job
from fleetctl.render.report.of_runs import outcomes_report
from fleetctl.render.visible import visible
from fleetctl.workflow.cluster import cluster_of, fleet_of
from fleetctl.workflow.dashboard import open_dashboard

app = command_app(
    "fleetctl stop                       # the only running apply",
    "fleetctl stop fleetctl-apply-8dd5457ba23d --yes",
    "fleetctl stop -f fleets/prod.yaml   # the apply of this fleet",
    exit_codes="0 it has ended, 1 error, or no apply runs, 7 it was asked to stop and has not ended yet, 64 usage")


@app.command()
def stop(
    job: Annotated[str | None, typer.Argument(metavar="JOB", show_default=False, help=(
        "Job id as in `fleetctl history`, or its beginning; required if several applies are running."))] = None,
    files: flags.ClusterFiles = None,
    address: flags.Address = None,
    yes: flags.Yes = False,
) -> int:
    """Stop a running apply; the replicas it created stay.

    The apply starts nothing more. No replica is removed: those it created become ready by themselves, and the next
    apply continues from what is running.
    """
    invocation = invocation_on_one_cluster(address)
    fleet = fleet_of(invocation, files)
    with open_dashboard(invocation, address, cluster_of(fleet).address) as client:
        name = fleet.name if fleet else None
        if job is None:
            chosen = only(running(client, name), "fleetctl stop JOB")
        else:  # other jobs of the cluster cannot be named
            chosen = find_run(client, job, name, verb="apply")
        if chosen.ended:
            say("note", f"job {chosen.submission_id} has already ended; nothing was done")
            return 0
        [log] = read_logs(client, [chosen])
        created = count_of(sum(event.type == "replicaCreated" for event in log.events), "replica")
        by = f", started by {visible(chosen.metadata['who'])}" if chosen.metadata.get("who") else ""
        question = (f"Stop the apply of fleet {visible(chosen.metadata.get('fleet', ''))} ({chosen.submission_id}{by}; "
                    f"{created} created so far; created replicas stay)?")
        return perform(lambda: _stop(client, chosen), question, yes=yes,
                       otherwise="nothing was done; the apply continues")


def _stop(client: DashboardClient, job: Job) -> int:
    created: list[Event] = []

    def relay(event: Event) -> None:
        if event.type == "replicaCreated":
            created.append(event)

    try:
        summary = RunFollower(client, job.submission_id, APPLY).stop(relay, STATUS_HINT)
    except WaitTimeout:
        raise WaitTimeout(f"job {job.submission_id} was asked to stop and has not ended yet",
                          hint=f"`fleetctl history show {job.submission_id}` shows how it ends") from None
    if summary.outcomes:
        show_report(outcomes_report(summary.outcomes, interrupted=summary.interrupted))
    else:
        say("note", *(event.message for event in created))
    stays = f"what it created stays ({count_of(len(created), 'replica')})" if created else "it had created nothing"
    end = "is stopped" if summary.interrupted else "had already ended"
    say("stopped", f"job {job.submission_id} {end}; {stays}; `fleetctl apply` continues from what is running")
    return 0
