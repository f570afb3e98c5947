"""Expected future demand, for pricing free room: the fleet's models, and more replicas of what already runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from fleetctl.documents.inventory import LIVE_STATES, Inventory
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.live import LiveState
from fleetctl.planner.placement.claims import Claim, GroupShape, MemberShape, ReplicaShape
from fleetctl.planner.placement.worth.expected import Expected


def expect(
    fleet: ResolvedFleet, inventory: Inventory, state: LiveState, shapes: Mapping[str, ReplicaShape]
) -> list[Expected]:
    """Return the models of the file, including those this plan leaves out, and the shapes of all other replicas."""
    ours = [(model, state.models[model.key]) for model in fleet.models]
    models = [Expected(shapes[model.key], found.to_create(model), max(model.replicas, len(found.live)))
              for model, found in ours]
    return [*models, *(Expected(shape, 0, count) for shape, count in Counter(_others(inventory, state)).items())]


def _others(inventory: Inventory, state: LiveState) -> Iterator[ReplicaShape]:
    """Yield the shapes of live replicas that are not of our models; their selectors are unknown."""
    ours = {id(replica) for model in state.models.values() for replica in (*model.live, *model.lost)}
    for replica in inventory.replicas:
        if replica.level == "HOT" and replica.state in LIVE_STATES and id(replica) not in ours:
            yield ReplicaShape("", (GroupShape("", 1, tuple(
                MemberShape(member.role, 1, Claim(member.gpus, member.vram, member.cpus, member.memory), ())
                for member in replica.members)),))
