"""What runs, a row per replica: is it ready, where is it, its address, whose is it; and what is outdated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from fleetctl.documents.inventory import Replica
from fleetctl.documents.plan import Drift
from fleetctl.documents.quantity import format_share
from fleetctl.render.replica_text import node_text, replica_name, state_text, status_word
from fleetctl.render.report.model import Column, Report, Table
from fleetctl.render.report.plan_tables import drift_table

COLUMNS = (Column("replica", "replica", name=True), Column("status", "status"),
           Column("nodes", "nodes", name=True, terminal="beside"), Column("gpus", "gpus", numeric=True),
           Column("address", "address", name=True, terminal="beside"),
           Column("fleet", "fleet", name=True, terminal="beside"), Column("note", "note", terminal="beside"))


def status_report(
    replicas: Sequence[Replica], node_names: Mapping[str, str], dead_nodes: frozenset[str],
    outdated: Sequence[Drift] = (), surplus: Collection[str] = (),
) -> Report:
    """Return a row per replica, and what differs for those that are `outdated`.

    `surplus` = models of which more runs than wanted.
    """
    old = {(one.model, one.replica_id) for one in outdated}
    rows = []
    for replica in replicas:
        first = next((member for member in replica.members if member.port), None)
        is_old = (replica.model, replica.replica_id) in old
        rows.append((
            replica_name(replica.model, replica.replica_id, replica.foreign_id),
            state_text(replica, dead_nodes) + (", outdated" if is_old else ""), node_text(replica, node_names),
            format_share(sum(member.gpus for member in replica.members)),
            f"{first.address}:{first.port}" if first else "", replica.fleet or "(unmanaged)", replica.error or ""))
    counts = Counter(status_word(replica, dead_nodes) for replica in replicas)
    words = ", ".join(f"{count} {word}" for word, count in counts.items()) or "none"
    tables = (Table("replica", "Replicas", COLUMNS, tuple(rows), beside_from=0),
              drift_table(outdated, frozenset(surplus), "Outdated"))
    return Report(kind="answer", title="Status", tables=tuple(table for table in tables if table.rows),
                  verdict=f"Replicas: {words}{f'; {len(outdated)} outdated' if outdated else ''}")
