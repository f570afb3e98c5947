"""Compares what running replicas were started with, as an apply recorded it, with the file now, as `diff` does.

A record has no values of engine environments. They are taken from the file; where the spec hash then differs, all that
is known is that some value of an environment is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from fleetctl.documents.difference import Difference
from fleetctl.documents.fleet import Placement, WorkerGroup
from fleetctl.documents.mask import MASK
from fleetctl.fleetfile.resolve import former_hash, hash_of_shape, shape_as_set
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.importers.authored import authored_workers
from fleetctl.review.compare_model import model_differences
from fleetctl.review.meaning import member_names, members_by_name
from fleetctl.review.source_view import ModelView


class Since(NamedTuple):
    """What has changed since replicas were started. `hidden` = some value of an environment has, or may have, too."""

    differences: list[Difference]
    hidden: bool


def changed_since(shape: Mapping[str, Any], spec_hash: str, model: ResolvedModel) -> Since | None:
    """Compare a recorded shape, which had that spec hash, with the model as the file has it now.

    None where the record is damaged and makes no shape.
    """
    try:
        placement = Placement.model_validate(shape.get("placement", {}))
        workers = tuple(WorkerGroup.model_validate(_unmasked(group, model)) for group in authored_workers(shape))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None
    was = hash_of_shape(shape_as_set(workers, placement))
    old = replace(model, workers=workers, placement=placement, spec_hash=was)
    hidden = spec_hash not in (was, former_hash(workers, placement))
    found = model_differences({model.key: ModelView(old)}, {model.key: ModelView(model)})
    return Since(found.get(model.key, []), hidden)


def _unmasked(group: dict[str, Any], model: ResolvedModel) -> dict[str, Any]:
    """Return a recorded group with the file's values where its own are masked."""
    there = next((one for one in model.workers if one.name == group["name"]), None)
    if there is None:
        return group
    mine = members_by_name(there)
    names = member_names(str(member.get("role", "Standalone")) for member in group["members"])
    members = []
    for name, member in zip(names, group["members"], strict=True):
        engine, env = member["engine"], there.members[mine[name]].engine.env if name in mine else {}
        filled = {key: env[key] if value == MASK and isinstance(env.get(key), str) else value
                  for key, value in engine.get("env", {}).items()}
        members.append({**member, "engine": {**engine, **({"env": filled} if "env" in engine else {})}})
    return {**group, "members": members}
