"""Promotion: a new replica that fits where a replica of its model is WARM moves there and takes over its id.

This happens when new replicas get their ids, after packing. It moves nothing else, and takes no more GPUs, so that no
fewer replicas are placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fleetctl.documents.inventory import Replica
from fleetctl.documents.plan import Action
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.live import ModelState, variant_of
from fleetctl.planner.placement.claims import Position, ReplicaShape
from fleetctl.planner.placement.demand import Demand, Option, Placed
from fleetctl.planner.placement.greedy import MovablePacking, take_again
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer, SeatNodes
from fleetctl.planner.weights import members_by_rank

MAX_TRIED = 8
"""New replicas of a model that are tried in the place of one WARM replica."""


class Warm(NamedTuple):
    """A WARM replica with the weights that the file wants, and the node of each of its members.

    It is of one variant, and is promoted to no other. `current` = it also ran with the spec of the file.
    """

    option: Option
    replica_id: int
    current: bool
    seats: SeatNodes


def promoted(
    placed: Sequence[Placed], models: Sequence[ResolvedModel], states: Sequence[ModelState], ledger: Ledger, start: int
) -> list[tuple[Placed, int | None]]:
    """Return the new replicas in order of creation, with the ids of those that are promoted; moves them on the ledger.

    `states` = by place of the model in the file; `start` = the mark of the ledger before any of them was placed.
    """
    demands = {replica.demand.option: replica.demand for replica in placed}
    numbers = {node.id: number for number, node in enumerate(ledger.nodes)}
    warm = [candidate for demand in demands.values()
            for candidate in _warm(models[demand.place], demand, states[demand.place], numbers)]
    if not warm:
        return [(replica, None) for replica in placed]
    ledger.undo(start)
    opening = list(ledger.numbers)
    promotion = _Promotion(take_again(placed, Placer(ledger)), ledger, opening)
    for current in (True, False):
        alike = [candidate for candidate in warm if candidate.current is current]
        for candidate in [candidate for candidate in alike if not promotion.assign_in_place(candidate)]:
            promotion.assign_by_moving(candidate)
    return promotion.result()


def _warm(
    model: ResolvedModel, demand: Demand, state: ModelState, numbers: Mapping[str, int]
) -> Iterator[Warm]:
    """Yield the replicas of a model that may be promoted to what a demand of it asks for."""
    free, wants, shape = state.not_hot_ids, model.alternatives[demand.variant], demand.shape
    ranks = members_by_rank(wants)
    if not ranks:
        return
    weights = {seat.position: ranks[seat.group][seat.rank].weights for seat in shape.seats}
    wanted = {position: needed.index if needed else None for position, needed in weights.items()}
    for replica in sorted(state.not_hot, key=lambda replica: replica.replica_id or 0):
        if replica.replica_id in free and variant_of(model, replica) == demand.variant and is_warm_with(
                replica, wanted) and all(member.node_id in numbers for member in replica.members):
            seats = {(member.group or "", member.copy_index, member.rank): numbers[member.node_id or ""]
                     for member in replica.members}
            yield Warm(demand.option, replica.replica_id or 0, wants.has_spec(replica.spec_hash), seats)


class _Promotion:
    """A packing on the ledger, and the ids of WARM replicas that were assigned to its replicas."""

    def __init__(self, placed: Sequence[Placed], ledger: Ledger, opening: Sequence[int]) -> None:
        self._packing = MovablePacking(ledger, opening, placed)
        self._placer = Placer(ledger)
        self._ids: dict[int, int] = {}

    def assign_in_place(self, warm: Warm) -> bool:
        """Assign its id to a replica that is already placed on its nodes; returns whether there is one."""
        found = next((replica for replica in self._free(warm) if replica.seats == warm.seats), None)
        if found is not None:
            self._ids[id(found)] = warm.replica_id
        return found is not None

    def assign_by_moving(self, warm: Warm) -> None:
        """Move a replica onto its nodes, if one is allowed there and fits, and assign its id to it."""
        free = self._free(warm)
        nodes = set(warm.seats.values())
        free.sort(key=lambda replica: nodes.isdisjoint(replica.nodes))
        for replica in free[:MAX_TRIED]:
            if not _allows(replica.demand.shape, warm.seats, self._packing.ledger):
                continue
            mark = self._packing.ledger.mark()
            lifted = self._packing.lift([replica])
            assignments = self._placer.take_at(replica.demand.shape, warm.seats) if lifted else None
            if assignments is not None and (moved := Placed(replica.demand, assignments)).gpus <= replica.gpus:
                self._packing.accept([replica], [moved])
                self._ids[id(moved)] = warm.replica_id
                return
            self._packing.ledger.undo(mark)

    def result(self) -> list[tuple[Placed, int | None]]:
        """Return the packing with the assigned ids."""
        ids = [self._ids.get(replica) for replica in self._packing.placed]
        return list(zip(self._packing.closed_up(), ids, strict=True))

    def _free(self, warm: Warm) -> list[Placed]:
        """Return the replicas of its model without an id, last one first."""
        return [replica for number, replica in reversed(self._packing.placed.items())
                if replica.demand.option == warm.option and number not in self._ids]


def _allows(shape: ReplicaShape, seats: SeatNodes, ledger: Ledger) -> bool:
    """Return whether selectors, sameLabel and ranksPerNode allow a shape on these nodes."""
    gangs: dict[tuple[str, int], list[int]] = {}
    for seat in shape.seats:
        node = seats[seat.position]
        if node not in ledger.selected(seat.selector):
            return False
        gangs.setdefault((seat.group, seat.copy), []).append(node)
    together = [[node for nodes in gangs.values() for node in nodes]] if shape.as_one else list(gangs.values())
    values = [{ledger.nodes[node].labels.get(shape.same_label) for node in nodes}
              for nodes in together if shape.same_label and len(nodes) > 1]
    ranks = {group.name: group.most_ranks for group in shape.groups}
    return all(max(Counter(nodes).values()) <= ranks[group] for (group, _), nodes in gangs.items()) \
        and all(len(found) == 1 and None not in found for found in values)


def is_warm_with(replica: Replica, wanted: Mapping[Position, str | None]) -> bool:
    """Return whether a replica is WARM and each member has the `wanted` artifact; None = any or none."""
    members = {(member.group or "", member.copy_index, member.rank): member for member in replica.members}
    return replica.level == "WARM" and replica.state == "ALIVE" and members.keys() == wanted.keys() and all(
        artifact is None or ((weights := members[position].weights) is not None and weights.artifact == artifact)
        for position, artifact in wanted.items())


def is_still_warm(action: Action, model: ModelState) -> bool:
    """Return whether the replica with this id has the weights of each planned member in memory, on the same node."""
    nodes = {(member.group, member.copy_index, member.rank): member.node_id for member in action.members}
    wanted = {(member.group, member.copy_index, member.rank): member.weights.artifact if member.weights else None
              for member in action.members}
    return action.replica_id in model.not_hot_ids and any(
        replica.replica_id == action.replica_id and is_warm_with(replica, wanted)
        and all(member.node_id == nodes[member.group or "", member.copy_index, member.rank]
                for member in replica.members)
        for replica in model.not_hot)
