"""The endpoints as a report: a row per endpoint, and a row per model without one."""

from __future__ import annotations

from fleetctl.documents.endpoints import Endpoints
from fleetctl.documents.quantity import count_of
from fleetctl.render.report.model import Column, Report, Table

COLUMNS = (Column("replica", "replica", name=True), Column("url", "url", name=True),
           Column("name", "name", name=True, terminal="beside"), Column("group", "group", name=True, terminal="beside"),
           Column("node", "node", name=True, terminal="beside"))


def endpoints_report(served: Endpoints) -> Report:
    """Return the report of `endpoints`; the name column is empty if the name is the key."""
    rows = []
    for model in served.models:
        name = "" if model.name == model.key else model.name
        rows += [(f"{model.key}/{one.replica_id}", one.url, name, one.group, one.node)
                 for one in model.endpoints] or [(model.key, "none is ready", name, "", "")]
    total = sum(len(model.endpoints) for model in served.models)
    table = Table("endpoint", "Endpoints", COLUMNS, tuple(rows), beside_from=0)
    return Report(kind="answer", title="Endpoints", tables=(table,) if rows else (),
                  conclusion=f"{count_of(total, 'endpoint')} of {count_of(len(served.models), 'model')}")
