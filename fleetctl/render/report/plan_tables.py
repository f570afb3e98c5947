"""The tables of a plan, in the order a reviewer reads them. What is empty is left out."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.documents.plan import ModelRow, Plan
from fleetctl.documents.quantity import plural
from fleetctl.render.difference_text import place_text, values_of
from fleetctl.render.drift_text import drift_details, models_with_surplus
from fleetctl.render.place_text import group_alike, ids_text
from fleetctl.render.plan_table import short_reasons, symbol
from fleetctl.render.policy_sections import ALTERED, altered_policy
from fleetctl.render.replica_text import replica_name
from fleetctl.render.report.change_tables import change_tables
from fleetctl.render.report.model import Cell, Column, Table
from fleetctl.render.report.plan_findings import blocked_details

MODEL = Column("model", "model", name=True)
REPLICA = Column("replica", "replica", name=True)
WHY = Column("message", "why")
COUNTS = tuple(Column(key, key, numeric=True) for key in ("wanted", "live", "create", "blocked"))
MODEL_ROW = (Column("sign", "", name=True), Column("key", "model", name=True), *COUNTS, Column("reason", "reason"))


def plan_tables(plan: Plan) -> tuple[Table, ...]:
    """Return what the plan refuses, what a change causes alone, the models, and the details that explain them."""
    tables = (_policy(plan), _altered_policy(plan), *change_tables(plan.change), *_models(plan), _blocked(plan),
              _lost(plan), _drift(plan), _places(plan), _holds(plan), _unmanaged(plan), _notes(plan))
    return tuple(table for table in tables if table.rows or table.note)


def _policy(plan: Plan) -> Table:
    rows = [(finding.code, finding.key, "lifted by --force" if finding.lifted else "refused", finding.message)
            for finding in plan.policy]
    columns = (Column("code", "policy", name=True), Column("key", "key", name=True), Column("verdict", "verdict"), WHY)
    return Table("policy", "Against the policy of the fleet", columns, tuple(rows), rank=0)


def _altered_policy(plan: Plan) -> Table:
    rows = [(f"spec.{one.path}", *values_of(one), place_text(one.new_source or one.old_source))
            for one in altered_policy(plan)]
    columns = (Column("key", "key", name=True), Column("old", "was", name=True), Column("new", "is", name=True),
               Column("place", "where", name=True))
    return Table("alteredPolicy", ALTERED, columns, tuple(rows), rank=0)


def _models(plan: Plan) -> tuple[Table, Table]:
    reasons = short_reasons(plan)
    rows = {row.key: _model(row, reasons[row.key]) for row in plan.models}
    busy = [rows[row.key] for row in plan.models if symbol(row) != "="]
    quiet = [rows[row.key] for row in plan.models if symbol(row) == "="]
    return (Table("model", "Models", MODEL_ROW, tuple(busy), rank=0),
            Table("model", f"{plural(len(quiet), 'model')} with nothing to do", MODEL_ROW, tuple(quiet),
                  counted=True, rank=0))


def _model(row: ModelRow, reason: str) -> tuple[Cell, ...]:
    return symbol(row), row.key, *(str(getattr(row, column.key)) for column in COUNTS), reason


def _blocked(plan: Plan) -> Table:
    rows = [(one.model, str(one.replicas), one.code, (one.message, *blocked_details(one))) for one in plan.blocked]
    columns = (MODEL, Column("replicas", "replicas", numeric=True), Column("code", "code", name=True), WHY)
    return Table("blocked", "Blocked", columns, tuple(rows), rank=2)


def _places(plan: Plan) -> Table:
    rank = {row.key: number for number, row in enumerate(plan.models)}
    ordered = sorted(plan.actions, key=lambda action: (rank.get(action.model, len(rank)), action.replica_id))
    rows = [(f"{model}/{ids_text(ids)}", f"{place}{' (each)' if len(ids) > 1 else ''}")
            for model, ids, place in group_alike(ordered)]
    columns = (Column("replicas", "replicas", name=True), Column("place", "where"))
    return Table("place", "Where the new replicas go", columns, tuple(rows), folded=True, rank=3)


def _lost(plan: Plan) -> Table:
    rows = [(replica_name(one.model, one.replica_id), one.message) for one in plan.lost]
    return Table("lost", "Lost: cannot serve, not counted", (REPLICA, WHY), tuple(rows), rank=3)


def _drift(plan: Plan) -> Table:
    surplus = models_with_surplus(plan)
    rows = [(replica_name(one.model, one.replica_id), one.code, (one.message, *drift_details(one, surplus)))
            for one in plan.drift]
    columns = (REPLICA, Column("code", "code", name=True), WHY)
    return Table("drift", "Drift: runs, but not as the file says", columns, tuple(rows), folded=True, rank=4)


def _holds(plan: Plan) -> Table:
    rows = [(hold.model, *map(str, (hold.wanted, hold.live, hold.surplus))) for hold in plan.holds]
    columns = (MODEL, *_numbers("wanted", "live", "surplus"))
    return Table("hold", "Held: more runs than wanted, all of it is kept", columns, tuple(rows), folded=True, rank=5)


def _unmanaged(plan: Plan) -> Table:
    rows = [(replica_name(one.model, one.replica_id, one.foreign_id), one.state, one.message)
            for one in plan.unmanaged]
    columns = (REPLICA, Column("state", "state", name=True), WHY)
    return Table("unmanaged", "Unmanaged: capacity in use, left alone", columns, tuple(rows), folded=True, rank=6)


def _notes(plan: Plan) -> Table:
    rows = [(note.level, note.code, note.message) for note in plan.notes]
    columns = (Column("level", "level", name=True), Column("code", "code", name=True), WHY)
    return Table("note", "Notes on nodes", columns, tuple(rows), folded=True, rank=6)


def _numbers(*keys: str) -> Sequence[Column]:
    return [Column(key, key, numeric=True) for key in keys]
