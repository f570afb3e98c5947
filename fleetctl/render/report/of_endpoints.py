"""The endpoints as a report: a row per endpoint, and the models that have none."""

from __future__ import annotations

from fleetctl.documents.endpoints import Endpoints
from fleetctl.documents.quantity import count_of
from fleetctl.render.report.model import Column, Report, Table

COLUMNS = (Column("model", "model", name=True), Column("replica", "replica", name=True),
           Column("group", "group", name=True, terminal="beside"), Column("node", "node", name=True),
           Column("url", "url", name=True))


def endpoints_report(served: Endpoints) -> Report:
    """Return a row per endpoint; a model without one is a row of its own."""
    rows = []
    for model in served.models:
        rows += [(model.name, f"{model.key}/{one.replica_id}", one.group, one.node, one.url)
                 for one in model.endpoints] or [(model.name, "none is ready", "", "", "")]
    total = sum(len(model.endpoints) for model in served.models)
    table = Table("endpoint", "Endpoints", COLUMNS, tuple(rows))
    return Report(kind="answer", title="Endpoints", tables=(table,) if rows else (),
                  verdict=f"{count_of(total, 'endpoint')} of {count_of(len(served.models), 'model')}")
