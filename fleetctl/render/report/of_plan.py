"""A plan as a report: policy violations, the effect of the change alone, a row per model, blocked models and why.

Its tables stand in the order a reviewer reads them; empty ones are omitted. Among them why a model is blocked, by node,
and the remedies, one line each. Texts are not escaped yet. The signs: `+` create, `!` blocked (some replicas may be
created too), `~` held, `*` all are live, but some not ready or outdated, `=` nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from fleetctl.documents.difference import Difference, PlanChange
from fleetctl.documents.names import command_line
from fleetctl.documents.plan import (
    Action,
    Addition,
    Blocked,
    Certificate,
    Drift,
    FileWarning,
    GitFacts,
    Growth,
    InTheWay,
    ModelRow,
    Plan,
    Reason,
)
from fleetctl.documents.position import Position
from fleetctl.documents.quantity import amount_of, count_of, grouped, plural, some
from fleetctl.planner.options import file_flags
from fleetctl.planner.policy import refusing
from fleetctl.render.place_text import group_alike, ids_text, replica_name
from fleetctl.render.report.model import EVERYONE, SEE_BELOW, Cell, Column, Finding, Reader, Report, Table, Total
from fleetctl.render.report.of_diff import change_tables, revision_text, values_of
from fleetctl.render.report.of_weights import planned_fetches, planned_weights

if TYPE_CHECKING:
    from fleetctl.documents.answers import NewReplica

COMMIT_SHOWN = 10
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
LEVEL_LABELS = (("promote", "from WARM"), ("prefetch", "nodes to fetch weights"), ("not_ready", "no longer ready"))
"""The counts that most fleets never have."""


def plan_report(plan: Plan) -> Report:
    """Return the report of a plan."""
    totals = [Total(key, label, getattr(plan.summary, key), key not in ALWAYS_SHOWN) for key, label in LABELS]
    totals += [Total(key, label, count) for key, label in LEVEL_LABELS if (count := getattr(plan.summary, key))]
    files = ", ".join(source.path for source in plan.fleet.files)
    revision = f" at {_commit(plan.fleet.git)}" if plan.fleet.git else ""
    observed = f"{plan.inventory.observed_at} from {plan.inventory.source}"
    placement = certificate_sentence(plan.certificate)
    places = {row.key: row.source for row in plan.models}
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
        findings=(*_errors(plan, places), *_warnings(plan, places), *_notices(plan, places)),
        subjects=tuple(row.key for row in plan.models),
        exit_code=plan.exit_code,
        file=plan.fleet.files[0].path if plan.fleet.files else "")


def totals_line(plan: Plan) -> str:
    """Return the last line: the counts behind the exit code, replicas that are not as wanted, and the promise."""
    summary = plan.summary
    warm = f" ({summary.promote} from WARM)" if summary.promote else ""
    counts = [f"{summary.create} to create{warm}", *([f"{summary.reload} to reload"] if summary.reload else []),
              f"{summary.blocked} blocked", f"{summary.hold} held"]
    counts += [f"weights onto {count_of(summary.prefetch, 'node')}"] if summary.prefetch else []
    counts += [f"{count} {word}" for word, count in (
        ("starting", summary.starting), ("restarting", summary.restarting), ("no longer ready", summary.not_ready),
        ("outdated", summary.outdated)) if count]
    counts += [f"{plan.new_nodes} to request"] if plan.new_nodes else []
    refused = "; refused by policy" if refusing(plan.policy) else ""
    return f"Plan: {', '.join(counts)}, 0 to remove (fleetctl never removes){refused}"


def certificate_sentence(certificate: Certificate) -> str:
    """Return how many missing replicas were placed, and how many could have been; "" if none is missing."""
    count, one = certificate.wanted, certificate.wanted == 1
    if not count:
        return ""
    if certificate.placed == count:
        which = {1: "the", 2: "both"}.get(count, f"all {count}")
        return f"Places {which} missing replica{'' if one else 's'}."
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
    if moved := certificate.repacked_bound:
        sentence += f"; at most {moved} if running replicas could be moved"
    if later := certificate.on_new_nodes:
        sentence += f"; {later} {'' if none_fit else 'more '}would run on new nodes"
    return f"{sentence}."


def _compared(change: PlanChange) -> str:
    since = f"since {revision_text(change.base)}"
    if not change.differences:
        return f"The files have not changed in meaning {since}."
    differences = count_of(len(change.differences), "difference")
    command = f"fleetctl diff {quote(change.base.name)} {file_flags(change.base.files)}"
    return f"{differences} in the files {since}: {command}"


def _commit(git: GitFacts, *, branch: bool = False) -> str:
    on_branch = f" on {git.branch}" if branch and git.branch else ""
    return f"{git.commit[:COMMIT_SHOWN]}{on_branch}{' with uncommitted changes' if git.dirty else ''}"


def _errors(plan: Plan, places: Mapping[str, Position | None]) -> Iterator[Finding]:
    for refusal in plan.policy:
        yield Finding("warning" if refusal.lifted else "error", refusal.code, refusal.model or refusal.key,
                      refusal.message, refusal.source)
    for altered in altered_policy(plan):
        key, (old, new) = f"spec.{altered.path}", values_of(altered)
        yield Finding("warning", "POLICY_CHANGED", key, f"{ALTERED}: {key}: {old} -> {new}", altered.new_source)
    for blocked in plan.blocked:
        yield Finding("error", blocked.code, blocked.model,
                      f"{count_of(blocked.replicas, 'replica')} blocked: {blocked.message}", places.get(blocked.model),
                      blocked_details(blocked))


def _warnings(plan: Plan, places: Mapping[str, Position | None]) -> Iterator[Finding]:
    for one in sorted(plan.file_warnings, key=lambda one: not one.new):  # annotations are limited: new ones first
        yield Finding("warning", one.code, one.model or one.source.file, one.message, one.source, warning_notes(one))
    for lost in plan.lost:
        yield Finding("warning", "LOST", lost.model, f"replica {lost.replica_id}: {lost.message}",
                      places.get(lost.model))
    for row in plan.models:
        if row.restarting:
            verb = "is" if row.restarting == 1 else "are"
            yield Finding("warning", "RESTARTING", row.key,
                          f"{count_of(row.restarting, 'live replica')} {verb} restarting", row.source)
        if row.not_ready:
            verb = "is" if row.not_ready == 1 else "are"
            yield Finding("warning", "NO_LONGER_READY", row.key,
                          f"{count_of(row.not_ready, 'live replica')} {verb} up but no longer ready",
                          row.source)
    surplus = {row.key for row in plan.models if row.surplus}
    for drift in plan.drift:
        command = replace_command(drift.model, plan.options.files)
        fix = (f"to replace it: {command}",) if is_replaceable(drift, surplus) else ()
        yield Finding("warning", drift.code, drift.model, f"replica {drift.replica_id}: {drift.message}",
                      places.get(drift.model), (*(drift.changes or ()), *fix))


def _notices(plan: Plan, places: Mapping[str, Position | None]) -> Iterator[Finding]:
    for hold in plan.holds:
        yield Finding("notice", "HELD", hold.model, f"{hold.surplus} beyond the target of {hold.wanted}, kept",
                      places.get(hold.model))
    for row in plan.models:
        if row.create:
            yield Finding("notice", "CREATE", row.key, f"{count_of(row.create, 'replica')} to create", row.source)
    for row in plan.models:
        if row.fetch:
            yield Finding("notice", "PREFETCH", row.key, f"{count_of(row.fetch, 'node')} to fetch its weights",
                          row.source)
    for item in plan.unmanaged:
        yield Finding("notice", "UNMANAGED", item.model, item.message)
    for note in plan.notes:
        yield Finding(note.level, note.code, ", ".join(note.nodes), note.message)


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
    starts = sorted(plan.starts, key=lambda action: (order.get(action.model, len(order)), action.replica_id))
    reloads = [(one.id, ", ".join(dict.fromkeys(member.node for member in one.members)),
                f"{one.reload.runs} -> {one.spec_hash}") for one in plan.reloads if one.reload]
    reload_row = (REPLICA, Column("nodes", "nodes", name=True), Column("spec", "spec", name=True))
    new_warnings, warnings = (
        [[_file_warnings(plan, new=new)] for new in (True, False)] if plan.file_warnings else ((), ()))
    tables = (
        *_policy(plan), *change_tables(plan.change), *_after_merge(plan), *new_warnings, *_models(plan),
        *place_tables(starts),
        Table("reload", "Would reload in place", reload_row, tuple(reloads), folded=True, rank=3,
              signs=("*",) * len(reloads), meaning="each keeps serving", line="{replica}: on {nodes}",
              most=PLACES_SHOWN),
        planned_weights([*starts, *plan.reloads]), planned_fetches(plan.prefetches),
        *blocked_tables(plan.blocked), growth_table(plan.growth), *warnings, *_beside(plan))
    return tuple(table for table in tables if table.rows or table.note)


def _after_merge(plan: Plan) -> tuple[Table, ...]:
    """Return, for a change under review, what a rollout would do after its merge."""
    outdated = outdated_in(plan) if plan.change else []
    if not outdated:
        return ()
    replicas, models = count_of(len(outdated), "outdated replica"), count_of(len(set(outdated)), "model")
    row = (f"fleetctl rollout {file_flags(plan.options.files)}", f"would replace {replicas} of {models}; no apply does")
    return (Table("rollout", "After the merge",
                  (Column("command", "command", name=True), Column("message", "what it does")), (row,), rank=0,
                  line="`{command}` {message}", signs=("~",)),)


def outdated_in(plan: Plan) -> list[str]:
    """Return the model of each outdated replica, of those that the fleet file still wants."""
    wanted = {row.key for row in plan.models if row.wanted}
    return [one.model for one in plan.drift if one.code == OUTDATED and one.model in wanted]


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
                 signs=("+",) * len(rows), most=PLACES_SHOWN)
    if len(rows) <= LINES_SHOWN:
        return (full,)
    names = grouped((f"{place} (each)", f"{model}/{ids_text(ids)}") for model, ids, place in groups)
    short = [(", ".join(replicas), place) for place, replicas in names.items()]
    return (replace(full, readers=NOT_TERMINAL),
            replace(full, rows=tuple(short), signs=("+",) * len(short), line="{place}: {replicas}", readers=TERMINAL))


def blocked_tables(blocked: Sequence[Blocked], title: str = "Blocked") -> tuple[Table, ...]:
    """Return the blocked models with reasons and remedies; in a terminal models with the same reasons share a row."""
    rows = [(one.model, str(one.replicas), one.code, (one.message, *blocked_details(one))) for one in blocked]
    columns = (MODEL, Column("replicas", "replicas", numeric=True), CODE, WHY)
    full = Table("blocked", title, columns, tuple(rows), rank=2, line="{model}: {replicas}, {code}",
                 signs=("!",) * len(rows), most=BLOCKED_SHOWN)
    by_reason = grouped(((one.code, one.message, *blocked_details(one, for_all=False)), (one, row))
                        for one, row in zip(blocked, rows, strict=True))
    short = []
    for (code, *reasons), alike in by_reason.items():
        replicas, names = str(sum(one.replicas for one, _ in alike)), some([one.model for one, _ in alike], LINES_SHOWN)
        short.append(alike[0][1] if len(alike) == 1 else (
            count_of(len(alike), "model"), replicas, code, (names, *reasons)))
    if len(short) == len(rows):
        return (full,)
    return (replace(full, readers=NOT_TERMINAL),
            replace(full, rows=tuple(short), signs=("!",) * len(short), readers=TERMINAL))


def drift_table(drift: Sequence[Drift], surplus: Set[str], files: Sequence[str], title: str = "Drift") -> Table:
    """Return the running replicas that do not match the `files`; `surplus` = models with more replicas than wanted."""
    rows = [(replica_name(one.model, one.replica_id), one.code, (one.message, *(one.changes or ()))) for one in drift]
    first, *others = list(dict.fromkeys(one.model for one in drift if is_replaceable(one, surplus))) or [""]
    note = f"to replace an outdated one: {replace_command(first, files)}" if first else ""
    if others:
        note = (f"to replace all outdated ones of {1 + len(others)} models: `fleetctl rollout {file_flags(files)}`, "
                "which starts each new replica first")
    return Table("drift", title, (REPLICA, CODE, WHY), tuple(rows), folded=True, rank=4,
                 meaning="reported, never acted on", note=note, line="{replica}: {message}", most=LINES_SHOWN)


def is_replaceable(drift: Drift, surplus: Set[str]) -> bool:
    """Return whether an apply would start a new replica in its place if it ended."""
    return drift.code == OUTDATED and drift.model not in surplus


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
              tuple(refused), rank=0, line="{message}", most=LINES_SHOWN,
              signs=tuple("~" if finding.lifted else "!" for finding in plan.policy)),
        Table("alteredPolicy", ALTERED, altered_row, tuple(altered), rank=0, line="{key}: {old} -> {new} at {place}",
              signs=("~",) * len(altered), most=LINES_SHOWN))


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
            Table("label", "By label", label_row, tuple(labeled), folded=True, rank=5, most=LINES_SHOWN))


def growth_table(growth: Sequence[Growth]) -> Table:
    """Return the new nodes that an apply requests, by type."""
    rows = [(one.name, str(one.nodes), str(one.max), ", ".join(f"{row.count} of {row.model}" for row in one.replicas))
            for one in growth if one.nodes]
    columns = (Column("name", "type", name=True), Column("nodes", "nodes", numeric=True), Column("max", "at most"),
               Column("models", "for", name=True))
    return Table("growth", "New nodes", columns, tuple(rows), rank=2, signs=("+",) * len(rows), most=LINES_SHOWN,
                 line="{name}: {nodes}, at most {max}; for {models}")


def _file_warnings(plan: Plan, *, new: bool) -> Table:
    """Return the warnings about the fleet files: those that the base lacks, or the others."""
    found = [one for one in plan.file_warnings if one.new == new]
    of_files, beside = "of the fleet files", ", which the base has, too" if plan.change else ""
    return Table("fileWarning", f"New warnings {of_files}" if new else f"Warnings {of_files}{beside}",
                 (Column("place", "place", name=True), CODE, Column("message", "what")),
                 tuple((str(one.source), one.code, (one.message, *warning_notes(one))) for one in found),
                 folded=bool(beside) and not new, rank=1 if new else 4, line="{place}: {code}: {message}",
                 signs=("~",) * len(found), most=LINES_SHOWN)


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
    notes = [(note.level, note.code, note.message) for note in plan.notes]
    return (
        Table("autoscaler", "The autoscaler", (WHY,), tuple((one,) for one in plan.autoscaler), rank=2,
              signs=("~",) * len(plan.autoscaler), line="{message}", most=LINES_SHOWN),
        Table("lost", "Lost", (REPLICA, WHY), tuple(lost), rank=3, meaning="cannot serve, not counted",
              line="{replica}: {message}", signs=("~",) * len(lost), most=LINES_SHOWN),
        drift_table(plan.drift, {row.key for row in plan.models if row.surplus}, plan.options.files),
        Table("hold", "Held", (MODEL, *(Column(key, key, numeric=True) for key in ("wanted", "live", "surplus"))),
              tuple(holds), folded=True, rank=5, meaning="more replicas run than wanted; all are kept",
              readers=NOT_TERMINAL),
        Table("unmanaged", "Unmanaged", (REPLICA, Column("state", "state", name=True), WHY), tuple(unmanaged),
              folded=True, rank=6, meaning="capacity in use, left alone", line="{replica}: {message}",
              most=LINES_SHOWN),
        Table("note", "Notes on nodes", (Column("level", "level", name=True), CODE, WHY), tuple(notes), folded=True,
              rank=6, line="{message}", signs=tuple("~" if note.level == "warning" else "" for note in plan.notes),
              most=LINES_SHOWN))


def blocked_details(blocked: Blocked, *, for_all: bool = True) -> tuple[str, ...]:
    """Return the reasons and the remedies of a blocked model, one line each.

    Without `for_all` the remedies are for one replica, not for all blocked replicas.
    """
    reasons = (_reason(reason, blocked.message) for reason in blocked.reasons if reason.node_count)
    return (*reasons, *remedy_lines(blocked, for_all=for_all))


def _reason(reason: Reason, message: str) -> str:
    """Return one reason, with its arithmetic unless `message` already has it."""
    parts = [reason.code]
    if not (reason.need and reason.need in message and reason.best in message):
        amounts = (("need", reason.need), ("best", reason.best), ("short", reason.short))
        parts += [f"{word} {value}" for word, value in amounts if value and value != "none"]
    rest = reason.node_count - len(reason.examples)
    examples = ", ".join(reason.examples) + (f" and {rest} more" if reason.examples and rest > 0 else "")
    return f"{count_of(reason.node_count, 'node')}: {', '.join(parts)}" + (f" ({examples})" if examples else "")


def remedy_lines(blocked: Blocked, *, for_all: bool = True) -> Iterator[str]:
    """Yield the remedies of a blocked model, one line each."""
    if blocked.would_fit:
        added = " and ".join(_addition(one, one.nodes, one.estimated) for one in blocked.would_fit if one.nodes)
        yield f"would fit with {added}{_for_all(blocked) if for_all else ''}"
    if blocked.make_room:
        gone = some([_replica(one) for one in blocked.make_room])
        nodes = list(dict.fromkeys(node for one in blocked.make_room for node in one.nodes))
        freed = sum(one.frees for one in blocked.make_room)
        amount = f"{amount_of(freed, 'GPU')} on" if freed else "on"
        yield f"would fit without {gone}: {amount} {some(nodes)} (fleetctl removes nothing)"
    if blocked.no_remedy:
        yield blocked.no_remedy


def _addition(one: Addition, nodes: int, estimated: bool) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in one.labels.items())
    shape = f"at least {one.shape}" if one.like is None else f"{one.shape}, like {one.like}"
    count = f"{'about ' if estimated else ''}{count_of(nodes, 'more node')}"
    shared = f" with one value of {one.one_value_of}" if one.one_value_of else ""
    return f"{count} ({shape})" + (f" labeled {labels}" if labels else "") + shared


def _for_all(blocked: Blocked) -> str:
    if blocked.replicas == 1 or not any(one.nodes_for_all for one in blocked.would_fit):
        return ""
    all_replicas = "both" if blocked.replicas == 2 else f"all {blocked.replicas}"
    shapes_named = all(one.nodes for one in blocked.would_fit)  # earlier in the line; numbers are enough here
    return f"; {all_replicas} with " + " and ".join(
        f"{'about ' if one.estimated_for_all else ''}{one.nodes_for_all}" if shapes_named
        else _addition(one, one.nodes_for_all, one.estimated_for_all) for one in blocked.would_fit if one.nodes_for_all)


def _replica(one: InTheWay) -> str:
    """Name a replica, with notes unless it runs, belongs to this fleet and has no priority."""
    notes = ["not started yet"] if one.planned else []
    if one.surplus:
        notes.append("not in the file" if one.priority is None else "surplus")
    if one.owner == "otherFleet":
        notes.append(f"of fleet {one.fleet}")
    elif one.owner == "foreign":
        notes.append("not managed")
    if one.priority:
        notes.append(f"priority {one.priority}")
    return one.replica + (f" ({', '.join(notes)})" if notes else "")
