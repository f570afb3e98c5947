"""What a replica claims: the claim of each member, and the shape of a whole replica.

Shapes stay compact (a Worker of `count` 500 is one entry) until a replica is placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.documents.fleet import Member, NodePolicy, SameLabel, WorkerGroup
from fleetctl.documents.inventory import Node
from fleetctl.documents.quantity import AUTO, SHARE
from fleetctl.fleetfile.resolved import ResolvedModel

if TYPE_CHECKING:
    from fleetctl.documents.model import Description
    from fleetctl.planner.placement.card_use import SeenCards


class Selector(NamedTuple):
    """The nodes that a member may be on: those with all of these labels, except `without` (ids, sorted)."""

    labels: tuple[tuple[str, str], ...] = ()
    """Label keys, each with Ray's expression for its value."""
    without: tuple[str, ...] = ()
    least_card: int = 0
    """The bytes that the node's largest card must have, where they are known: smaller ones cannot hold the model."""


ANY_NODE = Selector()


class Avoided(NamedTuple):
    """A node that a model avoids although its labels allow it: the reason code, and what the node would have to be."""

    node_id: str
    code: str
    need: str
    """As `a node that is not cooling`."""


class Claim(NamedTuple):
    """What one member takes on its node: `gpus`, `cpus` in 1/10000, `vram` in bytes per card, `memory` in bytes."""

    gpus: int = 0
    vram: int = 0
    cpus: int = 0
    memory: int = 0

    @property
    def wants_card(self) -> bool:
        """Whether this claim needs any card."""
        return bool(self.gpus or self.vram)

    @property
    def whole_cards(self) -> int:
        """The number of whole cards; 0 for a share of one card."""
        return self.gpus // SHARE

    def share_on(self, memory: int) -> int:
        """The share of a card of `memory` bytes; a whole card for a claim on memory if that is unknown."""
        if self.gpus or not self.vram:
            return self.gpus
        return min(SHARE, -(-self.vram * SHARE // memory)) if memory else SHARE

    @property
    def on_cards(self) -> Claim:
        """The part of this claim that is on cards."""
        return Claim(self.gpus, self.vram)


Kind = tuple[Claim, Selector]
"""What distinguishes members when placing them."""
Position = tuple[str, int, int]
"""Group, copy and rank of a member."""


class Spread(NamedTuple):
    """The label over whose values a model's replicas are spread; at most `most` may touch one value, None = no limit.

    A replica touches the value of each node that it has a member on.
    """

    label: str
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Seat:
    """One member of one replica, before a node is chosen for it."""

    group: str
    copy: int
    role: str
    rank: int
    claim: Claim
    selector: Selector

    @property
    def position(self) -> Position:
        """Its position within the replica."""
        return self.group, self.copy, self.rank

    @property
    def kind(self) -> Kind:
        """What distinguishes it from other members when placing it."""
        return self.claim, self.selector


@dataclass(frozen=True, slots=True)
class MemberShape:
    """`count` equal members of one group."""

    role: str
    count: int
    claim: Claim
    selector: Selector


@dataclass(frozen=True, slots=True)
class GroupShape:
    """One worker group; `members` in rank order: the leader first, then the Workers in file order.

    `most_ranks` = of one gang on a node: those of the file, or 1 if Ray may put two ranks on one card.
    """

    name: str
    copies: int
    members: tuple[MemberShape, ...]
    most_ranks: int = 1

    @property
    def size(self) -> int:
        """The number of ranks in one copy."""
        return sum(member.count for member in self.members)

    def seats(self, copy: int) -> Iterator[Seat]:
        """Yield the seats of one copy, in rank order."""
        rank = 0
        for member in self.members:
            for _ in range(member.count):
                yield Seat(self.name, copy, member.role, rank, member.claim, member.selector)
                rank += 1

    def classes(self) -> dict[Kind, int]:
        """Return the number of ranks of each kind in one copy."""
        counts = Counter[Kind]()
        for member in self.members:
            counts[member.claim, member.selector] += member.count
        return counts


@dataclass(frozen=True)
class ReplicaShape:
    """One replica of a model: its groups and their geometry."""

    key: str
    groups: tuple[GroupShape, ...]
    same_label: str | None = None
    ranks_per_node: int = 1
    spread: Spread | None = None
    as_one: bool = False
    """All members share one value of `same_label`; False = each gang has a value of its own."""
    avoided: tuple[Avoided, ...] = ()
    """Nodes that none of its members may be on; their selectors are without them."""
    described: ResolvedModel | None = field(default=None, compare=False)
    """The model, if the file says what it takes on a card: for the reasons, which tell more than `least_card`."""

    @cached_property
    def seats(self) -> tuple[Seat, ...]:
        """All seats of one replica: groups in file order, copies, ranks."""
        return tuple(seat for group in self.groups for copy in range(group.copies) for seat in group.seats(copy))

    @cached_property
    def kinds(self) -> Mapping[Kind, int]:
        """The number of members of each kind in one replica."""
        counts = Counter[Kind]()
        for group in self.groups:
            for kind, count in group.classes().items():
                counts[kind] += count * group.copies
        return counts

    @cached_property
    def size(self) -> int:
        """The number of members, without expanding them."""
        return sum(self.kinds.values())

    @cached_property
    def gpu_units(self) -> int:
        """The GPU share of one replica, in 1/10000; members that claim VRAM alone count as 0."""
        return sum(count * claim.gpus for (claim, _), count in self.kinds.items())

    @cached_property
    def most_gpus(self) -> int:
        """The GPU share of its largest member, in 1/10000."""
        return max(claim.gpus for claim, _ in self.kinds)

    @cached_property
    def selectors(self) -> list[Selector]:
        """The selectors of its members, sorted."""
        return sorted({selector for _, selector in self.kinds})

    @cached_property
    def wants_cards(self) -> bool:
        """Whether any member claims GPU or VRAM; such models have no default slot cap."""
        return any(claim.wants_card for claim, _ in self.kinds)

    def avoiding(self, nodes: Iterable[Avoided]) -> ReplicaShape:
        """Return this shape without these nodes: all that places and explains replicas then leaves them out."""
        avoided = tuple(sorted({*self.avoided, *nodes}))
        without = tuple(dict.fromkeys(node.node_id for node in avoided))
        return replace(self, avoided=avoided, groups=tuple(replace(group, members=tuple(
            replace(member, selector=member.selector._replace(without=without)) for member in group.members
        )) for group in self.groups))


def replica_shape(
    model: ResolvedModel, nodes: Iterable[Node] = (), policies: Sequence[NodePolicy] = (), seen: SeenCards | None = None
) -> ReplicaShape:
    """Return the shape of one replica of `model`; `nodes` and their policies tell which share a claim on memory is.

    `seen` = the cards, and what runs there, for models that are described; None = nothing is known of them.
    """
    placement, written = model.placement, model.placement.spread
    groups = tuple(GroupShape(group.name, group.copies, tuple(
        _member_shape(member, member.resources.vram if member.resources.vram != AUTO else
                      _estimated(model, group, member, seen), dedicated=model.dedicated)
        for member in sorted(group.members, key=lambda member: member.role == "Worker"))) for group in model.workers)
    bound = placement.same_label
    if placement.ranks_per_node > 1:
        groups = tuple([group if group.size == 1 or may_share_a_card(group, nodes, policies)
                        else replace(group, most_ranks=placement.ranks_per_node) for group in groups])
    label, as_one = (bound.label, bound.scope == "replica") if isinstance(bound, SameLabel) else (bound, False)
    as_one = as_one and sum(group.copies for group in groups) > 1  # with one gang, both scopes mean the same
    spread = Spread(written) if isinstance(written, str) else (
        None if written is None else Spread(written.label, written.max_per_value))
    shape = ReplicaShape(model.key, groups, label, placement.ranks_per_node, spread, as_one)
    return shape if model.description is None else _for_large_cards(shape, model, model.description, seen)


def _estimated(model: ResolvedModel, group: WorkerGroup, member: Member, seen: SeenCards | None) -> int:
    from fleetctl.planner.placement.card_use import auto_vram  # for models that are described

    return auto_vram(model, group, member, seen)


def _for_large_cards(
    shape: ReplicaShape, model: ResolvedModel, description: Description, seen: SeenCards | None
) -> ReplicaShape:
    """Return the shape of a described model, its members with cards kept off those that certainly cannot hold it."""
    from fleetctl.sizing.groups import least_card_of  # for models that are described

    least = [least_card_of(group, model.key, description) if model.blocks_too_large else 0 for group in model.workers]
    proven = (seen.proven_cards(model)
              if seen is not None and any(0 < size < max(least) for size in seen.present) else {})
    return replace(shape, described=model, groups=tuple(replace(group, members=tuple(
        replace(member, selector=member.selector._replace(
            least_card=min(memory, proven.get(group.name, memory)) if member.claim.wants_card else 0))
        for member in group.members)) for group, memory in zip(shape.groups, least, strict=True)))


def may_share_a_card(group: GroupShape, nodes: Iterable[Node] = (), policies: Iterable[NodePolicy] = ()) -> bool:
    """Return whether two ranks of a gang fit one card together, by their shares alone.

    Ray gives a share to the card with the least left that holds it, so it puts such ranks on one card unless something
    else happens to be there, and at the latest when the gang is restarted after that has gone.
    """
    largest = 0
    if any(member.claim.vram and not member.claim.gpus for member in group.members):
        largest = max([*(card.memory_total or 0 for node in nodes for card in node.gpus),
                       *(policy.gpu_memory or 0 for policy in policies)], default=0)
    shares = [(share, member.count) for member in group.members
              if 0 < (share := member.claim.share_on(largest)) < SHARE]
    smallest = [share for share, count in sorted(shares) for _ in range(min(count, 2))][:2]
    return len(smallest) == 2 and sum(smallest) <= SHARE


def _member_shape(member: Member, vram: int, *, dedicated: bool) -> MemberShape:
    asked = member.resources
    gpus = max(asked.gpus, SHARE) if dedicated and (asked.gpus or vram) else asked.gpus
    claim = Claim(gpus, vram, asked.cpus, asked.memory)
    return MemberShape(member.role, member.count or 1, claim, Selector(tuple(sorted(member.node_selector.items()))))
