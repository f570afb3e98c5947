"""A plan as a report: policy violations, the effect of the change alone, a row per model, blocked models and why.

Its tables stand in the order a reviewer reads them; empty ones are omitted. Texts are not escaped yet. The signs: `+`
create, `!` blocked (some replicas may be created too), `~` held, `*` all are live, but some not ready or outdated, `=`
nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from fleetctl.documents.canonical import short_commit
from fleetctl.documents.difference import Difference, PlanChange
from fleetctl.documents.names import command_line
from fleetctl.documents.plan import (
    Action,
    Certificate,
    Drift,
    FileWarning,
    GitFacts,
    Growth,
    ModelRow,
    Plan,
    PlanPrice,
)
from fleetctl.documents.position import Position
from fleetctl.documents.quantity import count_of, format_price, grouped, plural
from fleetctl.planner.options import file_flags
from fleetctl.planner.policy import refusing
from fleetctl.render.replica_text import group_alike, ids_text, replica_name
from fleetctl.render.report.model import (
    CODE,
    MODEL,
    NOT_TERMINAL,
    REPLICA,
    SEE_BELOW,
    TERMINAL,
    WHY,
    Cell,
    Column,
    Finding,
    Report,
    Table,
    Total,
)
from fleetctl.render.report.of_blocked import blocked_details, blocked_tables
from fleetctl.render.report.of_diff import change_tables, revision_text, values_of
from fleetctl.render.report.of_weights import planned_fetches, planned_weights

if TYPE_CHECKING:
    from fleetctl.documents.answers import NewReplica

FLAGS = {"targets": "--target", "excludes": "--exclude", "selector": "--selector", "adopt_from": "--adopt-from",
         "force": "--force"}
LABELS = (
    ("wanted", "wanted"), ("live", "live"), ("create", "to create"), ("blocked", "blocked"), ("hold", "held"),
    ("starting", "starting"), ("restarting", "restarting"), ("outdated", "outdated"), ("drift", "drifting"),
    ("lost", "lost"), ("unmanaged", "unmanaged"),
)
"""The counts of `Plan.summary` and their labels after the number."""
ALWAYS_SHOWN = ("wanted", "live", "create", "blocked")
"""The counts that are shown even if they are zero."""
LEVEL_LABELS = (("promote", "from WARM"), ("after_pilot", "after a pilot"), ("prefetch", "nodes to fetch weights"),
                ("not_ready", "no longer ready"))
"""The counts that most fleets never have."""


def plan_report(plan: Plan) -> Report:
    """Return the report of a plan."""
    totals = [Total(key, label, getattr(plan.summary, key), key not in ALWAYS_SHOWN) for key, label in LABELS]
    totals += [Total(key, label, count) for key, label in LEVEL_LABELS if (count := getattr(plan.summary, key))]
    files = ", ".join(source.path for source in plan.fleet.files)
    revision = f" at {_commit(plan.fleet.git)}" if plan.fleet.git else ""
    observed = f"{plan.inventory.observed_at} from {plan.inventory.source}"
    placement = certificate_sentence(plan.certificate)
    sources = {row.key: row.source for row in plan.models}
    given = ((flag, getattr(plan.options, name)) for name, flag in FLAGS.items())
    options = [(flag, one) for flag, value in given for one in (value if isinstance(value, list) else [value]) if one]
    facts = {
        "fleet": plan.fleet.name,
        "files": files,
        "commit": _commit(plan.fleet.git, branch=True) if plan.fleet.git else "",
        "compared with": revision_text(plan.change.base) if plan.change else "",
        "inventory": observed,
        "namespace": plan.fleet.namespace,
        "options": " ".join(flag if value is True else f"{flag} {value}" for flag, value in options),
        "placement": placement,
        "plan id": plan.plan_id,
        "expires": plan.expires_at or "",
        "made by": f"fleetctl {plan.tool_version}",
    }
    return Report(
        kind="plan",
        identity=f"plan:{plan.fleet.name}",
        fleet=plan.fleet.name,
        title=f"Plan for fleet {plan.fleet.name}",
        heading=(f"Fleet {plan.fleet.name} from {files or 'no file'}{revision}",
                 f"Inventory of {observed}, namespace {plan.fleet.namespace}"),
        facts=tuple((name, text) for name, text in facts.items() if text),
        totals=(*totals, Total("policy", "against policy", len(plan.policy), quiet=True)),
        tables=plan_tables(plan),
        notes=(*([_compared(plan.change)] if plan.change else []), *([placement] if placement else [])),
        conclusion=totals_line(plan),
        findings=(*_errors(plan, sources), *_warnings(plan, sources), *_notices(plan, sources)),
        subjects=tuple(row.key for row in plan.models),
        exit_code=plan.exit_code,
        file=plan.fleet.files[0].path if plan.fleet.files else "")


def totals_line(plan: Plan) -> str:
    """Return the last line: the counts behind the exit code, replicas that are not as wanted, and the promise."""
    summary = plan.summary
    warm = f" ({summary.promote} from WARM)" if summary.promote else ""
    later = f", {summary.after_pilot} after a pilot" if summary.after_pilot else ""
    counts = [f"{summary.create} to create{warm}{later}", *([f"{summary.reload} to reload"] if summary.reload else []),
              f"{summary.blocked} blocked", f"{summary.hold} held"]
    counts += [f"weights onto {count_of(summary.prefetch, 'node')}"] if summary.prefetch else []
    counts += [f"{count} {word}" for word, count in (
        ("starting", summary.starting), ("restarting", summary.restarting), ("no longer ready", summary.not_ready),
        ("outdated", summary.outdated)) if count]
    counts += [f"{plan.new_nodes} to request"] if plan.growth and plan.new_nodes else []
    counts += [f"{plan.nodes_after_pilot} after a pilot"] if plan.growth and plan.nodes_after_pilot else []
    refused = "; refused by policy" if refusing(plan.policy) else ""
    price = price_sentence(plan.price, plan.change) if plan.price else ""
    return f"Plan: {', '.join(counts)}, 0 to remove (fleetctl never removes){refused}{f'. {price}' if price else ''}"


def price_sentence(price: PlanPrice, change: PlanChange | None = None) -> str:
    """Return what a plan adds an hour, how much of it is due to the change, and what the fleet costs then."""
    of_it = [f"{format_price(price.new_nodes)} for new nodes"] if price.new_nodes else []
    if change and change.adds is not None and change.adds != price.adds:
        more = "by the change alone" if change.adds >= 0 else "less than without the change"
        of_it.append(f"{format_price(abs(change.adds))} {more}")
    part = f" ({', '.join(of_it)})" if of_it else ""
    total = f"cost {format_price(price.total)} an hour"
    sentence = (f"Adds {format_price(price.adds)} an hour{part}; the fleet's replicas then {total}"
                if price.adds or part else f"The fleet's replicas {total}")
    return f"{sentence}{without_price(price)}"


def without_price(price: PlanPrice) -> str:
    """Return the end of a sentence about a price: the nodes that are not in it; "" if all are."""
    if not price.unpriced:
        return ""
    names = f" ({', '.join(price.examples)})" if price.unpriced == len(price.examples) else ""
    have = "has" if price.unpriced == 1 else "have"
    return f", without {count_of(price.unpriced, 'node')} that {have} no price{names}"


def certificate_sentence(certificate: Certificate) -> str:
    """Return how many missing replicas were placed, and how many could have been; "" if none is missing."""
    count, one = certificate.wanted, certificate.wanted == 1
    if not count:
        return ""
    if certificate.placed == count:
        which = {1: "the", 2: "both"}.get(count, f"all {count}")
        waiting = _after_pilot(certificate) if certificate.after_pilot else ""
        return f"Places {which} missing replica{'' if one else 's'}{waiting}."
    proven = certificate.status == "optimal"
    if one:
        start = f"The missing replica {'cannot be placed' if proven else 'was not placed'}"
        if certificate.on_new_nodes:
            return f"{start}; it would run on new nodes."
        if certificate.repacked_bound is None:
            return f"{start}."
        return f"{start}; it might fit if running replicas could be moved."
    none_fit = proven and not certificate.placed
    if none_fit:
        sentence = f"None of the {count} missing replicas can be placed"
    else:
        proof = "proven best" if proven else f"at most {certificate.upper_bound} possible"
        sentence = f"Places {certificate.placed or 'none'} of the {count} missing replicas, {proof}"
        sentence += _after_pilot(certificate) if certificate.after_pilot else ""
    if moved := certificate.repacked_bound:
        sentence += f"; at most {moved} if running replicas could be moved"
    if later := certificate.on_new_nodes:
        sentence += f"; {later} {'' if none_fit else 'more '}would run on new nodes"
    return f"{sentence}."


def _after_pilot(certificate: Certificate) -> str:
    """Return the end of a sentence: how many of the placed replicas wait for a pilot."""
    which = "all" if certificate.after_pilot == certificate.placed else str(certificate.after_pilot)
    return f", {which} of them once a pilot is ready"


def _compared(change: PlanChange) -> str:
    since = f"since {revision_text(change.base)}"
    if not change.differences:
        return f"The files have not changed in meaning {since}."
    differences = count_of(len(change.differences), "difference")
    command = f"fleetctl diff {quote(change.base.name)} {file_flags(change.base.files)}"
    return f"{differences} in the files {since}: {command}"


def _commit(git: GitFacts, *, branch: bool = False) -> str:
    on_branch = f" on {git.branch}" if branch and git.branch else ""
    return f"{short_commit(git.commit)}{on_branch}{' with uncommitted changes' if git.dirty else ''}"


def _errors(plan: Plan, sources: Mapping[str, Position | None]) -> Iterator[Finding]:
    for refusal in plan.policy:
        yield Finding("warning" if refusal.lifted else "error", refusal.code, refusal.model or refusal.key,
                      refusal.message, refusal.source)
    for altered in altered_policy(plan) if plan.change else ():
        key, (old, new) = f"spec.{altered.path}", values_of(altered)
        yield Finding("warning", "POLICY_CHANGED", key, f"{ALTERED}: {key}: {old} -> {new}", altered.new_source)
    for blocked in plan.blocked:
        yield Finding("error", blocked.code, blocked.model,
                      f"{count_of(blocked.replicas, 'replica')} blocked: {blocked.message}", sources.get(blocked.model),
                      blocked_details(blocked))


def _warnings(plan: Plan, sources: Mapping[str, Position | None]) -> Iterator[Finding]:
    for warning in sorted(plan.file_warnings, key=lambda one: not one.new):  # annotations are limited: new ones first
        yield Finding("warning", warning.code, warning.model or warning.source.file, warning.message, warning.source,
                      warning_notes(warning))
    for lost in plan.lost:
        yield Finding("warning", "LOST", lost.model, f"replica {lost.replica_id}: {lost.message}",
                      sources.get(lost.model))
    for row in plan.models:
        for count, code, state in ((row.restarting, "RESTARTING", "restarting"),
                                   (row.not_ready, "NO_LONGER_READY", "up but no longer ready")):
            if count:
                message = f"{count_of(count, 'live replica')} {'is' if count == 1 else 'are'} {state}"
                yield Finding("warning", code, row.key, message, row.source)
    surplus = {row.key for row in plan.models if row.surplus}
    for drift in plan.drift:
        command = replace_command(drift.model, plan.options.files)
        fix = (f"to replace it: {command}",) if is_replaceable(drift, surplus) else ()
        yield Finding("warning", drift.code, drift.model, f"replica {drift.replica_id}: {drift.message}",
                      sources.get(drift.model), (*(drift.changes or ()), *fix))


def _notices(plan: Plan, sources: Mapping[str, Position | None]) -> Iterator[Finding]:
    for hold in plan.holds:
        yield Finding("notice", "HELD", hold.model, f"{hold.surplus} beyond the target of {hold.wanted}, kept",
                      sources.get(hold.model))
    for row in plan.models:
        if row.create:
            yield Finding("notice", "CREATE", row.key, f"{count_of(row.create, 'replica')} to create", row.source)
        if row.after_pilot:
            yield Finding("notice", "AFTER_PILOT", row.key, f"{count_of(row.after_pilot, 'replica')} to create once a "
                          "pilot is ready", row.source)
    for row in plan.models:
        if row.fetch:
            yield Finding("notice", "PREFETCH", row.key, f"{count_of(row.fetch, 'node')} to fetch its weights",
                          row.source)
    for item in plan.unmanaged:
        yield Finding("notice", "UNMANAGED", item.model, item.message)
    for note in plan.notes:
        yield Finding(note.level, note.code, note.model or ", ".join(note.nodes), note.message,
                      sources.get(note.model or ""))


COUNTS = tuple(Column(key, key, numeric=True) for key in ("wanted", "live", "create", "blocked"))
MODEL_ROW = (Column("sign", "", name=True), Column("key", "model", name=True), *COUNTS,
             Column("reason", "reason", terminal="beside"))
LINES_SHOWN, PLACES_SHOWN = 20, 200
IN_COLUMNS = "create {create}: {live} of {wanted} live; nothing to do: {live} of {wanted} live"
ALTERED = "This change alters the policy it is judged by"


def plan_tables(plan: Plan) -> tuple[Table, ...]:
    """Return the tables of policy violations, of the change alone, of the models, and of their details."""
    order = {row.key: number for number, row in enumerate(plan.models)}
    starts = sorted(plan.starts, key=lambda action: (order.get(action.model, len(order)), action.replica_id))
    reloads = [(one.id, ", ".join(dict.fromkeys(member.node for member in one.members)),
                f"{one.reload.runs} -> {one.spec_hash}") for one in plan.reloads if one.reload]
    loading = any(member.weights for action in plan.actions for member in action.members)
    reload_row = (REPLICA, Column("nodes", "nodes", name=True), Column("spec", "spec", name=True))
    new_warnings, warnings = (
        [[_file_warnings(plan, new=new)] for new in (True, False)] if plan.file_warnings else ((), ()))
    of_change = list(change_tables(plan.change)) if plan.change else []
    if plan.change and (outdated := plan.outdated):
        replicas, models = count_of(len(outdated), "outdated replica"), count_of(len(set(outdated)), "model")
        row = (f"fleetctl rollout {file_flags(plan.options.files)}",
               f"would replace {replicas} of {models}; no apply does")
        columns = (Column("command", "command", name=True), Column("message", "what it does"))
        of_change.append(Table("rollout", "After the merge", columns, (row,), rank=0, line="`{command}` {message}",
                               signs=("~",)))
    tables = (
        *(_policy(plan) if plan.policy or plan.change else ()), *of_change, *new_warnings, *_models(plan),
        *place_tables(starts), *(_places_after_pilot(plan, order) if plan.after_pilot else ()),
        Table("reload", "Would reload in place", reload_row, tuple(reloads), folded=True, rank=3,
              signs=("*",) * len(reloads), meaning="each keeps serving", line="{replica}: on {nodes}",
              limit=PLACES_SHOWN),
        *((planned_weights([*starts, *plan.reloads]), planned_fetches(plan.prefetches)) if loading else ()),
        *(blocked_tables(plan.blocked) if plan.blocked else ()), *([growth_table(plan.growth)] if plan.growth else ()),
        *warnings, *_beside(plan))
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
    if row.create or row.after_pilot or row.fetch:
        return "+"
    if row.surplus:
        return "~"
    return "*" if row.starting or row.not_ready or row.restarted or row.outdated else "="


def place_tables(actions: Iterable[Action | NewReplica]) -> tuple[Table, ...]:
    """Return the places of new replicas; replicas of one model with the same place share a row.

    If there are many rows, replicas of all models with the same place share a row in a terminal.
    """
    groups = group_alike(actions)
    rows = [(f"{model}/{ids_text(ids)}", f"{place}{' (each)' if len(ids) > 1 else ''}")
            for model, ids, place in groups]
    columns = (Column("replicas", "replicas", name=True), Column("place", "where"))
    full = Table("place", "Would create", columns, tuple(rows), folded=True, rank=3, line="{replicas}: {place}",
                 signs=("+",) * len(rows), limit=PLACES_SHOWN)
    if len(rows) <= LINES_SHOWN:
        return (full,)
    names = grouped((f"{place} (each)", f"{model}/{ids_text(ids)}") for model, ids, place in groups)
    short = [(", ".join(replicas), place) for place, replicas in names.items()]
    return (replace(full, readers=NOT_TERMINAL),
            replace(full, rows=tuple(short), signs=("+",) * len(short), line="{place}: {replicas}", readers=TERMINAL))


def _places_after_pilot(plan: Plan, order: Mapping[str, int]) -> tuple[Table, ...]:
    """Return the places of the new replicas that wait for a pilot."""
    later = sorted(plan.after_pilot, key=lambda action: (order.get(action.model, len(order)), action.replica_id))
    return tuple(replace(table, key="afterPilot", title="Would create once a pilot is ready",
                         note="Where they would run now; planned again then.") for table in place_tables(later))


def drift_table(drift: Sequence[Drift], surplus: Set[str], files: Sequence[str], title: str = "Drift") -> Table:
    """Return the running replicas that do not match the `files`; `surplus` = models with more replicas than wanted."""
    rows = [(replica_name(one.model, one.replica_id), one.code, (one.message, *(one.changes or ()))) for one in drift]
    first, *others = list(dict.fromkeys(one.model for one in drift if is_replaceable(one, surplus))) or [""]
    note = f"to replace an outdated one: {replace_command(first, files)}" if first else ""
    if others:
        note = (f"to replace all outdated ones of {1 + len(others)} models: `fleetctl rollout {file_flags(files)}`, "
                "which starts each new replica first")
    return Table("drift", title, (REPLICA, CODE, WHY), tuple(rows), folded=True, rank=4,
                 meaning="reported, never acted on", note=note, line="{replica}: {message}", limit=LINES_SHOWN)


def is_replaceable(drift: Drift, surplus: Set[str]) -> bool:
    """Return whether an apply would start a new replica in its place if it ended."""
    return drift.is_outdated and drift.model not in surplus


def replace_command(model: str, files: Sequence[str]) -> str:
    """Return the command that replaces the outdated replicas of a model, and how; `files` = those given with -f."""
    return f"`{command_line('fleetctl replace', [model], file_flags(files))}`, which starts each new replica first"


def _policy(plan: Plan) -> tuple[Table, Table]:
    """Return what the policy refuses, and how the change alters the policy."""
    refused = [(finding.code, finding.key, "lifted by --force" if finding.lifted else "refused", finding.message)
               for finding in plan.policy]
    altered = [(f"spec.{one.path}", *values_of(one), str(one.new_source or one.old_source or ""))
               for one in altered_policy(plan)]
    key = Column("key", "key", name=True)
    refused_row = (Column("code", "policy", name=True), key, Column("verdict", "verdict"), WHY)
    altered_row = (key, Column("old", "was", name=True), Column("new", "is", name=True),
                   Column("place", "where", name=True))
    return (
        Table("policy", "Refused by policy" if refusing(plan.policy) else "Policy: lifted by --force", refused_row,
              tuple(refused), rank=0, line="{message}", limit=LINES_SHOWN,
              signs=tuple("~" if finding.lifted else "!" for finding in plan.policy)),
        Table("alteredPolicy", ALTERED, altered_row, tuple(altered), rank=0, line="{key}: {old} -> {new} at {place}",
              signs=("~",) * len(altered), limit=LINES_SHOWN))


def _models(plan: Plan) -> tuple[Table, Table, Table]:
    """Return the models, those with nothing to do, and the counts by label."""
    blocked = {one.model: (one.message, f"{one.code}{SEE_BELOW}") for one in plan.blocked if one.message}
    changed, unchanged = list[tuple[Cell, ...]](), list[tuple[Cell, ...]]()
    for row in plan.models:
        sign = sign_of(row)
        # a table below has the arithmetic
        reason = row.reason.replace(*blocked[row.key]) if row.key in blocked else row.reason
        (unchanged if sign == "=" else changed).append(
            (sign, row.key, *(str(getattr(row, column.key)) for column in COUNTS), reason))
    labeled = []
    for key, value in sorted({label for row in plan.models for label in row.labels.items()}):
        counted = [row for row in plan.models if row.labels.get(key) == value]
        counts = (sum(getattr(row, column.key) for row in counted) for column in COUNTS)
        labeled.append((f"{key}={value}", *map(str, (len(counted), *counts))))
    label_row = (Column("label", "label", name=True), Column("models", "models", numeric=True), *COUNTS)
    return (Table("model", "Models", MODEL_ROW, tuple(changed), rank=0, redundant=IN_COLUMNS),
            Table("model", f"{plural(len(unchanged), 'model')} with nothing to do", MODEL_ROW, tuple(unchanged),
                  counted=True, rank=0, redundant=IN_COLUMNS),
            Table("label", "By label", label_row, tuple(labeled), folded=True, rank=5, limit=LINES_SHOWN))


def growth_table(growth: Sequence[Growth]) -> Table:
    """Return the new nodes that an apply requests, by type; some of them once a pilot is ready."""
    needed = [one for one in growth if one.in_all]
    later = any(one.after_pilot for one in needed)
    priced = any(one.price is not None for one in needed)
    rows = [(one.name, str(one.nodes), *([str(one.after_pilot)] if later else []), str(one.max),
             ", ".join(f"{row.count} of {row.model}" for row in one.replicas),
             *(["?" if one.price is None else format_price(one.price)] if priced else [])) for one in needed]
    columns = (Column("name", "type", name=True), Column("nodes", "nodes", numeric=True),
               *([Column("later", "after a pilot")] if later else []), Column("max", "at most"),
               Column("models", "for", name=True), *([Column("price", "an hour each")] if priced else []))
    line = "{name}: {nodes}" + (", {later} more once a pilot is ready" if later else "")
    line += ", at most {max}; for {models}" + ("; {price} an hour each" if priced else "")
    return Table("growth", "New nodes", columns, tuple(rows), rank=2, signs=("+",) * len(rows), limit=LINES_SHOWN,
                 line=line)


def _file_warnings(plan: Plan, *, new: bool) -> Table:
    """Return the warnings about the fleet files: those that the base lacks, or the others."""
    warnings = [warning for warning in plan.file_warnings if warning.new == new]
    of_files, beside = "of the fleet files", ", which the base has, too" if plan.change else ""
    return Table("fileWarning", f"New warnings {of_files}" if new else f"Warnings {of_files}{beside}",
                 (Column("place", "place", name=True), CODE, Column("message", "what")),
                 tuple((str(one.source), one.code, (one.message, *warning_notes(one))) for one in warnings),
                 folded=bool(beside) and not new, rank=1 if new else 4, line="{place}: {code}: {message}",
                 signs=("~",) * len(warnings), limit=LINES_SHOWN)


def warning_notes(warning: FileWarning) -> tuple[str, ...]:
    """Return what is allowed instead and the nearest spelling, as far as they are known."""
    return (*([f"allowed: {warning.allowed}"] if warning.allowed else []),
            *([f"did you mean {warning.suggestion}?"] if warning.suggestion else []))


def _beside(plan: Plan) -> tuple[Table, ...]:
    """Return what the plan reports and does not act on."""
    lost = [(replica_name(one.model, one.replica_id), one.message) for one in plan.lost]
    holds = [(hold.model, *map(str, (hold.wanted, hold.live, hold.surplus))) for hold in plan.holds]
    unmanaged = [(replica_name(one.model, one.replica_id, one.foreign_id), one.state, one.message)
                 for one in plan.unmanaged]
    large = [(note.model, note.message) for note in plan.notes if note.model]
    notes = [note for note in plan.notes if not note.model]
    return (
        Table("memory", "May not fit on the cards", (MODEL, WHY), tuple(large), rank=2,
              signs=("~",) * len(large), line="{model} {message}", limit=LINES_SHOWN),
        Table("autoscaler", "The autoscaler", (WHY,), tuple((one,) for one in plan.autoscaler), rank=2,
              signs=("~",) * len(plan.autoscaler), line="{message}", limit=LINES_SHOWN),
        Table("lost", "Lost", (REPLICA, WHY), tuple(lost), rank=3, meaning="cannot serve, not counted",
              line="{replica}: {message}", signs=("~",) * len(lost), limit=LINES_SHOWN),
        drift_table(plan.drift, {row.key for row in plan.models if row.surplus}, plan.options.files),
        Table("hold", "Held", (MODEL, *(Column(key, key, numeric=True) for key in ("wanted", "live", "surplus"))),
              tuple(holds), folded=True, rank=5, meaning="more replicas run than wanted; all are kept",
              readers=NOT_TERMINAL),
        Table("unmanaged", "Unmanaged", (REPLICA, Column("state", "state", name=True), WHY), tuple(unmanaged),
              folded=True, rank=6, meaning="capacity in use, left alone", line="{replica}: {message}",
              limit=LINES_SHOWN),
        Table("note", "Notes on nodes", (Column("level", "level", name=True), CODE, WHY),
              tuple((note.level, note.code, note.message) for note in notes), folded=True,
              rank=6, line="{message}", signs=tuple("~" if note.level == "warning" else "" for note in notes),
              limit=LINES_SHOWN))
