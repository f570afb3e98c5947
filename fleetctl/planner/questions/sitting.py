"""Who sits on which node: every live replica's members, ours and others', and those a plan would add."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleetctl.documents.inventory import (
    LIVE_STATES,
    Gpu,
    Replica,
    ReplicaMember,
    card_indices,
    dead_node_ids,
    is_lost,
)
from fleetctl.documents.placement_map import Holder
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.questions.world import World


@dataclass(frozen=True, slots=True)
class Sitter:
    """One member on one node: whose it is, the GPU share it takes, and on which cards; empty = nobody says."""

    holder: Holder
    model: str
    replica: str
    gpus: int
    cards: tuple[int, ...] = ()

    def shares(self) -> list[int]:
        """Return what it takes card by card: whole cards, then the share below one."""
        whole, part = divmod(self.gpus, SHARE)
        return [SHARE] * whole + ([part] if part else [])


def there_now(world: World) -> list[Replica]:
    """Return the replicas that are live and not lost, ours and others', in a fixed order."""
    dead = dead_node_ids(world.inventory)
    live = (replica for replica in world.inventory.replicas
            if replica.state in LIVE_STATES and not is_lost(replica, dead))
    return sorted(live, key=lambda replica: (replica.model, replica.replica_id or 0, replica.foreign_id or ""))


def holder_of(world: World, replica: Replica) -> Holder:
    """Tell ours from others'; without a fleet whatever carries any fleet's mark is live, and the rest foreign."""
    ours = replica.fleet is not None and replica.fleet in {world.named or replica.fleet, world.adopt_from}
    return "live" if ours else "foreign"


def sitting(world: World) -> dict[str, list[Sitter]]:
    """Return, by node id, everybody who is there now, in a fixed order."""
    cards = {node.id: node.gpus for node in world.inventory.nodes}
    found: dict[str, list[Sitter]] = {}
    for replica in there_now(world):
        holder = holder_of(world, replica)
        for member in replica.members:
            if member.node_id is not None:
                told = _told(member, cards.get(member.node_id, ()))
                sitter = Sitter(holder, replica.model, name_of(replica), member.gpus, told)
                found.setdefault(member.node_id, []).append(sitter)
    return found


def seated(plan: Plan, taken: Iterable[tuple[int, ...]]) -> dict[str, list[Sitter]]:
    """Return, by node id, everybody the plan would add; `taken` = the cards of each member, in order of creation."""
    members = [(action, member) for action in plan.actions for member in action.members]
    found: dict[str, list[Sitter]] = {}
    for (action, member), cards in zip(members, taken, strict=True):
        sitter = Sitter("new", action.model, action.id, member.gpus, cards)
        found.setdefault(member.node_id, []).append(sitter)
    return found


def _told(member: ReplicaMember, cards: Sequence[Gpu]) -> tuple[int, ...]:
    known = card_indices(member, cards)
    return tuple(known) if len(known) * SHARE >= member.gpus else ()


def name_of(replica: Replica) -> str:
    """Return `model/id`, or the actor's own name where it is not in our scheme."""
    return replica.foreign_id or f"{replica.model}/{replica.replica_id}"
