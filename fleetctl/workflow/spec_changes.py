"""How outdated replicas differ from the fleet file: the specs that they were started with.

The cluster does not keep the spec that a replica was started with; the apply that created it recorded it. The
differences are shown and never saved: the bytes of a plan do not depend on which logs still exist. A record has no
values of engine environments, so they are taken from the file; if the spec hash then differs, some value has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from fleetctl.inventory.client import DashboardClient
from fleetctl.render.report.of_diff import change_text
from fleetctl.review.compare_models import model_differences
from fleetctl.review.meaning import ModelView, member_names, members_by_name

Changes = Mapping[tuple[str, str], Sequence[str]]
"""Differences in words, by model key and the spec hash of running replicas."""
UNKNOWN_WEIGHTS = "it is reloading, or a reload has failed: its weights are unknown"
NOT_RECORDED = "the spec it was started with is no longer recorded"
SAME = "written differently, with the same meaning"
HIDDEN_ALONE = "engine.env: a value differs (values are not recorded)"
HIDDEN_BESIDE = "engine.env: values may differ, too (they are not recorded)"
OR_SECRETS = "engine.env, or a secret in args"
"""In the two above, where the value is, for an engine with a secret in its arguments."""


def look_up_changes(client: DashboardClient, fleet: ResolvedFleet, drift: Iterable[Drift]) -> Changes:
    """Return the differences of each outdated spec that runs; asks the cluster only if there is one."""
    models = {model.key: model for model in fleet.models}
    wanted = {(item.model, item.runs): compared for item in drift if item.runs is not None and item.model in models
              and (compared := _compared_with(models[item.model], item)) is not None}
    with_hash = [spec for spec in wanted if spec[1] != UNKNOWN_SPEC]
    try:
        recorded = find_recorded(client, fleet.name, with_hash) if with_hash else {}
    except (ApplyError, InventoryError) as error:
        return dict.fromkeys(wanted, (f"the spec it was started with could not be looked up: {error.message}",))
    changes = {spec: [NOT_RECORDED] if spec in with_hash else [UNKNOWN_WEIGHTS] for spec in wanted}
    return changes | {spec: changed_since(record.shape, spec[1], wanted[spec]) for spec, record in recorded.items()}


def _compared_with(model: ResolvedModel, item: Drift) -> ResolvedModel | None:
    """Return the variant of the file that an outdated replica is compared with; of a model without variants, itself.

    None = its variant has left the file: any other one is no former version of it.
    """
    return next((way for way in model.alternatives if way.spec_hash == item.wants), None)


def add_changes(drift: Iterable[Drift], changes: Changes) -> list[Drift]:
    """Return the drift with the differences filled in."""
    return [item.model_copy(update={"changes": list(changes[item.model, item.runs])})
            if item.runs is not None and (item.model, item.runs) in changes else item for item in drift]


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
    old = replace(model, workers=workers, placement=placement, spec_hash=was, variants=())
    differences = model_differences({model.key: ModelView(old)}, {model.key: ModelView(model)})
    words = [change_text(difference) for difference in differences.get(model.key, ())]
    if spec_hash not in (was, former_hash(workers, placement)):
        text = HIDDEN_BESIDE if words else HIDDEN_ALONE
        in_args = any(True for group in model.workers for member in group.members
                      for _ in secrets_in_words([*member.engine.command, *member.engine.args]))
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
    unmasked = {(before, masked): word for before, masked, word in zip(["", *shown], shown, now, strict=False)
                if masked != word}
    recorded = [(key, word) for key in COMMAND_LINE for word in engine.get(key, ())]
    words: dict[str, list[str]] = {key: [] for key in COMMAND_LINE if key in engine}
    for (_, before), (key, word) in pairwise([("", ""), *recorded]):
        words[key].append(unmasked.get((before, word), word))
    return words
