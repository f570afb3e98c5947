"""The tables of a plan, in the order a reviewer reads them; empty ones are omitted.

The signs: `+` create, `!` blocked (some replicas may be created too), `~` held, `*` all are live, but some not ready or
outdated, `=` nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from fleetctl.documents.difference import Difference
from fleetctl.documents.plan import Action, Blocked, Drift, Growth, ModelRow, Plan
from fleetctl.documents.quantity import count_of, grouped, plural, some
from fleetctl.planner.policy import refusing
from fleetctl.render.difference_text import values_of
from fleetctl.render.place_text import group_alike, ids_text, replica_name
from fleetctl.render.remedy_text import blocked_details
from fleetctl.render.report.change_tables import change_tables
from fleetctl.render.report.model import EVERYONE, SEE_BELOW, Cell, Column, Reader, Table
from fleetctl.render.report.weights_tables import planned_fetches, planned_weights

if TYPE_CHECKING:
    from fleetctl.documents.answers import NewReplica

MODEL = Column("model", "model", name=True)
REPLICA = Column("replica", "replica", name=True)
CODE = Column("code", "code", name=True)
WHY = Column("message", "why")
COUNTS = tuple(Column(key, key, numeric=True) for key in ("wanted", "live", "create", "blocked"))
MODEL_ROW = (Column("sign", "", name=True), Column("key", "model", name=True), *COUNTS,
             Column("reason", "reason", terminal="beside"))
LINES_SHOWN, PLACES_SHOWN, BLOCKED_SHOWN = 20, 200, 10
TERMINAL: frozenset[Reader] = frozenset({"terminal"})
NOT_TERMINAL = EVERYONE - TERMINAL
IN_COLUMNS = "create {create}: {live} of {wanted} live; nothing to do: {live} of {wanted} live"
ALTERED = "This change alters the policy it is judged by"
OUTDATED = "SPEC_CHANGED"


def plan_tables(plan: Plan) -> tuple[Table, ...]:
    """Return the tables of policy violations, of the change alone, of the models, and of their details."""
    order = {row.key: number for number, row in enumerate(plan.models)}
    actions = sorted(plan.actions, key=lambda action: (order.get(action.model, len(order)), action.replica_id))
    surplus = {row.key for row in plan.models if row.surplus}
    tables = (_policy(plan), _altered_policy(plan), *change_tables(plan.change), *_models(plan), _labels(plan),
              *place_tables(actions), _reloads(plan), planned_weights([*actions, *plan.reloads]),
              planned_fetches(plan.prefetches), *blocked_tables(plan.blocked), growth_table(plan.growth),
              _autoscaler(plan), _lost(plan), drift_table(plan.drift, surplus), _holds(plan), _unmanaged(plan),
              _notes(plan))
    return tuple(table for table in tables if table.rows or table.note)


def altered_policy(plan: Plan) -> list[Difference]:
    """Return the changes to the policy that the plan is judged by; none for a plan without a base.

    A change is judged by its own version of the policy, so a raised limit would otherwise go unnoticed.
    """
    return [one for one in (plan.change.differences if plan.change else ())
            if one.model is None and one.path.partition(".")[0] == "policy"]


def sign_of(row: ModelRow) -> str:
    """Return the sign of a model, see above."""
    if row.blocked:
        return "!"
    if row.create or row.fetch:
        return "+"
    if row.surplus:
        return "~"
    return "*" if row.starting or row.restarted or row.outdated else "="


def place_tables(actions: Iterable[Action | NewReplica]) -> tuple[Table, ...]:
    """Return the places of new replicas; replicas of one model with the same place share a row.

    If there are many rows, replicas of all models with the same place share a row in a terminal.
    """
    groups = group_alike(actions)
    rows = [(f"{model}/{ids_text(ids)}", f"{place}{' (each)' if len(ids) > 1 else ''}")
            for model, ids, place in groups]
    columns = (Column("replicas", "replicas", name=True), Column("place", "where"))
    full = Table("place", "Would create", columns, tuple(rows), folded=True, rank=3, line="{replicas}: {place}",
                 signs=("+",) * len(rows), most=PLACES_SHOWN)
    if len(rows) <= LINES_SHOWN:
        return (full,)
    names = grouped((f"{place} (each)", f"{model}/{ids_text(ids)}") for model, ids, place in groups)
    short = [(", ".join(replicas), place) for place, replicas in names.items()]
    return (replace(full, readers=NOT_TERMINAL),
            replace(full, rows=tuple(short), signs=("+",) * len(short), line="{place}: {replicas}", readers=TERMINAL))


def _reloads(plan: Plan) -> Table:
    rows = [(one.id, ", ".join(dict.fromkeys(member.node for member in one.members)), f"{one.runs} -> {one.spec_hash}")
            for one in plan.reloads]
    columns = (REPLICA, Column("nodes", "nodes", name=True), Column("spec", "spec", name=True))
    return Table("reload", "Would reload in place", columns, tuple(rows), folded=True, rank=3, signs=("*",) * len(rows),
                 meaning="each keeps serving", line="{replica}: on {nodes}", most=PLACES_SHOWN)


def blocked_tables(blocked: Sequence[Blocked], title: str = "Blocked") -> tuple[Table, ...]:
    """Return the blocked models with reasons and remedies; in a terminal models with the same reasons share a row."""
    rows = [(one.model, str(one.replicas), one.code, (one.message, *blocked_details(one))) for one in blocked]
    columns = (MODEL, Column("replicas", "replicas", numeric=True), CODE, WHY)
    full = Table("blocked", title, columns, tuple(rows), rank=2, line="{model}: {replicas}, {code}",
                 signs=("!",) * len(rows), most=BLOCKED_SHOWN)
    by_reason = grouped(((one.code, one.message, *blocked_details(one, for_all=False)), one) for one in blocked)
    short = tuple(_blocked_row(models, reasons) for (_, *reasons), models in by_reason.items())
    if len(short) == len(rows):
        return (full,)
    return (replace(full, readers=NOT_TERMINAL),
            replace(full, rows=short, signs=("!",) * len(short), readers=TERMINAL))


def _blocked_row(blocked: Sequence[Blocked], reasons: Sequence[str]) -> tuple[Cell, ...]:
    first, replicas = blocked[0], str(sum(one.replicas for one in blocked))
    if len(blocked) == 1:
        return first.model, replicas, first.code, (first.message, *blocked_details(first))
    names = some([one.model for one in blocked], LINES_SHOWN)
    return count_of(len(blocked), "model"), replicas, first.code, (names, *reasons)


def drift_table(drift: Sequence[Drift], surplus: Set[str], title: str = "Drift") -> Table:
    """Return the running replicas that do not match the file; `surplus` = models with more replicas than wanted."""
    rows = [(replica_name(one.model, one.replica_id), one.code, (one.message, *(one.changes or ()))) for one in drift]
    replaceable = next((one for one in drift if is_replaceable(one, surplus)), None)
    note = f"to replace an outdated one: {replace_command(replaceable)}" if replaceable else ""
    return Table("drift", title, (REPLICA, CODE, WHY), tuple(rows), folded=True, rank=4,
                 meaning="reported, never acted on", note=note, line="{replica}: {message}", most=LINES_SHOWN)


def is_replaceable(drift: Drift, surplus: Set[str]) -> bool:
    """Return whether an apply would start a new replica in its place if it ended."""
    return drift.code == OUTDATED and drift.model not in surplus


def replace_command(drift: Drift) -> str:
    """Return the command that replaces the outdated replicas of a model."""
    return f"fleetctl replace {quote(drift.model)} -f FLEET, which starts each new replica first"


def _policy(plan: Plan) -> Table:
    rows = [(finding.code, finding.key, "lifted by --force" if finding.lifted else "refused", finding.message)
            for finding in plan.policy]
    columns = (Column("code", "policy", name=True), Column("key", "key", name=True), Column("verdict", "verdict"), WHY)
    return Table("policy", "Refused by policy" if refusing(plan.policy) else "Policy: lifted by --force", columns,
                 tuple(rows), rank=0, line="{message}", most=LINES_SHOWN,
                 signs=tuple("~" if finding.lifted else "!" for finding in plan.policy))


def _altered_policy(plan: Plan) -> Table:
    rows = [(f"spec.{one.path}", *values_of(one), str(one.new_source or one.old_source or ""))
            for one in altered_policy(plan)]
    columns = (Column("key", "key", name=True), Column("old", "was", name=True), Column("new", "is", name=True),
               Column("place", "where", name=True))
    return Table("alteredPolicy", ALTERED, columns, tuple(rows), rank=0, line="{key}: {old} -> {new} at {place}",
                 signs=("~",) * len(rows), most=LINES_SHOWN)


def _models(plan: Plan) -> tuple[Table, Table]:
    messages = {one.model: (one.message, f"{one.code}{SEE_BELOW}") for one in plan.blocked if one.message}
    changed = [_model(row, messages.get(row.key)) for row in plan.models if sign_of(row) != "="]
    unchanged = [_model(row, messages.get(row.key)) for row in plan.models if sign_of(row) == "="]
    return (Table("model", "Models", MODEL_ROW, tuple(changed), rank=0, redundant=IN_COLUMNS),
            Table("model", f"{plural(len(unchanged), 'model')} with nothing to do", MODEL_ROW, tuple(unchanged),
                  counted=True, rank=0, redundant=IN_COLUMNS))


def _labels(plan: Plan) -> Table:
    labels = sorted({label for row in plan.models for label in row.labels.items()})
    rows = []
    for key, value in labels:
        counted = [row for row in plan.models if row.labels.get(key) == value]
        counts = (sum(getattr(row, column.key) for row in counted) for column in COUNTS)
        rows.append((f"{key}={value}", *map(str, (len(counted), *counts))))
    columns = (Column("label", "label", name=True), Column("models", "models", numeric=True), *COUNTS)
    return Table("label", "By label", columns, tuple(rows), folded=True, rank=5, most=LINES_SHOWN)


def _model(row: ModelRow, blocked: tuple[str, str] | None) -> tuple[Cell, ...]:
    """Return the row of a model; `blocked` = the text with the arithmetic, and the reference that replaces it."""
    reason = row.reason.replace(*blocked) if blocked else row.reason
    return sign_of(row), row.key, *(str(getattr(row, column.key)) for column in COUNTS), reason


def growth_table(growth: Sequence[Growth]) -> Table:
    """Return the new nodes that an apply requests, by type."""
    rows = [(one.name, str(one.nodes), str(one.max), ", ".join(f"{row.count} of {row.model}" for row in one.replicas))
            for one in growth if one.nodes]
    columns = (Column("name", "type", name=True), Column("nodes", "nodes", numeric=True), Column("max", "at most"),
               Column("models", "for", name=True))
    return Table("growth", "New nodes", columns, tuple(rows), rank=2, signs=("+",) * len(rows), most=LINES_SHOWN,
                 line="{name}: {nodes}, at most {max}; for {models}")


def _autoscaler(plan: Plan) -> Table:
    return Table("autoscaler", "The autoscaler", (WHY,), tuple((one,) for one in plan.autoscaler), rank=2,
                 signs=("~",) * len(plan.autoscaler), line="{message}", most=LINES_SHOWN)


def _lost(plan: Plan) -> Table:
    rows = [(replica_name(one.model, one.replica_id), one.message) for one in plan.lost]
    return Table("lost", "Lost", (REPLICA, WHY), tuple(rows), rank=3, meaning="cannot serve, not counted",
                 line="{replica}: {message}", signs=("~",) * len(rows), most=LINES_SHOWN)


def _holds(plan: Plan) -> Table:
    rows = [(hold.model, *map(str, (hold.wanted, hold.live, hold.surplus))) for hold in plan.holds]
    columns = (MODEL, *(Column(key, key, numeric=True) for key in ("wanted", "live", "surplus")))
    return Table("hold", "Held", columns, tuple(rows), folded=True, rank=5,
                 meaning="more replicas run than wanted; all are kept", readers=frozenset({"page", "program"}))


def _unmanaged(plan: Plan) -> Table:
    rows = [(replica_name(one.model, one.replica_id, one.foreign_id), one.state, one.message)
            for one in plan.unmanaged]
    columns = (REPLICA, Column("state", "state", name=True), WHY)
    return Table("unmanaged", "Unmanaged", columns, tuple(rows), folded=True, rank=6,
                 meaning="capacity in use, left alone", line="{replica}: {message}", most=LINES_SHOWN)


def _notes(plan: Plan) -> Table:
    rows = [(note.level, note.code, note.message) for note in plan.notes]
    columns = (Column("level", "level", name=True), CODE, WHY)
    return Table("note", "Notes on nodes", columns, tuple(rows), folded=True, rank=6, line="{message}",
                 signs=tuple("~" if note.level == "warning" else "" for note in plan.notes), most=LINES_SHOWN)
