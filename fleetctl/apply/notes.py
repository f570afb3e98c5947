"""Write a note of the cluster: a job that does nothing and whose metadata is the note. Read in `inventory/notes.py`."""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.apply import jobs
from fleetctl.apply.record import Starter, note_metadata
from fleetctl.documents.inventory import Node
from fleetctl.inventory.client import DashboardClient


def write_note(
    client: DashboardClient, verb: str, node: Node, said: Mapping[str, str], job: str, starter: Starter,
    patience: jobs.Patience | None = None,
) -> None:
    """Write what is `said` about a node; raises ApplyError when the cluster does not take it."""
    wanted = jobs.Submission(job, verb, "", note_metadata(node, said, starter),
                             "`fleetctl inventory` shows whether the note is there")
    jobs.submit_note(client, wanted, patience)
