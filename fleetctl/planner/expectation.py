"""What is expected of a cluster beside what a plan places: the fleet's other models, and more of what runs."""

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
    """Return the models of the file, also those that this plan leaves out, and whatever else runs, by shape."""
    ours = [(model, state.models[model.key]) for model in fleet.models]
    models = [Expected(shapes[model.key], found.to_create(model), max(model.replicas, len(found.live)))
              for model, found in ours]
    return [*models, *(Expected(shape, 0, count) for shape, count in Counter(_others(inventory, state)).items())]


def _others(inventory: Inventory, state: LiveState) -> Iterator[ReplicaShape]:
    """Yield the shapes of live replicas that are not models of ours; where they may go is not known."""
    ours = {id(replica) for model in state.models.values() for replica in (*model.live, *model.lost)}
    for replica in inventory.replicas:
        if replica.level == "HOT" and replica.state in LIVE_STATES and id(replica) not in ours:
            yield ReplicaShape("", (GroupShape("", 1, tuple(
                MemberShape(member.role, 1, Claim(member.gpus, member.vram, member.cpus, member.memory), ())
                for member in replica.members)),))
