"""What running replicas were started with, against what the file says now, in the differences `diff` would tell.

What they were started with is an apply's record of it. Values of engine environments are masked there; they are taken
for the file's, and where the spec hash then says otherwise, that is all that can be told of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fleetctl.documents.difference import Difference
from fleetctl.documents.fleet import Placement, WorkerGroup
from fleetctl.documents.mask import MASK
from fleetctl.documents.position import Path, Position
from fleetctl.fleetfile.resolve import hash_of_shape, shape_as_set
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.importers.authored import authored_workers
from fleetctl.review.compare_model import model_differences
from fleetctl.review.meaning import Steps, seats
from fleetctl.review.written import way_in


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
    return Since(list(model_differences(_Unwritten(old), _Unwritten(model))), hidden=was != spec_hash)


def _unmasked(group: dict[str, Any], model: ResolvedModel) -> dict[str, Any]:
    """Return a recorded group with the file's values where its own are masked."""
    there = next((one for one in model.workers if one.name == group["name"]), None)
    if there is None:
        return group
    mine = seats(there)
    members = []
    for seat, member in _seated(group):
        engine, env = member["engine"], there.members[mine[seat]].engine.env if seat in mine else {}
        filled = {name: env[name] if value == MASK and isinstance(env.get(name), str) else value
                  for name, value in engine.get("env", {}).items()}
        members.append({**member, "engine": {**engine, **({"env": filled} if "env" in engine else {})}})
    return {**group, "members": members}


def _seated(group: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Name the members of a group as `seats` does."""
    named = []
    seen: dict[str, int] = {}
    for member in group["members"]:
        role = str(member.get("role", "Standalone"))
        seen[role] = seen.get(role, 0) + 1
        named.append((role if seen[role] == 1 else f"{role} {seen[role]}", member))
    return named


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """A model of which only the meaning is at hand: each value is spelled the way a person would."""

    model: ResolvedModel

    def named(self, steps: Steps) -> Path | None:
        return way_in(self.model, steps)[1]

    def value(self, steps: Steps) -> Any:  # noqa: ANN401, ARG002  any YAML value; nothing is written
        return None

    def place(self, steps: Steps, item: int | None = None) -> Position:  # noqa: ARG002
        return self.model.source
