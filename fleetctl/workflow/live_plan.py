"""Additions of a running cluster to a plan: newer sums, the specs of outdated replicas, the autoscaler's reports.

The cluster does not keep the spec that a replica was started with; the apply that created it recorded it. The
differences are shown and never saved: the bytes of a plan do not depend on which logs still exist. A record has no
values of engine environments, so they are taken from the file; if the spec hash then differs, some value has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from fleetctl.apply.history import find_recorded
from fleetctl.documents.fleet import Placement, WorkerGroup
from fleetctl.documents.inventory import UNKNOWN_SPEC
from fleetctl.documents.mask import COMMAND_LINE, MASK, masked_words, secrets_in_words
from fleetctl.documents.plan import Drift
from fleetctl.errors import ApplyError, InventoryError
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel, former_hash, hash_of_shape, shape_as_set
from fleetctl.importers.draft import authored_workers
from fleetctl.inventory.autoscaler import autoscaler_news, sums_caught_up
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import Live
from fleetctl.render.report.of_diff import change_text
from fleetctl.review.compare import model_differences
from fleetctl.review.meaning import ModelView, member_names, members_by_name
from fleetctl.workflow.invocation import Invocation
from fleetctl.workflow.planned import Changes, Planned

UNKNOWN_WEIGHTS = "it is reloading, or a reload has failed: its weights are unknown"
NOT_RECORDED = "the spec it was started with is no longer recorded"
SAME = "written differently, with the same meaning"
HIDDEN_ALONE = "engine.env: a value differs (values are not recorded)"
HIDDEN_BESIDE = "engine.env: values may differ, too (they are not recorded)"
OR_SECRETS = "engine.env, or a secret in args"
"""In the two above, the place of the value for an engine with a secret in its arguments."""


def with_answers(invocation: Invocation, source: Live, planned: Planned, plan_again: Callable[[], Planned]) -> Planned:
    """Return the plan with the cluster's answers, made again if a blocked replica may be due to outdated sums."""
    if planned.plan.blocked and sums_caught_up(source.client, planned.inventory, lambda: invocation.say(
            "note", "reading the cluster again: Ray's sums of what is in use are some seconds old")):
        planned = plan_again()
    return replace(planned, changes=look_up_changes(source.client, planned.fleet, planned.plan.drift),
                   autoscaler=autoscaler_news(source.client) if planned.plan.waits_for_nodes else ())


def look_up_changes(client: DashboardClient, fleet: ResolvedFleet, drift: Iterable[Drift]) -> Changes:
    """Return the differences of each outdated spec that runs; asks the cluster only if there is one."""
    models = {model.key: model for model in fleet.models}
    wanted = {(item.model, item.runs): None for item in drift if item.runs is not None and item.model in models}
    known = [spec for spec in wanted if spec[1] != UNKNOWN_SPEC]
    try:
        recorded = find_recorded(client, fleet.name, known) if known else {}
    except (ApplyError, InventoryError) as error:
        return dict.fromkeys(wanted, (f"the spec it was started with could not be looked up: {error.message}",))
    changes = {spec: [NOT_RECORDED] if spec in known else [UNKNOWN_WEIGHTS] for spec in wanted}
    return changes | {spec: changed_since(record.shape, spec[1], models[spec[0]]) for spec, record in recorded.items()}


def changed_since(shape: Mapping[str, Any], spec_hash: str, model: ResolvedModel) -> list[str]:
    """Compare a recorded shape with that spec hash to the model in the file, as `diff` does.

    A damaged record counts as not recorded.
    """
    try:
        placement = Placement.model_validate(shape.get("placement", {}))
        workers = tuple(WorkerGroup.model_validate(_unmasked(group, model)) for group in authored_workers(shape))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return [NOT_RECORDED]
    was = hash_of_shape(shape_as_set(workers, placement))
    old = replace(model, workers=workers, placement=placement, spec_hash=was)
    found = model_differences({model.key: ModelView(old)}, {model.key: ModelView(model)})
    words = [change_text(difference) for difference in found.get(model.key, ())]
    if spec_hash not in (was, former_hash(workers, placement)):
        text = HIDDEN_BESIDE if words else HIDDEN_ALONE
        in_args = any(True for group in model.workers for one in group.members
                      for _ in secrets_in_words([*one.engine.command, *one.engine.args]))
        words.append(text.replace("engine.env", OR_SECRETS) if in_args else text)
    return words or [SAME]


def _unmasked(group: dict[str, Any], model: ResolvedModel) -> dict[str, Any]:
    """Return a recorded group with its masked values replaced by the file's values."""
    current = next((candidate for candidate in model.workers if candidate.name == group["name"]), None)
    if current is None:
        return group
    indices = members_by_name(current)
    names = member_names(str(member.get("role", "Standalone")) for member in group["members"])
    members = []
    for name, member in zip(names, group["members"], strict=True):
        engine, now = member["engine"], current.members[indices[name]].engine if name in indices else None
        env = now.env if now else {}
        filled = {key: env[key] if value == MASK and isinstance(env.get(key), str) else value
                  for key, value in engine.get("env", {}).items()}
        words = _words_unmasked(engine, [*now.command, *now.args]) if now else {}
        members.append({**member, "engine": {**engine, **words, **({"env": filled} if "env" in engine else {})}})
    return {**group, "members": members}


def _words_unmasked(engine: Mapping[str, Any], now: Sequence[str]) -> dict[str, list[str]]:
    """Return the recorded command line, its masked words replaced by the file's: the same word after the same one."""
    shown = masked_words(now)
    known = {(before, masked): word for before, masked, word in zip(["", *shown], shown, now, strict=False)
             if masked != word}
    recorded = [(key, word) for key in COMMAND_LINE for word in engine.get(key, ())]
    found: dict[str, list[str]] = {key: [] for key in COMMAND_LINE if key in engine}
    for (_, before), (key, word) in pairwise([("", ""), *recorded]):
        found[key].append(known.get((before, word), word))
    return found
