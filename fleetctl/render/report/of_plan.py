"""A plan as a report: policy violations, the effect of the change alone, a row per model, blocked models and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote

from fleetctl.documents.difference import PlanChange
from fleetctl.documents.plan import Certificate, GitFacts, Plan
from fleetctl.documents.position import Position
from fleetctl.documents.quantity import count_of
from fleetctl.planner.policy import refusing
from fleetctl.render.difference_text import revision_text, values_of
from fleetctl.render.report.model import Finding, Report, Total
from fleetctl.render.report.plan_tables import (
    ALTERED,
    altered_policy,
    blocked_details,
    is_replaceable,
    plan_tables,
    replace_command,
)

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
    files = " ".join(f"-f {quote(file)}" for file in change.base.files)
    differences = count_of(len(change.differences), "difference")
    return f"{differences} in the files {since}: fleetctl diff {quote(change.base.name)} {files}"


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
        fix = (f"to replace it: {replace_command(drift)}",) if is_replaceable(drift, surplus) else ()
        yield Finding("warning", drift.code, drift.model, f"replica {drift.replica_id}: {drift.message}",
                      places.get(drift.model), (*(drift.changes or ()), *fix))


def _notices(plan: Plan, places: Mapping[str, Position | None]) -> Iterator[Finding]:
    for hold in plan.holds:
        yield Finding("notice", "HELD", hold.model, f"{hold.surplus} beyond the target of {hold.wanted}, kept",
                      places.get(hold.model))
    for row in plan.models:
        if row.create:
            yield Finding("notice", "CREATE", row.key, f"{count_of(row.create, 'replica')} to create", row.source)
    for wanted in plan.prefetches:
        yield Finding("notice", "PREFETCH", wanted.model,
                      f"{count_of(len(wanted.nodes), 'node')} to fetch its weights", places.get(wanted.model))
    for item in plan.unmanaged:
        yield Finding("notice", "UNMANAGED", item.model, item.message)
    for note in plan.notes:
        yield Finding(note.level, note.code, ", ".join(note.nodes), note.message)
