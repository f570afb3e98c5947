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
from fleetctl.planner.live import ModelState
from fleetctl.planner.placement.claims import Position, ReplicaShape
from fleetctl.planner.placement.demand import Placed
from fleetctl.planner.placement.greedy.greedy import Lifts, take_again
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer, SeatNodes
from fleetctl.planner.weights import members_by_rank

MOST_TRIED = 8
"""New replicas of a model that are tried in the place of one WARM replica."""


class Warm(NamedTuple):
    """A WARM replica with the weights that the file wants, and the node of each of its members.

    `current` = it also ran with the spec of the file.
    """

    place: int
    replica_id: int
    current: bool
    seats: SeatNodes


def promoted(
    placed: Sequence[Placed], models: Sequence[ResolvedModel], states: Sequence[ModelState], ledger: Ledger, start: int
) -> list[tuple[Placed, int | None]]:
    """Return the new replicas in order of creation, with the ids of those that are promoted; moves them on the ledger.

    `states` = by place of the model in the file; `start` = the mark of the ledger before any of them was placed.
    """
    shapes = {one.demand.place: one.demand.shape for one in placed}
    numbers = {node.id: number for number, node in enumerate(ledger.nodes)}
    warm = [one for place, shape in shapes.items()
            for one in _warm(models[place], shape, states[place], numbers, place)]
    if not warm:
        return [(one, None) for one in placed]
    ledger.undo(start)
    opening = list(ledger.numbers)
    promotion = _Promotion(take_again(placed, Placer(ledger)), ledger, opening)
    for current in (True, False):
        for one in [one for one in warm if one.current is current and not promotion.assign_in_place(one)]:
            promotion.assign_by_moving(one)
    return promotion.result()


def _warm(
    model: ResolvedModel, shape: ReplicaShape, state: ModelState, numbers: Mapping[str, int], place: int
) -> Iterator[Warm]:
    """Yield the replicas of a model that may be promoted."""
    free = state.not_hot_ids
    ranks = members_by_rank(model)
    if not ranks:
        return
    weights = {seat.position: ranks[seat.group][seat.rank].weights for seat in shape.seats}
    wanted = {position: one.index if one else None for position, one in weights.items()}
    for one in sorted(state.not_hot, key=lambda one: one.replica_id or 0):
        if one.replica_id in free and is_warm_with(one, wanted) and all(
                member.node_id in numbers for member in one.members):
            seats = {(member.group or "", member.copy_index, member.rank): numbers[member.node_id or ""]
                     for member in one.members}
            yield Warm(place, one.replica_id or 0, model.has_spec(one.spec_hash), seats)


class _Promotion:
    """A packing on the ledger, and the ids of WARM replicas that were assigned to its replicas."""

    def __init__(self, placed: Sequence[Placed], ledger: Ledger, opening: Sequence[int]) -> None:
        self._lifts = Lifts(ledger, opening, placed)
        self._placer = Placer(ledger)
        self._ids: dict[int, int] = {}

    def assign_in_place(self, warm: Warm) -> bool:
        """Assign its id to a replica that is already placed on its nodes; returns whether there is one."""
        found = next((one for one in self._free(warm) if one.seats == warm.seats), None)
        if found is not None:
            self._ids[id(found)] = warm.replica_id
        return found is not None

    def assign_by_moving(self, warm: Warm) -> None:
        """Move a replica onto its nodes, if one is allowed there and fits, and assign its id to it."""
        free = self._free(warm)
        nodes = set(warm.seats.values())
        free.sort(key=lambda one: nodes.isdisjoint(one.nodes))
        for one in free[:MOST_TRIED]:
            if not _allows(one.demand.shape, warm.seats, self._lifts.ledger):
                continue
            mark = self._lifts.ledger.mark()
            found = self._placer.take_at(one.demand.shape, warm.seats) if self._lifts.lift([one]) else None
            if found is not None and (moved := Placed(one.demand, found)).gpus <= one.gpus:
                self._lifts.accept([one], [moved])
                self._ids[id(moved)] = warm.replica_id
                return
            self._lifts.ledger.undo(mark)

    def result(self) -> list[tuple[Placed, int | None]]:
        """Return the packing with the assigned ids."""
        ids = [self._ids.get(one) for one in self._lifts.placed]
        return list(zip(self._lifts.closed_up(), ids, strict=True))

    def _free(self, warm: Warm) -> list[Placed]:
        """Return the replicas of its model without an id, last one first."""
        return [one for number, one in reversed(self._lifts.placed.items())
                if one.demand.place == warm.place and number not in self._ids]


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
    most = {group.name: group.most_ranks for group in shape.groups}
    return all(max(Counter(nodes).values()) <= most[group] for (group, _), nodes in gangs.items()) \
        and all(len(found) == 1 and None not in found for found in values)


def is_warm_with(replica: Replica, wanted: Mapping[Position, str | None]) -> bool:
    """Return whether a replica is WARM and each member has the `wanted` artifact; None = any or none."""
    members = {(member.group or "", member.copy_index, member.rank): member for member in replica.members}
    return replica.level == "WARM" and replica.state == "ALIVE" and members.keys() == wanted.keys() and all(
        artifact is None or ((weights := members[position].weights) is not None and weights.artifact == artifact)
        for position, artifact in wanted.items())


def is_still_warm(action: Action, model: ModelState) -> bool:
    """Return whether the replica with this id has the weights of each planned member in memory, on the same node."""
    nodes = {(one.group, one.copy_index, one.rank): one.node_id for one in action.members}
    wanted = {(one.group, one.copy_index, one.rank): one.weights.artifact if one.weights else None
              for one in action.members}
    return action.replica_id in model.not_hot_ids and any(
        one.replica_id == action.replica_id and is_warm_with(one, wanted)
        and all(member.node_id == nodes[member.group or "", member.copy_index, member.rank] for member in one.members)
        for one in model.not_hot)
