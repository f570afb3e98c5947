"""Policy: the limits that the fleet file sets for one plan. It checks a plan and never changes it.

There are thresholds (maxNewReplicas, maxNewGpus, maxChangePercent), which --force lifts, and rules (protectedModels,
allowedSelectors), which no flag lifts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleetctl.documents.fleet import matches_pattern
from fleetctl.documents.names import flag_with
from fleetctl.documents.plan import PolicyFinding
from fleetctl.documents.position import Position
from fleetctl.documents.quantity import amount_of, count_of, format_share
from fleetctl.documents.selector import parse_requirement
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel

MIN_LIVE_FOR_PERCENT = 10
"""With fewer live replicas a percentage means little: one more beside three is 33 %, and a new fleet has none.

octoDNS draws the same line at 10 records (`MIN_EXISTING_RECORDS` in its `provider/plan.py`).
"""

HOW_TO_LIFT = "--force lifts it for this run"
NOT_LIFTED = "no flag lifts this"
NOTHING_TO_DO = 0
CHANGES = 2
PARTIAL = 3
REFUSED = 4


@dataclass(frozen=True, slots=True)
class Doing:
    """What a plan does: new replicas by model key, their total GPUs in 1/10000, and the number of live replicas.

    Replicas that wait for new nodes count as new, so that the same limits apply to new nodes; `waiting` = their number.
    """

    created: Mapping[str, int]
    waiting: int
    new_gpus: int
    live: int


def policy_findings(fleet: ResolvedFleet, doing: Doing, *, force: bool) -> list[PolicyFinding]:
    """Return a finding for each policy of `fleet` that the plan would break; `force` lifts thresholds.

    Findings that refuse the plan come before lifted ones, thresholds before rules.
    """
    acted_on = [model for model in fleet.models if doing.created.get(model.key)]
    findings = list(_thresholds(fleet, doing, force=force))
    if fleet.policy.protected_models:
        findings += _protected(fleet, doing, acted_on)
    if fleet.policy.allowed_selectors is not None:
        findings += _selectors(fleet, acted_on, fleet.policy.allowed_selectors)
    return sorted(findings, key=lambda finding: finding.lifted)


def refusing(findings: Sequence[PolicyFinding], *, force: bool = False) -> list[PolicyFinding]:
    """Return the findings that forbid a plan; with `force` only those that it does not lift."""
    return [finding for finding in findings if not finding.lifted and not (force and finding.liftable)]


def protecting(patterns: Sequence[str], key: str) -> str | None:
    """Return the entry of `protectedModels` that names `key`: the key itself, or a pattern; see `matches_pattern`."""
    return next((pattern for pattern in patterns if matches_pattern(pattern, key)), None)


def protection_of(fleet: ResolvedFleet, key: str) -> str | None:
    """Return the entry of the policy that protects a model, with its place in the file; None = nothing does."""
    patterns = fleet.policy.protected_models
    pattern = protecting(patterns, key)
    return None if pattern is None else policy_at(fleet, "protectedModels", pattern, patterns.index(pattern))


def policy_at(fleet: ResolvedFleet, key: str, value: str, entry: int | str | None = None) -> str:
    """Return a policy with its value and position: `spec.policy.maxNewReplicas: 10 at fleets/prod.yaml:6:21`.

    `entry` = the number or the key of the entry below `key` that is meant; None = all of them.
    """
    position = _position_of(fleet, key, entry)
    return f"spec.policy.{key}: {value}" + (f" at {position}" if position else "")


def _position_of(fleet: ResolvedFleet, key: str, entry: int | str | None) -> Position | None:
    own = None if entry is None else fleet.policy_places.get(f"{key}[{entry}]")
    return own or fleet.policy_places.get(key)


def _thresholds(fleet: ResolvedFleet, doing: Doing, *, force: bool) -> Iterator[PolicyFinding]:
    policy, create = fleet.policy, sum(doing.created.values())
    later = f" ({count_of(doing.waiting, 'replica')} on new nodes)" if doing.waiting else ""
    creates = f"creates {count_of(create, 'replica')}{later}"
    broken: list[tuple[str, str, str, str]] = []
    if policy.max_new_replicas is not None and create > policy.max_new_replicas:
        broken.append(("MAX_NEW_REPLICAS", "maxNewReplicas", str(policy.max_new_replicas), creates))
    if policy.max_new_gpus is not None and doing.new_gpus > policy.max_new_gpus:
        broken.append(("MAX_NEW_GPUS", "maxNewGpus", format_share(policy.max_new_gpus),
                       f"takes {amount_of(doing.new_gpus, 'GPU')}{later}"))
    maximum = policy.max_change_percent
    if maximum is not None and doing.live >= MIN_LIVE_FOR_PERCENT and 100 * create > maximum * doing.live:
        broken.append(("MAX_CHANGE_PERCENT", "maxChangePercent", str(maximum),
                       f"{creates} beside {doing.live} live ones, which is {_percent(create, doing.live)} %"))
    how = "lifted by --force" if force else HOW_TO_LIFT
    for code, key, limit, found in broken:
        yield _finding(fleet, code, key, limit, found, how, liftable=True, lifted=force)


def _protected(fleet: ResolvedFleet, doing: Doing, acted_on: Sequence[ResolvedModel]) -> Iterator[PolicyFinding]:
    for model in acted_on:
        pattern = protecting(fleet.policy.protected_models, model.key)
        if pattern is not None:
            yield _finding(fleet, "PROTECTED_MODEL", "protectedModels", pattern,
                           f"creates {count_of(doing.created[model.key], 'replica')} of {model.key}",
                           f"{NOT_LIFTED}; {flag_with('--exclude', model.key)} plans the rest", model=model.key,
                           entry=fleet.policy.protected_models.index(pattern))


def _selectors(
    fleet: ResolvedFleet, acted_on: Sequence[ResolvedModel], allowed: Mapping[str, Sequence[str]]
) -> Iterator[PolicyFinding]:
    for model in acted_on:
        for key, expression in dict.fromkeys(term for one in model.alternatives for group in one.workers
                                             for member in group.members for term in member.node_selector.items()):
            if key not in allowed:
                limit, found = _listed(sorted(allowed)), f"selects nodes of {model.key} by the label {key}"
            elif allowed[key] and not _within(expression, allowed[key]):
                limit, found = f"{key}: {_listed(allowed[key])}", f"selects nodes of {model.key} by {key}: {expression}"
            else:
                continue
            yield _finding(fleet, "SELECTOR_NOT_ALLOWED", "allowedSelectors", limit, found, NOT_LIFTED, model=model.key,
                           entry=key)


def _within(expression: str, allowed: Collection[str]) -> bool:
    """Return whether a selector can match only allowed values; a negated one could match any other value."""
    wanted = parse_requirement(expression)
    listed = [parse_requirement(value) for value in allowed]
    values = {value for requirement in listed if not requirement.negated for value in requirement.values}
    return wanted in listed or (not wanted.negated and wanted.values <= values)


def _finding(
    fleet: ResolvedFleet, code: str, key: str, limit: str, found: str, how: str, *, model: str | None = None,
    liftable: bool = False, lifted: bool = False, entry: int | str | None = None,
) -> PolicyFinding:
    return PolicyFinding.model_validate({
        "code": code, "key": f"spec.policy.{key}", "model": model, "limit": limit, "found": found,
        "message": f"the plan {found}, against {policy_at(fleet, key, limit, entry)}; {how}",
        "liftable": liftable, "lifted": lifted, "source": _position_of(fleet, key, entry),
    })


def _listed(values: Sequence[str]) -> str:
    return f"[{', '.join(values)}]"


def _percent(part: int, whole: int) -> str:
    """Return a percentage to one decimal, rounded up, so that one over a limit never looks equal to it."""
    tenths = -(-1000 * part // whole)
    return f"{tenths // 10}.{tenths % 10}" if tenths % 10 else str(tenths // 10)


def detailed_exit_code(*, actions: int, blocked: int, refused: int) -> int:
    """Return 4 if a policy refuses the plan, else 3 if anything is blocked, else 2 if there are actions, else 0.

    `refused` = the number of policy findings that are not lifted.
    """
    if refused:
        return REFUSED
    if blocked:
        return PARTIAL
    return CHANGES if actions else NOTHING_TO_DO
